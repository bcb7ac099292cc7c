"""DATE, TIME, DATETIME, TIMESTAMP and YEAR. Avro string: MySQL's canonical text, TIMESTAMP in UTC.

It is text because no Avro type can represent zero and partial dates, TIME's range or year 0. Sources: for the packed
formats MySQL mysys/my_time.cc, for the formats before 5.6 MySQL sql/field.cc, for MariaDB's old formats with fractions
(``mysql56_temporal_format=OFF``) MariaDB sql/field.cc and sql/compat56.cc.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from schemas.structure import Column
from schemas.types.codec import Codec, Lines, short_field
from schemas.types.parameter import SHORT_COUNTED, STRING, Parameter, counted_value

DATE, YEAR, NEWDATE, TIMESTAMP2, DATETIME2, TIME2 = 10, 13, 14, 17, 18, 19
#: formats before 5.6; ``meta`` is the number of fraction digits from the table's definition, not from the binlog
TIMESTAMP, TIME, DATETIME = 7, 11, 12

# Sizes in bytes of MariaDB's old formats with 0 to 6 fraction digits.
_OLD_TIME_BYTES = (3, 4, 4, 5, 5, 5, 6)
_OLD_DATETIME_BYTES = (8, 6, 6, 7, 7, 7, 8)
_OLD_TIMESTAMP_BYTES = (4, 5, 5, 6, 6, 7, 7)
_MOST_TEXTS = 1 << 18  # the dates of seven hundred years
# The smallest TIME is this many seconds below zero.
_OLD_TIME_ZERO = 838 * 3600 + 59 * 60 + 59 + 1


class _Texts(dict[int, bytes]):
    """A cache of texts, created on first use; it is cleared when it gets too large."""

    def _make(self, key: int) -> bytes:
        raise NotImplementedError

    def __missing__(self, key: int) -> bytes:
        if len(self) >= _MOST_TEXTS:
            self.clear()
        text = self[key] = self._make(key)
        return text


class _PackedDates(_Texts):
    """(year * 13 + month) << 5 | day, as in DATETIME2."""

    def _make(self, key: int) -> bytes:
        month = key >> 5
        return b"%04d-%02d-%02d" % (month // 13, month % 13, key & 31)


class _PackedTimes(_Texts):
    """hour << 12 | minute << 6 | second."""

    def _make(self, key: int) -> bytes:
        return b" %02d:%02d:%02d" % (key >> 12, key >> 6 & 63, key & 63)


class _Dates(_Texts):
    """year << 9 | month << 5 | day, as in DATE."""

    def _make(self, key: int) -> bytes:
        return b"%04d-%02d-%02d" % (key >> 9, key >> 5 & 15, key & 31)


class _EpochDays(_Texts):
    """Days since 1970."""

    def _make(self, key: int) -> bytes:
        return (date(1970, 1, 1) + timedelta(days=key)).isoformat().encode()


class _DaySeconds(_Texts):
    """Seconds since midnight."""

    def _make(self, key: int) -> bytes:
        return b" %02d:%02d:%02d" % (key // 3600, key // 60 % 60, key % 60)


_ZERO_TIMESTAMP = b"0000-00-00 00:00:00"
_EPOCH_DAYS, _DAY_SECONDS = _EpochDays(), _DaySeconds()


def timestamp_text(seconds: int) -> bytes:
    """Convert seconds since 1970 to text; in MySQL 0 is the zero date, not 1970."""
    if not seconds:
        return _ZERO_TIMESTAMP
    return _EPOCH_DAYS[seconds // 86400] + _DAY_SECONDS[seconds % 86400]


def time_text(data: bytes, fsp: int) -> bytes:
    """Convert packed TIME2 bytes to text."""
    whole = int.from_bytes(data[:3], "big") - 0x800000
    fraction = int.from_bytes(data[3:], "big")
    fraction_bits = 8 * (len(data) - 3)
    # The fraction of a negative time is stored as a complement too.
    packed = (whole << fraction_bits) + fraction
    sign = b"-" if packed < 0 else b""
    packed = abs(packed)
    hms = packed >> fraction_bits
    text = b"%s%02d:%02d:%02d" % (sign, hms >> 12 & 1023, hms >> 6 & 63, hms & 63)
    if not fsp:
        return text
    digits = b"%0*d" % (fraction_bits // 4, packed & ((1 << fraction_bits) - 1))
    return text + b"." + digits[:fsp]


def _clock(number: int, fsp: int) -> bytes:
    """Convert a time in units of 10^-fsp seconds to text."""
    seconds, fraction = divmod(number, 10**fsp)
    text = b"%02d:%02d:%02d" % (seconds // 3600, seconds // 60 % 60, seconds % 60)
    digits: bytes = b".%0*d" % (fsp, fraction)
    return text + digits if fsp else text


def old_time_text(data: bytes, fsp: int) -> bytes:
    """Convert an old TIME to text: HHMMSS as a number, or with a fraction the time since the smallest TIME."""
    if not fsp:
        number = int.from_bytes(data, "little", signed=True)
        hms = abs(number)
        return b"%s%02d:%02d:%02d" % (b"-" * (number < 0), hms // 10000, hms // 100 % 100, hms % 100)
    number = int.from_bytes(data, "big") - _OLD_TIME_ZERO * 10**fsp
    sign = b"-" if number < 0 else b""
    return sign + _clock(abs(number), fsp)


def old_datetime_text(data: bytes, fsp: int) -> bytes:
    """Convert an old DATETIME to text: YYYYMMDDHHMMSS as a number, or with a fraction a mixed-radix number."""
    if not fsp:
        number = int.from_bytes(data, "little")
        day, second = divmod(number, 1_000_000)
        clock = (second // 10000, second // 100 % 100, second % 100)
        return b"%04d-%02d-%02d %02d:%02d:%02d" % (day // 10000, day // 100 % 100, day % 100, *clock)
    packed, rest = divmod(int.from_bytes(data, "big"), 86400 * 10**fsp)
    month, day = divmod(packed, 32)
    return b"%04d-%02d-%02d %s" % (month // 13, month % 13, day, _clock(rest, fsp))


def old_timestamp_text(data: bytes, fsp: int) -> bytes:
    """Convert an old TIMESTAMP to text, in UTC."""
    if not fsp:
        return timestamp_text(int.from_bytes(data, "little"))
    digits: bytes = b".%0*d" % (fsp, int.from_bytes(data[4:], "big"))
    return timestamp_text(int.from_bytes(data[:4], "big")) + digits


_MOST_TIME = len("-838:59:59.000000")
_OLD = {
    TIME: ("old_time_text", _OLD_TIME_BYTES),
    DATETIME: ("old_datetime_text", _OLD_DATETIME_BYTES),
    TIMESTAMP: ("old_timestamp_text", _OLD_TIMESTAMP_BYTES),
}


def not_a_time(column: str, text: bytes) -> ValueError:
    """Return the error for a text that is not all of a value. MariaDB's YEAR(2) is ``00`` for 0000 and for 2000."""
    return ValueError(f"column {column} has the text {text!r}, which is not all of a time")


def counted(text: bytes) -> bytes:
    """Encode a short Avro string (up to 63 bytes)."""
    return bytes((len(text) << 1,)) + text


def _fraction(fsp: int, offset: int) -> tuple[str, int]:
    """Return an expression for the text of the fraction at ``offset``, and the fraction's size in bytes."""
    size = (fsp + 1) // 2
    if not size:
        return "", 0
    digits = f"b'.%0{2 * size:d}d' % from_bytes(b[p+{offset:d}:p+{offset + size:d}], 'big')"
    return f" + ({digits})[:{fsp + 1:d}]", size


class Temporal(Codec):
    """All date and time types."""

    names: Mapping[str, Any] = {
        "PACKED_DATES": _PackedDates(),
        "PACKED_TIMES": _PackedTimes(),
        "DATES": _Dates(),
        "timestamp_text": timestamp_text,
        "time_text": time_text,
        "old_time_text": old_time_text,
        "old_datetime_text": old_datetime_text,
        "old_timestamp_text": old_timestamp_text,
        "counted": counted,
        "not_a_time": not_a_time,
        "TIME_CHARACTERS": b"0123456789-: .",
    }

    def avro(self, column: Column) -> list[Any]:
        """Avro string."""
        return ["string"]

    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        fsp = column.meta
        if column.code in (DATE, NEWDATE):
            return [f"{target} = {tags[0]} + b'\\x14' + DATES[b[p] | b[p+1] << 8 | b[p+2] << 16]; p += 3"]
        if column.code == YEAR:
            return [f"{target} = {tags[0]} + b'\\x08%04d' % (1900 + b[p] if b[p] else 0); p += 1"]
        if column.code in _OLD:
            text, sizes = _OLD[column.code]
            size = sizes[fsp]
            return [f"{target} = {tags[0]} + counted({text}(b[p:p+{size:d}], {fsp:d})); p += {size:d}"]
        if column.code == TIME2:
            size = 3 + (fsp + 1) // 2
            return [f"{target} = {tags[0]} + counted(time_text(b[p:p+{size:d}], {fsp:d})); p += {size:d}"]
        length = bytes(((19 + fsp + (fsp > 0)) << 1,))
        if column.code == TIMESTAMP2:
            text, size = _fraction(fsp, 4)
            whole = "timestamp_text(from_bytes(b[p:p+4], 'big'))"
            return [f"{target} = {tags[0]} + {length!r} + {whole}{text}; p += {4 + size:d}"]
        text, size = _fraction(fsp, 5)
        return [
            "i = from_bytes(b[p:p+5], 'big') - 0x8000000000",
            f"{target} = {tags[0]} + {length!r} + PACKED_DATES[i >> 17] + PACKED_TIMES[i & 0x1ffff]{text}"
            f"; p += {5 + size:d}",
        ]

    def encode(self, column: Column, target: str, tags: list[str]) -> Lines:
        if column.code in (TIME, TIME2):
            return [
                *short_field(),
                f"if l > {_MOST_TIME:d} or d.strip(TIME_CHARACTERS): raise not_a_time({column.name!r}, d)",
                f"{target} = {tags[0]} + counted(d)",
            ]
        fraction = column.meta + 1 if column.meta else 0
        length = {DATE: 10, NEWDATE: 10, YEAR: 4}.get(column.code, 19 + fraction)
        return [
            *short_field(),
            f"if l != {length:d} or d.strip(TIME_CHARACTERS): raise not_a_time({column.name!r}, d)",
            f"{target} = {tags[0]} + {bytes((length << 1,))!r} + d",
        ]

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        """The length of all these texts fits into one byte."""
        return [
            "q = p + 1 + (v[p] >> 1); d = v[p+1:q]; p = q",
            'if b"\'" in d: raise ValueError("a time contains a quote")',
            f'{target} = b"\'" + d + b"\'"',
        ]

    def parameter(self, column: Column, target: str, branches: int) -> Parameter:
        read = "l = v[p]; q = p + 1 + (l >> 1); d = v[p+1:q]; p = q"
        return Parameter(STRING, [read, counted_value(target)], SHORT_COUNTED)

    def value(self, column: Column, target: str, branches: int) -> Lines:
        """The canonical text."""
        return [f"q = p + 1 + (v[p] >> 1); {target} = v[p+1:q].decode(); p = q"]
