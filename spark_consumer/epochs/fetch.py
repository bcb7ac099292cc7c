"""Reads the records of an offset range from Kafka with librdkafka, mostly in a Python worker.

For speed it is a separate reader beside ``schemas.access.topic``: it keeps its consumer from range to range, fetches
thousands of records at once, and joins divided rows. Spark's Kafka source would read the records in the JVM and pass
each through Arrow and a socket, at twice the CPU of everything else that an executor does with a row
(docs/decisions/0010).
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from zlib_ng.zlib_ng import crc32

from schemas.access.kafka_security import OPEN, KafkaSecurity, Refusal
from schemas.access.topic import reader_settings
from schemas.errors import NOTHING_APPLIED, LogError, Where
from schemas.wire.epoch import OffsetRange
from schemas.wire.log_records import FOREIGN, At
from schemas.wire.rows import LEAST_PART, Joiner

_BATCH = 10_000
_LOOK = 5.0  # seconds without a record after which the partition's end is read
_WAIT = 0.005  # seconds to wait for a batch that is not full because of transaction markers
# Errors from which librdkafka recovers by itself once the broker is back.
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)


class _Connection(NamedTuple):
    reader: TopicReader
    consumer: Any
    refusal: Refusal


# Not in a thread-local variable: after a fork Python frees those of other threads, and librdkafka's objects cannot be
# freed in a process without librdkafka's threads.
_idle: list[_Connection] = []


def _whole_rows(
    messages: list[Any], offset_range: OffsetRange, at: int
) -> tuple[list[bytes], list[bytes]] | None:
    """Return keys and values if these are whole rows of the range, from an offset on: nearly always, and quickly."""
    if not messages or any(map(Message.error, messages)):
        return None
    first, last = messages[0].offset(), messages[-1].offset()
    keys, values = list(map(Message.key, messages)), list(map(Message.value, messages))
    are_whole = (
        at <= first <= last < offset_range.end
        and set(map(Message.partition, messages)) == {offset_range.partition}
        and all(keys)
        and all(values)
        and max(map(len, values)) < LEAST_PART
    )
    return (keys, values) if are_whole else None


class RangeReadError(Exception):
    """An offset range cannot be read."""


class NoResponse(RangeReadError):
    """Kafka does not respond."""


class InvalidRow(RangeReadError):
    """A record is not a row; the message has topic, partition and offset."""


def read_error(error: RangeReadError, where: Where) -> LogError:
    """Return the error for unreadable rows that retention has not deleted."""
    if isinstance(error, InvalidRow):
        return LogError("TR568", str(error), where=where, hint=FOREIGN)
    return LogError(
        "TR557",
        f"rows cannot be read: {error}",
        where=where,
        hint="check that Kafka is running",
        applied=NOTHING_APPLIED,
        retryable=True,
    )


class KeySubset(NamedTuple):
    """One of ``total`` parts of a range's rows; all rows of a key are in the same part.

    Attributes:
        max_rows: the number of rows that the range can have; reading stops at twice as many.
    """

    number: int
    total: int
    max_rows: int | None = None

    def holds(self, key: bytes) -> bool:
        """Whether a key is in the subset."""
        return crc32(key) % self.total == self.number


ALL_KEYS = KeySubset(0, 1)


@dataclass(frozen=True)
class TopicReader:
    """A topic and its connection settings.

    Attributes:
        timeout: the seconds without a record after which reading is given up.
    """

    bootstrap_servers: str
    topic: str
    group: str
    security: KafkaSecurity = OPEN
    timeout: float = 60.0

    def read(
        self, offset_range: OffsetRange, subset: KeySubset = ALL_KEYS, offsets: list[int] | None = None
    ) -> tuple[list[bytes], list[bytes]]:
        """Return keys and values of the committed rows in a range. Its last offset must be that of a committed record.

        Args:
            subset: only the rows of these keys are kept.
            offsets: a list to which the rows' offsets are added; a divided row has the offset of its last part.

        Raises:
            RangeReadError: the rows were deleted, or Kafka is unavailable.
            InvalidRow: a record in the range is not a row.
            LogError: TR508, Kafka refuses the login.
        """
        connection = self._connection()
        try:
            return self._read(connection, offset_range, subset, offsets)
        finally:
            # Records after the range must not be fetched.
            connection.consumer.unassign()
            _idle.append(connection)

    def _read(
        self, connection: _Connection, offset_range: OffsetRange, subset: KeySubset, offsets: list[int] | None
    ) -> tuple[list[bytes], list[bytes]]:
        _, consumer, refusal = connection
        refusal.forget()
        consumer.assign([TopicPartition(self.topic, offset_range.partition, offset_range.start)])
        keys: list[bytes] = []
        values: list[bytes] = []
        joiner = Joiner()
        at, last = offset_range.start, offset_range.end - 1
        deadline = time.monotonic() + self.timeout
        look = time.monotonic() + _LOOK
        while at <= last:
            messages = consumer.consume(min(_BATCH, offset_range.end - at), _WAIT)
            before = at
            try:
                at = self._keep_rows(messages, offset_range, subset, keys, values, offsets, joiner, at)
            except InvalidRow:
                raise
            except RangeReadError:
                self.check_end(offset_range)
                raise
            if at > before:
                deadline = time.monotonic() + self.timeout
                look = time.monotonic() + _LOOK
            elif refused := refusal.error:
                raise refused
            elif time.monotonic() > deadline:
                raise NoResponse(f"{self._place(offset_range)}: no data for {self.timeout:.0f} s")
            elif time.monotonic() > look:
                self.check_end(offset_range)
                look = deadline
        if joiner.incomplete:
            raise InvalidRow(f"{self._place(offset_range)}: the last row is incomplete")
        return keys, values

    def check_end(self, offset_range: OffsetRange) -> None:
        """Raise InvalidRow if the range extends beyond the partition's end, which the producer never commits."""
        # It needs another consumer: for a read_committed one an open transaction is the end.
        settings = self._settings(Refusal(self.bootstrap_servers))
        consumer = Consumer({**settings, "isolation.level": "read_uncommitted"})
        place = TopicPartition(self.topic, offset_range.partition)
        try:
            _, end = consumer.get_watermark_offsets(place, timeout=_LOOK)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                return
            end = 0
        finally:
            consumer.close()
        if offset_range.end > end:
            raise InvalidRow(f"{self._place(offset_range)}: the partition ends at offset {end}")

    def _keep_rows(
        self,
        messages: list[Any],
        offset_range: OffsetRange,
        subset: KeySubset,
        keys: list[bytes],
        values: list[bytes],
        offsets: list[int] | None,
        joiner: Joiner,
        at: int,
    ) -> int:
        """Keep the records of the range; return the offset to continue from."""
        whole = None
        if subset.total == 1 and not joiner.incomplete:
            whole = _whole_rows(messages, offset_range, at)
        if whole is not None:
            keys += whole[0]
            values += whole[1]
            if offsets is not None:
                offsets += map(Message.offset, messages)
            messages, at = [], messages[-1].offset() + 1
        for message in messages:
            if (error := message.error()) is not None:
                if error.retriable() or error.code() in _PASSING:
                    continue
                raise RangeReadError(f"{self._place(offset_range)}: {error.str()}")
            offset = message.offset()
            # Ignore records that were fetched for the range before.
            if message.partition() == offset_range.partition and at <= offset:
                at = offset + 1
                key, value = message.key(), message.value()
                if at <= offset_range.end and not (key and value):
                    raise InvalidRow(f"{self._at(message)}: the record has no {'value' if key else 'key'}")
                if at <= offset_range.end and (subset.total == 1 or subset.holds(key)):
                    if len(value) >= LEAST_PART or joiner.incomplete:
                        value = self._joined(joiner, message)
                        if value is None:
                            continue
                    keys.append(key)
                    values.append(value)
                    if offsets is not None:
                        offsets.append(offset)
        if subset.max_rows is not None and len(keys) > 2 * subset.max_rows + _BATCH:
            raise InvalidRow(
                f"{self._place(offset_range)}: there are more rows than the {subset.max_rows} that its epochs declare"
            )
        return at

    def _joined(self, joiner: Joiner, message: Any) -> bytes | None:
        try:
            return joiner.add(message.value(), message.headers() or ())
        except ValueError as error:
            raise InvalidRow(f"{self._at(message)}: {error}") from error

    def _at(self, message: Any) -> At:
        return At(self.topic, message.offset(), message.partition())

    def _place(self, offset_range: OffsetRange) -> str:
        return f"{self.topic}, partition {offset_range.partition}, offsets {offset_range.start} to {offset_range.end}"

    def _connection(self) -> _Connection:
        """Return one that no other thread uses; those of other topics or settings are given up."""
        with suppress(IndexError):
            while True:
                if (found := _idle.pop()).reader == self:
                    return found
        refusal = Refusal(self.bootstrap_servers)
        consumer = Consumer(
            {
                **self._settings(refusal),
                # Fetch little more than a range, and do not let the broker wait for more records: it answers in order,
                # so the next range would wait too.
                "fetch.message.max.bytes": 4 << 20,
                "queued.max.messages.kbytes": 8 << 10,
                "queued.min.messages": 1_000_000,
                "fetch.queue.backoff.ms": 2,
                "fetch.wait.max.ms": 1,
            }
        )
        return _Connection(self, consumer, refusal)

    def _settings(self, refusal: Refusal) -> dict[str, Any]:
        return reader_settings(self.bootstrap_servers, self.security, refusal, self.group)
