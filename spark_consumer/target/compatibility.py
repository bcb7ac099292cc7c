"""Checks before the first row that the downstream's table can hold the upstream's rows.

Columns are paired by name. A downstream column may be wider, stand elsewhere, or be there in addition, as long
as it fills itself; it may not change a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.ddl.lexer import FLAVORS, Dialect
from schemas.ddl.table_definition import PERIOD
from schemas.structure import Column, TableStructure
from spark_consumer.target.members import Unclear, as_written
from spark_consumer.target.programs.text import effects_of
from spark_consumer.target.table import TargetColumn, TargetTable, Trigger
from spark_consumer.target.type_capacity import lacks, type_of
from spark_consumer.target.versioned import END, keeps_history, tells_history


@dataclass(frozen=True)
class Misfit:
    """One reason why rows cannot be written as they are.

    Attributes:
        code: of the error it becomes.
        column: the column's name.
        what: one sentence, with both types where there are two.
        remedy: what to do about it.
    """

    code: str
    column: str
    what: str
    remedy: str


def misfits(structure: TableStructure, target: TargetTable) -> list[Misfit]:
    """All reasons why rows of ``structure`` cannot be written to ``target``, in the order of its columns."""
    found = list(_of_history(structure, target))
    hidden = PERIOD if keeps_history(structure, target) else ()
    for column in structure.columns:
        there = target.column(column.name)
        if there is None and (column.is_row_hash or column.name in hidden):
            continue
        if there is None:
            found.append(_missing(column))
        elif not there.generated:
            found += _of_column(column, there)
    named = {column.name.lower() for column in structure.columns}
    found += [_unfilled(column) for column in target.columns if column.key not in named and not column.fills]
    return [*found, *_of_triggers(structure, target)]


def _of_history(structure: TableStructure, target: TargetTable) -> Iterator[Misfit]:
    """The rows of the past must be told from the others, and nothing but ``row_end`` in the row's key does that."""
    if not target.versioned:
        return
    remedy = "DROP SYSTEM VERSIONING, and add {} TIMESTAMP(6) NOT NULL to columns and key: then all rows are written"
    pairs = ((column.name, target.column(column.name)) for column in structure.columns)
    visible = [name for name, there in pairs if there is not None and there.period]
    if visible:
        what = (
            f"the downstream keeps its own history in the column {visible[0]}, and its times would be others"
        )
        yield Misfit("TR655", visible[0], what, remedy.format(" and ".join(visible)))
    elif keeps_history(structure, target) and not tells_history(structure):
        what = (
            "the downstream keeps its own history, and nothing tells the upstream's rows of the past for sure"
        )
        yield Misfit(
            "TR655", END, what, f"give it a key upstream too, or {remedy.format(' and '.join(PERIOD))}"
        )


def _missing(column: Column) -> Misfit:
    return Misfit(
        "TR606",
        column.name,
        f"the downstream's table lacks the column {column.name}",
        f"add it as the upstream has it: {column.sql_type}",
    )


def _of_column(column: Column, there: TargetColumn) -> list[Misfit]:
    found = []
    source = type_of(column)
    if reason := lacks(there.type, source) or _unclear(column, there):
        found.append(
            Misfit(
                "TR650",
                column.name,
                f"column {column.name} is {source.shown} upstream and {there.type.shown} downstream: {reason}",
                f"make it {source.shown} there, or wider",
            )
        )
    if column.nullable and not there.nullable:
        found.append(
            Misfit(
                "TR651",
                column.name,
                f"column {column.name} may be NULL upstream and is NOT NULL downstream",
                "let it be NULL there",
            )
        )
    return found


def _unclear(column: Column, there: TargetColumn) -> str:
    try:
        as_written(column, there)
    except Unclear as error:
        return str(error)
    return ""


def _unfilled(column: TargetColumn) -> Misfit:
    return Misfit(
        "TR652",
        column.name,
        f"only the downstream has the column {column.name}, which is NOT NULL and has no default",
        "give it a default, or let it be NULL",
    )


def _of_triggers(structure: TableStructure, target: TargetTable) -> list[Misfit]:
    return [
        Misfit(
            "TR653",
            column.name,
            f"the downstream's trigger {trigger.name} may change the column {column.name}",
            "drop the trigger, or let it set only columns that the upstream does not have",
        )
        for trigger in target.triggers
        for column in structure.columns
        if may_set(trigger, column.name)
    ]


def may_set(trigger: Trigger, column: str) -> bool:
    """Whether a trigger may give a column of the new row another value: as its text can be read, or is not known."""
    found = assigned(trigger)
    return found is None or column.lower() in found


def assigned(trigger: Trigger) -> frozenset[str] | None:
    """The columns of the new row, in lower case, that a trigger may set; None if its text cannot be read."""
    if trigger.timing != "BEFORE" or trigger.event == "DELETE":
        return frozenset()
    modes = trigger.sql_mode.split(",")
    # An executable comment may be for either server.
    found = [
        effects_of(trigger.body, Dialect(flavor, "ANSI_QUOTES" in modes, "NO_BACKSLASH_ESCAPES" not in modes))
        for flavor in FLAVORS
    ]
    if any(one.unreadable for one in found):
        return None
    return frozenset().union(*(one.assigned for one in found))
