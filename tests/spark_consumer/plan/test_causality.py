"""What conflicts stays together, and nothing else has to."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.structure import Column, TableStructure
from schemas.wire.avro_schema import row_schema
from schemas.wire.rows import widened
from spark_consumer.apply.workers.bitmap import missing_rows, packed, unpacked
from spark_consumer.apply.workers.build_parts import assign_to_workers
from spark_consumer.apply.workers.conflict_keys import ASKS, conflict_key, conflict_keys_of
from spark_consumer.apply.workers.read_conflicts import unapplied_rows, with_conflict_keys
from spark_consumer.apply.workers.weights import replace_by_weights
from spark_consumer.plan.causality import causality_of
from spark_consumer.plan.conflicts import Causality, Normalization
from spark_consumer.plan.plan import ApplyMode, SlicePlan, TablePlan
from spark_consumer.plan.statements import Limits
from spark_consumer.rows.results import OrderedChange, RowTally, RowToShare
from spark_consumer.rows.slice_rows import RangeRows
from spark_consumer.target.row_locator import BY_ROW, RowLocator, RowMatch
from spark_consumer.target.table import (
    ForeignKey,
    TargetColumn,
    TargetKeyPart,
    TargetTable,
    Trigger,
    UniqueKey,
)
from spark_consumer.target.type_capacity import type_of
from tests.support.applying.targets import column, generated
from tests.support.epochs.fake_topic import (
    Change,
    delete,
    halves,
    insert,
    integer,
    row_key,
    row_value,
    text,
    update,
)

CI = "utf8mb4_general_ci"
COLUMNS = (integer("id"), integer("n", nullable=True), text("s", nullable=True))
T = TableStructure("d", "t", COLUMNS, ("id",))
C = TableStructure("d", "c", COLUMNS, ("id",))


def key(*columns: str | tuple[str, int]) -> UniqueKey:
    return UniqueKey(
        str(columns), tuple(TargetKeyPart(c) if isinstance(c, str) else TargetKeyPart(*c) for c in columns)
    )


def planned(structure: TableStructure, mode: ApplyMode = ApplyMode.COMPACT, **more: Any) -> TablePlan:
    header = widened(row_schema(structure).header)
    return TablePlan(header, structure, mode, (structure.db, structure.table), ("id", "n", "s"), **more)


def target_of(
    structure: TableStructure, *unique: UniqueKey, columns: dict[str, TargetColumn] | None = None, **more: Any
) -> TargetTable:
    found = {
        c.name: TargetColumn(c.name, type_of(c), collation=CI if c.charset == "utf8mb4" else "")
        for c in structure.columns
    } | (columns or {})
    return TargetTable((structure.db, structure.table), tuple(found.values()), (key("id"), *unique), **more)


def causality(
    *tables: tuple[TablePlan, TargetTable],
    foreign: dict[str, tuple[ForeignKey, ...]] | None = None,
    by_tables: bool = False,
) -> Causality:
    made = causality_if_any(*tables, foreign=foreign, by_tables=by_tables)
    assert made is not None
    return made


def causality_if_any(
    *tables: tuple[TablePlan, TargetTable],
    foreign: dict[str, tuple[ForeignKey, ...]] | None = None,
    by_tables: bool = False,
) -> Causality | None:
    plan = SlicePlan(tuple(table for table, _ in tables), Limits(2_000))
    keys = {target.name: (foreign or {}).get(target.name[1], ()) for _, target in tables}
    return causality_of(plan, {target.name: target for _, target in tables}, keys, by_tables=by_tables)


def conflict_keys(made: Causality, table: int, structure: TableStructure, row: dict[str, Any]) -> list[bytes]:
    value = widened(row_value(insert(structure, row), 0, 0, "g"))
    return conflict_keys_of(structure, made.tables[table], before=False)(value)


def weigh(part: Any, literals: Any) -> list[bytes]:
    """As a server to which é is e."""
    return [
        literal.strip(b"'").decode().replace("é", "e").replace("É", "e").lower().encode()
        for literal in literals
    ]


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 5),
            "n": st.none() | st.integers(0, 3),
            "s": st.none() | st.sampled_from(["a", "A ", "e", "é", "É", "it's", "b"]),
        }
    ),
    max_size=12,
)
FOLD = {"A ": "a", "é": "e", "É": "e"}


@given(ROWS, st.integers(2, 5))
def test_rows_that_share_a_unique_value_are_one_workers(rows: list[dict[str, Any]], workers: int) -> None:
    made = causality((planned(T), target_of(T, key("n"), key(("s", 1), "n"))))
    found = [conflict_keys(made, 0, T, row) for row in rows]
    other = replace_by_weights(found, made.spaces, weigh)
    shares = assign_to_workers(
        [[other.get(one, one) for one in its] for its in found], [1] * len(rows), workers
    )
    worker = {row: number for number, part in enumerate(shares.parts) for row in part}
    assert sorted(worker) == list(range(len(rows)))
    assert shares.groups + shares.conflicts == len(rows)

    def conflict(one: dict[str, Any], two: dict[str, Any]) -> bool:
        first = [row["s"] and FOLD.get(row["s"][:1], row["s"][:1]) for row in (one, two)]
        by_n = one["n"] is not None and one["n"] == two["n"]
        return one["id"] == two["id"] or by_n or (first[0] is not None and first[0] == first[1] and by_n)

    for one, two in combinations(range(len(rows)), 2):
        if conflict(rows[one], rows[two]):
            assert worker[one] == worker[two]


def test_rows_that_share_nothing_are_groups_of_their_own() -> None:
    made = causality((planned(T), target_of(T, key("n"), key("s"))))
    rows = [{"id": n, "n": n if n % 2 else None, "s": None if n % 2 else f"s{n}"} for n in range(20)]
    shares = assign_to_workers([conflict_keys(made, 0, T, row) for row in rows], [1] * 20, 4)
    assert (shares.groups, shares.conflicts) == (20, 0)
    assert [len(part) for part in shares.parts] == [5] * 4


def test_an_update_claims_what_it_leaves_and_what_it_takes() -> None:
    made = causality((planned(T), target_of(T, key("n"))))
    change = update(T, {"id": 1, "n": 1, "s": None}, {"id": 1, "n": 2, "s": None})
    value = widened(row_value(change, 0, 0, "g"))
    before, after = (conflict_keys_of(T, made.tables[0], before=side)(value) for side in (True, False))
    assert before[0] == after[0]
    assert before[1:] == conflict_keys(made, 0, T, {"id": 9, "n": 1, "s": "x"})[1:]
    assert after[1:] == conflict_keys(made, 0, T, {"id": 8, "n": 2, "s": "y"})[1:]


def groups_of(*changes: Change) -> list[set[int]]:
    """How the rows of compacted changes fall into groups: the offsets of each."""
    made = causality((planned(T), target_of(T, key("n"))))
    updated = frozenset((T.db, T.table) for change in changes if change.op == "u")
    plan = SlicePlan((planned(T),), Limits(2_000), causality=replace(made, updated=updated))
    split = halves(changes)
    keys = [row_key(T, change.after or change.before or {}) for change in split]
    values = [row_value(change, 0, seq, "g") for seq, change in enumerate(split)]
    rows = [
        r
        for r in with_conflict_keys(plan, RangeRows(keys, values, 0, range(len(split))))
        if isinstance(r, RowToShare)
    ]
    shares = assign_to_workers([row.conflict_keys for row in rows], [1] * len(rows), len(rows))
    return [{offset for row in part for offset in rows[row].offsets} for part in shares.parts]


def at(number: int, n: int | None) -> dict[str, Any]:
    return {"id": number, "n": n, "s": None}


def test_a_compacted_row_claims_what_it_has_had_in_between() -> None:
    first = [update(T, at(1, 1), at(1, 50)), update(T, at(1, 50), at(1, 60))]
    assert groups_of(*first, update(T, at(2, 2), at(2, 50)), update(T, at(3, 3), at(3, 4))) == [
        {0, 1, 2},
        {3},
    ]


def test_both_halves_of_a_key_change_are_one_group() -> None:
    moved = update(T, at(1, None), at(2, None))
    assert groups_of(moved, insert(T, at(3, None))) == [{0, 1}, {2}]


def test_the_rest_of_a_compacted_slice_has_no_row_that_comes_to_nothing() -> None:
    changes = [insert(T, at(1, 7)), delete(T, at(1, 7)), insert(T, at(2, 7)), update(T, at(3, 1), at(3, 2))]
    keys = [row_key(T, change.after or change.before or {}) for change in changes]
    values = [row_value(change, 0, seq, "g") for seq, change in enumerate(changes)]
    applied = [{0: (2, b"\x01")}]
    for mode, expected in ((ApplyMode.COMPACT, [3]), (ApplyMode.ORDERED, [0, 1, 3])):
        plan = SlicePlan((planned(T, mode),), Limits(2_000)).row_by_row()
        found = list(unapplied_rows(plan, applied, RangeRows(keys, values, 0, range(4))))
        assert [r.seq for r in found if isinstance(r, OrderedChange)] == expected
        assert [r.rows for r in found if isinstance(r, RowTally)] == [4]


def test_children_go_with_their_parent_and_not_with_each_other() -> None:
    foreign = ForeignKey(("n",), ("d", "t"), ("id",))
    made = causality((planned(T), target_of(T)), (planned(C), target_of(C)), foreign={"c": (foreign,)})
    parents = [conflict_keys(made, 0, T, {"id": n, "n": None, "s": None}) for n in (1, 2)]
    children = [
        conflict_keys(made, 1, C, {"id": n, "n": of, "s": None}) for n, of in enumerate((1, 1, 2, 7, 7, None))
    ]
    shares = assign_to_workers([*parents, *children], [1] * 8, 8)
    assert sorted(shares.parts, key=lambda part: (-len(part), part)) == [(0, 2, 3), (1, 4), (5,), (6,), (7,)]


@pytest.mark.parametrize(
    ("plan", "target"),
    [
        (planned(T, ApplyMode.ORDERED, cascades=True), target_of(T)),
        (planned(T, ApplyMode.ORDERED, dropped=frozenset({"delete"})), target_of(T)),
        (planned(T, ApplyMode.ORDERED, locator=RowLocator(RowMatch.EXACT)), target_of(T)),
        (planned(TableStructure("d", "t", COLUMNS), ApplyMode.ORDERED, locator=BY_ROW), target_of(T)),
        (planned(replace(T, before_columns=("id",))), target_of(T)),
        (planned(T), target_of(T, UniqueKey("f", (TargetKeyPart(None),)))),
        (planned(T), target_of(T, definition="... UNIQUE (id, p WITHOUT OVERLAPS)")),
        (planned(T), target_of(T, key("g"), columns={"g": column("g")})),
        (planned(T), target_of(T, key("n"), columns={"n": generated("n")})),
        (planned(T), target_of(T, key("n"), columns={"n": column("n", "decimal(5,0)")})),
        (planned(T), target_of(T, key("s"), columns={"s": column("s", "varbinary(60)")})),
    ],
    ids=[
        "cascades",
        "filtered",
        "not unique",
        "no key",
        "images",
        "expression",
        "period",
        "extra",
        "generated",
        "other type",
        "no text",
    ],
)
def test_tables_whose_rows_cannot_be_told_apart_are_one_group(plan: TablePlan, target: TargetTable) -> None:
    assert causality((plan, target)).tables[0].whole is not None


def test_what_hangs_together_with_such_a_table_is_one_group_with_it() -> None:
    to_t: dict[str, tuple[ForeignKey, ...]] = {"c": (ForeignKey(("n",), ("d", "t"), ("id",)),)}
    opaque = target_of(T, UniqueKey("f", (TargetKeyPart(None),)))
    made = causality((planned(T), opaque), (planned(C), target_of(C)), foreign=to_t)
    assert made.tables[0].whole == made.tables[1].whole is not None
    family = [(planned(one, ApplyMode.ORDERED, cascades=True), target_of(one)) for one in (T, C)]
    made = causality(*family)
    assert made.tables[0].whole == made.tables[1].whole is not None
    apart = causality((planned(T), target_of(T)), (planned(C), target_of(C)), by_tables=True)
    assert {table.whole for table in apart.tables} == {0, 1}
    one = causality((planned(T), target_of(T)), (planned(C), target_of(C)), foreign=to_t, by_tables=True)
    assert {table.whole for table in one.tables} == {0}


def test_triggers_and_safe_mode_leave_everything_to_one_transaction() -> None:
    trigger = Trigger("x", "AFTER", "INSERT")
    assert causality_if_any((planned(T), target_of(T, triggers=(trigger,)))) is None
    assert causality_if_any((planned(T, safe=True), target_of(T))) is None
    assert causality_if_any((planned(T, transactional=False), target_of(T))) is None
    assert causality_if_any((planned(T), target_of(T))) is not None


def test_signs_prefixes_and_widths_make_no_difference_that_the_server_does_not_make() -> None:
    columns = (
        integer("id"),
        Column("f", "double", 5, 8, True),
        Column("b", "varbinary(60)", 15, 60, True, charset="binary"),
    )
    structure = TableStructure("d", "t", columns, ("id",))
    blob = {"b": column("b", "blob")}
    made = causality((planned(structure), target_of(structure, key("f"), key(("b", 2)), columns=blob)))
    assert [part.normalization for one in made.tables[0].keys for part in one.parts] == [
        Normalization.EXACT,
        Normalization.UNSIGNED,
        Normalization.BYTES,
    ]
    one = conflict_keys(made, 0, structure, {"id": 1, "f": 0.0, "b": b"ab1"})
    two = conflict_keys(made, 0, structure, {"id": 2, "f": -0.0, "b": b"ab2"})
    assert one[1:] == two[1:]
    assert conflict_keys(made, 0, structure, {"id": 2, "f": None, "b": b"a"})[1:] != one[2:]


def test_only_text_that_is_not_plain_is_asked_for() -> None:
    made = causality((planned(T), target_of(T, key("s"))))
    plain = conflict_keys(made, 0, T, {"id": 1, "n": None, "s": "it's A "})
    assert not any(one[2] & ASKS for one in plain)
    assert plain[1] == conflict_keys(made, 0, T, {"id": 2, "n": None, "s": "IT'S a"})[1]
    assert conflict_keys(made, 0, T, {"id": 1, "n": None, "s": "é"})[1][2] & ASKS
    assert replace_by_weights([plain], made.spaces, weigh) == {}


@given(st.dictionaries(st.integers(0, 3), st.sets(st.integers(10**12, 10**12 + 200), min_size=1)))
def test_a_bitmap_tells_exactly_its_rows(rows: dict[int, set[int]]) -> None:
    bits = unpacked(packed(rows))
    every = list(range(10**12 - 5, 10**12 + 210))
    for partition in range(4):
        missing = missing_rows(partition, every, [bits])
        assert {o for o, one in zip(every, missing, strict=True) if not one} == rows.get(partition, set())


def test_the_largest_groups_are_given_out_first() -> None:
    with_conflict_keys = [[conflict_key(0, 0, b"%d" % (row // 10))] for row in range(30)] + [
        [conflict_key(1, 0, b"x")]
    ]
    shares = assign_to_workers(with_conflict_keys, [1] * 31, 3)
    assert sorted(map(len, shares.parts)) == [10, 10, 11]
