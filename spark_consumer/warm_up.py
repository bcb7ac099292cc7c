"""Waking Spark's Python workers and its Kafka source before the first epoch needs them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib import import_module

import pyarrow as pa
import structlog
from pyspark.sql import SparkSession

from schemas.epoch import OffsetRange
from spark_consumer.config import ConsumerConfig
from spark_consumer.log_reader import LogReader
from spark_consumer.prepare import RowReader

_MODULES = ("schemas.sql", "spark_consumer.epochs_stream", "spark_consumer.rows", "spark_consumer.tracker")
_log = structlog.get_logger()


def warm_up(spark: SparkSession, config: ConsumerConfig, log: LogReader) -> threading.Thread:
    """Read a few records in the way slices are read, in a thread of its own. Nothing depends on it."""

    def work() -> None:
        try:
            low, high = log.bounds()
            reader = RowReader(spark, config.bootstrap_servers, config.epochs_topic, "tailrace-warm-up")
            frame = reader.read([OffsetRange(0, max(low, high - 4), high)])
            frame.repartition(2).mapInArrow(_imports, "n bigint").toArrow()
        except Exception as error:
            _log.debug("warm_up_failed", reason=str(error).split("\n", 1)[0])

    thread = threading.Thread(target=work, name="warm-up", daemon=True)
    thread.start()
    return thread


def _imports(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # What a worker has imported once, it has.
    for name in _MODULES:
        import_module(name)

    for batch in batches:
        yield pa.RecordBatch.from_pydict({"n": [batch.num_rows]})
