"""Reads a topic's committed records from an offset to its end; also the settings of all readers for librdkafka.

Two more readers are in ``spark_consumer.epochs.fetch`` and ``tailrace.reader.log``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from schemas.access.kafka_security import KafkaSecurity, Refusal

#: offset, key and value
Record = tuple[int, bytes | None, bytes | None]
_LOOK = 5.0  # seconds without a record after which Kafka is asked whether it is there
_NO_LEADER_YET = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}


def reader_settings(
    bootstrap_servers: str, security: KafkaSecurity, refusal: Refusal, group: str
) -> dict[str, Any]:
    """Return the settings of every reader: no commits, only committed records, and an explicit start."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "error_cb": refusal,
        **security.librdkafka(),
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "log_level": 0,
    }


class Silent(Exception):
    """Kafka does not answer."""


class Clients:
    """Consumers that answer several questions, one after another: to connect takes longer than most of them."""

    def __init__(self) -> None:
        self._idle: list[tuple[dict[str, Any], Any]] = []

    def take(self, settings: dict[str, Any]) -> Any:
        """Return a consumer with these settings that nobody else uses."""
        for number, (made_with, consumer) in enumerate(self._idle):
            if made_with == settings:
                del self._idle[number]
                return consumer
        return Consumer(settings)

    def give_back(self, settings: dict[str, Any], consumer: Any) -> None:
        """Keep a consumer for the next question."""
        consumer.unassign()
        self._idle.append((settings, consumer))

    def close(self) -> None:
        for _, consumer in self._idle:
            consumer.close()


class CommittedTopic:
    """Reads a topic's committed records inside a ``with`` block.

    Args:
        settings: ``reader_settings``.
        patience: seconds without an answer after which it raises Silent, or KafkaException.
        await_leader: seconds for which a topic that was just created may have no leader.
        fetch_wait: seconds for which the broker may wait for more records.
        clients: where its consumer comes from and is kept afterwards; without, it is one of its own.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        refusal: Refusal,
        patience: float,
        await_leader: float = 0.0,
        fetch_wait: float = 0.01,
        clients: Clients | None = None,
    ) -> None:
        own = {"enable.partition.eof": True, "fetch.wait.max.ms": round(fetch_wait * 1000)}
        self._settings, self._topic, self._refusal = {**settings, **own}, topic, refusal
        self._patience, self._await_leader, self._clients = patience, await_leader, clients
        self._consumer: Any = None

    def __enter__(self) -> CommittedTopic:
        self._refusal.forget()
        take = Consumer if self._clients is None else self._clients.take
        self._consumer = take(self._settings)
        return self

    def __exit__(self, *_: object) -> None:
        if self._clients is not None:
            self._clients.give_back(self._settings, self._consumer)
        else:
            self._consumer.close()

    def bounds(self, partition: int = 0) -> tuple[int, int]:
        """Return the first offset that is kept, and the offset after the last committed record.

        Raises:
            KafkaException: Kafka does not answer; LogError: TR508, it refuses the client.
        """
        place = TopicPartition(self._topic, partition)
        deadline = time.monotonic() + self._await_leader
        while True:
            try:
                low, high = self._refusal.ends(
                    lambda seconds: self._consumer.get_watermark_offsets(place, timeout=seconds),
                    self._patience,
                    lambda: self._consumer.poll(0),
                )
            except KafkaException as error:
                if error.args[0].code() not in _NO_LEADER_YET or time.monotonic() >= deadline:
                    raise
                time.sleep(0.1)
            else:
                return int(low), int(high)

    def partitions(self) -> list[int]:
        """Return the topic's partitions. Raises as ``bounds`` does."""
        found = self._refusal.ends(
            lambda seconds: self._consumer.list_topics(self._topic, timeout=seconds),
            self._patience,
            lambda: self._consumer.poll(0),
        )
        return list(found.topics[self._topic].partitions)

    def follow(self, start: int) -> Callable[[int, float], list[Record]]:
        """Return a function for the records of partition 0 from ``start`` on, as they are committed.

        Each call returns the next ones, at most so many, and waits so many seconds for the first. It raises as
        ``bounds`` does, if Kafka does not answer for a while.
        """
        self._consumer.assign([TopicPartition(self._topic, 0, start)])
        look = time.monotonic() + _LOOK

        def read(most: int, seconds: float) -> list[Record]:
            nonlocal look
            first = self._consumer.poll(seconds)
            if first is None:
                if refusal := self._refusal.error:
                    raise refusal
                if time.monotonic() > look:
                    self.bounds()
                    look = time.monotonic() + _LOOK
                return []
            look = time.monotonic() + _LOOK
            found: list[Record] = []
            for message in (first, *self._consumer.consume(most - 1, 0)):
                if error := message.error():
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                else:
                    found.append((message.offset(), message.key(), message.value()))
            return found

        return read

    def records(self, start: int | None = None) -> Iterator[Record]:
        """Yield the records of partition 0 from ``start`` (default: the first kept) to the present end.

        Raises:
            KafkaException, Silent: Kafka does not return them; LogError: TR508, it refuses the client.
        """
        _, high = self.bounds()
        self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING if start is None else start)])
        deadline = time.monotonic() + self._patience
        while True:
            message = self._consumer.poll(1.0)
            if message is None:
                if refusal := self._refusal.error:
                    raise refusal
                if time.monotonic() > deadline:
                    raise Silent
                continue
            if error := message.error():
                # The end of what this consumer has read before is none.
                if error.code() == KafkaError._PARTITION_EOF:
                    if message.topic() == self._topic and message.offset() >= high:
                        return
                    continue
                raise KafkaException(error)
            if message.topic() != self._topic:
                continue
            if message.offset() >= high:
                return
            deadline = time.monotonic() + self._patience
            yield message.offset(), message.key(), message.value()
