"""The schema tracker's state, tested without a query."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from schemas.errors import LogError
from schemas.structure import TableStructure
from schemas.wire.epoch import OffsetRange, SchemaChanged, TableChanged, TableTouched
from schemas.wire.log_records import FOREIGN, OTHER_VERSION
from spark_consumer.epochs.tracker import (
    EPOCH,
    PASS,
    STRUCTURE,
    TOUCH,
    UNKNOWN,
    SchemaTracker,
    TrackerOutput,
    tracker_inputs,
)
from tests.support.epochs.fake_topic import integer
from tests.support.epochs.records import epoch_record, version_record


def given(epoch: int, kind: int, fingerprint: str | None = None, text: str | None = None) -> Row:
    return Row(
        table_name="d.t",
        epoch=epoch,
        kind=kind,
        log_offset=epoch,
        fingerprint=fingerprint,
        text=text,
        hint=None,
        record=b"r",
    )


def answers(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(row.kind, row.epoch, row.fingerprint, row.text) for row in rows]


@pytest.fixture
def tracker() -> Any:
    return TwsTester(SchemaTracker())


def test_a_touch_is_answered_with_the_structure_it_names(tracker: Any) -> None:
    rows = [given(3, TOUCH, "f1"), given(3, STRUCTURE, "f1", "one"), given(4, TOUCH, "f1")]
    assert answers(tracker.test("d.t", rows)) == [(STRUCTURE, 3, "f1", "one")]


def test_structures_are_kept_from_one_batch_to_the_next(tracker: Any) -> None:
    tracker.test("d.t", [given(1, STRUCTURE, "f1", "one")])
    tracker.test("d.t", [given(2, STRUCTURE, "f2", "two")])
    assert answers(tracker.test("d.t", [given(3, TOUCH, "f2")])) == [(STRUCTURE, 2, "f2", "two")]
    # back to the first form, without its being sent again
    assert answers(tracker.test("d.t", [given(5, TOUCH, "f1")])) == [(STRUCTURE, 1, "f1", "one")]


def test_a_table_made_again_in_its_old_form_is_known(tracker: Any) -> None:
    tracker.test("d.t", [given(1, STRUCTURE, "f1", "one")])
    assert answers(tracker.test("d.t", [given(4, TOUCH, "f1")])) == [(STRUCTURE, 1, "f1", "one")]


def test_an_unknown_structure_is_said_to_be_unknown(tracker: Any) -> None:
    tracker.test("d.t", [given(1, STRUCTURE, "f1", "one")])
    assert answers(tracker.test("d.t", [given(2, TOUCH, "f9")])) == [(UNKNOWN, 2, "f9", None)]


def test_a_structure_of_the_future_is_no_answer(tracker: Any) -> None:
    tracker.test("d.t", [given(8, STRUCTURE, "f1", "one"), given(9, STRUCTURE, "f2", "two")])
    assert answers(tracker.test("d.t", [given(7, TOUCH, "f1")])) == [(UNKNOWN, 7, "f1", None)]


def test_state_is_seeded_from_the_schemas_topic() -> None:
    seed = [("d.t", Row(epoch=4, fingerprint="f1", text="one"))]
    tracker: Any = TwsTester(SchemaTracker(), initialStateRow=seed)
    assert answers(tracker.test("d.t", [given(6, TOUCH, "f1")])) == [(STRUCTURE, 4, "f1", "one")]


def test_epochs_pass_through(tracker: Any) -> None:
    [row] = tracker.test(PASS, [given(5, EPOCH)])
    assert (row.kind, row.epoch, row.record) == (EPOCH, 5, b"r")


def test_an_epoch_becomes_inputs_for_each_table_it_names() -> None:
    structure = TableStructure("d", "t", (integer("id"),), ("id",))
    version = version_record(9, structure)
    record = epoch_record(
        9,
        rows=1,
        ranges=(OffsetRange(0, 5, 6),),
        ddl=SchemaChanged(
            "RENAME TABLE a TO b",
            "d",
            "RENAME TABLE",
            (TableChanged("d", "a", None, "b"),),
            "mysql",
            0,
        ),
        tables=(TableTouched("d", "t", version.fingerprint, 1, 0, 0),),
        structures=(version,),
    )
    inputs = list(tracker_inputs(record.encode(), 44))
    assert [(one.table_name, one.kind, one.log_offset) for one in inputs] == [
        (PASS, EPOCH, 44),
        ("d.t", STRUCTURE, 44),
        ("d.t", TOUCH, 44),
    ]


@pytest.mark.parametrize(
    ("start", "hint"),
    [(b"\xc3\x01" + bytes(8), OTHER_VERSION), (bytes(10), FOREIGN)],
    ids=["another schema", "no schema"],
)
def test_an_invalid_record_stops_with_its_own_hint(tracker: Any, start: bytes, hint: str) -> None:
    record = start + epoch_record(9).encode()[len(start) :]
    inputs = [Row(**row._asdict()) for row in tracker_inputs(record, 44, "p.epochs")]
    output = TrackerOutput.of(tracker.test(PASS, inputs))
    output.refuse_broken(44)
    with pytest.raises(LogError, match=r"TR568: topic p\.epochs, partition 0, offset 44: ") as stopped:
        output.refuse_broken(43)
    assert stopped.value.hint == hint


def test_a_fingerprint_of_two_structures_stops_as_foreign(tracker: Any) -> None:
    tracker.test("d.t", [given(1, STRUCTURE, "1", "one")])
    output = TrackerOutput.of(tracker.test("d.t", [given(2, STRUCTURE, "1", "two")]))
    with pytest.raises(LogError, match=r"TR568: two structures of d\.t have the fingerprint 1") as stopped:
        output.refuse_broken(1)
    assert stopped.value.hint == FOREIGN
