"""The schema tracker's state, tested without a query."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from schemas.errors import LogError
from schemas.structure import TableStructure
from schemas.wire.epoch import EPOCH_KEY, EpochCommitted, StructureVersion, TableTouched
from schemas.wire.log_records import FOREIGN, OTHER_VERSION
from spark_consumer.epochs.spark_tracker import SchemaTracker
from spark_consumer.epochs.tracker import BROKEN, EPOCH, STRUCTURE, UNKNOWN, TrackerOutput
from tests.support.epochs.fake_topic import integer
from tests.support.epochs.records import epoch_record, version_record

TOPIC = "p.epochs"
ONE = version_record(1, TableStructure("d", "t", (integer("id"),), ("id",)))
TWO = version_record(2, TableStructure("d", "t", (integer("id"), integer("v")), ("id",)))


def epoch(number: int, *touched: StructureVersion, new: tuple[StructureVersion, ...] = ()) -> EpochCommitted:
    """An epoch with rows of structures, of which some are new."""
    tables = tuple(TableTouched(v.db, v.table, v.fingerprint, 1, 0, 0) for v in touched)
    versions = tuple(replace(version, epoch=number) for version in new)
    return epoch_record(number, rows=len(touched), tables=tables, structures=versions)


def given(record: EpochCommitted) -> Row:
    """A record as Spark reads it; its offset is ten times its number."""
    return Row(key=EPOCH_KEY, value=record.encode(), offset=record.epoch * 10, partition=0)


def answers(rows: list[Any]) -> list[tuple[Any, ...]]:
    """What follows the epochs."""
    found = [row for row in rows if row.kind != EPOCH]
    return [(row.kind, row.epoch, row.log_offset, row.table_name, row.fingerprint, row.text) for row in found]


def structure(version: StructureVersion, introduced: int, touched: int) -> tuple[Any, ...]:
    return STRUCTURE, introduced, touched * 10, "d.t", version.fingerprint, version.structure


@pytest.fixture
def tracker() -> Any:
    return TwsTester(SchemaTracker(TOPIC))


def test_rows_are_answered_with_the_structure_they_name_in_any_order(tracker: Any) -> None:
    rows = [given(epoch(4, ONE)), given(epoch(3, ONE, new=(ONE,)))]
    assert answers(tracker.test(0, rows)) == [structure(ONE, 3, 3)]


def test_structures_are_kept_from_one_batch_to_the_next(tracker: Any) -> None:
    tracker.test(0, [given(epoch(1, ONE, new=(ONE,)))])
    tracker.test(0, [given(epoch(2, new=(TWO,)))])
    assert answers(tracker.test(0, [given(epoch(3, TWO))])) == [structure(TWO, 2, 3)]
    # back to the first form, without its being sent again
    assert answers(tracker.test(0, [given(epoch(5, ONE))])) == [structure(ONE, 1, 5)]


def test_an_unknown_structure_is_said_to_be_unknown(tracker: Any) -> None:
    tracker.test(0, [given(epoch(1, ONE, new=(ONE,)))])
    assert answers(tracker.test(0, [given(epoch(2, TWO))])) == [
        (UNKNOWN, 2, 20, "d.t", TWO.fingerprint, None)
    ]


def test_a_structure_of_the_future_is_no_answer_until_then() -> None:
    # Spark may deliver epochs before the position that the state begins with.
    seed = [(0, Row(table_name="d.t", epoch=8, fingerprint=ONE.fingerprint, text=ONE.structure))]
    tracker: Any = TwsTester(SchemaTracker(TOPIC), initialStateRow=seed)
    assert answers(tracker.test(0, [given(epoch(7, ONE)), given(epoch(9, ONE))])) == [
        (UNKNOWN, 7, 70, "d.t", ONE.fingerprint, None),
        structure(ONE, 8, 9),
    ]


def test_epochs_pass_through(tracker: Any) -> None:
    record = epoch(5)
    [row] = tracker.test(0, [given(record)])
    assert (row.kind, row.epoch, row.log_offset, row.record) == (EPOCH, 5, 50, record.encode())


@pytest.mark.parametrize(
    ("start", "hint"),
    [(b"\xc3\x01" + bytes(8), OTHER_VERSION), (bytes(10), FOREIGN)],
    ids=["another schema", "no schema"],
)
def test_an_invalid_record_stops_with_its_own_hint(tracker: Any, start: bytes, hint: str) -> None:
    record = start + epoch_record(9).encode()[len(start) :]
    rows = tracker.test(0, [Row(key=EPOCH_KEY, value=record, offset=44, partition=0), given(epoch(5))])
    output = TrackerOutput.of(rows)
    # The others are read.
    assert [(row.kind, row.epoch) for row in rows] == [(BROKEN, -1), (EPOCH, 5)]
    output.refuse_broken(44)
    with pytest.raises(LogError, match=r"TR568: topic p\.epochs, partition 0, offset 44: ") as stopped:
        output.refuse_broken(43)
    assert stopped.value.hint == hint


def test_a_fingerprint_of_two_structures_stops_as_foreign(tracker: Any) -> None:
    # A schema registry's number names a structure by itself.
    one, two = replace(ONE, fingerprint="00000001"), replace(TWO, fingerprint="00000001")
    tracker.test(0, [given(epoch(1, new=(one,)))])
    output = TrackerOutput.of(tracker.test(0, [given(epoch(2, new=(two,)))]))
    with pytest.raises(LogError, match=r"TR568: two structures of d\.t have the fingerprint 0+1") as stopped:
        output.refuse_broken(1)
    assert stopped.value.hint == FOREIGN
