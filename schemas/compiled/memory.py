"""Reads, copies and compares bytes: compiled."""

from __future__ import annotations

import numpy as np

from schemas.compiled.jit import compiled
from schemas.compiled.types import Bool, Bytes, Int, Word


@compiled
def little(b: Bytes, p: Int, size: Int) -> Word:
    """The unsigned number of so many bytes, the lowest first."""
    # Unsigned offsets cannot count from an array's end, so the bytes are read and copied together.
    number, begin = np.uint64(0), np.uint64(p)
    for k in range(np.uint64(size)):
        number |= np.uint64(b[begin + k]) << np.uint64(8) * k
    return number


@compiled
def copied(b: Bytes, p: Int, size: Int, out: Bytes, o: Int) -> Int:
    """Copy bytes; returns where the next byte goes."""
    begin, to = np.uint64(p), np.uint64(o)
    for k in range(np.uint64(size)):
        out[to + k] = b[begin + k]
    return o + size


@compiled
def equal(a: Bytes, i: Int, b: Bytes, j: Int, size: Int) -> Bool:
    """Whether so many bytes are the same in both."""
    differs, at, there = np.uint8(0), np.uint64(i), np.uint64(j)
    for k in range(np.uint64(size)):
        differs |= a[at + k] ^ b[there + k]
    return differs == 0
