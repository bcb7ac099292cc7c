"""Writes epochs, one Kafka transaction for each.

An epoch's commit, in this order:

1. ``begin``: the Kafka transaction opens.
2. ``write``: row records, each to the partition that its key names.
3. ``commit``: every record is acknowledged, so the offset range of each partition is known; then new structures,
   changed tracked ones, the ``EpochCommitted`` record, and the transaction's commit. A ``read_committed`` reader sees
   all or nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from operator import length_hint
from typing import Any, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from producer.epochs.open_epoch import EpochWith, Headers, LogState, Records
from producer.kafka.connection import (
    LIBRDKAFKA,
    MAX_MESSAGE,
    TIMEOUT,
    KafkaConnection,
    RecordTooLarge,
    log_error,
)
from producer.kafka.partitioner import load_numpy, partitions
from producer.kafka.topics import FRAMING, Topics
from schemas.access.kafka_security import OPEN, KafkaSecurity
from schemas.crashpoints import reached
from schemas.errors import Where
from schemas.wire.epoch import (
    DIGEST_MODULUS,
    EPOCH_KEY,
    EpochCommitted,
    OffsetRange,
    RowRun,
    digest_of,
    encode_structure_version,
)
from schemas.wire.rows import key_table, split_value

log = structlog.get_logger()

# A row larger than this goes out in parts, so that neither broker nor readers need buffers for whole rows.
_PART = 8 << 20
_BATCH = 1 << 20
# Rows and bytes of their values from which on a run ends: what a reader holds at a time of a large transaction.
_RUN_ROWS = 100_000
_RUN_BYTES = 48 << 20
_SECOND_HALF = "__debezium.oldkey"
# Seconds. In an attempt that begins before the connection is made librdkafka waits for half a second.
_FIRST_ATTEMPT = 0.1
_SLICE = 0.5  # seconds between checks whether to keep waiting
# As long as a broker keeps an open transaction: what is waited for longer could not be committed any more.
_TRANSACTION_MS = 600_000
_T = TypeVar("_T")
_Report = Callable[[KafkaError | None, Message], None]


@dataclass
class _OpenRun:
    """Rows of the open epoch that are becoming a run.

    Attributes:
        size: bytes of their values.
        ends: the offset after the last one that is delivered, by partition.
    """

    rows: int = 0
    size: int = 0
    digest: int = 0
    ends: dict[int, int] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Whether the next rows begin another run."""
        return self.rows >= _RUN_ROWS or self.size >= _RUN_BYTES


def _room(run: _OpenRun, records: Records) -> int:
    """How many of these records belong to the run; the halves of a key change do together."""
    room = _RUN_ROWS - run.rows
    return room + any(name == _SECOND_HALF for name, _ in records.headers.get(records.first + room, ()))


class EpochLog:
    """Writes the epochs of a prefix; only one may be open, since opening it fences every other.

    Args:
        bootstrap_servers: Kafka's addresses.
        prefix: the topics' common prefix, which is also the producer's identity.
        partition_count: of the rows topic; an existing topic with another number is refused.
        security: what Kafka asks for.
        patience: seconds to wait for an unavailable Kafka.

    Attributes:
        connection: its ``stop_waiting`` aborts such a wait.
        topics: what can be read without fencing anybody.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        prefix: str,
        partition_count: int,
        security: KafkaSecurity = OPEN,
        patience: float = 120.0,
    ) -> None:
        self.connection = KafkaConnection(bootstrap_servers, security, patience)
        self.topics = Topics(self.connection, prefix, partition_count)
        self._prefix, self._count = prefix, partition_count
        self._producer: Any = None
        self._starts: dict[int, int] = {}
        self._runs: list[_OpenRun] = []
        self._error: KafkaError | None = None
        self._part = _PART

    def open(self) -> LogState:
        """Create missing topics, fence the previous producer, and read what there is to go on from.

        Raises:
            LogError: TR501 unreachable, TR508 refused, TR502 the rows topic takes small records only, TR509 topics
                have other partitions than they should.
        """
        load_numpy()
        return self.connection.retry(self._open)

    def _open(self) -> LogState:
        try:
            limit = self.topics.create()
            self._part = min(_PART, limit - FRAMING)
            producer = Producer(
                {
                    **self.connection.settings,
                    "transactional.id": f"tailrace.{self._prefix}",
                    "transaction.timeout.ms": _TRANSACTION_MS,
                    "acks": "all",
                    "compression.type": "lz4",
                    # Rows come by blocks of thousands, and a commit waits for none of this.
                    "linger.ms": 20,
                    "batch.size": min(_BATCH, limit - FRAMING),
                    "batch.num.messages": 100_000,
                    "message.max.bytes": MAX_MESSAGE,
                    "queue.buffering.max.messages": 1_000_000,
                    "queue.buffering.max.kbytes": 128 << 10,
                },
                logger=LIBRDKAFKA,
            )
            self.connection.refusal.ends(
                producer.init_transactions, TIMEOUT, lambda: producer.poll(0), first=_FIRST_ATTEMPT
            )
        except KafkaException as error:
            raise log_error(error, "opening the epoch log") from error
        self._producer = producer
        return self.topics.read_state()

    def begin(self) -> None:
        """Open the Kafka transaction of the next epoch."""
        self._starts, self._runs, self._error = {}, [], None
        self.connection.refusal.forget()
        self._call(self._producer.begin_transaction, "beginning an epoch")

    def write(self, records: Records) -> None:
        """Hand records to librdkafka; its threads send them while the caller goes on.

        Raises:
            LogError: TR502 a record that Kafka does not take.
        """
        rest = Records(records.first, list(records.keys), list(records.values), dict(records.headers))
        while rest:
            if not self._runs or self._runs[-1].is_full:
                self._runs.append(_OpenRun())
            run = self._runs[-1]
            self._write_run(run, rest.split_off(_room(run, rest)))

    def _write_run(self, run: _OpenRun, records: Records) -> None:
        sizes = list(map(len, records.values))
        run.rows += len(records)
        run.size += sum(sizes)
        run.digest += digest_of(records.values)
        if max(sizes) > self._part:
            records = self._in_parts(records)
        keys, values, numbers = records.keys, records.values, partitions(records.keys, self._count)
        headers = {number - records.first: found for number, found in records.headers.items()}
        reports = self._reported(numbers, run)
        start = 0
        for single in sorted(headers.keys() | reports):
            self._write_plain(keys[start:single], values[start:single], numbers[start:single])
            start = single + 1
            self._write_one(
                keys[single], values[single], numbers[single], headers.get(single), reports.get(single)
            )
        self._write_plain(keys[start:], values[start:], numbers[start:])

    def _write_plain(self, keys: list[bytes], values: list[bytes], numbers: list[int]) -> None:
        """Records without headers, of which no delivery is reported: nearly all."""
        remaining = iter(values)
        calls = map(self._producer.produce, repeat(self.topics.rows), remaining, iter(keys), iter(numbers))
        while length_hint(remaining):
            try:
                deque(calls, 0)
            except (BufferError, KafkaException):
                at = len(values) - length_hint(remaining) - 1
                self._write_one(keys[at], values[at], numbers[at], None, None)

    def _write_one(
        self, key: bytes, value: bytes, partition: int, headers: Headers | None, report: _Report | None
    ) -> None:
        deadline = self.connection.deadline()
        while True:
            try:
                self._producer.produce(
                    self.topics.rows, value, key, partition, on_delivery=report, headers=headers or []
                )
                return
            except BufferError:
                # librdkafka's queue is full: wait until it has sent some.
                self._call(lambda: self._producer.poll(0.05), "writing rows")
                self.connection.check_deadline(deadline, "writing rows")
            except KafkaException as error:
                found = log_error(self._cause(error), "writing rows")
                if isinstance(found, RecordTooLarge):
                    found = found.but(where=Where(table=".".join(key_table(key))))
                raise found from error

    def _in_parts(self, records: Records) -> Records:
        """The records with large rows divided; the parts of a row stay neighbors, and so they do in Kafka."""
        divided = Records()
        for number, (key, value) in enumerate(zip(records.keys, records.values, strict=True), records.first):
            headers = records.headers.get(number)
            parts: Iterable[tuple[bytes, Headers | None]] = [(value, headers)]
            if len(value) > self._part:
                parts = ((part, [*(headers or ()), mark]) for part, mark in split_value(value, self._part))
            for part, found in parts:
                if found:
                    divided.headers[len(divided)] = found
                divided.keys.append(key)
                divided.values.append(part)
        return divided

    def commit(
        self,
        epoch_with: EpochWith,
        tracked: tuple[tuple[bytes, bytes | None], ...] = (),
    ) -> EpochCommitted:
        """Complete the epoch.

        Args:
            epoch_with: makes the epoch's record, given the offset ranges, the digest and the runs of its rows.
            tracked: the records of tracked structures that the epoch changed; None for those that are gone.
        """
        self._flush()
        if self._error is not None:
            raise log_error(self._cause(KafkaException(self._error)), "writing rows")
        runs = list(self._row_runs())
        ends = {part.partition: part.end for run in runs for part in run.ranges}
        ranges = tuple(OffsetRange(p, self._starts[p], ends[p]) for p in sorted(ends))
        digest = sum(run.digest for run in runs) % DIGEST_MODULUS
        epoch = epoch_with(ranges, digest, tuple(runs) if len(runs) > 1 else ())
        for version in epoch.structures:
            self._produce(self.topics.schemas, encode_structure_version(version), version.topic_key)
        for key, record in tracked:
            self._produce(self.topics.tracked, record, key)
        self._produce(self.topics.epochs, epoch.encode(), EPOCH_KEY)
        reached("publish.before_commit")
        self._commit()
        reached("publish.after_commit")
        return epoch

    def _flush(self) -> None:
        """Wait until all records are acknowledged."""
        deadline, before = self.connection.deadline(), 0
        while waiting := self._call(lambda: self._producer.flush(_SLICE), "writing rows"):
            if waiting < before:
                # As long as some arrive Kafka is there, however long the others take.
                deadline = self.connection.deadline()
            else:
                self.connection.check_deadline(deadline, "writing rows")
            before = waiting

    def _commit(self) -> None:
        deadline = self.connection.deadline()
        while not self._call(self._committed, "committing an epoch"):
            self.connection.check_deadline(deadline, "committing an epoch")

    def _committed(self) -> bool:
        try:
            self._producer.commit_transaction(_SLICE)
        except KafkaException as error:
            # The same call goes on where this one was.
            if error.args[0].code() == KafkaError._TIMED_OUT and error.args[0].retriable():
                return False
            raise
        return True

    def abort(self) -> None:
        """Give the open transaction up, if there is one that can still be given up."""
        try:
            self._producer.purge()
            self._producer.abort_transaction(_SLICE if self.connection.stop_waiting.is_set() else TIMEOUT)
        except KafkaException as error:
            # The broker aborts it when the next producer opens the log.
            log.warning("abort_failed", reason=error.args[0].str())

    def _row_runs(self) -> Iterator[RowRun]:
        """Yield the epoch's rows in runs, when all of them are delivered."""
        starts = dict(self._starts)
        for run in self._runs:
            ranges = tuple(OffsetRange(p, starts[p], run.ends[p]) for p in sorted(run.ends))
            starts |= run.ends
            yield RowRun(run.rows, run.digest % DIGEST_MODULUS, ranges)

    def _reported(self, numbers: list[int], run: _OpenRun) -> dict[int, _Report]:
        """The records whose delivery must be reported: each partition's last, and the epoch's first."""
        backwards, last = numbers[::-1], len(numbers) - 1
        report = partial(self._delivered, run)
        reported: dict[int, _Report] = {}
        for partition in set(numbers):
            reported[last - backwards.index(partition)] = report
            if partition not in self._starts:
                self._starts[partition] = -1
                reported[numbers.index(partition)] = report
        return reported

    def _delivered(self, run: _OpenRun, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._error = self._error or error
            return
        partition, offset = message.partition(), message.offset()
        if self._starts[partition] < 0:
            self._starts[partition] = offset
        run.ends[partition] = offset + 1

    def _produce(self, topic: str, value: bytes | None, key: bytes) -> None:
        self._call(lambda: self._producer.produce(topic, value, key, 0), f"writing to {topic}")

    def _call(self, action: Callable[[], _T], doing: str) -> _T:
        try:
            return action()
        except KafkaException as error:
            raise log_error(self._cause(error), doing) from error
        except SystemError as error:
            # A fatal error was raised among callbacks, and the next of them stumbled over it.
            cause = error.__cause__ if isinstance(error.__cause__, KafkaException) else self._fatal_error()
            raise log_error(cause, doing) from error

    def _cause(self, error: KafkaException) -> KafkaException:
        """Return the original fatal error behind a generic follow-up error."""
        return self._fatal_error() if error.args[0].code() == KafkaError._FATAL else error

    def _fatal_error(self) -> KafkaException:
        """Return the fatal error of the librdkafka producer, None if there is none."""
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            return error
        return KafkaException(KafkaError(KafkaError._FAIL, "librdkafka failed without a reason"))
