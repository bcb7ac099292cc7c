"""Runs the consumer without Spark: with its batches, slices, plans, rendering and applier, in the test's process."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from schemas.compiled.code import CompiledCode, no_folder
from schemas.errors import TailraceError
from spark_consumer.apply.prepared import WorkerPart
from spark_consumer.apply.workers.apply_part import run_parts
from spark_consumer.apply.workers.pool import PartContext, PartResult
from spark_consumer.epochs.epoch_transactions import TransactionReader
from spark_consumer.epochs.fetch import TopicReader
from spark_consumer.epochs.letter_case import with_servers_letter_case
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.start import resume_offset
from spark_consumer.epochs.stop_condition import stop_condition_of
from spark_consumer.epochs.tracker import EPOCH, STRUCTURE
from spark_consumer.job.batches import BatchRunner, StopQuery
from spark_consumer.job.progress import Counters
from spark_consumer.rows.reader import Executors, SliceReader
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.sinks.sink import Sink
from tailrace.assemble.sink import open_sink
from tailrace.config.channels import server_channel
from tailrace.config.file import load

#: epochs of a micro-batch
_BATCH = 7


def worker_threads(order: PartContext, parts: Sequence[WorkerPart]) -> list[PartResult]:
    """Apply parts in threads of the test's process."""
    return list(run_parts(order, parts))


def consume(config: ConsumerConfig, epochs: int | None = None) -> None:
    """Apply what the log holds behind the position, or that many epochs of it, and end in order.

    Raises TailraceError: what stopped it.
    """
    log = LogReader(config)
    config = with_servers_letter_case(config, log)
    with closing(open_sink(config, log, worker_threads)) as sink:
        try:
            _apply(config, sink, log, epochs)
            sink.record_end()
        except TailraceError as error:
            sink.record_end(error)
            raise


def _apply(config: ConsumerConfig, sink: Sink[Any], log: LogReader, epochs: int | None) -> None:
    group = f"test-{config.prefix}-{sink.position.fencing_token}"
    source = TopicReader(config.bootstrap_servers, config.rows_topic, group)
    sink.resume(SliceReader(Executors(), source, log, CompiledCode("consumer", no_folder)))
    found = list(log.epochs(resume_offset(sink.position, log)))[:epochs]
    known = log.structures(found[-1].record.epoch) if found else []
    structures = [SimpleNamespace(kind=STRUCTURE, fingerprint=v.fingerprint, text=v.structure) for v in known]
    stop_condition = stop_condition_of(config, sink.position, log)
    runner = BatchRunner(
        config, sink, log, TransactionReader(config, log), stop_condition, threading.Event(), Counters()
    )
    try:
        for batch, begin in enumerate(range(0, len(found), _BATCH)):
            if runner.ended:
                break
            logged = [
                SimpleNamespace(kind=EPOCH, record=one.record.encode(), log_offset=one.offset)
                for one in found[begin : begin + _BATCH]
            ]
            frame = SimpleNamespace(collect=lambda rows=[*logged, *structures]: rows)
            with suppress(StopQuery):
                runner(cast(Any, frame), batch)
    finally:
        runner.close()


if __name__ == "__main__":
    # As a process of its own, that may die.
    consume(server_channel(load(Path(sys.argv[1]))))
