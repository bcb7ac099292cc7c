"""Rows applied one by one: their order, key changes, and when foreign keys act."""

from __future__ import annotations

from dataclasses import replace
from zlib import crc32

import pytest

from schemas.errors import DownstreamError, LogError, Where
from schemas.structure import TableStructure
from schemas.wire.avro_schema import KEY_CHANGE, row_schema
from spark_consumer.apply.prepared import ordered_rows
from spark_consumer.plan.plan import ApplyMode, SlicePlan, TablePlan, plan_slice
from spark_consumer.plan.statements import Limits
from spark_consumer.rows.ordered import OrderedRow, statements
from spark_consumer.rows.render import UnknownHeader, render
from spark_consumer.rows.results import Deletes, InsertedRows, OrderedChange, RowTally, UnwrittenCounts
from spark_consumer.rows.slice_rows import RangeRows
from spark_consumer.rules.rules import Rules
from spark_consumer.target.row_locator import BY_KEY, BY_ROW
from spark_consumer.target.table import TargetTable
from spark_consumer.target.tables import families
from tests.support.applying.targets import column, unique
from tests.support.applying.targets import generated as computed
from tests.support.epochs.fake_topic import Change, delete, insert, integer, row_key, row_value, update
from tests.support.epochs.fake_topic import text as text_column

PARENT = TableStructure("d", "p", (integer("id"), integer("v", nullable=True)), ("id",))
NO_KEY = TableStructure("d", "n", (integer("a"), text_column("s", nullable=True)), ())


def planned(structure: TableStructure, mode: ApplyMode, *, cascades: bool = False) -> TablePlan:
    names = tuple(column.name for column in structure.columns)
    name = (structure.db, structure.table)
    locator = BY_KEY if structure.key else BY_ROW
    header = row_schema(structure).header
    return TablePlan(header, structure, mode, name, names, cascades, locator=locator)


def rendered(table: TablePlan, *changes: Change) -> list[OrderedRow]:
    plan = SlicePlan((table,), Limits(2_000))
    keys = [row_key(c.structure, c.after or c.before or {}) for c in changes]
    values = [row_value(c, 7, seq, "g") for seq, c in enumerate(changes)]
    return ordered_rows(
        plan, (r for r in render(plan, RangeRows(keys, values)) if isinstance(r, OrderedChange))
    )


def sql(table: TablePlan, *changes: Change) -> list[bytes]:
    return [one.sql for one in statements(reversed(rendered(table, *changes)), Limits(2_000))]


def test_rows_are_put_back_into_the_upstreams_order() -> None:
    table = planned(PARENT, ApplyMode.ORDERED)
    one, two = {"id": 1, "v": None}, {"id": 1, "v": 2}
    assert sql(table, insert(PARENT, one), update(PARENT, one, two), delete(PARENT, two)) == [
        b"INSERT INTO `d`.`p` (`id`,`v`) VALUES (1,NULL)",
        b"UPDATE `d`.`p` SET `id`=1,`v`=2 WHERE `id`=1 LIMIT 1",
        b"DELETE FROM `d`.`p` WHERE `id`=1 LIMIT 1",
    ]


@pytest.mark.parametrize(("gives_way", "verb"), [(True, b"REPLACE"), (False, b"INSERT")])
def test_a_row_that_is_written_again_removes_what_has_its_key(gives_way: bool, verb: bytes) -> None:
    table = replace(planned(PARENT, ApplyMode.ORDERED), safe=True, is_repeat=True, gives_way=gives_way)
    one, two = {"id": 1, "v": None}, {"id": 1, "v": 2}
    changes = [insert(PARENT, one), update(PARENT, one, two), delete(PARENT, two)]
    changes += [
        delete(PARENT, {"id": 3, "v": 5}, KEY_CHANGE),
        insert(PARENT, {"id": 9, "v": 5}, KEY_CHANGE),
    ]
    clears, into = b"DELETE FROM `d`.`p` WHERE (`id`=1)", verb + b" INTO `d`.`p` (`id`,`v`) VALUES "
    found = statements(rendered(table, *changes), Limits(2_000))
    assert [(made.clear_first, made.sql, made.fallbacks, made.may_find_no_row) for made in found] == [
        (clears, into + b"(1,NULL)", (), False),
        (clears, into + b"(1,2)", (), False),
        (None, b"DELETE FROM `d`.`p` WHERE `id`=1 LIMIT 1", (), True),
        (b"DELETE FROM `d`.`p` WHERE (`id`=3) OR (`id`=9)", into + b"(9,5)", (), False),
    ]


def test_a_key_change_is_one_update_so_that_it_cascades() -> None:
    table = planned(PARENT, ApplyMode.ORDERED)
    halves = (
        delete(PARENT, {"id": 1, "v": 5}, KEY_CHANGE),
        insert(PARENT, {"id": 9, "v": 5}, KEY_CHANGE),
    )
    assert sql(table, *halves) == [b"UPDATE `d`.`p` SET `id`=9,`v`=5 WHERE `id`=1 LIMIT 1"]


def test_without_a_key_the_whole_row_is_matched() -> None:
    table = planned(NO_KEY, ApplyMode.ORDERED)
    [statement] = sql(table, delete(NO_KEY, {"a": 1, "s": None}))
    assert statement.startswith(b"DELETE FROM `d`.`n` WHERE ")
    assert b"`s` IS NULL" in statement
    assert statement.endswith(b" LIMIT 1")


@pytest.mark.parametrize(("flags", "checks"), [(0, True), (0x02, False), (0x11, False), (0x12, False)])
def test_the_rows_flags_decide_whether_foreign_keys_act(flags: int, checks: bool) -> None:
    table = planned(PARENT, ApplyMode.ORDERED, cascades=True)
    rows = rendered(table, delete(PARENT, {"id": 1, "v": 5}, flags))
    assert [one.foreign_key_checks for one in statements(rows, Limits(2_000))] == [checks]


def test_a_row_that_is_there_twice_stops_the_channel() -> None:
    table = planned(PARENT, ApplyMode.ORDERED)
    rows = rendered(table, delete(PARENT, {"id": 1, "v": 5}))
    with pytest.raises(LogError, match="TR553"):
        list(statements(rows * 2, Limits(2_000)))


def test_compacted_tables_yield_deletes_before_inserts_and_a_tally() -> None:
    plan = SlicePlan((planned(PARENT, ApplyMode.COMPACT),), Limits(2_000))
    before, after = {"id": 1, "v": 1}, {"id": 1, "v": 2}
    value = row_value(update(PARENT, before, after), 7, 0, "g")
    results = list(render(plan, RangeRows([row_key(PARENT, after)], [value])))
    assert results == [
        RowTally(1, crc32(value)),
        UnwrittenCounts(0, 0),
        Deletes(0, b"DELETE FROM `d`.`p` WHERE `id` IN (1)", 1),
        InsertedRows(0, [0], None, [b"(1,2)"]),
    ]


def test_skipped_tables_are_counted_and_not_written() -> None:
    plan = SlicePlan((planned(PARENT, ApplyMode.SKIP),), Limits(2_000))
    change = insert(PARENT, {"id": 1, "v": 1})
    value = row_value(change, 7, 0, "g")
    results = list(render(plan, RangeRows([row_key(PARENT, {"id": 1})], [value])))
    assert results == [RowTally(1, crc32(value)), UnwrittenCounts(0, 0)]


def test_a_row_of_an_unknown_structure_is_noticed() -> None:
    change = insert(PARENT, {"id": 1, "v": 1})
    with pytest.raises(UnknownHeader):
        list(
            render(
                SlicePlan((), Limits(2_000)),
                RangeRows([row_key(PARENT, {"id": 1})], [row_value(change, 7, 0, "g")]),
            )
        )


def plan_for(target: TargetTable | None) -> TablePlan:
    targets = {("d", "p"): target}
    return plan_slice({"00" * 8: PARENT}, targets, Rules(), Limits(2_000), Where()).tables[0]


def table_of(*writable: str, generated: tuple[str, ...] = (), in_family: bool = False) -> TargetTable:
    columns = (*map(column, writable), *map(computed, generated))
    return TargetTable(("d", "p"), columns, (unique("id"),), in_family)


def test_a_plan_follows_the_downstreams_table() -> None:
    assert plan_for(table_of("id", "v")).mode is ApplyMode.COMPACT
    assert plan_for(table_of("id", "v", "extra")).mode is ApplyMode.ORDERED
    assert plan_for(table_of("id", "v", in_family=True)).cascades
    assert plan_for(table_of("id", generated=("v",))).writable == ("id",)


def test_a_plan_refuses_what_would_lose_values() -> None:
    with pytest.raises(DownstreamError, match="lacks the column v"):
        plan_for(table_of("id"))
    with pytest.raises(DownstreamError, match="TR605"):
        plan_for(None)


def test_a_family_is_everything_connected_with_a_cascade() -> None:
    a, b, c, d, e = (("x", name) for name in "abcde")
    assert families([(b, a, True), (c, b, False), (e, d, False)]) == {a, b, c}
