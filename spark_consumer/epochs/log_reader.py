"""Reads the epoch log outside the stream: its ends, epochs and structures."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from schemas.access.kafka_security import PROTOCOL_HINT, Refusal
from schemas.errors import LogError
from schemas.wire.log_records import At, EpochChain, LoggedVersion, check_names, read_epoch, read_version
from spark_consumer.epochs.slices import LoggedEpoch
from spark_consumer.rules.config import LogAddress

_PATIENCE = 30.0
_IGNORED = frozenset({KafkaError._PARTITION_EOF})


class LogReader:
    """Reads the epochs and schemas topics as a ``read_committed`` reader; each call is a pass of its own.

    A run has one. What reads at the same time in another thread, such as a display, has its own: a refusal of Kafka's
    is kept for the call in hand.
    """

    def __init__(self, log: LogAddress) -> None:
        self._log = log
        self._refusal = Refusal(log.bootstrap_servers)
        self._settings = {
            "bootstrap.servers": log.bootstrap_servers,
            "error_cb": self._refusal,
            **log.kafka_security.librdkafka(),
            "group.id": f"tailrace-{log.prefix}-lookup",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 0,
            # What is there is there already; the broker must not wait for more.
            "fetch.wait.max.ms": 10,
        }

    def bounds(self) -> tuple[int, int]:
        """The first offset that is kept in the epochs topic, and the one behind the last committed record."""
        with self._consumer() as consumer:
            return self._bounds(consumer, self._log.epochs_topic)

    def first_row_offset(self, partition: int) -> int | None:
        """The first offset kept in a partition of the rows topic; None if Kafka does not say."""
        with self._consumer() as consumer:
            try:
                return self._bounds(consumer, self._log.rows_topic, partition)[0]
            except LogError:
                return None

    def epochs(self, start: int | None = None) -> Iterator[LoggedEpoch]:
        """The epochs from offset ``start`` (default: the first kept) to the end of the log as it is now.

        Raises LogError: TR568 a record that is none, TR551 and TR567 one that does not follow from that before it.
        """
        topic = self._log.epochs_topic
        chain = EpochChain(topic)
        for offset, key, value in self._records(topic, start):
            epoch = read_epoch(value, At(topic, offset), key)
            chain.add(epoch, offset)
            yield LoggedEpoch(epoch, offset)

    def behind(self, offset: int) -> Iterator[LoggedEpoch]:
        """The epochs behind the one at ``offset``, as far as they are kept."""
        return self.epochs(max(offset + 1, self.bounds()[0]))

    def last_epoch(self) -> LoggedEpoch | None:
        """The last committed epoch, None in a log that has not begun. Raises LogError TR555 if all were deleted."""
        low, high = self.bounds()
        # Transaction markers use up offsets, so the last record lies a little before the end.
        step = 8
        while high > low:
            start = max(low, high - step)
            found = deque(self.epochs(start), maxlen=1)
            if found:
                return found[0]
            if start == low:
                break
            step *= 8
        self.refuse_emptied()
        return None

    def refuse_emptied(self) -> None:
        """Of a log without an epoch: raises LogError TR555 unless there never was one."""
        low, _ = self.bounds()
        if low > 0:
            raise LogError(
                "TR555",
                f"topic {self._log.epochs_topic} holds no epoch any more: all up to offset {low} were deleted",
                hint="build the downstream anew from a copy, and keep the topics longer",
            )

    def structures(self, up_to_epoch: int) -> list[LoggedVersion]:
        """All structure versions that hold from an epoch not behind ``up_to_epoch``. Raises LogError TR568."""
        topic = self._log.schemas_topic
        records = self._records(topic, None)
        versions = (read_version(value, At(topic, offset), key) for offset, key, value in records)
        return [version for version in check_names(versions) if version.epoch <= up_to_epoch]

    def tables(self, up_to_epoch: int) -> set[tuple[str, str]]:
        """The upstream's tables that have had rows up to an epoch."""
        return {(version.db, version.table) for version in self.structures(up_to_epoch)}

    def _records(self, topic: str, start: int | None) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of each record."""
        with self._consumer() as consumer:
            _, high = self._bounds(consumer, topic)
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING if start is None else start)])
            deadline = time.monotonic() + _PATIENCE
            while True:
                message = consumer.poll(1.0)
                if message is None:
                    if refusal := self._refusal.error:
                        raise refusal
                    if time.monotonic() > deadline:
                        raise LogError("TR557", f"topic {topic} does not answer", retryable=True)
                    continue
                if error := message.error():
                    if error.code() in _IGNORED:
                        return
                    raise _unreadable(topic, error)
                if message.offset() >= high:
                    return
                deadline = time.monotonic() + _PATIENCE
                yield message.offset(), message.key(), message.value()

    def _bounds(self, consumer: Any, topic: str, partition: int = 0) -> tuple[int, int]:
        place = TopicPartition(topic, partition)
        try:
            low, high = self._refusal.ends(
                lambda seconds: consumer.get_watermark_offsets(place, timeout=seconds),
                _PATIENCE,
                lambda: consumer.poll(0),
            )
        except KafkaException as error:
            raise _unreadable(topic, error.args[0]) from error
        return int(low), int(high)

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        consumer = Consumer(self._settings)
        self._refusal.forget()
        try:
            yield consumer
        finally:
            consumer.close()


def _unreadable(topic: str, error: Any) -> LogError:
    missing = error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)
    return LogError(
        "TR557",
        f"topic {topic} cannot be read: {error.str()}",
        hint="start the producer first: it creates the topics"
        if missing
        else f"check that Kafka runs; {PROTOCOL_HINT}",
        retryable=True,
    )
