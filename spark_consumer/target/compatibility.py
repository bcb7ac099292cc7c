"""Checks that a downstream table can hold the upstream's rows, before the first row is written.

Columns are paired by name. A downstream column may be wider or in another position. The downstream may have more
columns if the server fills them. No value may change on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.ddl.lexer import FLAVORS, Dialect
from schemas.ddl.table_definition import PERIOD
from schemas.structure import Column, TableStructure
from spark_consumer.target.members import AmbiguousMembers, written_column
from spark_consumer.target.programs.text import effects_of
from spark_consumer.target.table import TargetColumn, TargetTable, Trigger
from spark_consumer.target.type_capacity import lacks, type_of
from spark_consumer.target.versioned import END, identifies_history, keeps_history


@dataclass(frozen=True)
class Incompatibility:
    """One reason why rows cannot be written as they are.

    Attributes:
        code: the code of the error that reports it.
        column: the column's name.
        what: the message, with both types where they differ.
        remedy: the hint.
    """

    code: str
    column: str
    what: str
    remedy: str


def incompatibilities(structure: TableStructure, target: TargetTable) -> list[Incompatibility]:
    """Return all reasons why rows of ``structure`` cannot be written to ``target``, in the order of its columns."""
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


def _of_history(structure: TableStructure, target: TargetTable) -> Iterator[Incompatibility]:
    """Check that history rows can be told from current rows: only ``row_end`` in the row's key shows it."""
    if not target.versioned:
        return
    remedy = (
        "DROP SYSTEM VERSIONING, and add {} TIMESTAMP(6) NOT NULL to the columns and the key: then all rows are"
        " written"
    )
    pairs = ((column.name, target.column(column.name)) for column in structure.columns)
    visible = [name for name, there in pairs if there is not None and there.period]
    if visible:
        what = f"the downstream keeps its own history in the column {visible[0]}, with other times than the upstream's"
        yield Incompatibility("TR655", visible[0], what, remedy.format(" and ".join(visible)))
    elif keeps_history(structure, target) and not identifies_history(structure):
        what = "the downstream keeps its own history, and the upstream's history rows cannot be recognized safely"
        yield Incompatibility(
            "TR655",
            END,
            what,
            f"give the table a key upstream too, or {remedy.format(' and '.join(PERIOD))}",
        )


def _missing(column: Column) -> Incompatibility:
    return Incompatibility(
        "TR606",
        column.name,
        f"the downstream's table lacks the column {column.name}",
        f"add it with the upstream's type: {column.sql_type}",
    )


def _of_column(column: Column, there: TargetColumn) -> list[Incompatibility]:
    found = []
    source = type_of(column)
    if reason := lacks(there.type, source) or _unclear(column, there):
        found.append(
            Incompatibility(
                "TR650",
                column.name,
                f"column {column.name} is {source.shown} upstream and {there.type.shown} downstream: {reason}",
                f"make it {source.shown} downstream, or wider",
            )
        )
    if column.nullable and not there.nullable:
        found.append(
            Incompatibility(
                "TR651",
                column.name,
                f"column {column.name} may be NULL upstream and is NOT NULL downstream",
                "make it nullable downstream",
            )
        )
    return found


def _unclear(column: Column, there: TargetColumn) -> str:
    try:
        written_column(column, there)
    except AmbiguousMembers as error:
        return str(error)
    return ""


def _unfilled(column: TargetColumn) -> Incompatibility:
    return Incompatibility(
        "TR652",
        column.name,
        f"only the downstream has the column {column.name}, which is NOT NULL and has no default",
        "give it a default, or make it nullable",
    )


def _of_triggers(structure: TableStructure, target: TargetTable) -> list[Incompatibility]:
    return [
        Incompatibility(
            "TR653",
            column.name,
            f"the downstream's trigger {trigger.name} may change the column {column.name}",
            "drop the trigger, or change it so that it sets only columns that the upstream does not have",
        )
        for trigger in target.triggers
        for column in structure.columns
        if may_set(trigger, column.name)
    ]


def may_set(trigger: Trigger, column: str) -> bool:
    """Whether a trigger may set a column of the new row. True if the trigger's text cannot be read."""
    found = assigned(trigger)
    return found is None or column.lower() in found


def assigned(trigger: Trigger) -> frozenset[str] | None:
    """Return the columns of the new row, in lower case, that a trigger may set; None if its text cannot be read."""
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
