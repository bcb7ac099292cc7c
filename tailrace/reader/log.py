"""Reads the epoch log from Kafka: committed epochs in order, and an epoch's rows in upstream order.

It is a reader of its own beside ``schemas.access.topic``: it can wait at the end of the log for more, and it reads an
epoch's partitions side by side, merged by ``seq``, in bounded memory.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from threading import Event
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from zlib_ng.zlib_ng import crc32

from schemas.access.kafka_security import OPEN, PROTOCOL_HINT, KafkaSecurity, Refusal
from schemas.access.topic import reader_settings
from schemas.errors import LogError, Where
from schemas.wire.epoch import DIGEST_MODULUS, EpochCommitted, OffsetRange, StructureVersion
from schemas.wire.log_records import UNFIT, At, EpochChain, check_rows, missing, no_record, read_epoch
from schemas.wire.rows import Joiner, header_size, key_table, schema_name
from spark_consumer.epochs.epoch_transactions import TransactionReader
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.start import first_epoch, first_kept, first_position
from spark_consumer.rules.config import LogAddress
from tailrace.reader.rows import Image, Row, row_reader

_WAIT = 0.2  # seconds
_TIMEOUT = 60.0  # seconds without a record of a range
_MESSAGES = 500
_LAST = (1 << 63) - 1
# Bytes of a partition's rows that wait for rows of other partitions; the others stay in Kafka.
_HELD_BYTES = 1 << 20

Wanted = Callable[[str, str], bool]
WantedKey = Callable[[Image], bool]


class EpochReader:
    """Reads one prefix's topics as a ``read_committed`` reader without a group: it commits nothing to Kafka.

    Use it as a context manager, from one thread, one iterator of ``rows`` at a time.
    """

    def __init__(self, bootstrap_servers: str, prefix: str, security: KafkaSecurity = OPEN) -> None:
        address = LogAddress(bootstrap_servers, prefix, kafka_security=security)
        self._log = LogReader(address)
        self._transactions_of = TransactionReader(address, self._log)
        self._epochs_topic, self._rows_topic = address.epochs_topic, address.rows_topic
        self._refusal = Refusal(bootstrap_servers)
        self._settings = {
            **reader_settings(bootstrap_servers, security, self._refusal, f"tailrace-{prefix}-reader"),
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "queued.max.messages.kbytes": 8 << 10,
        }
        self._versions: dict[str, StructureVersion] = {}
        self._rows: Any = None

    def __enter__(self) -> EpochReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rows is not None:
            self._rows.close()

    # -- epochs ----------------------------------------------------------------------------------

    def epochs(
        self, start: str = "earliest", *, follow: bool = False, stop: Event | None = None
    ) -> Iterator[EpochCommitted]:
        """Yield the epochs from ``start`` on, without a gap.

        Args:
            start: ``earliest``, the first epoch ever published; ``oldest``, the oldest epoch that Kafka still has;
                ``epoch:N``, ``gtid:SET`` (after this set) or ``time:RFC3339``.
            follow: wait for further epochs at the end of the log.
            stop: set it to end the iteration.

        Raises:
            ConfigError: TR560, invalid ``start``.
            LogError: TR551, an epoch is missing; TR555, the start was deleted; TR557, Kafka cannot be read; TR561, no
                position of the log has this GTID set; TR508, Kafka refuses the login; TR568, a record is not an
                epoch; TR567, an epoch contradicts earlier ones.
        """
        offset, expected = self._begin(start)
        chain = EpochChain(self._epochs_topic)
        consumer = self._consumer()
        try:
            consumer.assign([TopicPartition(self._epochs_topic, 0, offset)])
            while not (stop and stop.is_set()):
                message = consumer.poll(_WAIT)
                if message is None:
                    if refusal := self._refusal.error:
                        raise refusal
                    continue
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF and not follow:
                        return
                    if error.code() != KafkaError._PARTITION_EOF and not error.retriable():
                        raise _unreadable(self._epochs_topic, error)
                    continue
                at = At(self._epochs_topic, message.offset(), message.partition())
                epoch = read_epoch(message.value(), at, message.key())
                if expected is not None and epoch.epoch != expected:
                    raise missing(expected, epoch.epoch)
                expected = None
                chain.add(epoch, at.offset)
                yield epoch
        finally:
            consumer.close()

    def _begin(self, start: str) -> tuple[int, int | None]:
        """Return offset and number of the first epoch; the number is None if any first epoch is accepted."""
        low, _ = self._log.bounds()
        if start == "oldest":
            return low, None
        if start == "earliest":
            # If nothing was deleted yet, the first record is epoch 0, even if it is not written yet.
            return (first_epoch(self._log).offset if low else low), 0
        first = first_kept(self._log)
        if start == f"epoch:{first.record.epoch}":
            return first.offset, first.record.epoch
        # Epochs are read whole, so the first one is the epoch that contains the position.
        begin = first_position(start, self._log, self._transactions_of)
        return max(low, begin.offset + 1), begin.epoch + 1

    def structures(self) -> Sequence[StructureVersion]:
        """Return all structures that the tables have had since the start of the log, deleted epochs included."""
        return self._log.structures(_LAST)

    # -- rows ------------------------------------------------------------------------------------

    def rows(self, epoch: EpochCommitted, wanted: Wanted = lambda db, table: True) -> Iterator[Row]:
        """Yield an epoch's rows in upstream order, read from all its partitions at once in bounded memory.

        Args:
            wanted: returns whether rows of a database's table are wanted.

        Raises:
            LogError: TR552, a row has an unknown structure; TR554, raised after the last row: the rows are not those
                of the epoch's record; TR557, Kafka cannot be read; TR568, a record is not a row.
        """
        check_rows(epoch)
        self._versions |= {version.fingerprint: version for version in epoch.structures}
        ranges = [part for part in epoch.ranges if part.end > part.start]
        if not ranges:
            return
        self._rows = self._rows or self._consumer()
        merge = _Merge(self._rows, self._rows_topic, epoch, ranges, self._refusal)
        self._rows.assign([TopicPartition(self._rows_topic, part.partition, part.start) for part in ranges])
        try:
            yield from merge.rows(
                lambda key, value, *place: self._row(epoch, wanted, None, key, value, *place)
            )
        finally:
            self._rows.unassign()

    def find(
        self, epochs: Sequence[EpochCommitted], wanted: Wanted, wanted_key: WantedKey, stop: Event
    ) -> Iterator[Row]:
        """Yield the rows of a run of epochs that are wanted, in no order, without comparing them with the epochs.

        Args:
            wanted: returns whether rows of a database's table are wanted.
            wanted_key: returns whether rows with a key are wanted; only these are decoded.
            stop: set it to end the search.

        Raises as ``rows`` does, but not TR554.
        """
        parts: dict[int, _Partition] = {}
        for epoch in epochs:
            self._versions |= {version.fingerprint: version for version in epoch.structures}
            for one in (one for one in epoch.ranges if one.end > one.start):
                part = parts.setdefault(one.partition, _Partition(one))
                part.at, part.end = min(part.at, one.start), max(part.end, one.end)
        self._rows = self._rows or self._consumer()
        self._rows.assign(
            [TopicPartition(self._rows_topic, number, part.at) for number, part in parts.items()]
        )
        newest = max(epochs, key=lambda epoch: epoch.epoch)
        try:
            while parts and not stop.is_set():
                first = self._rows.poll(_WAIT)
                if first is None and (refused := self._refusal.error):
                    raise refused
                for message in () if first is None else (first, *self._rows.consume(_MESSAGES, 0)):
                    yield from self._found(message, parts, newest, wanted, wanted_key)
        finally:
            self._rows.unassign()

    def _found(
        self,
        message: Any,
        parts: dict[int, _Partition],
        newest: EpochCommitted,
        wanted: Wanted,
        wanted_key: WantedKey,
    ) -> Iterator[Row]:
        """Yield the row of a message of a search, if it is wanted. Remove a partition that is read to its end."""
        if not _is_record(message, self._rows_topic):
            return
        number, offset = message.partition(), message.offset()
        part = parts.get(number)
        if part is None or not part.at <= offset < part.end:
            return
        part.at = offset + 1
        value = _whole_value(message, part.joiner, At(self._rows_topic, offset, number), newest.epoch)
        if value is not None:
            row = self._row(newest, wanted, wanted_key, message.key(), value, number, offset)
            if row is not None:
                yield row
        if part.at >= part.end:
            del parts[number]

    def _row(
        self,
        epoch: EpochCommitted,
        wanted: Wanted,
        wanted_key: WantedKey | None,
        key: bytes,
        value: bytes,
        partition: int,
        offset: int,
    ) -> Row | None:
        at = At(self._rows_topic, offset, partition)
        try:
            if not wanted(*key_table(key)):
                return None
            name = schema_name(value).hex()
        except UNFIT as error:
            raise no_record(at, "the record holds no row", error, Where(epoch=epoch.epoch)) from error
        if name not in self._versions:
            self._versions |= {v.fingerprint: v for v in self._log.structures(epoch.epoch)}
        if name not in self._versions:
            raise LogError(
                "TR552",
                f"{at}: the row's header {value[: header_size(value)].hex()} names a structure that is not in the log",
                where=Where(epoch=epoch.epoch),
                hint="the rows topic is damaged or was written by something else",
            )
        reader = row_reader(self._versions[name])
        try:
            if wanted_key is not None and not wanted_key(reader.read_key(key)):
                return None
            return reader.read(key, value, partition, offset)
        except UNFIT as error:
            raise no_record(at, "the record holds no row", error, Where(epoch=epoch.epoch)) from error

    def _consumer(self) -> Any:
        self._refusal.forget()
        return Consumer(self._settings)


class _Partition:
    """One partition's range of an epoch: how far it is read, and its rows that wait for other partitions."""

    def __init__(self, part: OffsetRange) -> None:
        self.at, self.end = part.start, part.end
        self.joiner = Joiner()
        self.waiting: deque[tuple[Row, int]] = deque()
        self.held = 0
        self.paused = False


class _Merge:
    """Merges the partitions of one epoch by ``seq``. A partition that runs ahead is paused."""

    def __init__(
        self,
        consumer: Any,
        topic: str,
        epoch: EpochCommitted,
        ranges: list[OffsetRange],
        refusal: Refusal,
    ) -> None:
        self._consumer, self._topic, self._epoch, self._refusal = consumer, topic, epoch, refusal
        self._partitions = {part.partition: _Partition(part) for part in ranges}
        self._heads: list[tuple[int, int]] = []
        # Partitions whose next row is not read yet: no row may be yielded until it is.
        self._open = set(self._partitions)
        self._count = self._digest = 0

    def rows(self, read: Callable[[bytes, bytes, int, int], Row | None]) -> Iterator[Row]:
        deadline = time.monotonic() + _TIMEOUT
        while self._open or self._heads:
            if not self._open:
                yield self._next()
                continue
            # With a time to wait, ``consume`` would wait until it has them all.
            first = self._consumer.poll(_WAIT)
            messages = [first, *self._consumer.consume(_MESSAGES, 0)] if first is not None else []
            if self._take(messages, read):
                deadline = time.monotonic() + _TIMEOUT
            elif refused := self._refusal.error:
                raise refused
            elif time.monotonic() > deadline:
                raise LogError(
                    "TR557",
                    f"{self._topic}: no records for {_TIMEOUT:.0f} s, and rows are missing",
                    where=Where(epoch=self._epoch.epoch),
                    hint="check that Kafka runs and that retention has not deleted the rows",
                    retryable=True,
                )
        found = (self._count, self._digest % DIGEST_MODULUS)
        if found != (self._epoch.rows, self._epoch.digest):
            raise LogError(
                "TR554",
                f"the rows topic does not match epoch {self._epoch.epoch}: it has {found[0]} rows instead"
                f" of {self._epoch.rows}, digest {found[1]} instead of {self._epoch.digest}",
                where=Where(epoch=self._epoch.epoch),
                hint="records were lost or changed; check who else writes to or deletes from the topic",
            )

    def _next(self) -> Row:
        _, number = heapq.heappop(self._heads)
        partition = self._partitions[number]
        row, size = partition.waiting.popleft()
        partition.held -= size
        if partition.waiting:
            heapq.heappush(self._heads, (partition.waiting[0][0].seq, number))
        elif partition.at < partition.end:
            self._open.add(number)
        if partition.paused and partition.held <= _HELD_BYTES // 2:
            partition.paused = False
            self._consumer.resume([TopicPartition(self._topic, number)])
        return row

    def _take(self, messages: list[Any], read: Callable[[bytes, bytes, int, int], Row | None]) -> bool:
        """Process messages, and return whether one of them belongs to the epoch."""
        taken = False
        for message in messages:
            if not _is_record(message, self._topic):
                continue
            number, offset = message.partition(), message.offset()
            partition = self._partitions.get(number)
            if partition is not None and partition.at <= offset < partition.end:
                taken = True
                self._take_one(partition, number, offset, message, read)
        return taken

    def _take_one(
        self,
        partition: _Partition,
        number: int,
        offset: int,
        message: Any,
        read: Callable[[bytes, bytes, int, int], Row | None],
    ) -> None:
        partition.at = offset + 1
        value = _whole_value(message, partition.joiner, At(self._topic, offset, number), self._epoch.epoch)
        if value is not None:
            self._count += 1
            self._digest += crc32(value)
            row = read(message.key(), value, number, offset)
            if row is not None:
                if not partition.waiting:
                    heapq.heappush(self._heads, (row.seq, number))
                    self._open.discard(number)
                partition.waiting.append((row, len(value)))
                partition.held += len(value)
        if partition.at >= partition.end:
            self._open.discard(number)
        elif partition.held > _HELD_BYTES and not partition.paused:
            partition.paused = True
            self._consumer.pause([TopicPartition(self._topic, number)])


def _is_record(message: Any, topic: str) -> bool:
    """Return whether a message is a record, not a sign that may pass. Raises LogError TR557."""
    if (error := message.error()) is None:
        return True
    if error.code() == KafkaError._PARTITION_EOF or error.retriable():
        return False
    raise _unreadable(topic, error)


def _whole_value(message: Any, joiner: Joiner, at: At, epoch: int) -> bytes | None:
    """Return a row's value with its last part; None before. Raises LogError TR568."""
    try:
        if not message.key() or not message.value():
            raise ValueError(f"it has no {'value' if message.key() else 'key'}")
        return joiner.add(message.value(), message.headers() or ())
    except ValueError as error:
        raise no_record(at, "the record holds no row", error, Where(epoch=epoch)) from error


def _unreadable(topic: str, error: KafkaError) -> LogError:
    what = KafkaException(error).args[0].str()
    return LogError(
        "TR557", f"topic {topic} cannot be read: {what}", hint=f"check that Kafka runs; {PROTOCOL_HINT}"
    )
