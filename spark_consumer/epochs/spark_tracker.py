"""The stream of epochs, and the schema tracker as Spark's stateful processor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from schemas.wire.log_records import LoggedVersion
from spark_consumer.epochs.tracker import learn, tracked
from spark_consumer.rules.config import ConsumerConfig

#: columns of the initial state's rows
SEED_DDL = "partition int, table_name string, epoch bigint, fingerprint string, text string"
_ROWS_DDL = (
    "kind int, epoch bigint, log_offset bigint, table_name string, fingerprint string, text string, hint string,"
    " record binary"
)
_PARTITION = 0


def open_stream(spark: SparkSession, config: ConsumerConfig, start_offset: int, max_epochs: int) -> DataFrame:
    """Return the records of the epochs topic as a stream from ``start_offset``."""
    topic = config.epochs_topic
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", config.bootstrap_servers)
        .options(**{f"kafka.{name}": value for name, value in config.kafka_security.java().items()})
        .option("kafka.isolation.level", "read_committed")
        # An offset range that ends with a transaction marker would wait this long for a record after it.
        .option("kafka.fetch.max.wait.ms", "10")
        .option("failOnDataLoss", "true")
        .option("assign", json.dumps({topic: [_PARTITION]}))
        .option("startingOffsets", json.dumps({topic: {str(_PARTITION): start_offset}}))
        .option("maxOffsetsPerTrigger", str(max_epochs))
    )
    if config.max_batch_delay and not config.until_caught_up:
        source = source.option("minOffsetsPerTrigger", str(max_epochs)).option(
            "maxTriggerDelay", f"{round(config.max_batch_delay * 1000)}ms"
        )
    return source.load().select("key", "value", "offset", "partition")


def track(records: DataFrame, seed: DataFrame, topic: str) -> DataFrame:
    """Run the tracker over a stream of records; ``seed`` becomes the state of a new checkpoint.

    Both are one Spark partition, as the topic is, so that nothing is shuffled and a micro-batch is one task.
    """
    return (
        records.coalesce(1)
        .groupBy("partition")
        .transformWithState(
            statefulProcessor=SchemaTracker(topic),
            outputStructType=_ROWS_DDL,
            outputMode="Append",
            timeMode="None",
            initialState=seed.coalesce(1).groupBy("partition"),
        )
    )


def seed_rows(versions: Iterable[LoggedVersion]) -> list[tuple[int, str, int, str, str]]:
    """Return the initial state with these structures."""
    return [(_PARTITION, f"{v.db}.{v.table}", v.epoch, v.fingerprint, v.structure) for v in versions]


class SchemaTracker(StatefulProcessor):  # type: ignore[misc]
    """The schema tracker as Spark's stateful processor; its key is the topic's partition."""

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._versions = handle.getMapState(
            "versions", "table_name string, fingerprint string", "epoch bigint, structure string"
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Process the records of one micro-batch, in any order."""
        del key, timerValues
        records = sorted((row.offset, row.key, row.value) for row in rows)
        for row in tracked(self._versions, records, self._topic):
            yield Row(**row._asdict())

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:
        """Process one structure from the schemas topic, in any order."""
        del key, timerValues
        one = initialState
        learn(self._versions, one.table_name, one.fingerprint, one.epoch, one.text)

    def close(self) -> None:
        """Nothing is held open."""
