"""Runs the whole consumer over a log."""

from __future__ import annotations

from pathlib import Path

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from spark_consumer.job.run import run_consumer
from spark_consumer.job.spark import start_spark
from spark_consumer.rules.config import ConsumerConfig
from tailrace.artifacts.spark import spark_kafka_jars
from tailrace.assemble import open_sink
from tests.support.epochs.source_log import SourceLog


def consume(log: SourceLog, downstream: Database, folder: Path) -> None:
    """Apply the whole log to a downstream, with a Spark of its own."""
    config = ConsumerConfig(
        log.config.bootstrap_servers,
        log.config.prefix,
        ServerUrl.parse(downstream.url("tailrace")),
        channel=log.db,  # tests share the downstream
        checkpoint_dir=folder / "checkpoint",
        until_caught_up=True,
        jars=tuple(spark_kafka_jars()),
    )
    spark = start_spark(config)
    try:
        run_consumer(config, lambda: spark, open_sink)
    finally:
        spark.stop()
