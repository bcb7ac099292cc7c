"""Rows that conflict only with those of their own key are shared without a look at their values."""

from __future__ import annotations

from dataclasses import replace
from itertools import compress
from typing import Any

import pytest

from schemas.access.server_url import ServerUrl
from schemas.sql.literals import source_reader
from schemas.structure import TableStructure
from schemas.wire.avro_schema import row_schema
from schemas.wire.rows import widened
from spark_consumer.apply.prepared import PreparedParts, PreparedRows, WorkerPart
from spark_consumer.apply.workers.bitmap import missing_rows, unpacked
from spark_consumer.apply.workers.build_parts import read_parts
from spark_consumer.apply.workers.read_conflicts import with_conflict_keys
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.causality import causality_of
from spark_consumer.plan.plan import ApplyMode, SlicePlan, TablePlan
from spark_consumer.plan.statements import Limits
from spark_consumer.rows.render import render, tally
from spark_consumer.rows.results import RowTally, RowToShare, Share
from spark_consumer.rows.slice_rows import RangeRows
from spark_consumer.target.table import ForeignKey, TargetTable
from tests.support.applying.parts import MemoryLog
from tests.support.applying.targets import as_it_is, unique
from tests.support.epochs.fake_topic import (
    Change,
    delete,
    insert,
    integer,
    row_key,
    row_value,
    text,
    update,
)

T = TableStructure("d", "t", (integer("id"), integer("n", nullable=True)), ("id",))
U = replace(T, table="u")
NAMED = TableStructure("d", "named", (text("id"), integer("n", nullable=True)), ("id",))
NOWHERE = ServerUrl("127.0.0.1", 1, "nobody", "")


def planned(structure: TableStructure, mode: ApplyMode = ApplyMode.COMPACT, **more: Any) -> TablePlan:
    name = (structure.db, structure.table)
    header = widened(row_schema(structure).header)
    return TablePlan(
        header, structure, mode, **{"target_name": name, "writable": ("id", "n"), "in_place": "mysql", **more}
    )


def target_of(table: TablePlan, *names: str) -> TargetTable:
    target = as_it_is(table.structure, table.target_name)
    return replace(target, keys=(*target.keys, *(unique(name) for name in names)))


def plan_of(*tables: TablePlan, others: tuple[str, ...] = (), foreign: ForeignKey | None = None) -> SlicePlan:
    """A plan whose last table has further unique keys, and a foreign key."""
    targets = {table.target_name: target_of(table) for table in tables}
    last = tables[-1]
    targets[last.target_name] = target_of(last, *others)
    keys: dict[Any, tuple[ForeignKey, ...]] = dict.fromkeys(targets, ())
    keys[last.target_name] = (foreign,) if foreign else ()
    plan = SlicePlan(tables, Limits(2_000))
    causality = causality_of(plan, targets, keys)
    assert causality is not None
    updated = frozenset((table.structure.db, table.structure.table) for table in tables)
    return replace(plan, causality=replace(causality, updated=updated))


def by_key(plan: SlicePlan) -> list[bool]:
    assert plan.causality is not None
    return [table.by_key for table in plan.causality.tables]


def test_only_a_single_key_of_plain_values_is_enough() -> None:
    assert by_key(plan_of(planned(T))) == [True]
    assert by_key(plan_of(planned(T), planned(U), others=("n",))) == [True, False]
    # Two texts may be equal downstream and two keys in the log.
    assert by_key(plan_of(planned(NAMED))) == [False]
    assert by_key(plan_of(planned(T, ApplyMode.ORDERED))) == [False]
    assert by_key(plan_of(planned(T, safe=True, incomplete=True))) == [False]
    assert by_key(plan_of(planned(T, history=True))) == [False]
    parent = ForeignKey(("n",), ("d", "t"), ("id",))
    assert by_key(plan_of(planned(T), planned(U), foreign=parent)) == [False, False]
    assert by_key(plan_of(planned(T), planned(U), foreign=replace(parent, parent=("d", "x")))) == [True, True]


def test_tables_that_become_one_may_have_equal_keys() -> None:
    assert by_key(plan_of(planned(T), planned(U, target_name=("d", "t")))) == [False, False]
    # Two tables, as whose names a message shows the same.
    dotted = TableStructure("d.t", "x", T.columns, T.key), TableStructure("d", "t.x", T.columns, T.key)
    assert by_key(plan_of(*(planned(one, target_name=("d", "t")) for one in dotted))) == [False, False]
    # The same table, whose images have other columns at times.
    other = replace(T, columns=(*T.columns, integer("m", nullable=True)))
    assert by_key(plan_of(planned(T), planned(other))) == [True, True]
    assert by_key(plan_of(planned(T), planned(other, ApplyMode.ORDERED))) == [False, False]


def rows_of(changes: list[Change]) -> RangeRows:
    keys = [row_key(change.structure, change.after or change.before or {}) for change in changes]
    values = [row_value(change, 0, seq, "g") for seq, change in enumerate(changes)]
    return RangeRows(keys, values, 3, range(100, 100 + len(changes)))


def some_changes() -> list[Change]:
    """Three rows of `t` change, one comes to nothing; between them are rows of `u`."""
    old, new = {"id": 1, "n": 1}, {"id": 1, "n": 2}
    changes = [update(T, old, new), insert(U, {"id": 7, "n": 7}), delete(T, {"id": 2, "n": None})]
    changes += [insert(T, {"id": 3, "n": 3}), insert(T, {"id": 4, "n": 4}), delete(T, {"id": 4, "n": 4})]
    return [*changes, update(U, {"id": 8, "n": 8}, {"id": 8, "n": 9}), update(T, new, {"id": 1, "n": 5})]


def test_a_share_has_the_statements_of_its_rows() -> None:
    plan, rows = plan_of(planned(T), planned(U), others=("n",)), rows_of(some_changes())
    results = list(with_conflict_keys(plan, rows))
    tallies = [one for one in results if isinstance(one, RowTally)]
    assert sum(one.rows for one in tallies) == 8
    assert sum(one.digest for one in tallies) == tally(rows.values).digest
    [share] = [one for one in results if isinstance(one, Share)]
    assert (share.partition, list(share.offsets), share.updates) == (
        3,
        [100, 102, 103, 104, 105, 107],
        {0: 2},
    )
    at = results.index(share)
    compared = [one for one in results if isinstance(one, RowToShare)]
    alone = rows_of(some_changes())
    mine = [place for place, value in enumerate(alone.values) if widened(value)[:10] == plan.tables[0].header]
    only = RangeRows([alone.keys[one] for one in mine], [alone.values[one] for one in mine])
    expected = list(render(plan, only))
    assert results[at + 1 : at + 1 + len(expected)] == expected
    assert sorted((row.table, row.offsets) for row in compared) == [(1, (101,)), (1, (106,))]


@pytest.mark.parametrize("shares", [2, 5])
def test_each_key_is_in_one_of_several_shares(shares: int) -> None:
    plan = plan_of(planned(T))
    changes = [insert(T, {"id": n % 30, "n": n}) for n in range(60)]
    rows = rows_of(changes)
    found = [one for one in with_conflict_keys(plan, rows, shares=shares) if isinstance(one, Share)]
    assert len(found) == shares
    of_key: dict[bytes, set[int]] = {}
    for number, share in enumerate(found):
        for offset in share.offsets:
            of_key.setdefault(rows.keys[offset - 100], set()).add(number)
    assert len(of_key) == 30
    assert all(len(numbers) == 1 for numbers in of_key.values())
    assert sorted(offset for share in found for offset in share.offsets) == list(rows.offsets)


def parts_of(
    log: MemoryLog, plan: SlicePlan, workers: int, moving: set[Any], first: int = 0
) -> tuple[WorkerPart, ...]:
    """The parts of the epochs from the first on."""
    made = read_parts(log, Slice(tuple(log.logged[first:])), plan, workers, NOWHERE, moving)
    if isinstance(made, PreparedRows):
        return (WorkerPart(1, made.writes),)
    assert isinstance(made, PreparedParts)
    return made.parts


@pytest.mark.parametrize("workers", [2, 3, 8])
def test_all_rows_are_in_exactly_one_part(workers: int) -> None:
    log, plan = MemoryLog(), plan_of(planned(T), planned(U), others=("n",))
    for begin in (0, 50):
        log.add(
            *(insert(structure, {"id": n, "n": n}) for n in range(begin, begin + 50) for structure in (T, U))
        )
    parts = parts_of(log, plan, workers, set())
    assert len(parts) == workers
    assert sum(part.writes.rows for part in parts) == 200
    bits = [unpacked(part.applied) for part in parts]
    for partition, rows in log.rows.items():
        offsets = [offset for offset, *_ in rows]
        having = [missing_rows(partition, offsets, [one]).count(False) for one in bits]
        assert sum(having) == sum(bool(value) for *_, value in rows)
        assert [not one for one in missing_rows(partition, offsets, bits)] == [
            bool(value) for *_, value in rows
        ]


def test_rows_are_compared_once_an_update_changes_a_key() -> None:
    """Both halves of it are one worker's: an operator decides about them together."""
    log, plan, moving = MemoryLog(), plan_of(planned(T)), set[Any]()
    log.add(*(insert(T, {"id": n, "n": n}) for n in range(20)))
    parts_of(log, plan, 3, moving)
    assert not moving
    log.add(*(update(T, {"id": n, "n": n}, {"id": n + 50, "n": n}) for n in range(20)))
    parts = parts_of(log, plan, 3, moving, first=1)
    assert moving == {("d", "t")}
    source = source_reader(T)
    workers: dict[int, set[int]] = {}
    for partition, rows in log.rows.items():
        for part in parts:
            missing = missing_rows(partition, [offset for offset, *_ in rows], [unpacked(part.applied)])
            for value in compress((value for *_, value in rows), [not one for one in missing]):
                workers.setdefault(source(value).seq // 2, set()).add(part.number)
    assert sorted(workers) == list(range(20))
    assert all(len(numbers) == 1 for numbers in workers.values())
