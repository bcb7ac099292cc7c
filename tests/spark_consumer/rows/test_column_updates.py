"""UPDATEs whose images lack columns: what is left of a batch of them has the effect of all of them, one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Where
from schemas.structure import Column, TableStructure
from schemas.wire.avro_schema import KEY_CHANGE, read_record, row_schema
from schemas.wire.rows import HEADER_SIZE, widened
from spark_consumer.plan.plan import ApplyMode, SlicePlan, plan_slice
from spark_consumer.plan.statements import Limits
from spark_consumer.rows.column_updates import LaidUpdates, lay_updates
from spark_consumer.rows.compact import compact
from spark_consumer.rows.render import render
from spark_consumer.rows.results import Deletes, InsertedRows, OnlyInOrder, OrderedChange, Updates
from spark_consumer.rows.slice_rows import RangeRows
from spark_consumer.rules.rules import Rules
from spark_consumer.target.table import TargetTable
from spark_consumer.target.type_capacity import type_of
from tests.support.applying.targets import column, unique
from tests.support.epochs.fake_topic import Change, delete, insert, integer, row_key, row_value, update

COLUMNS = ("id", "a", "b", "c")
FULL = TableStructure("d", "t", tuple(map(integer, COLUMNS)), ("id",))
SOME = replace(FULL, before_columns=(), after_columns=("id", "a"))
GONE = replace(FULL, before_columns=("id",), after_columns=())
SETS = {
    names: replace(FULL, before_columns=("id",), after_columns=("id", *names))
    for names in ("a", "ab", "bc", "c")
}
EVERY = (FULL, SOME, GONE, *SETS.values())
TARGET = TargetTable(
    ("d", "t"),
    tuple(replace(column(name, null=False), default_sql=b"0") for name in COLUMNS),
    (unique("id"),),
)
Rows = dict[int, dict[str, int]]


def plan(*structures: TableStructure, target: TargetTable = TARGET, **rules: Any) -> SlicePlan:
    by_name = {row_schema(one).fingerprint.hex(): one for one in structures or EVERY}
    targets = {("d", "t"): target}
    return plan_slice(by_name, targets, Rules(**rules), Limits(2_000), Where(), doubtful=lambda name: True)


PLAN = plan()
TABLES = {table.header: table for table in PLAN.tables}
SCHEMAS = {
    header: fastavro.parse_schema(json.loads(row_schema(table.structure).text))
    for header, table in TABLES.items()
}


def records(changes: Sequence[Change]) -> tuple[list[bytes], list[bytes]]:
    keys = [row_key(FULL, change.after or change.before or {}) for change in changes]
    return keys, [widened(row_value(change, 7, seq, "g")) for seq, change in enumerate(changes)]


def lay(*changes: Change) -> LaidUpdates:
    return lay_updates(*records(changes), TABLES)


def image(value: bytes, side: str = "after") -> dict[str, int]:
    found: dict[str, int] = read_record(SCHEMAS[value[:HEADER_SIZE]], value[HEADER_SIZE:])[side]
    return found


@st.composite
def histories(draw: st.DrawFn) -> tuple[Rows, list[Change]]:
    """A table before, and a log that is possible from there."""
    rows = {id_: dict.fromkeys(COLUMNS, 0) | {"id": id_} for id_ in draw(st.sets(st.sampled_from((1, 2, 3))))}
    present, changes = set(rows), []
    for value, id_ in enumerate(draw(st.lists(st.sampled_from((1, 2, 3)), max_size=14)), 1):
        key, row = {"id": id_}, {"id": id_, "a": value, "b": value, "c": value}
        if id_ not in present:
            change = draw(st.sampled_from((insert(FULL, row), insert(SOME, {"id": id_, "a": value}))))
            present.add(id_)
        else:
            names = draw(st.sampled_from(("", "abc", *SETS, *SETS)))
            if not names:
                change = delete(draw(st.sampled_from((GONE, FULL))), row)
                present.discard(id_)
            elif names == "abc":
                change = update(FULL, row, row)
            else:
                change = update(SETS[names], key, key | dict.fromkeys(names, value))
        changes.append(change)
    return rows, changes


def one_by_one(rows: Rows, changes: Sequence[Change]) -> Rows:
    found = {id_: dict(row) for id_, row in rows.items()}
    for change in changes:
        if change.after is None:
            del found[(change.before or {})["id"]]
        elif change.op == "c":
            found[change.after["id"]] = dict.fromkeys(COLUMNS, 0) | change.after
        else:
            found[change.after["id"]] |= change.after
    return found


@given(histories(), st.randoms())
def test_what_is_left_has_the_effect_of_all_changes(
    history: tuple[Rows, list[Change]], random: Random
) -> None:
    rows, changes = history
    laid = lay(*changes)
    assert not laid.refused
    assert laid.saved == len(changes) - len(laid.values) - len(laid.updates)
    net = compact(laid.keys, laid.values)
    found = {id_: dict(row) for id_, row in rows.items()}
    for _, value in net.gone:
        del found[image(value, "before")["id"]]
    for _, value in net.written:
        row = image(value)
        assert row["id"] not in found
        found[row["id"]] = dict.fromkeys(COLUMNS, 0) | row
    random.shuffle(laid.updates)
    for _, value in laid.updates:
        found[image(value)["id"]] |= image(value)
    assert found == one_by_one(rows, changes)


@given(histories())
def test_no_row_is_set_twice_with_one_statement(history: tuple[Rows, list[Change]]) -> None:
    laid = lay(*history[1])
    assert len({(key, value[:HEADER_SIZE]) for key, value in laid.updates}) == len(laid.updates)


ONE = {"id": 1}
ROW = ONE | {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize(
    "changes",
    [
        # the key moves, and the rest of the row is not known
        [delete(SETS["a"], ONE, KEY_CHANGE), insert(SETS["a"], {"id": 9, "a": 5}, KEY_CHANGE)],
        [insert(SETS["a"], {"id": 9, "a": 5}, KEY_CHANGE)],
        # such a log cannot be
        [delete(GONE, ONE), update(SETS["a"], ONE, ONE | {"a": 2})],
    ],
)
def test_what_can_only_be_made_in_order_is_refused(changes: list[Change]) -> None:
    assert lay(*changes).refused == {TABLES[records(changes)[1][-1][:HEADER_SIZE]].header}
    keys, values = records(changes)
    results = list(render(PLAN, RangeRows(keys, values)))
    assert [PLAN.tables[one.table].structure for one in results if isinstance(one, OnlyInOrder)] == [
        SETS["a"]
    ]
    assert not any(isinstance(one, Deletes | Updates | InsertedRows) for one in results)


def test_a_key_of_another_row_is_no_row() -> None:
    _, values = records([update(SETS["a"], ONE, ONE | {"a": 2})])
    with pytest.raises(ValueError, match="another row"):
        lay_updates([row_key(FULL, {"id": 2})], values, TABLES)


def test_a_column_of_another_type_is_not_laid_on_another() -> None:
    changed = replace(FULL.columns[1], nullable=True)
    columns = (FULL.columns[0], changed, *FULL.columns[2:])
    other = replace(SETS["a"], columns=columns)
    nullable = replace(
        TARGET, columns=tuple(replace(one, nullable=one.name == "a") for one in TARGET.columns)
    )
    tables = {table.header: table for table in plan(FULL, other, target=nullable).tables}
    keys, values = records([insert(FULL, ROW), update(other, ONE, ONE | {"a": None})])
    assert lay_updates(keys, values, tables).refused == {values[1][:HEADER_SIZE]}


def sql(*changes: Change, of: SlicePlan = PLAN) -> list[str]:
    keys, values = records(changes)
    return [one.sql.decode() for one in render(of, RangeRows(keys, values)) if isinstance(one, Updates)]


def test_rows_are_changed_in_place_many_with_one_statement_and_one_by_its_key() -> None:
    several = [update(SETS["a"], {"id": n}, {"id": n, "a": n}) for n in (30, 4, 5)]
    assert sorted(sql(*several, update(SETS["bc"], {"id": 4}, {"id": 4, "b": 8, "c": 9}))) == [
        "INSERT INTO `d`.`t` (`id`,`a`,`b`,`c`) VALUES (4,4,0,0),(5,5,0,0),(30,30,0,0) AS n"
        " ON DUPLICATE KEY UPDATE `id`=n.`id`,`a`=n.`a`",
        "UPDATE `d`.`t` SET `id`=4,`b`=8,`c`=9 WHERE `id`=4",
    ]


def target(**changes: Any) -> TargetTable:
    """The table with another column c."""
    return replace(TARGET, columns=(*TARGET.columns[:-1], replace(TARGET.columns[-1], **changes)))


def test_what_the_server_does_by_itself_it_does_not_do() -> None:
    touched = plan(SETS["a"], target=target(default_sql=None, touched=True))
    nullable = plan(SETS["a"], target=target(default_sql=None, nullable=True))
    changes = [update(SETS["a"], {"id": n}, {"id": n, "a": n}) for n in (4, 5)]
    assert sql(*changes, of=touched)[0].endswith("UPDATE `id`=n.`id`,`a`=n.`a`,`c`=`d`.`t`.`c`")
    # A default may be an expression, and a sequence's next number.
    assert "(`id`,`a`,`b`,`c`) VALUES (4,4,0,NULL)" in sql(*changes, of=nullable)[0]
    omitted = plan(SETS["a"], target=target(default_sql=b"DEFAULT"))
    assert "(`id`,`a`,`b`) VALUES (4,4,0)" in sql(*changes, of=omitted)[0]


SHAPE = Column("c", "geometry", 255, 4, nullable=False)


@pytest.mark.parametrize(
    ("there", "rules"),
    [
        (replace(TARGET, keys=(unique("id", nullable=True),)), {}),
        (replace(TARGET, engine="MyISAM"), {}),
        (replace(TARGET, in_family=True), {}),
        (target(default_sql=None, type=type_of(SHAPE)), {}),
        (TARGET, {"compact": False}),
    ],
)
def test_where_another_row_could_be_met_or_no_value_is_known_changes_are_made_in_order(
    there: TargetTable, rules: dict[str, Any]
) -> None:
    full, sets = FULL, SETS["a"]
    if there.columns[-1].type.base == "geometry":
        full, sets = (replace(one, columns=(*one.columns[:-1], SHAPE)) for one in (full, sets))
    made = plan(full, sets, target=there, **rules)
    assert {table.mode for table in made.tables} == {ApplyMode.ORDERED}
    keys, values = records([update(sets, ONE, ONE | {"a": 2})])
    assert any(isinstance(one, OrderedChange) for one in render(made, RangeRows(keys, values)))
