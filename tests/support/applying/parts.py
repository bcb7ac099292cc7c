"""Runs parts of the consumer without Kafka and Spark: a log in memory, rows in partitions, threads as workers."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import cast

from schemas.structure import TableStructure
from schemas.tables import QualifiedName
from schemas.wire.avro_schema import KEY_CHANGE, row_schema
from schemas.wire.epoch import (
    DIGEST_MODULUS,
    CopyStep,
    OffsetRange,
    RowRun,
    SchemaChanged,
    StructureVersion,
    TableTouched,
)
from spark_consumer.apply import executor_sessions
from spark_consumer.apply.retry import RetryTimer
from spark_consumer.apply.workers.pool import WorkerPool
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.slices import LoggedEpoch, Slice, cut
from spark_consumer.job.batches import COPIED_TIMES
from spark_consumer.job.run import with_retries
from spark_consumer.plan.counters import RowCounts
from spark_consumer.rows.results import Result
from spark_consumer.rows.slice_rows import RangeRows, SliceRows, Work
from spark_consumer.rules.config import ConsumerConfig
from tailrace.assemble.sink import open_sink
from tests.support.applying.consuming import worker_threads
from tests.support.epochs.fake_topic import Change, halves, row_key, row_value
from tests.support.epochs.records import epoch_record, version_record
from tests.support.processes.child import in_child

_PARTITIONS = 3


@dataclass
class MemoryLog(SliceRows):
    """Epochs and their rows in memory, in place of ``LogReader`` and the rows topic.

    Attributes:
        numbered: whether each transaction has a GTID of its own.
        run_rows: the rows of a run, if epochs have runs.
    """

    logged: list[LoggedEpoch] = field(default_factory=list)
    rows: dict[int, list[tuple[int, bytes, bytes]]] = field(default_factory=dict)
    known: dict[str, TableStructure] = field(default_factory=dict)
    numbered: bool = False
    run_rows: int | None = None
    transactions: int = 0

    def add(
        self,
        *changes: Change,
        incomplete: Collection[str] = (),
        copy: CopyStep | None = None,
        ddl: SchemaChanged | None = None,
    ) -> None:
        """Add an epoch.

        Args:
            incomplete: the tables, without schema, that are being copied.
        """
        epoch, split = len(self.logged), halves(changes)
        bounds: dict[int, tuple[int, int]] = {}
        counts: dict[TableStructure, list[int]] = {}
        placed: list[tuple[int, int, int]] = []
        self.transactions += copy is None
        gtid = None if copy else f"0-1-{self.transactions}" if self.numbered else "g"
        pos = 1000 + self.transactions if copy else 4
        for seq, change in enumerate(split):
            structure = change.structure
            self.known[row_schema(structure).fingerprint.hex()] = structure
            counts.setdefault(structure, [0, 0, 0, 0])[
                1 if change.flags & KEY_CHANGE else "cudr".index(change.op)
            ] += 1
            key = row_key(structure, change.after or change.before or {})
            value = row_value(change, epoch, seq, gtid, pos)
            partition = zlib.crc32(key) % _PARTITIONS
            kept = self.rows.setdefault(partition, [])
            offset = kept[-1][0] + 1 if kept else 0
            kept.append((offset, key, value))
            placed.append((partition, offset, zlib.crc32(value)))
            bounds[partition] = (bounds.get(partition, (offset, 0))[0], offset + 1)
        record = epoch_record(
            epoch,
            rows=len(split),
            transactions=0 if copy else 1,
            ddl=ddl,
            executed=f"0-1-{self.transactions}" if self.numbered else f"0-1-{epoch + 1}",
            ranges=tuple(OffsetRange(p, *bounds[p]) for p in sorted(bounds)),
            tables=tuple(
                TableTouched(
                    s.db, s.table, row_schema(s).fingerprint.hex(), *n, incomplete=s.table in incomplete
                )
                for s, n in counts.items()
            ),
        )
        end = 1000 + self.transactions
        record = replace(record, copy=copy, source_pos=end, relay_pos=end)
        # A marker's offset ends each epoch.
        for partition, (_, end) in bounds.items():
            self.rows[partition].append((end, b"", b""))
        record = replace(record, digest=_digest(placed), runs=self._runs(split, placed))
        self.logged.append(LoggedEpoch(record, epoch))

    def _runs(self, split: Sequence[Change], placed: Sequence[tuple[int, int, int]]) -> tuple[RowRun, ...]:
        """An epoch's runs; the halves of a key change are in one."""
        runs, begin = [], 0
        for end in range(1, len(split) + 1):
            is_half = end < len(split) and split[end].flags & KEY_CHANGE and split[end].op == "c"
            if end == len(split) or (end - begin >= (self.run_rows or len(split)) and not is_half):
                taken, begin = placed[begin:end], end
                offsets: dict[int, list[int]] = {}
                for partition, offset, _ in taken:
                    offsets.setdefault(partition, []).append(offset)
                ranges = tuple(OffsetRange(p, min(offsets[p]), max(offsets[p]) + 1) for p in sorted(offsets))
                runs.append(RowRun(len(taken), _digest(taken), ranges))
        return tuple(runs) if len(runs) > 1 else ()

    def epochs(self, start: int = 0) -> Iterator[LoggedEpoch]:
        return iter(self.logged[start:])

    def last_epoch(self) -> LoggedEpoch | None:
        return self.logged[-1] if self.logged else None

    def tables(self, epoch: int) -> set[QualifiedName]:
        return {(structure.db, structure.table) for structure in self.known.values()}

    def structures(self, epoch: int) -> list[StructureVersion]:
        return [version_record(0, structure) for structure in self.known.values()]

    def results(self, slice_: Slice, work: Work, *, with_offsets: bool = False) -> list[Result]:
        return [result for part in slice_.ranges for result in work(self._read(part))]

    def _read(self, part: OffsetRange) -> RangeRows:
        found = [
            row for row in self.rows[part.partition] if part.start <= row[0] < part.end and row[2] != b""
        ]
        offsets, keys, values = zip(*found, strict=True)
        return RangeRows(keys, values, part.partition, offsets)


def _digest(placed: Sequence[tuple[int, int, int]]) -> int:
    return sum(crc for _, _, crc in placed) % DIGEST_MODULUS


def apply_log(
    config: ConsumerConfig, log: MemoryLog, worker_pool: WorkerPool = worker_threads
) -> list[RowCounts]:
    """Apply the epochs after the position like one run of the consumer. Return the outcome of each slice's rows.

    Raises TailraceError.
    """
    timer = RetryTimer(config.retry_time, threading.Event())
    with closing(with_retries(timer, lambda: open_sink(config, cast(LogReader, log), worker_pool))) as sink:
        sink.resume(log)
        made = []
        limits = config.max_batch_rows, config.max_batch_bytes, COPIED_TIMES
        for slice_ in cut(list(log.epochs(sink.position.epoch + 1)), *limits):
            made.append(sink.apply(sink.plan(slice_, log.known)()).row_counts)
        sink.record_end()
    return made


def apply_in_child(config: ConsumerConfig, log: MemoryLog, crash_at: str) -> int:
    """Call ``apply_log`` in a child that may die; see ``in_child``."""

    def work() -> None:
        # A child must not use its parent's connections.
        executor_sessions._sessions.clear()
        apply_log(config, log)

    return in_child(work, crash_at)
