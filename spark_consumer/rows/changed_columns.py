"""Reduces changes of rows to the columns that changed, so that a change in place sets only these.

The log has both images of such a row. A server needs half a microsecond for each value that it is given, and looks at
all of a large one, also if the row has this value already.
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


def only_changed(plan: TablePlan, rows: Sequence[ChangedRow]) -> tuple[list[SomeColumns], list[ChangedRow]]:
    """Reduce rows to their keys and the columns that changed in any of them.

    Args:
        plan: that of the rows' table.

    Returns:
        the rows with these columns, and the rows that are better written as a whole.

    Raises:
        ValueError, LookupError, EOFError: a record is no row of the table.
    """
    wide = len(plan.writable) >= _WIDE or max((len(row.last) for row in rows), default=0) >= _LONG
    if plan.unchanged is None or not wide:
        return [], list(rows)
    columns = plan.structure.columns
    keys = {n for n, column in enumerate(columns) if column.name in plan.structure.key}
    values = {n for n, column in enumerate(columns) if column.name in plan.writable} - keys
    compare = compile_comparison(plan.structure)
    changed: set[int] = set()
    made: dict[int, SomeColumns] = {}
    for begin in range(0, len(rows), _BLOCK):
        block = rows[begin : begin + _BLOCK]
        found = compare([row.first for row in block], [row.last for row in block])
        changed |= found.numbers & values
        if 2 * len(changed) > len(values):
            return list(made.values()), list(rows[begin:])
        chosen = sorted(keys | changed)
        if len(changed) not in made:
            made[len(changed)] = SomeColumns(_with_columns(plan, chosen), [])
        made[len(changed)].rows.extend(
            (row.key, b"".join((row.last[: AFTER_AT + 1], *(row.last[at[n] : at[n + 1]] for n in chosen))))
            for row, at in zip(block, found.places, strict=True)
        )
    return list(made.values()), []


def _with_columns(plan: TablePlan, chosen: Collection[int]) -> TablePlan:
    """Return the plan for rows whose images have these columns."""
    assert plan.unchanged is not None
    names = tuple(plan.structure.columns[n].name for n in chosen)
    placeholders, kept = (tuple(one for one in values if one[0] not in names) for values in plan.unchanged)
    structure = replace(plan.structure, after_columns=names)
    return replace(plan, structure=structure, writable=names, filled=kept, placeholders=placeholders)
