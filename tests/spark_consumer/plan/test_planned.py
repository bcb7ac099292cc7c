"""Plans of tables are kept for the next slices, as long as nothing that they depend on has changed."""

from __future__ import annotations

import pytest

from schemas.errors import Where
from schemas.structure import TableStructure
from spark_consumer.plan import plan as planning
from spark_consumer.plan.plan import ApplyMode, PlannedTables, TablePlan, plan_slice
from spark_consumer.plan.statements import Limits
from spark_consumer.rules.rules import Rules
from spark_consumer.target.table import TargetTable
from tests.support.applying.targets import column, unique
from tests.support.epochs.fake_topic import integer

T, U = (TableStructure("d", name, (integer("id"), integer("v")), ("id",)) for name in "tu")
THERE = (column("id", null=False), column("v", null=False))
FINGERPRINTS = {T: "00" * 8, U: "11" * 8}


def _target(name: str, *more: str) -> TargetTable:
    return TargetTable(("d", name), (*THERE, *map(column, more)), (unique("id"),))


def _plan(planned: PlannedTables | None, *targets: TargetTable, unfinished: str = "") -> list[TablePlan]:
    structures = {FINGERPRINTS[one]: one for one in (T, U)[: len(targets)]}
    made = plan_slice(
        structures,
        {target.name: target for target in targets},
        Rules(),
        Limits(100),
        Where(),
        unfinished={("d", unfinished)},
        planned=planned,
    )
    return list(made.tables)


def test_a_plan_is_that_of_a_planner_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    plan_table = planning._plan_table

    def noted(header: bytes, structure: TableStructure, *more: object) -> TablePlan:
        made.append(structure.table)
        return plan_table(header, structure, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(planning, "_plan_table", noted)
    t, u, altered = _target("t"), _target("u"), _target("t", "w")
    planned: PlannedTables = {}
    for targets, unfinished, again in (
        ((t, u), "", "tu"),
        ((t, u), "", ""),
        ((t,), "", ""),
        ((altered, u), "", "t"),
        ((altered, u), "t", "t"),
        ((altered, u), "", ""),
    ):
        wanted = _plan(None, *targets, unfinished=unfinished)
        made.clear()
        assert _plan(planned, *targets, unfinished=unfinished) == wanted
        assert "".join(made) == again
    # A column that only the downstream has would be lost by DELETE and INSERT.
    assert [one.mode for one in wanted] == [ApplyMode.ORDERED, ApplyMode.COMPACT]


def test_few_plans_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_MOST_PLANNED", 1)
    planned: PlannedTables = {}
    assert len(_plan(planned, _target("t"), _target("u"))) == 2
    assert len(planned) == 1
