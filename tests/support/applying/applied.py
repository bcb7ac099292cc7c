"""Runs the whole consumer over a log."""

from __future__ import annotations

import threading
from pathlib import Path

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from spark_consumer.job.spark import start_spark
from spark_consumer.rules.config import ConsumerConfig
from tailrace.artifacts.spark import spark_kafka_jars
from tailrace.assemble.consumer import consumer
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
        direct=False,
        jars=tuple(spark_kafka_jars()),
    )
    spark = start_spark(config)
    try:
        consumer(config, lambda: spark).run(threading.Event())
    finally:
        spark.stop()
