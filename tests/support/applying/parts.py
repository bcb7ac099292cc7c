"""The consumer in parts without Kafka and Spark: a log in memory, its rows in partitions, workers as threads."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, cast

from schemas.structure import TableStructure
from schemas.wire.avro_schema import KEY_CHANGE, row_schema
from schemas.wire.epoch import DIGEST_MODULUS, OffsetRange, StructureVersion, TableTouched
from spark_consumer.apply.patience import Patience
from spark_consumer.apply.prepare import assembled
from spark_consumer.apply.prepared import PreparedParts, PreparedRows
from spark_consumer.apply.workers import apply_part
from spark_consumer.apply.workers.apply_part import run_parts
from spark_consumer.apply.workers.bitmap import Bits
from spark_consumer.apply.workers.pool import WorkerPool
from spark_consumer.apply.workers.read_conflicts import rest, with_conflict_keys
from spark_consumer.apply.workers.reader import PartsReader, weigh_at
from spark_consumer.apply.workers.share import shared_out
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.slices import LoggedEpoch, Slice, cut
from spark_consumer.job.run import _patiently
from spark_consumer.plan.counters import Stages
from spark_consumer.plan.plan import SlicePlan
from spark_consumer.rows.render import render
from spark_consumer.rows.results import Result
from spark_consumer.rules.config import ConsumerConfig
from tailrace.assemble import open_sink
from tests.support.epochs.fake_topic import Change, halves, row_key, row_value
from tests.support.epochs.records import epoch_record, version_record
from tests.support.processes.child import in_child

_PARTITIONS = 3
Rows = tuple[list[bytes], list[bytes], list[int]]


@dataclass
class MemoryLog:
    """Epochs and their rows, as ``LogReader`` and the rows topic have them."""

    logged: list[LoggedEpoch] = field(default_factory=list)
    rows: dict[int, list[tuple[int, bytes, bytes]]] = field(default_factory=dict)
    known: dict[str, TableStructure] = field(default_factory=dict)

    def add(self, *changes: Change) -> None:
        """One epoch more."""
        epoch, split = len(self.logged), halves(changes)
        bounds: dict[int, tuple[int, int]] = {}
        counts: dict[TableStructure, list[int]] = {}
        digest = 0
        for seq, change in enumerate(split):
            structure = change.structure
            self.known[row_schema(structure).fingerprint.hex()] = structure
            counts.setdefault(structure, [0, 0, 0])[
                1 if change.flags & KEY_CHANGE else "cud".index(change.op)
            ] += 1
            key = row_key(structure, change.after or change.before or {})
            value = row_value(change, epoch, seq, "g")
            digest += zlib.crc32(value)
            partition = zlib.crc32(key) % _PARTITIONS
            kept = self.rows.setdefault(partition, [])
            offset = kept[-1][0] + 1 if kept else 0
            kept.append((offset, key, value))
            bounds[partition] = (bounds.get(partition, (offset, 0))[0], offset + 1)
        record = epoch_record(
            epoch,
            rows=len(split),
            transactions=1,
            executed=f"0-1-{epoch + 1}",
            ranges=tuple(OffsetRange(p, *bounds[p]) for p in sorted(bounds)),
            tables=tuple(
                TableTouched(s.db, s.table, row_schema(s).fingerprint.hex(), *n) for s, n in counts.items()
            ),
        )
        # A marker's offset ends each epoch.
        for partition, (_, end) in bounds.items():
            self.rows[partition].append((end, b"", b""))
        self.logged.append(LoggedEpoch(replace(record, digest=digest % DIGEST_MODULUS), epoch))

    def epochs(self, start: int = 0) -> Iterator[LoggedEpoch]:
        return iter(self.logged[start:])

    def last_epoch(self) -> LoggedEpoch | None:
        return self.logged[-1] if self.logged else None

    def structures(self, epoch: int) -> list[StructureVersion]:
        return [version_record(0, structure) for structure in self.known.values()]

    def read(self, part: OffsetRange) -> Rows:
        found = [
            row for row in self.rows[part.partition] if part.start <= row[0] < part.end and row[2] != b""
        ]
        return [key for _, key, _ in found], [value for *_, value in found], [offset for offset, *_ in found]


@dataclass
class MemoryReader:
    """As ``PartsReader``, one partition after the other."""

    log: LogReader
    memory: MemoryLog
    config: ConsumerConfig
    worker_pool: WorkerPool

    def prepare(self, slice_: Slice, plan: SlicePlan) -> PreparedRows | PreparedParts:
        results: list[Result] = []
        if plan.causality is None or plan.causality.alone:
            for part in slice_.ranges:
                results += render(plan, *self.memory.read(part)[:2])
            return assembled(slice_, plan, results)
        for part in slice_.ranges:
            results += with_conflict_keys(plan, part.partition, *self.memory.read(part))
        return shared_out(
            slice_,
            plan,
            results,
            self.config.workers,
            lambda part, some: weigh_at(self.config.target, part, some),
        )

    def rest(self, slice_: Slice, plan: SlicePlan, applied: Sequence[Bits]) -> PreparedRows:
        results: list[Result] = []
        for part in slice_.ranges:
            results += rest(plan, part.partition, *self.memory.read(part), applied)
        return assembled(slice_, plan, results)


def apply_log(config: ConsumerConfig, log: MemoryLog, worker_pool: Any = None) -> list[Stages]:
    """Apply what is not applied, as one run of the consumer does; what became of each slice's rows.

    Raises TailraceError.
    """
    patience = Patience(config.retry_time, threading.Event())
    with closing(_patiently(patience, lambda: open_sink(config, cast(LogReader, log)))) as sink:
        workers = worker_pool or (lambda order, parts: list(run_parts(order, parts)))
        sink.begin(cast(PartsReader, MemoryReader(cast(LogReader, log), log, config, workers)))
        made = []
        for slice_ in cut(list(log.epochs(sink.position.epoch + 1)), config.max_batch_rows):
            made.append(sink.apply(sink.prepare(slice_, log.known)())[1])
        sink.end()
    return made


def apply_in_child(config: ConsumerConfig, log: MemoryLog, crash_at: str) -> int:
    """``apply_log`` in a child that may die; see ``in_child``."""

    def work() -> None:
        # The parent's connections are not the child's to use.
        apply_part._sessions.clear()
        apply_log(config, log)

    return in_child(work, crash_at)
