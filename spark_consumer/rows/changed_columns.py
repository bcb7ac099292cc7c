"""Divides changes of rows that were there and still are: into those of some columns, of whole rows, and replacements.

The log has both images of such a row. A server needs half a microsecond for each value that it is given, and looks at
all of a large one, also if the row has this value already. So the columns that did not change are left out. A row of
which another unique key changes is replaced: in place it could meet the row that had its new value before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from schemas.sql.changed import compile_comparison
from schemas.wire.avro_schema import AFTER_AT
from spark_consumer.plan.plan import TablePlan

# With fewer columns, and shorter rows, there is little to save.
_WIDE, _LONG = 8, 4096
# Rows that are compared together.
_BLOCK = 128


class ChangedRow(NamedTuple):
    """A row that was there and still is.

    Attributes:
        key: the Kafka key.
        first: its first change, with a before image.
        last: its last change, with an after image.
    """

    key: bytes
    first: bytes
    last: bytes


class SomeColumns(NamedTuple):
    """Changed rows, as UPDATEs whose images lack columns.

    Attributes:
        rows: key and value of each.
    """

    plan: TablePlan
    rows: list[tuple[bytes, bytes]]


class Divided(NamedTuple):
    """How rows are changed.

    Attributes:
        some: those of which few columns are set in place.
        whole: those of which all columns are.
        replaced: those that are deleted and inserted.
    """

    some: list[SomeColumns]
    whole: list[ChangedRow]
    replaced: list[ChangedRow]


def divide(plan: TablePlan, rows: Sequence[ChangedRow]) -> Divided:
    """Divide the rows of a table whose rows may be changed in place.

    Raises:
        ValueError, LookupError, EOFError: a record is no row of the table.
    """
    reduces = plan.unchanged is not None and (
        len(plan.writable) >= _WIDE or any(len(row.last) >= _LONG for row in rows)
    )
    divided = Divided([], [], [])
    if not (reduces or plan.unique):
        return divided._replace(whole=list(rows))
    columns = plan.structure.columns
    unique = {n for n, column in enumerate(columns) if column.name in plan.unique}
    named = unique | {n for n, column in enumerate(columns) if column.name in plan.structure.key}
    values = {n for n, column in enumerate(columns) if column.name in plan.writable} - named
    compare = compile_comparison(plan.structure)
    changed: set[int] = set()
    made: dict[int, SomeColumns] = {}
    for begin in range(0, len(rows), _BLOCK):
        if not (reduces or unique):
            divided.whole.extend(rows[begin:])
            break
        block = rows[begin : begin + _BLOCK]
        found = compare([row.first for row in block], [row.last for row in block], unique)
        changed |= found.numbers & values
        reduces = reduces and 2 * len(changed) <= len(values)
        chosen = sorted(named | changed)
        if reduces and len(changed) not in made:
            made[len(changed)] = SomeColumns(_with_columns(plan, chosen), [])
        for row, moved, at in zip(block, *found[1:], strict=True):
            if moved:
                divided.replaced.append(row)
            elif reduces:
                image = (row.last[: AFTER_AT + 1], *(row.last[at[n] : at[n + 1]] for n in chosen))
                made[len(changed)].rows.append((row.key, b"".join(image)))
            else:
                divided.whole.append(row)
    divided.some.extend(made.values())
    return divided


def _with_columns(plan: TablePlan, chosen: Collection[int]) -> TablePlan:
    """Return the plan for rows whose images have these columns."""
    assert plan.unchanged is not None
    names = tuple(plan.structure.columns[n].name for n in chosen)
    placeholders, kept = (tuple(one for one in values if one[0] not in names) for values in plan.unchanged)
    structure = replace(plan.structure, after_columns=names)
    return replace(plan, structure=structure, writable=names, filled=kept, placeholders=placeholders)
