"""Constructs the consumer: the epoch log, its sink, and the queries between them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from schemas.compiled.code import CompiledCode
from schemas.sql import changed, parameters
from spark_consumer.apply.workers.spark_pool import Workers
from spark_consumer.epochs.epoch_transactions import TransactionReader
from spark_consumer.epochs.fetch import TopicReader
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.stop_condition import StopCondition
from spark_consumer.job.batches import BatchRunner
from spark_consumer.job.checkpoint import Checkpoint, CheckpointOwner
from spark_consumer.job.direct import DirectBatches
from spark_consumer.job.progress import Counters
from spark_consumer.job.run import Consumer, Queries
from spark_consumer.rows.reader import Executors, SliceReader
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.sinks.sink import Sink
from tailrace.artifacts.compiled import compiled_code
from tailrace.assemble.sink import open_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from schemas.compiled.library import Library


def consumers_code() -> CompiledCode:
    """Return the compiled code that makes the values of rows."""

    def use(library: Library) -> None:
        parameters.use_compiled(library)
        changed.use_compiled(library)

    return CompiledCode("consumer", compiled_code, use)


def consumer(
    config: ConsumerConfig,
    spark: Callable[[], SparkSession | None],
    counters: Counters | None = None,
    check: Callable[[], None] = lambda: None,
    code: CompiledCode | None = None,
) -> Consumer:
    """Return the consumer of a channel.

    Args:
        spark: returns the session, or None while Spark starts; see ``running_spark``.
        counters: updated during the run.
        check: called before the channel is taken over. Raises TailraceError if it must not be.
        code: that of ``consumers_code``, if it may be loaded already.
    """
    log, counters, workers = LogReader(config), counters or Counters(), Workers()

    def open_checked(config: ConsumerConfig) -> Sink[Any]:
        check()
        return open_sink(config, log, workers)

    def queries(
        config: ConsumerConfig, sink: Sink[Any], condition: StopCondition, stop: threading.Event
    ) -> Queries:
        position = sink.position
        group = f"tailrace-{config.prefix}-{config.channel}-{position.fencing_token}"
        source = TopicReader(
            config.bootstrap_servers, config.rows_topic, group, config.kafka_security, config.retry_time
        )
        tasks = Executors()
        rows = SliceReader(tasks, source, log, code or consumers_code())

        def use_executors(session: SparkSession) -> None:
            from spark_consumer.rows.executors import on_executors

            tasks.use(on_executors(session))
            workers.use(session)

        runner = BatchRunner(config, sink, log, TransactionReader(config, log), condition, stop, counters)
        owner = CheckpointOwner(config.channel, config.prefix, position.ledger_uuid)
        checkpoint = Checkpoint(config.channel_dir, owner)
        # Each thread has a reader of its own.
        return Queries(
            config,
            spark,
            use_executors,
            sink,
            LogReader(config),
            rows,
            runner,
            checkpoint,
            condition,
            stop,
            lambda: DirectBatches(config, runner, LogReader(config)),
        )

    return Consumer(config, log, open_checked, queries, counters)
