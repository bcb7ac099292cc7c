"""The values that mysql-replication is known to read wrongly or not at all, with what it returns for them.

A difference is known only if the library returns exactly the expected wrong value. docs/RELAY_LOG.md lists the cases
and how they were proved.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any

from schemas.structure import Column
from schemas.types.binary import STRING
from schemas.types.enum_set import ENUM, SET, error_value, member_texts
from schemas.types.json_type import JSON
from schemas.types.temporal import DATE, DATETIME, DATETIME2, TIME, TIME2, TIMESTAMP, TIMESTAMP2, YEAR
from tailrace.verify_rows.values import (
    DIFF,
    Tree,
    Undecodable,
    document,
    is_same,
    moment_text,
    opaque_bytes,
    time_text,
    true_scalar,
)

ZERO_DATE = "date with zero parts"
IMPOSSIBLE_DATE = "date that is in no calendar"
ZERO_TIMESTAMP = "zero TIMESTAMP"
LATE_TIMESTAMP = "TIMESTAMP after 2038"
ZERO_YEAR = "zero YEAR"
NEGATIVE_FRACTION = "negative TIME with a fraction"
OLD_TIME = "old negative TIME"
EMPTY_SET = "empty SET"
MEMBERS = "members of ENUM and SET"
BINARY_ZEROS = "BINARY's trailing zeros"
TEXT = "text of a character set"
JSON_SCALAR = "JSON scalar made by SQL"
JSON_EMPTY = "empty JSON"
JSON_DIFF = "JSON diff"

#: all names, in the order of the table in docs/RELAY_LOG.md
KNOWN = (
    ZERO_DATE, IMPOSSIBLE_DATE, ZERO_TIMESTAMP, LATE_TIMESTAMP, ZERO_YEAR, NEGATIVE_FRACTION, OLD_TIME, EMPTY_SET,
    MEMBERS, BINARY_ZEROS, TEXT, JSON_SCALAR, JSON_EMPTY, JSON_DIFF,
)  # fmt: skip

_EPOCH = datetime(1970, 1, 1)


def known_difference(column: Column, value: Any, found: Any, library_column: Any) -> str:
    """Return the name of a known difference, or ``""``.

    Args:
        value: our value, as fastavro reads it.
        found: the library's value in the common form.
        library_column: the library's Column, which has its lists of members.
    """
    if value is None:
        return ""
    for name, wrong in _known_wrong(column, value, library_column):
        if is_same(wrong, found):
            return name
    return ""


def cannot_be_read(column: Column, value: Any) -> str:
    """Return the name of a case in which the library fails to read the whole event, or ``""``."""
    if (
        column.code in (DATE, DATETIME)
        and isinstance(value, str)
        and not _has_zero(value)
        and _calendar(value) is None
    ):
        return IMPOSSIBLE_DATE
    return ""


def _known_wrong(column: Column, value: Any, library_column: Any) -> Iterator[tuple[str, Any]]:
    """Yield the known differences that ``value`` may have: the name, and what the library returns instead."""
    code = column.code
    if code in (DATE, DATETIME, DATETIME2):
        if _has_zero(value):
            yield ZERO_DATE, None
        elif code == DATETIME2 and _calendar(value) is None:
            yield IMPOSSIBLE_DATE, None
    elif code in (TIMESTAMP, TIMESTAMP2):
        if _has_zero(value):
            yield ZERO_TIMESTAMP, moment_text(_EPOCH, column.meta)
        elif code == TIMESTAMP2:
            early = datetime.fromisoformat(value) - timedelta(seconds=1 << 32)
            yield LATE_TIMESTAMP, moment_text(early, column.meta)
    elif code == YEAR and value == "0000":
        yield ZERO_YEAR, "1900"
    elif code == TIME2 and value.startswith("-"):
        yield NEGATIVE_FRACTION, _wrong_fraction(value, column.meta)
    elif code == TIME and value.startswith("-"):
        yield OLD_TIME, _wrapped_time(value)
    elif code == ENUM:
        texts = (error_value(column), *member_texts(column))
        yield MEMBERS, library_column.enum_values[texts.index(value)]
    elif code == SET:
        if not value:
            yield EMPTY_SET, None
        else:
            yield MEMBERS, _library_members(column, value, library_column.set_values)
    elif code == STRING and isinstance(value, bytes):
        yield BINARY_ZEROS, value.rstrip(b"\0")
    elif code == JSON:
        yield from _wrong_json(value)
    elif column.charset:
        yield from _wrong_text(value)
    if code == STRING:
        yield from _wrong_text(value)


def _has_zero(text: str) -> bool:
    year, month, day = text[:10].split("-")
    return not (int(year) and int(month) and int(day))


def _calendar(text: str) -> date | None:
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        return None


def _wrong_fraction(text: str, fsp: int) -> str:
    """Return a negative TIME as the library reads it: it decodes whole seconds and fraction separately."""
    hours, minutes, seconds = text[1:].split(":")
    whole, _, digits = seconds.partition(".")
    second = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(whole) + 1)
    return time_text(timedelta(microseconds=int(digits.ljust(6, "0"))) - second, fsp)


def _wrapped_time(text: str) -> str:
    """Return a negative TIME of the old format as the library reads it: it takes the three bytes as unsigned."""
    hours, minutes, seconds = map(int, text[1:].split(":"))
    number = (1 << 24) - (hours * 10_000 + minutes * 100 + seconds)
    wrong = timedelta(hours=number // 10_000, minutes=number // 100 % 100, seconds=number % 100)
    return time_text(wrong, 0)


def _library_members(column: Column, value: str, members: list[str]) -> str:
    """Return a SET with the library's texts of its members, some of which are ``""`` or belong to other members."""
    numbers = {text: i for i, text in enumerate(member_texts(column))}
    chosen = {members[numbers[text]] for text in value.split(",")}
    return ",".join(text for text in dict.fromkeys(members) if text in chosen)


def _wrong_text(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, str):
        if value.isascii():
            yield TEXT, value.encode()  # if Python has no codec of the character set
        if any("\x80" <= character <= "\x9f" for character in value):
            yield TEXT, Undecodable()  # the servers' latin1 has these characters, Windows-1252 does not


def _wrong_json(value: Any) -> Iterator[tuple[str, Any]]:
    yield JSON_DIFF, DIFF
    if value == "null":
        yield JSON_EMPTY, None
    try:
        yield JSON_SCALAR, document(value, _library_scalar)
    except ValueError:
        yield JSON_SCALAR, Undecodable()


def _library_scalar(sql_type: str, text: str) -> Tree:
    """Return a JSON scalar of an SQL type as the library reads it. Raises ValueError where the library fails."""
    if sql_type == "time(6)":
        hours = int(text.lstrip("-").split(":")[0])
        if hours > 23:
            raise ValueError("the library cannot read this time")
        return "time", text.lstrip("-")
    if sql_type in ("date", "datetime(6)"):
        moment = text if len(text) > 10 else f"{text} 00:00:00.000000"
        if moment == "0000-00-00 00:00:00.000000":
            return "bytes", moment[:19]
        return "datetime", moment_text(datetime.fromisoformat(moment), 6)
    if sql_type == "timestamp(6)":
        return "bytes", _packed(text).decode(errors="ignore")
    if sql_type.startswith("opaque"):
        return "bytes", opaque_bytes(text).decode(errors="ignore")
    return true_scalar(sql_type, text)


def _packed(text: str) -> bytes:
    """Return the eight bytes of a date and time in binary JSON."""
    year, month, day, hour, minute, second, micro = (int(text[a:b]) for a, b in _PARTS)
    days = (year * 13 + month) << 5 | day
    clock = hour << 12 | minute << 6 | second
    return ((days << 17 | clock) << 24 | micro).to_bytes(8, "little")


_PARTS = ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19), (20, 26))
