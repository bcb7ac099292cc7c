"""The stream of epochs, and the schema tracker: Spark state, keyed by table, with every structure of the log.

Each record of the epochs topic becomes inputs of the tracker. For each micro-batch it outputs the epochs and every
structure that their rows were written with. The executors' renderers are made from this output, never from the epoch
records, so a table whose structure is not in the state cannot be written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from schemas.errors import NOTHING_APPLIED, LogError, Where
from schemas.structure import TableStructure
from schemas.wire.epoch import EPOCH_KEY, EpochCommitted
from schemas.wire.log_records import FOREIGN, At, read_epoch, structure_of
from spark_consumer.epochs.arrow import record_batch
from spark_consumer.epochs.slices import LoggedEpoch
from spark_consumer.rules.config import ConsumerConfig

#: the tracker key of rows that pass through unchanged; no table has an empty name
PASS = ""
# The kinds of rows: an epoch; a structure; a structure in use; a structure that the tracker does not have; an invalid
# record.
EPOCH, STRUCTURE, TOUCH, UNKNOWN, BROKEN = range(5)
#: the version of the state's format and meaning; a state of another version is rebuilt from the schemas topic
STATE_VERSION = 3

ROWS = pa.schema(
    [
        ("table_name", pa.string()),
        ("epoch", pa.int64()),
        ("kind", pa.int32()),
        ("log_offset", pa.int64()),
        ("fingerprint", pa.string()),
        ("text", pa.string()),
        ("hint", pa.string()),
        ("record", pa.binary()),
    ]
)
#: the tracker's inputs and its outputs
ROWS_DDL = (
    "table_name string, epoch bigint, kind int, log_offset bigint,"
    " fingerprint string, text string, hint string, record binary"
)
#: columns of the initial state's rows
SEED_DDL = "table_name string, epoch bigint, fingerprint string, text string"


class TrackerRow(NamedTuple):
    """One input or output of the tracker.

    Attributes:
        table_name: ``database.table``, or ``PASS``.
        epoch: the epoch's number, -1 for BROKEN if it is not known; for an output STRUCTURE the one that introduced it.
        kind: for inputs EPOCH, STRUCTURE or TOUCH, which is also the order within one epoch, or BROKEN; for outputs
            EPOCH, STRUCTURE, UNKNOWN or BROKEN.
        fingerprint: set for STRUCTURE, TOUCH and UNKNOWN.
        text: the structure's JSON, or the reason why the record is invalid.
        hint: what to do about an invalid record.
        record: the record's bytes, for EPOCH.
    """

    table_name: str
    epoch: int
    kind: int
    log_offset: int
    fingerprint: str | None = None
    text: str | None = None
    hint: str | None = None
    record: bytes | None = None


def open_stream(spark: SparkSession, config: ConsumerConfig, start_offset: int, max_epochs: int) -> DataFrame:
    """Return the tracker's inputs as a stream from ``start_offset`` of the epochs topic."""
    topic = config.epochs_topic
    source = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", config.bootstrap_servers)
        .options(**{f"kafka.{name}": value for name, value in config.kafka_security.java().items()})
        .option("kafka.isolation.level", "read_committed")
        # An offset range that ends with a transaction marker would wait this long for a record after it.
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
    return source.select("key", "value", "offset").mapInArrow(partial(tracker_batches, topic), ROWS_DDL)


def tracker_batches(topic: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Apply ``tracker_inputs`` to Arrow batches with the columns key, value and offset."""
    for batch in batches:
        records = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        inputs = [one for key, value, offset in records for one in tracker_inputs(value, offset, topic, key)]
        yield record_batch(inputs, ROWS)


def tracker_inputs(
    value: bytes | None, offset: int, topic: str = "", key: bytes | None = EPOCH_KEY
) -> list[TrackerRow]:
    """Return the tracker's inputs for one record of the epochs topic."""
    at = At(topic, offset)
    try:
        epoch = read_epoch(value, at, key)
        for version in epoch.structures:
            structure_of(version, at)
        return list(_inputs(epoch, value or b"", offset))
    except LogError as error:
        number = -1 if error.where.epoch is None else error.where.epoch
        return [TrackerRow(PASS, number, BROKEN, offset, text=error.message, hint=error.hint)]


def _inputs(epoch: EpochCommitted, value: bytes, offset: int) -> Iterator[TrackerRow]:
    yield TrackerRow(PASS, epoch.epoch, EPOCH, offset, record=value)
    for version in epoch.structures:
        name = f"{version.db}.{version.table}"
        yield TrackerRow(name, epoch.epoch, STRUCTURE, offset, version.fingerprint, version.structure)
    for touched in epoch.tables:
        yield TrackerRow(f"{touched.db}.{touched.table}", epoch.epoch, TOUCH, offset, touched.fingerprint)


def track(inputs: DataFrame, seed: DataFrame) -> DataFrame:
    """Run the tracker over a stream of inputs; ``seed`` becomes the state of a new checkpoint."""
    return inputs.groupBy("table_name").transformWithState(
        statefulProcessor=SchemaTracker(),
        outputStructType=ROWS_DDL,
        outputMode="Append",
        timeMode="None",
        initialState=seed.groupBy("table_name"),
    )


class SchemaTracker(StatefulProcessor):  # type: ignore[misc]
    """The state of one table: its structures by fingerprint, each with the epoch that introduced it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._versions = handle.getMapState(
            "versions", "fingerprint string", "epoch bigint, structure string"
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Process the rows of one table in one micro-batch, in any order."""
        del timerValues
        if key[0] == PASS:
            for row in rows:
                yield _output(
                    PASS,
                    row.epoch,
                    row.kind,
                    row.log_offset,
                    text=row.text,
                    hint=row.hint,
                    record=row.record,
                )
            return
        yield from self._answers(key[0], sorted(rows, key=lambda row: (row.epoch, row.kind)))

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:
        """Process one structure from the schemas topic, in any order."""
        del key, timerValues
        self._learn(initialState.epoch, initialState.fingerprint, initialState.text)

    def close(self) -> None:
        """Nothing is held open."""

    def _answers(self, table: str, rows: Iterable[Row]) -> Iterator[Row]:
        answered: set[str] = set()
        for row in rows:
            if row.kind == STRUCTURE:
                if not self._learn(row.epoch, row.fingerprint, row.text):
                    what = f"two structures of {table} have the fingerprint {row.fingerprint}"
                    yield _output(table, row.epoch, BROKEN, row.log_offset, text=what, hint=FOREIGN)
            elif row.kind == TOUCH and row.fingerprint not in answered:
                answered.add(row.fingerprint)
                yield self._answer(table, row)

    def _learn(self, epoch: int, fingerprint: str, structure: str) -> bool:
        """Returns False if the fingerprint already names a different structure (possible only with registry ids)."""
        version = self._versions.getValue((fingerprint,))
        if version is not None and version[1] != structure:
            return False
        self._versions.updateValue((fingerprint,), (epoch, structure))
        return True

    def _answer(self, table: str, row: Row) -> Row:
        version = self._versions.getValue((row.fingerprint,))
        if version is not None and version[0] <= row.epoch:
            return _output(table, version[0], STRUCTURE, row.log_offset, row.fingerprint, version[1])
        return _output(table, row.epoch, UNKNOWN, row.log_offset, row.fingerprint)


def _output(*fields: Any, **more: Any) -> Row:
    return Row(**TrackerRow(*fields, **more)._asdict())


@dataclass(frozen=True)
class TrackerOutput:
    """The tracker's output for one micro-batch, in any order.

    Attributes:
        structures: the structures by their fingerprints.
        unknown, broken: the rows of these kinds.
    """

    epochs: list[LoggedEpoch]
    structures: dict[str, TableStructure]
    unknown: list[Any]
    broken: list[Any]

    @staticmethod
    def of(rows: Sequence[Any]) -> TrackerOutput:
        """Build the values from the output's rows."""
        by_kind: dict[int, list[Any]] = {kind: [] for kind in (EPOCH, STRUCTURE, UNKNOWN, BROKEN)}
        for row in rows:
            by_kind[row.kind].append(row)
        return TrackerOutput(
            [LoggedEpoch(EpochCommitted.decode(bytes(row.record)), row.log_offset) for row in by_kind[EPOCH]],
            {row.fingerprint: TableStructure.from_json(row.text) for row in by_kind[STRUCTURE]},
            by_kind[UNKNOWN],
            by_kind[BROKEN],
        )

    def refuse_unknown(self, position: int) -> None:
        """Raise LogError TR552 if an epoch after ``position`` has rows of a structure that is not known."""
        for row in self.unknown:
            if row.epoch > position:
                raise LogError(
                    "TR552",
                    f"the schema tracker has no structure {row.fingerprint} of {row.table_name}",
                    where=Where(table=row.table_name, epoch=row.epoch),
                    hint="the epoch that introduced it, or the schemas topic, is damaged",
                    applied=NOTHING_APPLIED,
                )

    def refuse_broken(self, offset: int) -> None:
        """Raise LogError TR568 if a record after ``offset`` is invalid."""
        broken = [row for row in self.broken if row.log_offset > offset]
        if broken:
            first = min(broken, key=lambda row: int(row.log_offset))
            where = Where(epoch=first.epoch if first.epoch >= 0 else None)
            raise LogError("TR568", str(first.text), where=where, hint=str(first.hint))
