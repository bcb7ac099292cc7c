"""Which columns of rows changed: compiled."""

from __future__ import annotations

import numpy as np

from schemas.compiled.jit import compiled
from schemas.compiled.memory import equal
from schemas.compiled.types import Bytes, Int, Numbers
from schemas.sql.compiled.arrays import COMPARED, FORM, NULLABLE, TAG
from schemas.sql.compiled.values import zigzag
from schemas.types.parameter import DOUBLE_BYTES, FLOAT_BYTES, NUMBER
from schemas.wire.avro_schema import AFTER_AT


@compiled
def _behind(b: Bytes, p: Int, stop: Int, column: Numbers) -> Int:
    """The offset behind a column's value; negative if it is not sure."""
    if column[TAG] >= 0:
        if p >= stop:
            return -1
        tag = np.int64(b[p])
        p += 1
        if tag == 0 and column[NULLABLE]:
            return p
        if tag != column[TAG]:
            return -1
    form = column[FORM]
    if form in (FLOAT_BYTES, DOUBLE_BYTES):
        p += 4 if form == FLOAT_BYTES else 8
        return p if p <= stop else -1
    z, p = zigzag(b, p, stop)
    if p < 0 or form == NUMBER:
        return p
    # The bytes of a length that is not negative are there.
    if z & np.uint64(1) or z >> np.uint64(1) > np.uint64(stop - p):
        return -1
    return p + np.int64(z >> np.uint64(1))


@compiled
def changes(
    firsts: Bytes,
    first_ends: Numbers,
    lasts: Bytes,
    last_ends: Numbers,
    columns: Numbers,
    watched: Numbers,
    compared: Numbers,
    changed: Numbers,
    moved: Numbers,
    places: Numbers,
) -> None:
    """Compare before images with after images.

    Args:
        firsts: the Avro values with the before images, one behind the other, with headers.
        first_ends: where each ends.
        lasts: those with the after images.
        last_ends: the same of these.
        columns: how each column is written.
        watched: 1 for each column that is compared in every row.
        compared: how many rows were compared before one that is left to Python.
        changed: zeros; 1 for each column that changed in any row.
        moved: zeros; 1 for each row in which a watched column changed.
        places: of each row where each column of the after image begins in its value, and where the last one ends.
    """
    begin: Int = 0
    start: Int = 0
    for row in range(len(first_ends)):
        p, stop = begin + AFTER_AT + 1, first_ends[row]
        q, end = start + AFTER_AT + 1, last_ends[row]
        if p >= stop or q >= end or lasts[q - 1] == 0:
            return
        if firsts[p - 1] != 0:
            for number in range(len(columns)):
                p = _behind(firsts, p, stop, columns[number])
                if p < 0:
                    return
        if p >= stop or firsts[p] == 0:
            return
        p += 1
        for number in range(len(columns)):
            places[row, number] = q - start
            before = _behind(firsts, p, stop, columns[number])
            after = _behind(lasts, q, end, columns[number])
            if before < 0 or after < 0:
                return
            if (watched[number] or changed[number] == 0) and (
                before - p != after - q or not equal(firsts, p, lasts, q, after - q)
            ):
                changed[number] = 1
                moved[row] |= watched[number]
            p, q = before, after
        places[row, len(columns)] = q - start
        begin, start = stop, end
        compared[COMPARED] = row + 1
