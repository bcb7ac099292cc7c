"""Values of prepared statements from Avro: compiled.

The code writes what the lines of ``Codec.parameter`` make of the same bytes. It stops at a row of which it is not sure,
be it for damage or for a value that is seldom: its block is left to these lines, which raise the errors.
"""

from __future__ import annotations

import numpy as np

from schemas.compiled.jit import compiled
from schemas.compiled.memory import copied, little
from schemas.compiled.types import Bool, Bytes, Int, Numbers, Word, Words
from schemas.sql.compiled.arrays import (
    DETAIL,
    END,
    EPOCH,
    FORM,
    NULLABLE,
    PLACED,
    SEQ,
    TAG,
    WORD_BITS,
    WRITTEN,
)
from schemas.types.parameter import (
    BIG_ENDIAN,
    COUNTED,
    DECIMAL_TEXT,
    DOUBLE_BYTES,
    FLOAT_BYTES,
    NUMBER,
    SHORT_COUNTED,
)
from schemas.wire.avro_schema import AFTER_AT

_MOST_SHIFT = 63
_MINUS, _ZERO, _DOT = 45, 48, 46
# Of a DECIMAL, which has 65 digits at most: words of 32 bits, and nine digits of each group.
_WORDS = 8
_LOW, _WORD = np.uint64(0xFFFFFFFF), np.uint64(32)
_GROUP_DIGITS, _GROUP = 9, np.uint64(10**9)
_TEN = np.uint64(10)


@compiled
def zigzag(b: Bytes, p: Int, stop: Int) -> tuple[Word, Int]:
    """The zig-zag value at ``b[p]`` and the offset behind it; a negative one if it does not end, or is too large."""
    value, shift = np.uint64(0), 0
    while p < stop and shift <= _MOST_SHIFT:
        byte = b[p]
        p += 1
        if shift == _MOST_SHIFT and byte > 1:
            break
        value |= np.uint64(byte & 127) << np.uint64(shift)
        if byte < 128:
            return value, p
        shift += 7
    return value, -1


@compiled
def _number(out: Bytes, o: Int, number: Word) -> Int:
    """Write a number of 64 bits."""
    for k in range(8):
        out[o + k] = np.uint8(number >> np.uint64(8 * k) & np.uint64(255))
    return o + 8


@compiled
def _length(out: Bytes, o: Int, size: Int) -> Int:
    """Write the length of a value; see ``length_prefix``."""
    if size < 251:
        out[o] = size
        return o + 1
    more = 2 if size < 1 << 16 else 3
    out[o] = 252 if more == 2 else 253
    for k in range(more):
        out[o + 1 + k] = size >> 8 * k & 255
    return o + 1 + more


@compiled
def _double(b: Bytes, p: Int) -> Word:
    """The bits of the double that a FLOAT equals; those of a NaN where it is not sure."""
    bits = little(b, p, 4)
    sign, exponent = bits >> np.uint64(31), bits >> np.uint64(23) & np.uint64(255)
    fraction = bits & np.uint64(0x7FFFFF)
    if exponent == 0 and fraction == 0:
        return sign << np.uint64(63)
    # Neither smaller than any other FLOAT nor infinite.
    if exponent == 0 or exponent == 255:
        return np.uint64(0x7FF) << np.uint64(52)
    return (
        sign << np.uint64(63) | exponent + np.uint64(1023 - 127) << np.uint64(52) | fraction << np.uint64(29)
    )


@compiled
def _is_finite(bits: Word) -> Bool:
    return bits >> np.uint64(52) & np.uint64(0x7FF) != np.uint64(0x7FF)


@compiled
def _decimal(b: Bytes, p: Int, size: Int, scale: Int, words: Words, out: Bytes, o: Int) -> Int:
    """Write a two's complement number as ``decimal_text`` does, without its length; negative if it is too large."""
    if size == 0 or size > 4 * _WORDS - 1:
        return -1
    is_negative: Bool = b[p] >= 128
    flip = np.uint8(255 if is_negative else 0)
    for k in range(_WORDS):
        words[k] = 0
    for k in range(size):
        at = size - 1 - k
        words[at >> 2] |= np.uint64(b[p + k] ^ flip) << np.uint64(8 * (at & 3))
    # The complement of a negative number is one less than its amount.
    carry = np.uint64(1 if is_negative else 0)
    for k in range(_WORDS):
        words[k] += carry
        carry = words[k] >> _WORD
        words[k] &= _LOW
    if is_negative:
        out[o] = _MINUS
        o += 1
    groups = 0
    top = _WORDS - 1
    while True:
        while top > 0 and words[top] == 0:
            top -= 1
        if groups and top == 0 and words[0] == 0:
            break
        rest = np.uint64(0)
        for k in range(top, -1, -1):
            whole = rest << _WORD | words[k]
            words[k] = whole // _GROUP
            rest = whole - words[k] * _GROUP
        words[_WORDS + groups] = rest
        groups += 1
    # So many digits at least that one is before the point.
    least = (scale + _GROUP_DIGITS) // _GROUP_DIGITS
    while groups < least:
        words[_WORDS + groups] = 0
        groups += 1
    begun = False
    left = groups * _GROUP_DIGITS
    for k in range(groups - 1, -1, -1):
        group, power = words[_WORDS + k], _GROUP
        for _ in range(_GROUP_DIGITS):
            power //= _TEN
            digit = np.uint8(group // power)
            group %= power
            begun = begun or digit != 0 or left == scale + 1
            if begun:
                if left == scale and scale:
                    out[o] = _DOT
                    o += 1
                out[o] = _ZERO + digit
                o += 1
            left -= 1
    return o


@compiled
def _is_refused(b: Bytes, p: Int, size: Int, refused: Int) -> Bool:
    """Whether a text is so many NUL characters, which stand for the value of an ENUM that no text is accepted for."""
    if size != refused:
        return False
    every = np.uint8(0)
    for k in range(size):
        every |= b[p + k]
    return every == 0


@compiled
def _value(b: Bytes, p: Int, stop: Int, column: Numbers, words: Words, out: Bytes, o: Int) -> tuple[Int, Int]:
    """Write a value that is not NULL; returns the offset behind it, and where the next byte goes."""
    form = column[FORM]
    if form in (FLOAT_BYTES, DOUBLE_BYTES):
        width = 4 if form == FLOAT_BYTES else 8
        if p + width > stop:
            return -1, o
        bits = _double(b, p) if form == FLOAT_BYTES else little(b, p, width)
        if not _is_finite(bits):
            return -1, o
        return p + width, _number(out, o, bits)
    begin = p
    z, p = zigzag(b, p, stop)
    if p < 0:
        return -1, o
    if form == NUMBER:
        return p, _number(out, o, z >> np.uint64(1) ^ np.uint64(0) - (z & np.uint64(1)))
    # The bytes of a length that is not negative are there.
    if z & np.uint64(1) or z >> np.uint64(1) > np.uint64(stop - p):
        return -1, o
    size = np.int64(z >> np.uint64(1))
    if form in (BIG_ENDIAN, SHORT_COUNTED) and p > begin + 1:
        return -1, o
    if form == BIG_ENDIAN:
        number = np.uint64(0)
        for k in range(size):
            if number >> np.uint64(56):
                return -1, o
            number = number << np.uint64(8) | np.uint64(b[p + k])
        return p + size, _number(out, o, number)
    if form == DECIMAL_TEXT:
        # The text is shorter than 251 bytes.
        end = _decimal(b, p, size, column[DETAIL], words, out, o + 1)
        if end < 0:
            return -1, o
        out[o] = end - o - 1
        return p + size, end
    if size >= 1 << 24 or (form == COUNTED and _is_refused(b, p, size, column[DETAIL])):
        return -1, o
    return p + size, copied(b, p, size, out, _length(out, o, size))


@compiled
def parameters(
    rows: Bytes,
    row_ends: Numbers,
    columns: Numbers,
    asked: Numbers,
    words: Words,
    out: Bytes,
    fields: Numbers,
    nulls: Words,
) -> None:
    """Write the values of all rows.

    Args:
        rows: the Avro values with headers, one behind the other.
        row_ends: where each ends.
        columns: how each column of the after image is written.
        asked: what is asked for, and what came of it.
        words: scratch.
        out: has room for all values.
        fields: of each row, see ``arrays``.
        nulls: zeros; a bit for each parameter of a row.
    """
    begin: Int = 0
    o: Int = 0
    for row in range(len(row_ends)):
        p, stop = begin + AFTER_AT + 1, row_ends[row]
        for number in range(len(columns)):
            column = columns[number]
            if column[TAG] >= 0:
                if p >= stop:
                    return
                tag = np.int64(rows[p])
                p += 1
                if tag == 0 and column[NULLABLE]:
                    nulls[row, number // WORD_BITS] |= np.uint64(1) << np.uint64(number % WORD_BITS)
                    continue
                if tag != column[TAG]:
                    return
            p, o = _value(rows, p, stop, column, words, out, o)
            if p < 0:
                return
        if asked[PLACED]:
            seq, p = zigzag(rows, p + 1, stop)
            if p < 0:
                return
            epoch, p = zigzag(rows, p, stop)
            if p < 0 or (seq | epoch) >> np.uint64(63):
                return
            fields[row, SEQ], fields[row, EPOCH] = np.int64(seq), np.int64(epoch)
        if p > stop:
            return
        fields[row, END] = o
        begin = stop
        asked[WRITTEN] = row + 1
