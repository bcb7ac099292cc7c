"""Starts Spark's Python workers before the first epoch needs them."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import structlog
from pyspark.sql import SparkSession

from schemas.wire.epoch import OffsetRange
from spark_consumer.epochs.fetch import ALL_KEYS, TopicReader
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.rows.executors import on_executors
from spark_consumer.rows.reader import read_range
from spark_consumer.rows.results import Result
from spark_consumer.rules.config import ConsumerConfig

_log = structlog.get_logger()


def warm_up(spark: SparkSession, config: ConsumerConfig, log: LogReader) -> threading.Thread:
    """Read a few records like a slice, in a background thread; failures are ignored."""

    def work() -> None:
        try:
            source = TopicReader(
                config.bootstrap_servers,
                config.epochs_topic,
                f"tailrace-{config.prefix}-warm-up",
                config.kafka_security,
                timeout=5.0,
            )
            # The topic may end with a marker, and no range may.
            last = log.last_epoch()
            if last is not None:
                parts = [(OffsetRange(0, last.offset, last.offset + 1), ALL_KEYS)] * 2

                def read(number: int) -> Iterable[Result]:
                    read_range(source, *parts[number], with_offsets=False)
                    return ()

                on_executors(spark)(len(parts), len(parts), read)
        except Exception as error:
            _log.debug("warm_up_failed", reason=str(error).split("\n", 1)[0])

    thread = threading.Thread(target=work, name="warm-up", daemon=True)
    thread.start()
    return thread
