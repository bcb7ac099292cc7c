"""Finds which columns of rows changed, from a record with each row's before image and one with its after image."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from schemas.codegen import kept
from schemas.sql.parameters import fields_of
from schemas.structure import TableStructure
from schemas.types import codec_of
from schemas.types.parameter import LEFT_OUT
from schemas.wire.row_columns import compile_before_offsets, compile_offsets

if TYPE_CHECKING:
    from schemas.compiled.library import Library
    from schemas.sql.compiled.calls import CompiledChanges, Layout

# What is done once for some rows costs as much as the rest of so many.
_FEW_ROWS = 16

_compiled: list[CompiledChanges] = []


def use_compiled(library: Library) -> None:
    """From now on this process compares many rows with compiled code."""
    from schemas.sql.compiled.calls import CompiledChanges

    _compiled[:] = [CompiledChanges(library)]


class ChangedColumns(NamedTuple):
    """What changed in some rows.

    Attributes:
        numbers: the columns that changed in any of them, from 0.
        moved: of each row whether a watched column changed.
        places: of each row where each column of the after image begins in its record, and where the last one ends.
    """

    numbers: set[int]
    moved: list[bool]
    places: list[list[int]]


#: compares rows by their records with the before image, and those with the after image; and the columns to watch
Compare = Callable[[Sequence[bytes], Sequence[bytes], Collection[int]], ChangedColumns]


@kept
def compile_comparison(structure: TableStructure) -> Compare:
    """Return a function for rows of one structure, whose images have all columns.

    The records have headers of ``HEADER_SIZE`` bytes. It raises ValueError, LookupError or EOFError if one of them is
    no row of the table, or lacks the image.
    """
    return _Comparison(structure)


class _Comparison:
    def __init__(self, structure: TableStructure) -> None:
        self._structure = structure
        # The name of a variable and the first branch behind NULL's, which the fields do not need.
        forms = (
            (column, codec_of(column).parameter(column, "s", column.nullable)) for column in structure.columns
        )
        self._columns = [fields_of(column, form) for column, form in forms]
        self._is_known = all(column[0] != LEFT_OUT for column in self._columns)
        self._layout: Layout | None = None

    def __call__(
        self, firsts: Sequence[bytes], lasts: Sequence[bytes], watched: Collection[int]
    ) -> ChangedColumns:
        if _compiled and self._is_known and len(lasts) >= _FEW_ROWS:
            if self._layout is None:
                from schemas.sql.compiled.calls import Layout

                self._layout = Layout(self._columns)
            if (found := _compiled[0](firsts, lasts, watched, self._layout)) is not None:
                return found
        changed: set[int] = set()
        moved: list[bool] = []
        before, after = compile_before_offsets(self._structure), compile_offsets(self._structure)
        rest, places = list(range(len(self._columns))), list(map(after, lasts))
        for first, last, new in zip(firsts, lasts, places, strict=True):
            old = before(first)
            differ = {n for n in rest if first[old[n] : old[n + 1]] != last[new[n] : new[n + 1]]}
            moved.append(not differ.isdisjoint(watched))
            if not differ <= changed:
                changed |= differ
                rest = [n for n in rest if n not in changed or n in watched]
        return ChangedColumns(changed, moved, places)
