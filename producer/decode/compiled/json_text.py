"""MySQL's binary JSON to its text: compiled. What it means is in ``schemas.types.json_binary``."""

from __future__ import annotations

import numpy as np

from producer.decode.compiled.arrays import (
    JSON_COUNT,
    JSON_DEPTH,
    JSON_ENTRIES,
    JSON_INDEX,
    JSON_KEYS,
    JSON_KIND,
    JSON_START,
    LEAST_POWER,
    TAG,
    A,
    Tables,
)
from producer.decode.compiled.values import HEX, decimal_number, is_ascii, is_utf8, size_of
from schemas.compiled.jit import compiled
from schemas.compiled.memory import copied, little
from schemas.compiled.types import Bool, Bytes, Int, Numbers, Word, Words

_LARGE_OBJECT, LARGE_ARRAY = 1, 3
_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = range(4, 13)
_MAX_READ_SIGNED = (1 << 32) - 1
_LITERALS = np.frombuffer(b"nulltruefalse", np.uint8)
_QUOTE, _BACKSLASH, _COMMA, _SPACE, _MINUS, _ZERO, _DOT = 34, 92, 44, 32, 45, 48, 46
# The limit of MySQL's F format; see schemas.types.json_binary.
_F_FORMAT_DIGITS = 15
#: from a value's tag to its text, whose length is known when it is written, and takes at most five bytes
TEXT_BEGINS = 6


@compiled
def _product(a: Word, b: Word) -> tuple[Word, Word]:
    """The upper and the lower half of a product."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    first = a0 * b0
    middle = a1 * b0 + (first >> half)
    other = a0 * b1 + (middle & low)
    return a1 * b1 + (middle >> half) + (other >> half), other << half | first & low


@compiled
def _scaled(power: Int, factor: Word, powers: Words) -> Word:
    """A power of ten times a factor, without the lower 128 bits; its last bit says whether these were not zero."""
    high, low = _product(powers[power - LEAST_POWER, 0], factor)
    carried, _ = _product(powers[power - LEAST_POWER, 1], factor)
    total = low + carried
    if total < low:
        high += np.uint64(1)
    return high | np.uint64(1 if total > np.uint64(1) else 0)


@compiled
def shortest(bits: Word, powers: Words) -> tuple[Word, Int]:
    """The decimal number with the fewest digits that is read as a double: the digits, and the power of ten.

    Source: Raffaello Giulietti, The Schubfach way to render doubles (2020).

    Args:
        bits: of a finite double, without its sign.
    """
    if not bits:
        return bits, np.int64(0)
    fraction, exponent = bits & np.uint64((1 << 52) - 1), np.int64(bits >> np.uint64(52))
    q = exponent - 1075 if exponent else np.int64(-1074)
    c = fraction | np.uint64(1 << 52) if exponent else fraction
    if exponent and 0 <= -q < 53 and c & (np.uint64(1) << np.uint64(-q)) - np.uint64(1) == 0:
        return c >> np.uint64(-q), np.int64(0)
    is_near = fraction == 0 and exponent > 1
    k = q * 1262611 - (524031 if is_near else 0) >> 22
    shift = np.uint64(q + (-k * 1741647 >> 19) + 1)
    middle = c << np.uint64(2)
    two, four, forty = np.uint64(2), np.uint64(4), np.uint64(40)
    odd = c & np.uint64(1)
    below = _scaled(-k, middle - (np.uint64(1) if is_near else two) << shift, powers) + odd
    above = _scaled(-k, middle + two << shift, powers) - odd
    exact = _scaled(-k, middle << shift, powers)
    digits = exact >> two
    if digits >= np.uint64(10):
        fewer = digits // np.uint64(10)
        down, up = below <= forty * fewer, forty * fewer + forty <= above
        if down != up:
            return fewer + np.uint64(1 if up else 0), k + 1
    down, up = below <= four * digits, four * digits + four <= above
    if down != up:
        return digits + np.uint64(1 if up else 0), k
    half = four * digits + two
    is_up = exact > half or (exact == half and digits & np.uint64(1) == 1)
    return digits + np.uint64(1 if is_up else 0), k


@compiled
def double(b: Bytes, p: Int, out: Bytes, o: Int, powers: Words) -> Int:
    """Write a double as MySQL does; -1 if it is not finite."""
    bits = little(b, p, 8)
    if bits >> np.uint64(63):
        out[o] = _MINUS
        o += 1
        bits &= np.uint64((1 << 63) - 1)
    if bits >> np.uint64(52) == np.uint64(2047):
        return np.int64(-1)
    number, power = shortest(bits, powers)
    while number and number % np.uint64(10) == 0:
        number //= np.uint64(10)
        power += 1
    # The digits, written where they are moved from.
    digits = np.int64(number)
    count = 0 if digits == 0 else decimal_number(out, o, digits) - o
    point = count + power
    if count == 0:
        count, point = 1, 1
        out[o] = _ZERO
    if _F_FORMAT_DIGITS < point >= count or point < 1 - _F_FORMAT_DIGITS:
        if count > 1:
            for k in range(count - 1, 0, -1):
                out[o + k + 1] = out[o + k]
            out[o + 1] = _DOT
            count += 1
        o += count
        out[o] = 101
        o += 1
        exponent = point - 1
        if exponent < 0:
            out[o] = _MINUS
            o += 1
            exponent = -exponent
        return decimal_number(out, o, exponent)
    if point <= 0:
        moved = 2 - point
        for k in range(count - 1, -1, -1):
            out[o + k + moved] = out[o + k]
        out[o] = _ZERO
        out[o + 1] = _DOT
        for k in range(2, moved):
            out[o + k] = _ZERO
        return o + count + moved
    for k in range(count, point):
        out[o + k] = _ZERO
    if count <= point:
        out[o + point] = _DOT
        out[o + point + 1] = _ZERO
        return o + point + 2
    for k in range(count - 1, point - 1, -1):
        out[o + k + 1] = out[o + k]
    out[o + point] = _DOT
    return o + count + 1


@compiled
def quoted(b: Bytes, p: Int, size: Int, out: Bytes, o: Int) -> Int:
    """Write a string in quotes; -1 if it is not UTF-8."""
    if not is_ascii(b, p, size) and not is_utf8(b, p, p + size):
        return np.int64(-1)
    out[o] = _QUOTE
    o += 1
    is_plain = True
    for k in range(np.uint64(size)):
        byte = b[np.uint64(p) + k]
        is_plain &= (byte >= 32) & (byte != _QUOTE) & (byte != _BACKSLASH)
    if is_plain:
        o = copied(b, p, size, out, o)
    else:
        for k in range(size):
            byte = b[p + k]
            if byte >= 32 and byte != _QUOTE and byte != _BACKSLASH:
                out[o] = byte
                o += 1
                continue
            out[o] = _BACKSLASH
            letter = 0
            if byte >= 32:
                letter = byte
            elif byte == 8:
                letter = 98
            elif byte == 9:
                letter = 116
            elif byte == 10:
                letter = 110
            elif byte == 12:
                letter = 102
            elif byte == 13:
                letter = 114
            if letter:
                out[o + 1] = letter
                o += 2
            else:
                out[o + 1] = 117
                out[o + 2] = _ZERO
                out[o + 3] = _ZERO
                out[o + 4] = HEX[byte >> 4]
                out[o + 5] = HEX[byte & 15]
                o += 6
    out[o] = _QUOTE
    return o + 1


@compiled
def _signed(out: Bytes, o: Int, number: Int) -> Int:
    if number < 0:
        out[o] = _MINUS
        return decimal_number(out, o + 1, -number)
    return decimal_number(out, o, number)


@compiled
def _scalar(
    kind: Int, b: Bytes, at: Int, end: Int, left: Int, is_inline: Bool, out: Bytes, o: Int, powers: Words
) -> tuple[Int, Int]:
    """Write a scalar; where the next byte goes, -1 if it has a type of its own or is damaged; bytes that are left."""
    fault = np.int64(-1), left
    if kind == _STRING:
        length, shift = np.int64(0), 0
        while True:
            if at >= end or shift > 28:
                return fault
            byte = np.int64(b[at])
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        left -= length
        if length > end - at or left < 0:
            return fault
        return quoted(b, at, length, out, o), left
    if kind == _LITERAL:
        if at >= end or b[at] > 2:
            return fault
        begin, size = np.int64(b[at]) * 4, 5 if b[at] == 2 else 4
        return copied(_LITERALS, begin, size, out, o), left
    if kind < _INT16 or kind > _DOUBLE:
        return fault
    size = 2 if kind <= _UINT16 else 4 if kind <= _UINT32 else 8
    if at + size > end:
        return fault
    if not is_inline:
        left -= size
    if kind == _DOUBLE:
        return double(b, at, out, o, powers), left
    raw = little(b, at, size)
    if kind in (_UINT16, _UINT32, _UINT64):
        # A number that is read as a signed one has a type of its own.
        if raw <= np.uint64(_MAX_READ_SIGNED) or raw >> np.uint64(63):
            return fault
        return decimal_number(out, o, np.int64(raw)), left
    shift = 64 - 8 * size
    number = np.int64(raw) << shift >> shift
    if number > _MAX_READ_SIGNED or number == np.int64(-(1 << 63)):
        return fault
    return _signed(out, o, number), left


@compiled
def open_container(kind: Int, b: Bytes, start: Int, end: Int, left: Int, stack: Numbers, depth: Int) -> Int:
    """Begin a container; the bytes that are left, -1 if it is damaged."""
    key_size = 0 if kind > _LARGE_OBJECT else 6 if kind & 1 else 4
    size = 4 if kind & 1 else 2
    if start < 0 or start + 2 * size > end or depth >= JSON_DEPTH:
        return np.int64(-1)
    count = np.int64(little(b, start, size))
    entries = start + 2 * size + count * key_size
    left -= 2 * size + count * (1 + size + key_size)
    if left < 0 or entries + count * (1 + size) > end:
        return np.int64(-1)
    opened = stack[depth]
    opened[JSON_KIND], opened[JSON_START], opened[JSON_COUNT], opened[JSON_INDEX] = kind, start, count, 0
    opened[JSON_KEYS], opened[JSON_ENTRIES] = start + 2 * size, entries
    return left


@compiled
def is_object(kind: Int) -> Bool:
    return kind <= _LARGE_OBJECT


@compiled
def child(b: Bytes, opened: Numbers, index: Int) -> tuple[Int, Int, Bool]:
    """Of a value in an open container: its kind, where it is, and whether that is in its entry."""
    size = 4 if opened[JSON_KIND] & 1 else 2
    entry = opened[JSON_ENTRIES] + index * (1 + size)
    kind = np.int64(b[entry])
    if kind in (_LITERAL, _INT16, _UINT16) or (size == 4 and kind in (_INT32, _UINT32)):
        return kind, entry + 1, True
    return kind, opened[JSON_START] + np.int64(little(b, entry + 1, size)), False


@compiled
def name(b: Bytes, opened: Numbers, index: Int, end: Int, left: Int) -> tuple[Int, Int, Int]:
    """Where the name of a member of an open object is, its size, and the bytes that are left; -1 if it is damaged."""
    size = 4 if opened[JSON_KIND] & 1 else 2
    entry = opened[JSON_KEYS] + index * (size + 2)
    at, length = opened[JSON_START] + np.int64(little(b, entry, size)), np.int64(little(b, entry + size, 2))
    return at, length, np.int64(-1) if at + length > end else left - length


@compiled
def named(b: Bytes, at: Int, size: Int, out: Bytes, o: Int) -> Int:
    """Write a member's name; -1 if it is not UTF-8."""
    o = quoted(b, at, size, out, o)
    if o >= 0:
        out[o] = 58
        out[o + 1] = _SPACE
        o += 2
    return o


@compiled
def separated(out: Bytes, o: Int) -> Int:
    """Write what is between two values of a container."""
    out[o] = _COMMA
    out[o + 1] = _SPACE
    return o + 2


@compiled
def bracket(kind: Int, closes: Bool, out: Bytes, o: Int) -> Int:
    """Write the begin or the end of a container."""
    out[o] = (123 if is_object(kind) else 91) + (2 if closes else 0)
    return o + 1


@compiled
def value_text(
    kind: Int, b: Bytes, at: Int, end: Int, left: Int, is_inline: Bool, out: Bytes, o: Int, stack: Numbers,
    depth: Int, powers: Words,
) -> tuple[Int, Int]:  # fmt: skip
    """Write a value that is inside of so many containers; returns like ``_scalar``."""
    fault = np.int64(-1), left
    if kind > LARGE_ARRAY:
        return _scalar(kind, b, at, end, left, is_inline, out, o, powers)
    left = open_container(kind, b, at, end, left, stack, depth)
    if left < 0:
        return fault
    outermost = depth
    depth += 1
    o = bracket(kind, False, out, o)
    while depth > outermost:
        opened = stack[depth - 1]
        kind, index = opened[JSON_KIND], opened[JSON_INDEX]
        if index == opened[JSON_COUNT]:
            o = bracket(kind, True, out, o)
            depth -= 1
            continue
        opened[JSON_INDEX] += 1
        if index:
            o = separated(out, o)
        if is_object(kind):
            at, length, left = name(b, opened, index, end, left)
            if left < 0:
                return fault
            o = named(b, at, length, out, o)
            if o < 0:
                return fault
        kind, at, is_inline = child(b, opened, index)
        if kind > LARGE_ARRAY:
            o, left = _scalar(kind, b, at, end, left, is_inline, out, o, powers)
            if o < 0 or left < 0:
                return fault
            continue
        left = open_container(kind, b, at, end, left, stack, depth)
        if left < 0:
            return fault
        depth += 1
        o = bracket(kind, False, out, o)
    return o, left


@compiled
def json_text(b: Bytes, begin: Int, end: Int, out: Bytes, o: Int, stack: Numbers, powers: Words) -> Int:
    """Write the text of the document at ``b[begin]``; where the next byte goes, -1 if that is not sure.

    No more than six bytes are written for each of the document's, and a few more.
    """
    if begin == end:
        return copied(_LITERALS, 0, 4, out, o)
    left = end - begin
    o, left = value_text(
        np.int64(b[begin]), b, begin + 1, end, left, False, out, o, stack, np.int64(0), powers
    )
    return o if left >= 0 else np.int64(-1)


@compiled
def document_at(b: Bytes, p: Int, stop: Int, column: Numbers) -> tuple[Int, Int]:
    """Where the document at ``b[p]``, behind its length, begins and ends; negative if it does not end in time."""
    size = column[A]
    if p + size > stop:
        return np.int64(-1), p
    length = np.int64(little(b, p, size))
    p += size
    return (p, p + length) if length <= stop - p else (np.int64(-1), p)


@compiled
def json_value(
    b: Bytes, p: Int, stop: Int, column: Numbers, tables: Tables, stack: Numbers, out: Bytes, o: Int
) -> tuple[Int, Int]:
    """Write the document at ``b[p]`` with its tag and its length; see ``values.value``."""
    p, stop = document_at(b, p, stop, column)
    if p < 0:
        return np.int64(-1), o
    end = json_text(b, p, stop, out, o + TEXT_BEGINS, stack, tables.powers)
    return (stop, with_tag(column, out, o, end)) if end >= 0 else (np.int64(-1), o)


@compiled
def with_tag(column: Numbers, out: Bytes, o: Int, end: Int) -> Int:
    """Write tag and length at ``out[o]``, and move a text there that ends at ``end``; where the next byte goes."""
    begin = o + TEXT_BEGINS
    out[o] = column[TAG]
    return copied(out, begin, end - begin, out, size_of(out, o + 1, end - begin))
