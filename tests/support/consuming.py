"""The consumer without Spark: the same batches, slices, plans, rendering and applier, in this process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from schemas.epoch import OffsetRange
from spark_consumer.apply import Applier
from spark_consumer.arrow import record_batch
from spark_consumer.batches import BatchRunner, Ended
from spark_consumer.config import ConsumerConfig
from spark_consumer.fetch import Source
from spark_consumer.files.sink import FilesSink
from spark_consumer.goal import goal_of
from spark_consumer.job import _open, sink_of, told_downstream
from spark_consumer.letter_case import as_servers_compare
from spark_consumer.log_reader import LogReader
from spark_consumer.pieces import Result, in_pieces
from spark_consumer.plan import SlicePlan
from spark_consumer.prepare import Prepared, RowReader, assembled
from spark_consumer.progress import Counters
from spark_consumer.rows import RESULT, Work, render
from spark_consumer.slices import Slice
from spark_consumer.start import resume_offset
from spark_consumer.tracker import OUT_EPOCH, OUT_STRUCTURE
from spark_consumer.workers.apply_part import run_parts
from spark_consumer.workers.claims import claimed
from spark_consumer.workers.reader import weigh_at
from spark_consumer.workers.share import shared_out

#: epochs of a micro-batch
_BATCH = 7


class _LocalReader:
    """Reads ranges one after the other, where executors share them."""

    def __init__(self, source: Source, config: ConsumerConfig) -> None:
        self._source, self._config = source, config

    def run(self, ranges: Sequence[OffsetRange], work: Work, shares: int = 1) -> Any:
        assert shares == 1
        results = [result for part in ranges for result in in_pieces(work(*self._source.read(part)))]
        return pa.Table.from_batches([record_batch(results, RESULT)])

    def prepare(self, piece: Slice, plan: SlicePlan) -> Prepared:
        results: list[Result] = []
        if plan.causality is not None and not plan.causality.alone and piece.ddl is None and piece.ranges:
            return self._shared(piece, plan)
        for part in piece.ranges:
            results += render(plan, *self._source.read(part))
        return assembled(piece, plan, results)

    def _shared(self, piece: Slice, plan: SlicePlan) -> Prepared:
        """The slice in parts for several workers."""
        results: list[Result] = []
        for part in piece.ranges:
            offsets: list[int] = []
            keys, values = self._source.read(part, offsets=offsets)
            results += claimed(plan, part.partition, keys, values, offsets)
        weigh = partial(weigh_at, self._config.target)
        return shared_out(piece, plan, results, self._config.workers, weigh)


def consume(config: ConsumerConfig, epochs: int | None = None) -> None:
    """Apply what the log holds behind the position, or that many epochs of it, and end in order.

    Raises TailraceError: what stopped it.
    """
    log = LogReader(config)
    config = as_servers_compare(config, log)
    applier = _open(config, log)
    if isinstance(applier, Applier):
        applier.crew = lambda order, parts: list(run_parts(order, parts))
    try:
        with told_downstream(config, applier):
            _apply(config, applier, log, epochs)
            applier.finish()
    finally:
        applier.close()


def _apply(config: ConsumerConfig, applier: Applier | FilesSink, log: LogReader, epochs: int | None) -> None:
    found = list(log.epochs(resume_offset(applier.position, log)))[:epochs]
    known = log.structures(found[-1].record.epoch) if found else []
    structures = [
        SimpleNamespace(kind=OUT_STRUCTURE, fingerprint=v.fingerprint, text=v.structure) for v in known
    ]
    group = f"test-{config.prefix}-{applier.position.fencing_token}"
    reader = cast(RowReader, _LocalReader(Source(config.bootstrap_servers, config.rows_topic, group), config))
    runner = BatchRunner(
        config,
        sink_of(config, applier, reader),
        goal_of(config, applier.position, log),
        threading.Event(),
        Counters(),
    )
    try:
        for batch, begin in enumerate(range(0, len(found), _BATCH)):
            if runner.ended:
                break
            logged = [
                SimpleNamespace(kind=OUT_EPOCH, record=one.record.encode(), log_offset=one.offset)
                for one in found[begin : begin + _BATCH]
            ]
            frame = SimpleNamespace(collect=lambda rows=[*logged, *structures]: rows)
            with suppress(Ended):
                runner(cast(Any, frame), batch)
    finally:
        runner.close()
