"""Column values, from the binlog's bytes to Avro: compiled.

Each function writes what the column's codec in ``schemas.types`` makes of the same bytes. It returns a negative offset
where it is not sure, be it for damage or for a value that is seldom: then the transaction is decoded by the publisher.
"""

from __future__ import annotations

import numpy as np

from producer.decode.compiled.arrays import (
    BINARY,
    BITS,
    BYTES_TAG,
    DATE,
    DATETIME,
    DECIMAL,
    ENUM,
    FIXED,
    FOREIGN,
    KIND,
    LATIN1,
    SET,
    SIGNED,
    TAG,
    TIME,
    TIMESTAMP,
    UNSIGNED,
    UNSIGNED_LONG,
    UTF8,
    YEAR,
    A,
    B,
    C,
    Tables,
)
from schemas.compiled.jit import compiled
from schemas.compiled.memory import copied, little
from schemas.compiled.types import Bool, Bytes, Int, Numbers, Word, Words

HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_SEVEN, _MORE = np.uint64(7), np.uint64(128)
_EIGHT, _LOW = np.uint64(8), np.uint64(0xFFFFFFFF)
_WORD_BITS = np.uint64(32)
_WORDS = 8  # of 32 bits, for the 65 digits of a DECIMAL
_MOST_YEAR = 9999
_MINUS, _ZERO, _DASH, _COLON, _DOT, _SPACE, _COMMA = 45, 48, 45, 58, 46, 32, 44


@compiled
def varint(out: Bytes, o: Int, z: Word) -> Int:
    """Write a zig-zag value, a uint64; returns where the next byte goes."""
    while z >= _MORE:
        out[o] = np.uint8((z & np.uint64(127)) | _MORE)
        z >>= _SEVEN
        o += 1
    out[o] = np.uint8(z)
    return o + 1


@compiled
def size_of(out: Bytes, o: Int, size: Int) -> Int:
    """Write the length of bytes or of a text."""
    return varint(out, o, np.uint64(size << 1))


@compiled
def big(b: Bytes, p: Int, size: Int) -> Int:
    """The number of at most seven bytes, the highest first, as an int64."""
    number = np.int64(0)
    for k in range(size):
        number = number << 8 | np.int64(b[p + k])
    return number


@compiled
def digits(out: Bytes, o: Int, number: Int, count: Int) -> Int:
    """Write a number that has at most so many digits, with zeros before it."""
    for k in range(count - 1, -1, -1):
        out[o + k] = _ZERO + number % 10
        number //= 10
    return o + count


@compiled
def decimal_number(out: Bytes, o: Int, number: Int) -> Int:
    """Write a number, which is not negative, in decimal."""
    count, rest = 1, number // 10
    while rest:
        count += 1
        rest //= 10
    return digits(out, o, number, count)


@compiled
def _joined(out: Bytes, o: Int, first: Int, count: Int, second: Int, third: Int, mark: Int) -> Int:
    """Write a number of ``count`` digits and two below a hundred, with a mark between them."""
    o = digits(out, o, first, count)
    out[o] = mark
    o = digits(out, o + 1, second, 2)
    out[o] = mark
    return digits(out, o + 1, third, 2)


@compiled
def _clock(out: Bytes, o: Int, hour: Int, minute: Int, second: Int) -> Int:
    """Write a time of day, each part below a hundred."""
    return _joined(out, o, hour, 2, minute, second, _COLON)


@compiled
def _day(out: Bytes, o: Int, year: Int, month: Int, day: Int) -> Int:
    return _joined(out, o, year, 4, month, day, _DASH)


@compiled
def _fraction(out: Bytes, o: Int, fraction: Int, size: Int, fsp: Int) -> Int:
    """Write a point and ``fsp`` digits of a fraction of ``size`` bytes; a negative offset if it has too many."""
    if fsp == 0:
        return o
    number, count = fraction, 2 * size
    if number >= 10**count:
        return -1
    if fsp < count:
        number //= 10
    out[o] = _DOT
    return digits(out, o + 1, number, fsp)


@compiled
def _civil(days: Int) -> tuple[Int, Int, Int]:
    """Year, month and day of so many days since 1970 (Howard Hinnant's ``civil_from_days``)."""
    shifted = days + 719468
    era = shifted // 146097
    of_era = shifted - era * 146097
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (1 if month <= 2 else 0), month, day


@compiled
def _temporal(b: Bytes, p: Int, column: Numbers, out: Bytes, o: Int) -> Int:
    """A date or time behind its tag; its bytes are there. Returns where the next byte goes."""
    kind, fsp = column[KIND], column[A]
    size = (fsp + 1) // 2
    if kind == DATE:
        packed = np.int64(b[p]) | np.int64(b[p + 1]) << 8 | np.int64(b[p + 2]) << 16
        year = packed >> 9
        if year > _MOST_YEAR:
            return -1
        out[o] = 20
        return _day(out, o + 1, year, packed >> 5 & 15, packed & 31)
    if kind == YEAR:
        out[o] = 8
        return digits(out, o + 1, 1900 + np.int64(b[p]) if b[p] else 0, 4)
    if kind == TIME:
        bits = 8 * size
        packed = (big(b, p, 3) - 0x800000 << bits) + big(b, p + 3, size)
        begin = o
        o += 1
        if packed < 0:
            out[o] = _MINUS
            o += 1
            packed = -packed
        hms = packed >> bits
        hour = hms >> 12 & 1023
        if hour > 99:
            out[o] = _ZERO + hour // 100 % 10
            o += 1
            if hour > 999:
                return -1
        o = _clock(out, o, hour % 100, hms >> 6 & 63, hms & 63)
        o = _fraction(out, o, packed & (1 << bits) - 1, size, fsp)
        if o >= 0:
            out[begin] = o - begin - 1 << 1
        return o
    out[o] = 19 + fsp + (1 if fsp else 0) << 1
    o += 1
    if kind == DATETIME:
        packed = big(b, p, 5) - 0x8000000000
        month = packed >> 22
        if packed < 0 or month // 13 > _MOST_YEAR:
            return -1
        o = _day(out, o, month // 13, month % 13, packed >> 17 & 31)
        out[o] = _SPACE
        o = _clock(out, o + 1, packed >> 12 & 31, packed >> 6 & 63, packed & 63)
        return _fraction(out, o, big(b, p + 5, size), size, fsp)
    seconds = big(b, p, 4)
    if seconds:
        year, month, day = _civil(seconds // 86400)
        o = _day(out, o, year, month, day)
        seconds %= 86400
    else:
        o = _day(out, o, 0, 0, 0)
    out[o] = _SPACE
    o = _clock(out, o + 1, seconds // 3600, seconds // 60 % 60, seconds % 60)
    return _fraction(out, o, big(b, p + 4, size), size, fsp)


@compiled
def _temporal_size(column: Numbers) -> Int:
    kind, fraction = column[KIND], (column[A] + 1) // 2
    if kind == DATE:
        return 3
    if kind == YEAR:
        return 1
    return fraction + (3 if kind == TIME else 5 if kind == DATETIME else 4)


@compiled
def _multiply_add(words: Words, factor: Word, addend: Word) -> None:
    carry = addend
    for k in range(_WORDS):
        product = words[k] * factor + carry
        words[k] = product & _LOW
        carry = product >> _WORD_BITS


@compiled
def _packed_group(b: Bytes, p: Int, size: Int, flip: np.uint8) -> Word:
    number = np.uint64(0)
    for k in range(size):
        number = number << _EIGHT | np.uint64(b[p + k] ^ flip)
    return number


@compiled
def _decimal(b: Bytes, p: Int, column: Numbers, words: Words, out: Bytes, o: Int) -> Int:
    """A DECIMAL behind its tag; its bytes are there. Source of the packed form: MySQL strings/decimal.cc."""
    precision, scale, size = column[A], column[B], column[C]
    is_negative: Bool = b[p] < 128
    # The bits of a negative number are inverted, and the first one is the sign's.
    flip = np.uint8(255 if is_negative else 0)
    for k in range(_WORDS):
        words[k] = 0
    whole = precision - scale
    at, left, end = p, whole % 9, p + size
    remaining_whole, remaining_scale = whole, scale
    while at < end:
        if remaining_whole > 0:
            count = left if left else 9
            left = 0
            remaining_whole -= count
        else:
            count = min(remaining_scale, 9)
            remaining_scale -= count
        length = (count + 1) // 2 if count < 9 else 4
        group = _packed_group(b, at, length, flip)
        if at == p:
            group ^= np.uint64(128) << np.uint64(8 * (length - 1))
        _multiply_add(words, np.uint64(10**count), group)
        at += length
    # As two's complement a negative number is the complement of what is one less.
    if is_negative:
        k = 0
        while k < _WORDS and words[k] == 0:
            k += 1
        if k == _WORDS:
            is_negative = False
        else:
            words[k] -= np.uint64(1)
            for j in range(k):
                words[j] = _LOW
    top = _WORDS - 1
    while top > 0 and words[top] == 0:
        top -= 1
    bits, rest = 32 * top, words[top]
    while rest:
        bits += 1
        rest >>= np.uint64(1)
    length = (bits >> 3) + 1
    o = size_of(out, o, length)
    flip = np.uint8(255 if is_negative else 0)
    for k in range(length):
        byte = length - 1 - k
        out[o + k] = np.uint8(words[byte >> 2] >> np.uint64(8 * (byte & 3)) & np.uint64(255)) ^ flip
    return o + length


@compiled
def is_ascii(b: Bytes, p: Int, size: Int) -> Bool:
    """Whether all of these bytes are below 128."""
    every, begin = np.uint8(0), np.uint64(p)
    for k in range(np.uint64(size)):
        every |= b[begin + k]
    return every < 128


@compiled
def is_utf8(b: Bytes, p: Int, end: Int) -> Bool:
    """Whether bytes are valid UTF-8, as Python decodes it (Unicode, table 3-7)."""
    while p < end:
        first = b[p]
        p += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4 or p == end:
            return False
        least, most = 0x80, 0xBF
        if first == 0xE0:
            least = 0xA0
        elif first == 0xED:
            most = 0x9F
        elif first == 0xF0:
            least = 0x90
        elif first == 0xF4:
            most = 0x8F
        if not least <= b[p] <= most:
            return False
        p += 1
        for _ in range((1 if first >= 0xE0 else 0) + (1 if first >= 0xF0 else 0)):
            if p == end or b[p] & 0xC0 != 0x80:
                return False
            p += 1
    return True


@compiled
def _latin1(b: Bytes, p: Int, size: Int, out: Bytes, o: Int, forms: Bytes) -> Int:
    """Text in latin1, its length before it. ``forms``: of each byte the size of its UTF-8, and its bytes."""
    length = 0
    for k in range(size):
        length += forms[b[p + k], 0]
    o = size_of(out, o, length)
    for k in range(size):
        byte = b[p + k]
        for j in range(forms[byte, 0]):
            out[o] = forms[byte, j + 1]
            o += 1
    return o


@compiled
def _text(
    b: Bytes, p: Int, stop: Int, column: Numbers, tables: Tables, out: Bytes, o: Int
) -> tuple[Int, Int]:
    """Text or bytes with their length before them, behind their tag. Returns both offsets."""
    kind, size = column[KIND], column[A]
    if p + size > stop:
        return -1, o
    length = np.int64(little(b, p, size))
    p += size
    if length > stop - p:
        return -1, o
    if kind == BINARY:
        if column[TAG] >= 0:
            out[o] = column[TAG]
            o += 1
        whole = max(length, column[B])
        o = copied(b, p, length, out, size_of(out, o, whole))
        for _ in range(whole - length):
            out[o] = 0
            o += 1
        return p + length, o
    plain = kind != FOREIGN and is_ascii(b, p, length)
    is_text: Bool = plain or kind == LATIN1 or (kind == UTF8 and is_utf8(b, p, p + length))
    out[o] = column[TAG] if is_text else column[BYTES_TAG]
    o += 1
    if kind == LATIN1 and not plain:
        return p + length, _latin1(b, p, length, out, o, tables.latin1)
    return p + length, copied(b, p, length, out, size_of(out, o, length))


@compiled
def _member(b: Bytes, p: Int, column: Numbers, tables: Tables, out: Bytes, o: Int) -> Int:
    """An ENUM or SET behind its tag; its bytes are there. Returns where the next byte goes."""
    chosen, first, count = little(b, p, column[A]), column[B], column[C]
    texts, ends = tables.texts, tables.members
    if column[KIND] == ENUM:
        if chosen > np.uint64(count):
            return -1
        at = first + np.int64(chosen)
        size = ends[at + 1] - ends[at]
        return copied(texts, ends[at], size, out, size_of(out, o, size))
    if count < 64 and chosen >> np.uint64(count):
        return -1
    length = -1
    for k in range(count):
        if chosen >> np.uint64(k) & np.uint64(1):
            length += ends[first + k + 1] - ends[first + k] + 1
    o = size_of(out, o, max(length, 0))
    is_first = True
    for k in range(count):
        if chosen >> np.uint64(k) & np.uint64(1):
            if not is_first:
                out[o] = _COMMA
                o += 1
            is_first = False
            at = ends[first + k]
            o = copied(texts, at, ends[first + k + 1] - at, out, o)
    return o


@compiled
def value(
    b: Bytes, p: Int, stop: Int, column: Numbers, tables: Tables, words: Words, out: Bytes, o: Int
) -> tuple[Int, Int]:
    """Write the value at ``b[p]``, which is not NULL; returns the offset behind it, and where the next byte goes.

    Args:
        stop: where the event ends.
        words: scratch of ``_WORDS`` numbers.
    """
    kind = column[KIND]
    if UTF8 <= kind <= BINARY:
        return _text(b, p, stop, column, tables, out, o)
    if kind == DECIMAL:
        size = column[C]
    elif DATE <= kind <= TIMESTAMP:
        size = _temporal_size(column)
    else:
        size = column[A]
    if p + size > stop:
        return -1, o
    if column[TAG] >= 0:
        out[o] = column[TAG]
        o += 1
    if kind == SIGNED:
        shift = 64 - 8 * size
        number = np.int64(little(b, p, size)) << shift >> shift
        o = varint(out, o, np.uint64(number << 1 ^ number >> 63))
    elif kind == UNSIGNED:
        o = varint(out, o, little(b, p, size) << np.uint64(1))
    elif kind == FIXED:
        o = copied(b, p, size, out, o)
    elif kind == DECIMAL:
        o = _decimal(b, p, column, words, out, o)
    elif kind == UNSIGNED_LONG:
        length = size
        while length > 0 and b[p + length - 1] == 0:
            length -= 1
        # One more byte where the highest bit would look like a sign.
        padding = 1 if length == 0 or b[p + length - 1] >= 128 else 0
        out[o] = length + padding << 1
        o += 1
        if padding:
            out[o] = 0
            o += 1
        for k in range(length - 1, -1, -1):
            out[o] = b[p + k]
            o += 1
    elif kind == BITS:
        out[o] = size << 1
        o = copied(b, p, size, out, o + 1)
    elif kind in (ENUM, SET):
        o = _member(b, p, column, tables, out, o)
    else:
        o = _temporal(b, p, column, out, o)
    return (p + size, o) if o >= 0 else (-1, o)
