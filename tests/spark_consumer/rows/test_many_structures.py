"""The functions of each table are made once, however many tables are at work in turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import CodeType

import pytest

from schemas import codegen
from schemas.errors import Where
from schemas.structure import TableStructure
from schemas.wire.avro_schema import row_schema
from schemas.wire.rows import widened
from spark_consumer.plan.plan import SlicePlan, plan_slice
from spark_consumer.plan.statements import Limits
from spark_consumer.rows.render import render
from spark_consumer.rows.results import Deletes, InsertedRows, Updates
from spark_consumer.rows.slice_rows import RangeRows
from spark_consumer.rules.rules import Rules
from spark_consumer.target.table import TargetTable
from tests.support.applying.targets import column, unique
from tests.support.epochs.fake_topic import Change, delete, insert, integer, row_key, row_value, update

TABLES = 1_100
COLUMNS = tuple(map(integer, ("id", "a", "b", "c", "d", "e", "f", "g")))
ROW = dict.fromkeys((one.name for one in COLUMNS), 1)


def _plan(structures: list[TableStructure]) -> SlicePlan:
    columns = tuple(replace(column(one.name, null=False), default_sql=b"0") for one in COLUMNS)
    names = [(one.db, one.table) for one in structures]
    targets = {name: TargetTable(name, columns, (unique("id"),)) for name in names}
    by_name = {row_schema(one).fingerprint.hex(): one for one in structures}
    return plan_slice(by_name, targets, Rules(), Limits(2_000), Where(), doubtful=lambda name: True)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that are made from now on."""
    found: list[str] = []
    code_of = codegen._code

    def noted(source: str, where: str) -> CodeType:
        found.append(where)
        return code_of(source, where)

    monkeypatch.setattr(codegen, "_code", noted)
    return found


def _rows(changes: Iterable[Change]) -> RangeRows:
    made = list(changes)
    keys = [row_key(change.structure, change.after or change.before or {}) for change in made]
    return RangeRows(keys, [widened(row_value(change, 7, seq, "g")) for seq, change in enumerate(made)])


def test_functions_are_made_once(made: list[str]) -> None:
    structures = [TableStructure("many", f"t{number}", COLUMNS, ("id",)) for number in range(TABLES)]
    plan = _plan(structures)
    rows = _rows(
        change
        for one in structures
        for change in (
            insert(one, ROW),
            delete(one, ROW | {"id": 3}),
            update(one, ROW | {"id": 4}, ROW | {"id": 4, "a": 5}),
            update(one, ROW | {"id": 6}, ROW | {"id": 6, "a": 5}),
        )
    )
    first = list(render(plan, rows))
    kinds = (Deletes, Updates, InsertedRows)
    assert [sum(isinstance(one, kind) for one in first) for kind in kinds] == [TABLES] * 3
    assert len(made) > 4 * TABLES
    made.clear()
    assert list(render(plan, rows)) == first
    assert made == []


def test_only_functions_that_are_needed_are_made(made: list[str]) -> None:
    structure = TableStructure("few", "t", COLUMNS, ("id",))
    found = render(_plan([structure]), _rows([delete(structure, ROW)]))
    assert any(isinstance(one, Deletes) for one in found)
    assert made == ["<key of few.t>"]


def test_what_was_not_used_for_longest_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codegen, "_MOST_COLUMNS", 3 * (len(COLUMNS) + 1))
    made: list[tuple[str, int]] = []

    @codegen.kept
    def make(structure: TableStructure, number: int = 0) -> tuple[str, int]:
        made.append((structure.table, number))
        return made[-1]

    a, b, c = (TableStructure("d", name, COLUMNS, ("id",)) for name in "abc")
    assert [make(a), make(b), make(a, 1), make(a), make(a, number=1)] == [
        ("a", 0), ("b", 0), ("a", 1), ("a", 0), ("a", 1)
    ]  # fmt: skip
    assert made == [("a", 0), ("b", 0), ("a", 1), ("a", 1)]
    made.clear()
    # b went before, and now what was made of a and 1.
    assert [make(a), make(c), make(a), make(a, 1)] == [("a", 0), ("c", 0), ("a", 0), ("a", 1)]
    assert made == [("c", 0), ("a", 1)]
    # Rows without an after image need little.
    none = replace(a, after_columns=())
    assert [make(none), make(a), make(none)] == [("a", 0)] * 3
    assert made == [("c", 0), ("a", 1), ("a", 0)]
    # One alone is kept, however large.
    wide = TableStructure("d", "wide", tuple(integer(f"c{number}") for number in range(100)), ("c0",))
    assert make(wide) is make(wide)
