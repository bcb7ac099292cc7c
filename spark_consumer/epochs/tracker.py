"""The schema tracker: Spark state, keyed by table, of every structure the log brought, by epoch.

For each micro-batch it yields the epochs themselves and, for every structure that their rows were written
with, that structure. The executors' renderers are made from this output, never from the epoch records, so a
table whose structure the state does not hold cannot be written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from schemas.structure import has_full_images
from spark_consumer.epochs.stream import BROKEN, DDL, INPUT_DDL, PASS, STRUCTURE, TOUCH

# What an output row is.
OUT_EPOCH, OUT_STRUCTURE, OUT_UNKNOWN, OUT_BROKEN = range(4)
#: of the form and the meaning of the state: another one makes it anew from the schemas topic
STATE_VERSION = 2
#: columns of the output
OUTPUT_DDL = INPUT_DDL
_CURRENT = "epoch bigint, fingerprint string, structure string, ddl_epoch bigint, ddl string"
_VERSION_KEY = "fingerprint string"
_VERSION = "epoch bigint, structure string"
#: columns of the initial state's rows
SEED_DDL = "tracked string, epoch bigint, fingerprint string, text string"


class SchemaTracker(StatefulProcessor):  # type: ignore[misc]
    """State of one table: ``current`` (structure in force, last DDL) and ``versions`` by fingerprint."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._current = handle.getValueState("current", _CURRENT)
        self._versions = handle.getMapState("versions", _VERSION_KEY, _VERSION)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """The rows of one table in one micro-batch, in any order."""
        del timerValues
        if key[0] == PASS:
            for row in rows:
                kind = OUT_BROKEN if row.kind == BROKEN else OUT_EPOCH
                yield _output(PASS, row.epoch, kind, row.log_offset, text=row.text, record=row.record)
            return
        yield from self._follow(key[0], sorted(rows, key=lambda row: (row.epoch, row.kind)))

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:
        """One structure from the schemas topic, in any order."""
        del key, timerValues
        self._learn(initialState.epoch, initialState.fingerprint, initialState.text)

    def close(self) -> None:
        """Nothing is held open."""

    def _follow(self, table: str, rows: Iterable[Row]) -> Iterator[Row]:
        told: set[str] = set()
        for row in rows:
            if row.kind == STRUCTURE:
                if not self._learn(row.epoch, row.fingerprint, row.text):
                    what = f"the log has {row.fingerprint}, the name of this structure of {table}, for another one"
                    yield _output(table, row.epoch, OUT_BROKEN, row.log_offset, text=what)
            elif row.kind == DDL:
                self._changed(row.epoch, row.text)
            elif row.kind == TOUCH and row.fingerprint not in told:
                told.add(row.fingerprint)
                yield self._answer(table, row)

    def _learn(self, epoch: int, fingerprint: str, structure: str) -> bool:
        """False: the name is another structure's already, as only a registry's id can be."""
        version = self._versions.getValue((fingerprint,))
        if version is not None and version[1] != structure:
            return False
        self._versions.updateValue((fingerprint,), (epoch, structure))
        if not has_full_images(structure):
            return True
        known = self._current.get()
        if known is None or known[0] <= epoch:
            ddl = (known[3], known[4]) if known else (None, None)
            self._current.update((epoch, fingerprint, structure, *ddl))
        return True

    def _changed(self, epoch: int, ddl: str) -> None:
        known = self._current.get()
        if json.loads(ddl)["kind"] == "DROP TABLE" or known is None:
            self._current.update((epoch, "", "", epoch, ddl))
        else:
            self._current.update((*known[:3], epoch, ddl))

    def _answer(self, table: str, row: Row) -> Row:
        known = self._current.get()
        if known is not None and known[1] == row.fingerprint:
            return _output(table, known[0], OUT_STRUCTURE, row.log_offset, row.fingerprint, known[2])
        # A structure can come back, as after ADD COLUMN and DROP COLUMN, without being sent again.
        version = self._versions.getValue((row.fingerprint,))
        if version is not None and version[0] <= row.epoch:
            return _output(table, version[0], OUT_STRUCTURE, row.log_offset, row.fingerprint, version[1])
        return _output(table, row.epoch, OUT_UNKNOWN, row.log_offset, row.fingerprint)


def _output(
    table: str,
    epoch: int,
    kind: int,
    offset: int,
    fingerprint: str | None = None,
    text: str | None = None,
    record: bytes | None = None,
) -> Row:
    return Row(
        tracked=table,
        epoch=epoch,
        kind=kind,
        log_offset=offset,
        fingerprint=fingerprint,
        text=text,
        record=record,
    )


def track(inputs: DataFrame, seed: DataFrame) -> DataFrame:
    """Run the tracker over a stream of inputs; ``seed`` becomes the state of a new checkpoint."""
    return inputs.groupBy("tracked").transformWithState(
        statefulProcessor=SchemaTracker(),
        outputStructType=OUTPUT_DDL,
        outputMode="Append",
        timeMode="None",
        initialState=seed.groupBy("tracked"),
    )
