"""CRC-32 of events: compiled."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from schemas.compiled.jit import compiled
from schemas.compiled.memory import little
from schemas.compiled.types import Bytes, Int, Word, Words

_POLYNOMIAL = 0xEDB88320  # reflected, as zlib's
_AT_ONCE = 16  # bytes
_LOW, _BYTE, _EIGHT = np.uint64(0xFFFFFFFF), np.uint64(255), np.uint64(8)
_LANES = 64  # bytes: four times sixteen


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


def _power(exponent: int) -> Word:
    """The remainder of x to this power, reflected, as a factor of ``_times``."""
    remainder = 1
    for _ in range(exponent):
        remainder <<= 1
        if remainder >> 32:
            remainder ^= 0x104C11DB7
    return np.uint64(int(f"{remainder:032b}"[::-1], 2) << 1)


# What moves the two halves of sixteen bytes behind so many bits.
# Source: Gopal and others, Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction (Intel, 2009).
_BEHIND_LANES = _power(8 * _LANES + 32), _power(8 * _LANES - 32)
_BEHIND_NEXT = _power(128 + 32), _power(128 - 32)


def _has_carryless_products() -> bool:
    return bool(llvm.get_host_cpu_features().get("pclmul"))


def _product(context: Any, a: Any, b: Any) -> Any:
    """The product of two uint64 without carries, as its lower and its upper half."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pair, index = ir.VectorType(ir.IntType(64), 2), ir.IntType(32)
        kind = ir.FunctionType(pair, [pair, pair, ir.IntType(8)])
        multiply = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.pclmulqdq")
        pairs = [builder.insert_element(ir.Constant(pair, None), value, index(0)) for value in values]
        product = builder.call(multiply, [*pairs, ir.IntType(8)(0)])
        halves = [builder.extract_element(product, index(half)) for half in range(2)]
        return context.make_tuple(builder, signature.return_type, halves)

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), generate


_times = intrinsic(_product)


@compiled
def _added(
    low: Word, high: Word, behind: tuple[Word, Word], next_low: Word, next_high: Word
) -> tuple[Word, Word]:
    """Sixteen bytes that have the remainder of two times sixteen."""
    a, b = _times(low, behind[0])
    c, d = _times(high, behind[1])
    return a ^ c ^ next_low, b ^ d ^ next_high


@compiled
def _moved(low: Word, high: Word, behind: tuple[Word, Word], b: Bytes, at: Word) -> tuple[Word, Word]:
    return _added(low, high, behind, little(b, at, 8), little(b, at + _EIGHT, 8))


@compiled
def _by_tables(low: Word, high: Word) -> Word:
    """The register behind sixteen bytes, with which the one before them is mixed."""
    crc = np.uint64(0)
    for k in range(8):
        shift = np.uint64(8 * k)
        crc ^= _TABLES[15 - k, low >> shift & _BYTE] ^ _TABLES[7 - k, high >> shift & _BYTE]
    return crc


@compiled
def _lanes(b: Bytes, at: Word, last: Word, crc: Word) -> tuple[Word, Word, Word]:
    """Sixteen bytes that have the remainder of all up to where they end, of which there are at least 64."""
    low0, high0 = little(b, at, 8) ^ crc, little(b, at + np.uint64(8), 8)
    low1, high1 = little(b, at + np.uint64(16), 8), little(b, at + np.uint64(24), 8)
    low2, high2 = little(b, at + np.uint64(32), 8), little(b, at + np.uint64(40), 8)
    low3, high3 = little(b, at + np.uint64(48), 8), little(b, at + np.uint64(56), 8)
    at += np.uint64(_LANES)
    while at + np.uint64(_LANES) <= last:
        low0, high0 = _moved(low0, high0, _BEHIND_LANES, b, at)
        low1, high1 = _moved(low1, high1, _BEHIND_LANES, b, at + np.uint64(16))
        low2, high2 = _moved(low2, high2, _BEHIND_LANES, b, at + np.uint64(32))
        low3, high3 = _moved(low3, high3, _BEHIND_LANES, b, at + np.uint64(48))
        at += np.uint64(_LANES)
    low1, high1 = _added(low0, high0, _BEHIND_NEXT, low1, high1)
    low2, high2 = _added(low1, high1, _BEHIND_NEXT, low2, high2)
    low3, high3 = _added(low2, high2, _BEHIND_NEXT, low3, high3)
    return low3, high3, at


@compiled
def _by_products(b: Bytes, at: Word, last: Word, crc: Word) -> tuple[Word, Word]:
    """The register behind as many times sixteen bytes as there are, and where they end."""
    if at + np.uint64(_LANES) > last:
        return crc, at
    low, high, at = _lanes(b, at, last, crc)
    while at + np.uint64(_AT_ONCE) <= last:
        low, high = _moved(low, high, _BEHIND_NEXT, b, at)
        at += np.uint64(_AT_ONCE)
    return _by_tables(low, high), at


@compiled
def _no_products(b: Bytes, at: Word, last: Word, crc: Word) -> tuple[Word, Word]:
    return crc, at


_first_part = _by_products if _has_carryless_products() else _no_products


@compiled
def crc32(b: Bytes, begin: Int, end: Int) -> Word:
    """The CRC-32 of these bytes, as zlib's."""
    last = np.uint64(end)
    crc, at = _first_part(b, np.uint64(begin), last, _LOW)
    while at + np.uint64(_AT_ONCE) <= last:
        crc = _by_tables(little(b, at, 8) ^ crc, little(b, at + _EIGHT, 8))
        at += np.uint64(_AT_ONCE)
    while at < last:
        crc = crc >> _EIGHT ^ _TABLES[0, (crc ^ np.uint64(b[at])) & _BYTE]
        at += np.uint64(1)
    return crc ^ _LOW
