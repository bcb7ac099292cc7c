"""Spark's streaming query: the epochs topic through the schema tracker, a micro-batch at a time."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.spark_tracker import SEED_DDL, open_stream, seed_rows, track
from spark_consumer.epochs.start import resume_offset
from spark_consumer.job.checkpoint import Checkpoint
from spark_consumer.rules.config import ConsumerConfig

# Offsets of one micro-batch. It only limits memory: a stop waits for a slice, not for the micro-batch.
_MAX_OFFSETS = 500
# How often a micro-batch begins. In between epochs are applied directly.
_WITH_DIRECT, _ALONE = "5 seconds", "0 seconds"
_log = structlog.get_logger()


def query_after(
    position: Position,
    spark: SparkSession,
    config: ConsumerConfig,
    log: LogReader,
    checkpoint: Checkpoint,
    apply: Callable[[DataFrame, int], None],
) -> DataStreamWriter:
    """Return the query from a position on, which is to be started."""
    stream = open_stream(spark, config, resume_offset(position, log), _MAX_OFFSETS)
    rows = []
    # A new checkpoint begins with every structure up to the position.
    if not checkpoint.path.exists():
        rows = seed_rows(log.structures(position.epoch))
        _log.info("tracker_seeded", structures=len(rows), epoch=position.epoch)
    query: DataStreamWriter = (
        track(stream, spark.createDataFrame(rows, SEED_DDL), config.epochs_topic)
        .writeStream.foreachBatch(apply)
        .option("checkpointLocation", str(checkpoint.path))
        .trigger(processingTime=_WITH_DIRECT if config.applies_directly else _ALONE)
        .queryName(f"tailrace-{config.channel}-{position.fencing_token}")
    )
    return query
