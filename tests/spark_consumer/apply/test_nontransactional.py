"""What is written beside the transaction: from where on, what is repeated, and what is left for the next slice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from schemas.errors import EventId, LogError, Where
from schemas.structure import TableStructure
from spark_consumer.apply.nontransactional import _due, is_ahead
from spark_consumer.apply.prepared import PreparedRows, TableSteps, apply_directives, steps_of
from spark_consumer.apply.tables.error_log import Directive
from spark_consumer.apply.tables.nontransactional_info import RowPosition, TableMark
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import LoggedEpoch, Slice
from spark_consumer.plan.plan import ApplyMode, TablePlan
from spark_consumer.plan.refusal import Event
from spark_consumer.rows.ordered import OrderedRow
from tests.support.epochs.fake_topic import integer
from tests.support.epochs.records import epoch_record

T = TableStructure("d", "t", (integer("id"), integer("v")), ("id",))
PLAN = TablePlan(b"", T, ApplyMode.ORDERED, ("d", "t"), ("id", "v"), transactional=False)
HERE = Position(0, 0, "0-1-50", 1, 0, "u", 1, 0, None, source_log="mysql-bin.000009", source_pos=500)


def _row(seq: int, op: str = "c", plan: TablePlan = PLAN) -> OrderedRow:
    key = b"`id`=%d" % seq
    return OrderedRow(plan, 0, seq, 0, ord(op), key, b"`id`=%d" % seq, b"(%d,0)" % seq)


def _event(seq: int, gtid: str | None = "0-1-7") -> Event:
    return Event(0, seq, gtid, seq, "", "mysql-bin.000007", 100, "")


def _steps(rows: int, plan: TablePlan = PLAN, left_out: frozenset[int] = frozenset()) -> TableSteps:
    events = {EventId(0, seq): (plan, _event(seq)) for seq in range(rows)}
    (made,) = steps_of((_row(seq, plan=plan) for seq in range(rows) if seq not in left_out), events)
    return made


def _written(steps: TableSteps, mark: TableMark | None) -> list[tuple[list[int], bool]]:
    due = _due(steps, mark, HERE, Where())
    return [([step.first for step in slice_], again) for slice_, again in due]


def test_rows_have_numbers_within_their_event() -> None:
    steps = _steps(3)
    assert [place.number for place in steps.places] == [0, 1, 2]
    assert {place[:3] for place in steps.places} == {("0-1-7", "mysql-bin.000007", 100)}


@pytest.mark.parametrize(
    ("mark", "written"),
    [
        (None, [([0, 1, 2, 3], False)]),
        ((0, 0), [([0, 1, 2, 3], False)]),
        ((2, 0), [([2, 3], False)]),
        ((1, 2), [([1, 2], True), ([3], False)]),
        ((1, 9), [([1, 2, 3], True)]),
    ],
)
def test_a_mark_parts_what_is_there_from_what_is_not(
    mark: tuple[int, int] | None, written: list[tuple[list[int], bool]]
) -> None:
    steps = _steps(4)
    assert _written(steps, mark and TableMark(steps.places[mark[0]], mark[1])) == written


def test_a_doubt_may_begin_where_the_position_is() -> None:
    assert _written(_steps(4), TableMark(None, 3)) == [([0, 1, 2], True), ([3], False)]


def test_rows_that_a_rule_leaves_out_count() -> None:
    steps = _steps(5, left_out=frozenset({0, 2}))
    assert _written(steps, TableMark(steps.places[1], 2)) == [([1], True), ([3, 4], False)]


def test_where_a_repetition_could_meet_itself_each_change_is_alone() -> None:
    assert _written(_steps(3, replace(PLAN, alone=True)), None) == [([0], False), ([1], False), ([2], False)]


def test_a_mark_ahead_of_the_slice_says_that_all_is_there() -> None:
    ahead = RowPosition("0-1-51", "mysql-bin.000009", 600, 0)
    assert _written(_steps(2), TableMark(ahead, 1)) == []
    with pytest.raises(LogError, match="TR659"):
        _written(_steps(2), TableMark(RowPosition("0-1-6", "mysql-bin.000007", 90, 0), 1))


@pytest.mark.parametrize(
    ("place", "ahead"),
    [
        (("0-1-50", "x.1", 1), False),
        (("0-1-51", "x.1", 1), True),
        (("7-1-1", "x.1", 1), True),
        ((None, "mysql-bin.000009", 499), False),
        ((None, "mysql-bin.000009", 500), True),
        ((None, "mysql-bin.000010", 4), True),
        ((None, "mysql-bin.1000000", 4), True),
        ((None, "mysql-bin.000008", 999), False),
    ],
)
def test_whether_a_row_is_still_to_come(place: tuple[str | None, str, int], ahead: bool) -> None:
    assert is_ahead(RowPosition(*place, 0), HERE) is ahead


def test_of_mysql_the_set_decides() -> None:
    one = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    at = replace(HERE, executed_gtids=f"{one}:1-5:7")
    assert [is_ahead(RowPosition(f"{one}:{n}", "f.1", 4, 0), at) for n in (5, 6, 7, 8)] == [
        False,
        True,
        False,
        True,
    ]
    # Nothing is applied yet.
    assert is_ahead(RowPosition(f"{one}:1", "f.1", 4, 0), replace(HERE, executed_gtids=""))


def test_what_may_be_there_is_made_sure_of() -> None:
    events = {EventId(0, seq): (PLAN, _event(seq)) for seq in range(3)}
    rows = [_row(0), _row(1, "u"), _row(2, "d")]
    (made,) = steps_of(rows, events)
    texts = [
        (step.idempotent.sql.split()[0], [sql.split()[0] for sql in step.idempotent.fallbacks])
        for step in made.steps
    ]
    assert texts == [(b"UPDATE", [b"INSERT"]), (b"UPDATE", [b"INSERT"]), (b"DELETE", [])]
    assert [step.idempotent.may_find_no_row for step in made.steps] == [False, False, True]
    # Of an UPDATE that finds no row, a filter may have left the INSERT out.
    partial = replace(PLAN, dropped=frozenset({"delete"}))
    (made,) = steps_of([_row(1, "u", partial)], {EventId(0, 1): (partial, _event(1))})
    assert (made.steps[0].idempotent.fallbacks, made.steps[0].idempotent.may_find_no_row) == ((), True)


def test_an_operator_may_leave_one_out_or_replace_it() -> None:
    steps = _steps(3)
    slice_ = Slice((LoggedEpoch(epoch_record(0, rows=3), 0),))
    events = {EventId(0, seq): _event(seq) for seq in range(3)}
    prepared = PreparedRows(slice_, events=events, nontransactional=(steps,))
    decided = {
        EventId(0, seq): Directive(seq, 0, seq, "0-1-7", seq, sql)
        for seq, sql in ((0, ()), (2, ("DELETE 1",)))
    }
    made = apply_directives(prepared, cast(Any, decided), "mysql")
    assert [step.first for step in made.nontransactional[0].steps] == [1]
    assert [(one.sql, one.is_operators) for one in made.writes.ordered] == [(b"DELETE 1", True)]
    assert made.statements == 2
