"""DATE, TIME, DATETIME, TIMESTAMP and YEAR. Avro string: MySQL's canonical text, TIMESTAMP in UTC.

Text, since no Avro type holds zero and partial dates, TIME's range or year 0. Source of the packed forms:
MySQL mysys/my_time.cc.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from schemas.structure import Column
from schemas.types.codec import Lines, plain_predicate

DATE, YEAR, NEWDATE, TIMESTAMP2, DATETIME2, TIME2 = 10, 13, 14, 17, 18, 19


class _Texts(dict[int, bytes]):
    """Texts made on first use; each family's domain is small enough to keep."""

    def _make(self, key: int) -> bytes:
        raise NotImplementedError

    def __missing__(self, key: int) -> bytes:
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
    """Seconds since 1970 to text; MySQL's 0 is the zero date, not 1970."""
    if not seconds:
        return _ZERO_TIMESTAMP
    return _EPOCH_DAYS[seconds // 86400] + _DAY_SECONDS[seconds % 86400]


def time_text(data: bytes, fsp: int) -> bytes:
    """Packed TIME2 bytes to text."""
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


def counted(text: bytes) -> bytes:
    """A short Avro string."""
    return bytes((len(text) << 1,)) + text


def _fraction(fsp: int, offset: int) -> tuple[str, int]:
    """An expression for the fraction's text behind ``offset`` bytes, and its size in bytes."""
    size = (fsp + 1) // 2
    if not size:
        return "", 0
    digits = f"b'.%0{2 * size}d' % from_bytes(b[p+{offset}:p+{offset + size}], 'big')"
    return f" + ({digits})[:{fsp + 1}]", size


class Temporal:
    """All date and time types."""

    names: Mapping[str, Any] = {
        "PACKED_DATES": _PackedDates(),
        "PACKED_TIMES": _PackedTimes(),
        "DATES": _Dates(),
        "timestamp_text": timestamp_text,
        "time_text": time_text,
        "counted": counted,
    }

    def avro(self, column: Column) -> list[Any]:
        """Avro string."""
        return ["string"]

    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        """See ``Codec.decode``."""
        fsp = column.meta
        if column.code in (DATE, NEWDATE):
            return [f"{target} = {tags[0]} + b'\\x14' + DATES[b[p] | b[p+1] << 8 | b[p+2] << 16]; p += 3"]
        if column.code == YEAR:
            return [f"{target} = {tags[0]} + b'\\x08%04d' % (1900 + b[p] if b[p] else 0); p += 1"]
        if column.code == TIME2:
            size = 3 + (fsp + 1) // 2
            return [f"{target} = {tags[0]} + counted(time_text(b[p:p+{size}], {fsp})); p += {size}"]
        length = bytes(((19 + fsp + (fsp > 0)) << 1,))
        if column.code == TIMESTAMP2:
            text, size = _fraction(fsp, 4)
            whole = "timestamp_text(from_bytes(b[p:p+4], 'big'))"
            return [f"{target} = {tags[0]} + {length!r} + {whole}{text}; p += {4 + size}"]
        text, size = _fraction(fsp, 5)
        return [
            "i = from_bytes(b[p:p+5], 'big') - 0x8000000000",
            f"{target} = {tags[0]} + {length!r} + PACKED_DATES[i >> 17] + PACKED_TIMES[i & 0x1ffff]{text}"
            f"; p += {5 + size}",
        ]

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        """See ``Codec.literal``. All these texts are short: one length byte, no quotes inside."""
        return [f'q = p + 1 + (v[p] >> 1); {target} = b"\'" + v[p+1:q] + b"\'"; p = q']

    def value(self, column: Column, target: str, branches: int) -> Lines:
        """See ``Codec.value``. The canonical text."""
        return [f"q = p + 1 + (v[p] >> 1); {target} = v[p+1:q].decode(); p = q"]

    def predicate(self, column: Column, quoted: bytes) -> tuple[bytes, bytes]:
        """See ``Codec.predicate``."""
        return plain_predicate(quoted)
