"""The types of values in expressions, and how text is compared under the collations."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from schemas.structure import Column
from schemas.types.binary import BIT
from schemas.types.decimals import NEWDECIMAL
from schemas.types.enum_set import ENUM, SET
from schemas.types.floating import DOUBLE, FLOAT
from schemas.types.integer import INT24, LONG, LONGLONG, SHORT, TINY
from schemas.types.temporal import (
    DATE,
    DATETIME,
    DATETIME2,
    NEWDATE,
    TIME,
    TIME2,
    TIMESTAMP,
    TIMESTAMP2,
    YEAR,
)
from spark_consumer.rules.expressions import UnsupportedExpression


class Unevaluable(Exception):
    """The server's result of an expression is not known for a value of this row."""


class Kind(Enum):
    """The type by which a value is compared."""

    NULL = "NULL"
    INT = "integer"
    DECIMAL = "decimal"
    DOUBLE = "double"
    TEXT = "text"
    BYTES = "bytes"
    MOMENT = "date and time"
    TIME = "time"
    YEAR = "year"


NUMBERS = (Kind.INT, Kind.DECIMAL, Kind.DOUBLE)


@dataclass(frozen=True)
class Type:
    """The static type of a part of an expression.

    Attributes:
        collation: the collation of text that is not a constant.
        constant: the value of a constant; None if it is not a constant.
        unsigned: whether an integer is unsigned.
        scale, digits: of numbers: after the point, and in all.
        padding: the text after a date and time that makes its canonical text one with six digits.
        listed: whether it is an ENUM or SET, which has a number too.
    """

    kind: Kind
    collation: str = ""
    constant: object = None
    unsigned: bool = False
    scale: int = 0
    digits: int = 20
    padding: str = ""
    listed: bool = False


def type_of(column: Column, collation: str) -> Type:
    """Return a column's type. Raises UnsupportedExpression for a type that cannot be compared here."""
    code = column.code
    if code in (TINY, SHORT, INT24, LONG, LONGLONG):
        return Type(Kind.INT, unsigned=column.unsigned)
    if code == BIT:
        return Type(Kind.INT, unsigned=True)
    if code == NEWDECIMAL:
        return Type(Kind.DECIMAL, scale=column.meta & 0xFF, digits=column.meta >> 8)
    if code in (FLOAT, DOUBLE):
        return Type(Kind.DOUBLE)
    if code in (DATE, NEWDATE):
        return Type(Kind.MOMENT, padding=" 00:00:00.000000")
    if code in (DATETIME2, TIMESTAMP2, DATETIME, TIMESTAMP):
        return Type(Kind.MOMENT, padding="0" * (6 - column.meta) if column.meta else ".000000")
    if code in (TIME2, TIME):
        return Type(Kind.TIME)
    if code == YEAR:
        return Type(Kind.YEAR)
    if column.charset == "binary":
        return Type(Kind.BYTES)
    if column.charset:
        return Type(Kind.TEXT, collation=collation, listed=code in (ENUM, SET))
    raise UnsupportedExpression(f"column {column.name} is {column.sql_type}")


_DATE = r"(\d{4})-(\d{2})-(\d{2})"
_MOMENT = re.compile(rf"{_DATE}(?: ([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{{1,6}}))?)?", re.ASCII)
_TIME = re.compile(r"(-?)(\d{2,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?", re.ASCII)


def moment_constant(text: object) -> str:
    """Return a constant date, or date and time, with six digits.

    Raises UnsupportedExpression unless all servers read the constant in the same way.
    """
    match = _MOMENT.fullmatch(text) if isinstance(text, str) else None
    if match is None or not _is_date(int(match[1]), int(match[2]), int(match[3])):
        raise UnsupportedExpression(
            f"{text!r} is not a date or datetime such as '2026-01-31' or '2026-01-31 12:00:00.5'"
        )
    clock = f"{match[4]}:{match[5]}:{match[6]}" if match[4] else "00:00:00"
    return f"{match[1]}-{match[2]}-{match[3]} {clock}.{(match[7] or '').ljust(6, '0')}"


def _is_date(year: int, month: int, day: int) -> bool:
    if not 1 <= month <= 12 or year == 0:
        return False
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 1 <= day <= (31, 29 if leap else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1]


def time_micros(text: str) -> int:
    """Return a TIME in canonical text as microseconds."""
    match = _TIME.fullmatch(text)
    assert match is not None, text
    whole = (int(match[2]) * 60 + int(match[3])) * 60 + int(match[4])
    micros = whole * 1_000_000 + int((match[5] or "").ljust(6, "0"))
    return -micros if match[1] else micros


def time_constant(text: object) -> int:
    """Return a constant in microseconds. Raises UnsupportedExpression unless all servers read it in the same way."""
    if not isinstance(text, str) or not _TIME.fullmatch(text) or abs(time_micros(text)) > 3_020_399_000_000:
        raise UnsupportedExpression(f"{text!r} is not a time such as '12:00:00' or '-01:30:00.5'")
    return time_micros(text)


_NUMERAL = re.compile(r"[ \t\n\v\f\r]*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)", re.ASCII)
_MOST = 1.7976931348623157e308


def number_of(text: str | bytes | None) -> float | None:
    """Return the number at the start of a text, as in a numeric context; 0 without one."""
    if text is None:
        return None
    if isinstance(text, bytes):
        raise Unevaluable("text in a charset that only the server can decode is used as a number")
    match = _NUMERAL.match(text)
    return max(-_MOST, min(_MOST, float(match[1]))) if match else 0.0


@dataclass(frozen=True)
class Collation:
    """The rules of a collation.

    Attributes:
        key: returns the value by which a text is compared; raises Unevaluable if it is not known.
        pads: whether spaces at the end are ignored.
        ordered: whether the keys have the order of the texts, not only their equality.
        folds: whether upper and lower case are equal.
    """

    key: Callable[[str | bytes], str]
    pads: bool
    ordered: bool
    folds: bool


_PRINTABLE = re.compile(r"[ -~]*")
_BY_CAPITALS = re.compile(r"\w+_general(_nopad)?_ci|latin1_swedish(_nopad)?_ci|ascii_general_ci")
_BY_WEIGHT = re.compile(r"utf8(mb3|mb4)?_(unicode(_520)?(_nopad)?|0900_a[is]|uca1400(_nopad)?_a[is])_ci")
_BY_WEIGHT_CASE = re.compile(r"utf8mb4_0900_as_cs|utf8(mb3|mb4)?_uca1400(_nopad)?_a[is]_cs")
# The order of bytes in these charsets is the order of code points.
_UNICODE = re.compile(r"(utf8|utf8mb3|utf8mb4)_")


def collation(name: str) -> Collation:
    """Return a collation by its name. Raises UnsupportedExpression if its rules are not known here.

    Under a binary collation, Unicode text is compared by code points. Under the others, text with anything but
    printable ASCII cannot be evaluated: its weights are in the servers' tables. Source: MySQL 9.7 and MariaDB 11.4;
    the tests check their comparisons of all pairs of printable ASCII.
    """
    pads = "_nopad_" not in name and "_0900_" not in name
    if name.endswith(("_bin", "_nopad_bin")):
        unicode = bool(_UNICODE.match(name))
        return Collation(_text if unicode else _printable, pads, ordered=True, folds=False)
    if _BY_CAPITALS.fullmatch(name):
        return Collation(_capitals, pads, ordered=True, folds=True)
    if _BY_WEIGHT.fullmatch(name):
        return Collation(_capitals, pads, ordered=False, folds=True)
    if _BY_WEIGHT_CASE.fullmatch(name):
        return Collation(_printable, pads, ordered=False, folds=False)
    raise UnsupportedExpression(
        f"collation {name or 'unknown'}; a COLLATE with a _bin collation of the charset is supported"
    )


def _text(value: str | bytes) -> str:
    if isinstance(value, bytes):
        raise Unevaluable("text in a charset that only the server can decode is compared")
    return value


def _printable(value: str | bytes) -> str:
    text = _text(value)
    if not _PRINTABLE.fullmatch(text):
        raise Unevaluable(
            f"{text[:40]!r} has non-ASCII characters, whose order in this collation is known only to the server"
        )
    return text


def _capitals(value: str | bytes) -> str:
    return _printable(value).upper()
