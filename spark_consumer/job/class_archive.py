"""``python -m spark_consumer.job.class_archive FOLDER JAR…``: run a small job and write ``FOLDER/classes.jsa``.

Spark loads ten thousand classes before the first epoch. Java's class data sharing maps them from a file instead of
reading, checking and linking each. A JVM that has loaded the classes writes the file when it ends.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from schemas.access.server_url import ServerUrl
from spark_consumer.epochs.spark_tracker import SEED_DDL, track
from spark_consumer.job.spark import start_spark
from spark_consumer.rules.config import ConsumerConfig

_NOWHERE = "127.0.0.1:1"
_TIMEOUT_S = 120


def train(folder: Path, jars: tuple[Path, ...]) -> None:
    """Run the parts of the consumer's job that need no server, then make the JVM write its archive."""
    config = ConsumerConfig(
        _NOWHERE,
        "training",
        ServerUrl("127.0.0.1"),
        checkpoint_dir=folder / "run",
        spark_conf={"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={folder / 'classes.jsa'}"},
        jars=jars,
    )
    spark = start_spark(config)
    _stream(spark, folder / "checkpoint")
    with suppress(Exception):
        # There is no broker: this only loads the connector's classes.
        _connector(spark)
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_TIMEOUT_S)
    for left_over in ("run", "checkpoint"):
        shutil.rmtree(folder / left_over, ignore_errors=True)


def _stream(spark: SparkSession, checkpoint: Path) -> None:
    """Run two micro-batches through the tracker, each with an Arrow job like that of a slice."""
    seen: list[int] = []

    def apply(frame: DataFrame, batch_id: int) -> None:
        rows = frame.collect()
        frame = spark.createDataFrame([(b"k", b"v")] * 100, "key binary, value binary")
        frame.repartition(2).mapInArrow(_pass, "key binary, value binary").toArrow()
        seen.append(len(rows))

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    # These are no epochs, and the tracker says so.
    records = source.selectExpr(
        "NULL AS key", "CAST(CAST(value AS string) AS binary) AS value", "value AS offset", "0 AS partition"
    )
    seed = spark.createDataFrame([(0, "d.seeded", 0, "aa", "{}")], SEED_DDL)
    query = (
        track(records, seed, "training")
        .writeStream.foreachBatch(apply)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        while query.isActive and len(seen) < 2:
            query.awaitTermination(0.1)
    finally:
        query.stop()


def _connector(spark: SparkSession) -> None:
    options = {
        "kafka.bootstrap.servers": _NOWHERE,
        "kafka.default.api.timeout.ms": "1000",
        "kafka.request.timeout.ms": "500",
        "fetchOffset.numRetries": "1",
        "assign": '{"training": [0]}',
        "startingOffsets": '{"training": {"0": 0}}',
        "endingOffsets": '{"training": {"0": 1}}',
    }
    spark.read.format("kafka").options(**options).load().collect()


def _pass(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    train(Path(sys.argv[1]), tuple(map(Path, sys.argv[2:])))
