"""CRC-32 of events, sixteen bytes at a time: compiled."""

from __future__ import annotations

import numpy as np

from schemas.compiled.jit import compiled
from schemas.compiled.memory import little
from schemas.compiled.types import Bytes, Int, Word, Words

_POLYNOMIAL = 0xEDB88320  # reflected, as zlib's
_AT_ONCE = 16  # bytes
_LOW, _BYTE, _EIGHT = np.uint64(0xFFFFFFFF), np.uint64(255), np.uint64(8)


def _tables() -> Words:
    """What a byte comes to when so many zero bytes follow it, by their number and the byte."""
    tables = np.zeros((_AT_ONCE, 256), np.uint64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[0, byte] = crc
    for zeros in range(1, _AT_ONCE):
        before = tables[zeros - 1]
        tables[zeros] = before >> _EIGHT ^ tables[0][(before & _BYTE).astype(np.int64)]
    return tables


_TABLES = _tables()


@compiled
def crc32(b: Bytes, begin: Int, end: Int) -> Word:
    """The CRC-32 of these bytes, as zlib's."""
    crc, at, last = _LOW, np.uint64(begin), np.uint64(end)
    while at + np.uint64(_AT_ONCE) <= last:
        low, high = little(b, at, 8) ^ crc, little(b, at + _EIGHT, 8)
        crc = np.uint64(0)
        for k in range(8):
            shift = np.uint64(8 * k)
            crc ^= _TABLES[15 - k, low >> shift & _BYTE] ^ _TABLES[7 - k, high >> shift & _BYTE]
        at += np.uint64(_AT_ONCE)
    while at < last:
        crc = crc >> _EIGHT ^ _TABLES[0, (crc ^ np.uint64(b[at])) & _BYTE]
        at += np.uint64(1)
    return crc ^ _LOW
