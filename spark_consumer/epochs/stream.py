"""The stream of epochs: each record becomes inputs of the schema tracker, keyed by table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from schemas.errors import LogError
from schemas.wire.epoch import EPOCH_KEY, EpochCommitted
from schemas.wire.log_records import At, read_epoch, structure_of
from spark_consumer.epochs.arrow import record_batch
from spark_consumer.rules.config import ConsumerConfig

#: the tracker key of rows that only pass through: no table has an empty name
PASS = ""
# What an input row is: the epoch itself, a structure, a DDL on the table, rows of the table, or a record that is none.
EPOCH, STRUCTURE, DDL, TOUCH, BROKEN = range(5)

INPUT = pa.schema(
    [
        ("tracked", pa.string()),
        ("epoch", pa.int64()),
        ("kind", pa.int32()),
        ("log_offset", pa.int64()),
        ("fingerprint", pa.string()),
        ("text", pa.string()),
        ("record", pa.binary()),
    ]
)
INPUT_DDL = (
    "tracked string, epoch bigint, kind int, log_offset bigint,"
    " fingerprint string, text string, record binary"
)


class Input(NamedTuple):
    """One input row of the tracker.

    Attributes:
        tracked: ``database.table``, or ``PASS``.
        epoch: its number, -1 of BROKEN where it is not known.
        kind: EPOCH, STRUCTURE, DDL or TOUCH, which is also the order within one epoch; or BROKEN.
        fingerprint: of STRUCTURE and TOUCH.
        text: the structure's JSON, the DDL's kind and new name as JSON, or what is wrong with the record.
        record: the epoch's own bytes, of EPOCH.
    """

    tracked: str
    epoch: int
    kind: int
    log_offset: int
    fingerprint: str | None = None
    text: str | None = None
    record: bytes | None = None


def explode(value: bytes | None, offset: int, topic: str = "", key: bytes | None = EPOCH_KEY) -> list[Input]:
    """The tracker's inputs of one record of the epochs topic."""
    try:
        epoch = read_epoch(value, At(topic, offset), key)
        for version in epoch.structures:
            structure_of(version)
        return list(_inputs(epoch, value or b"", offset))
    except LogError as error:
        number = -1 if error.where.epoch is None else error.where.epoch
        what = error.what if error.what.startswith("topic ") else f"{At(topic, offset)}: {error.what}"
        return [Input(PASS, number, BROKEN, offset, text=what)]


def _inputs(epoch: EpochCommitted, value: bytes, offset: int) -> Iterator[Input]:
    yield Input(PASS, epoch.epoch, EPOCH, offset, record=value)
    for version in epoch.structures:
        name = f"{version.db}.{version.table}"
        yield Input(name, epoch.epoch, STRUCTURE, offset, version.fingerprint, version.structure)
    for changed in epoch.ddl.tables if epoch.ddl else ():
        new = f"{changed.renamed_to_db or changed.db}.{changed.renamed_to}" if changed.renamed_to else None
        text = json.dumps({"kind": epoch.ddl.kind if epoch.ddl else "", "renamed_to": new})
        yield Input(f"{changed.db}.{changed.table}", epoch.epoch, DDL, offset, text=text)
    for touched in epoch.tables:
        yield Input(f"{touched.db}.{touched.table}", epoch.epoch, TOUCH, offset, touched.fingerprint)


def explode_batches(topic: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``explode`` over Arrow batches with the columns key, value and offset."""
    for batch in batches:
        records = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        inputs = [one for key, value, offset in records for one in explode(value, offset, topic, key)]
        yield record_batch(inputs, INPUT)


def open_stream(spark: SparkSession, config: ConsumerConfig, start_offset: int, max_epochs: int) -> DataFrame:
    """The tracker's inputs as a stream from ``start_offset`` of the epochs topic on."""
    topic = config.epochs_topic
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", config.bootstrap_servers)
        .options(**{f"kafka.{name}": value for name, value in config.kafka_security.java().items()})
        .option("kafka.isolation.level", "read_committed")
        # An offset range that ends with a transaction marker would wait this long for a record behind it.
        .option("kafka.fetch.max.wait.ms", "10")
        .option("failOnDataLoss", "true")
        .option("assign", json.dumps({topic: [0]}))
        .option("startingOffsets", json.dumps({topic: {"0": start_offset}}))
        .option("maxOffsetsPerTrigger", str(max_epochs))
    )
    if config.max_batch_delay and not config.until_caught_up:
        source = source.option("minOffsetsPerTrigger", str(max_epochs)).option(
            "maxTriggerDelay", f"{round(config.max_batch_delay * 1000)}ms"
        )
    source = source.load()
    return source.select("key", "value", "offset").mapInArrow(partial(explode_batches, topic), INPUT_DDL)
