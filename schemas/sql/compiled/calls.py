"""Calls the compiled code for many rows of one structure."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from schemas.compiled.types import Argument, Numbers, Words, pieces
from schemas.sql.changed import ChangedColumns
from schemas.sql.compiled import arrays
from schemas.sql.parameters import PreparedRows
from schemas.types.parameter import DECIMAL_TEXT

if TYPE_CHECKING:
    from schemas.compiled.library import Library

# The bytes of longer rows would rather be copied twice than once.
_MOST_BYTES = 2 << 20
# A value is at most so much longer than in the row.
_MORE, _MORE_DECIMAL = 8, 80
_SCRATCH_WORDS = 32


class Layout:
    """How the rows of one structure are laid out.

    Args:
        columns: of each column of the after image the fields that ``arrays`` names.
    """

    def __init__(self, columns: Sequence[tuple[int, ...]]) -> None:
        self.columns = np.array(columns, np.int64)
        self.words = -(-len(columns) // arrays.WORD_BITS)
        decimals = sum(column[arrays.FORM] == DECIMAL_TEXT for column in columns)
        #: how many bytes longer than in the log a row's values may be
        self.more = len(columns) * _MORE + decimals * _MORE_DECIMAL


class CompiledValues:
    """Makes the values of rows of any structure. Threads may share it."""

    def __init__(self, library: Library) -> None:
        self._call = library.function("parameters")
        self._scratch = np.zeros(_SCRATCH_WORDS, np.uint64)
        self._out = np.empty(0, np.uint8)
        self._lock = threading.Lock()

    def __call__(self, rows: Sequence[bytes], layout: Layout, *, placed: bool) -> PreparedRows | None:
        """Return the values; None if Python has to make them.

        Args:
            placed: whether the rows' places in the log are asked for.
        """
        ends = list(accumulate(map(len, rows)))
        if ends[-1] > _MOST_BYTES:
            return None
        count, size = len(ends), ends[-1] + len(ends) * layout.more
        data, row_ends = np.frombuffer(b"".join(rows), np.uint8), np.array(ends, np.int64)
        asked = np.array([placed, 0], np.int64)
        fields = np.empty((count, arrays.ROW_FIELDS), np.int64)
        nulls = np.zeros((count, layout.words), np.uint64)
        with self._lock:
            if len(self._out) < size:
                self._out = np.empty(size, np.uint8)
            self._call(data, row_ends, layout.columns, asked, self._scratch, self._out, fields, nulls)
            if asked[arrays.WRITTEN] < count:
                return None
            values = pieces(self._out, fields[:, arrays.END].tolist())
        return PreparedRows(_places(fields) if placed else [], _masks(nulls), values)


class CompiledChanges:
    """Compares rows of any structure. Threads may share it."""

    def __init__(self, library: Library) -> None:
        self._call = library.function("changes")
        self._lock = threading.Lock()

    def __call__(
        self, firsts: Sequence[bytes], lasts: Sequence[bytes], watched: Collection[int], layout: Layout
    ) -> ChangedColumns | None:
        """Compare rows as ``schemas.sql.changed`` does; None if Python has to compare them."""
        first_ends, last_ends = list(accumulate(map(len, firsts))), list(accumulate(map(len, lasts)))
        if first_ends[-1] + last_ends[-1] > _MOST_BYTES:
            return None
        rows, columns = len(lasts), len(layout.columns)
        compared, moved = np.zeros(1, np.int64), np.zeros(rows, np.int64)
        asked, changed = np.zeros((2, columns), np.int64)
        asked[list(watched)] = 1
        places = np.empty((rows, columns + 1), np.int64)
        data = [np.frombuffer(b"".join(values), np.uint8) for values in (firsts, lasts)]
        ends = [np.array(numbers, np.int64) for numbers in (first_ends, last_ends)]
        with self._lock:
            sides = data[0], ends[0], data[1], ends[1]
            self._call(*sides, layout.columns, asked, compared, changed, moved, places)
        if compared[arrays.COMPARED] < rows:
            return None
        return ChangedColumns(
            set(changed.nonzero()[0].tolist()), moved.astype(bool).tolist(), places.tolist()
        )


def _places(fields: Numbers) -> list[int]:
    """See ``place_lines``."""
    places = zip(fields[:, arrays.EPOCH].tolist(), fields[:, arrays.SEQ].tolist(), strict=True)
    return [epoch << 40 | seq for epoch, seq in places]


def _masks(nulls: Words) -> list[int]:
    masks: list[int] = nulls[:, 0].tolist()
    for word in range(1, nulls.shape[1]):
        if nulls[:, word].any():
            shift = word * arrays.WORD_BITS
            masks = [mask | more << shift for mask, more in zip(masks, nulls[:, word].tolist(), strict=True)]
    return masks


def examples() -> dict[str, tuple[Argument, ...]]:
    """Arguments of the compiled functions, as examples of their types."""
    data, numbers = np.zeros(1, np.uint8), np.zeros(1, np.int64)
    table, words = np.zeros((1, 1), np.int64), np.zeros(1, np.uint64)
    return {
        "parameters": (data, numbers, table, numbers, words, data, table, np.zeros((1, 1), np.uint64)),
        "changes": (data, numbers, data, numbers, table, *(numbers for _ in range(4)), table),
    }
