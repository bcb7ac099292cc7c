"""Checks that a column is possible, since a record from outside may have any type with any size.

The generated code for rows, and the SQL that it produces, depend on these values.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemas.charsets.collations import CHARSETS
from schemas.structure import Column
from schemas.types.binary import (
    BIT,
    BLOB,
    BLOB_COMPRESSED,
    GEOMETRY,
    STRING,
    VAR_STRING,
    VARCHAR,
    VARCHAR_COMPRESSED,
    VECTOR,
)
from schemas.types.decimals import NEWDECIMAL, check_digits
from schemas.types.enum_set import ENUM, SET
from schemas.types.json_type import JSON
from schemas.types.temporal import DATETIME, DATETIME2, TIME, TIME2, TIMESTAMP, TIMESTAMP2

#: the largest number of members of a column
MOST_MEMBERS: Mapping[int, int] = {ENUM: 65_535, SET: 64}

_LENGTHS, _FRACTIONS = frozenset(range(1, 5)), frozenset(range(7))
# The allowed metadata of a type; for other types it is not checked.
_META: Mapping[int, frozenset[int] | range] = {
    **dict.fromkeys((BLOB, BLOB_COMPRESSED, GEOMETRY, VECTOR, JSON), _LENGTHS),
    **dict.fromkeys((TIME, DATETIME, TIMESTAMP, TIME2, DATETIME2, TIMESTAMP2), _FRACTIONS),
    **dict.fromkeys((VARCHAR, VAR_STRING), range(1 << 16)),
    VARCHAR_COMPRESSED: range(1, (1 << 16) + 1),
    STRING: range(1 << 10),
    BIT: range(1, 65),
    ENUM: frozenset({1, 2}),
    SET: frozenset({1, 2, 3, 4, 8}),
}
_CHARACTERS = frozenset({VARCHAR, VAR_STRING, STRING, BLOB, VARCHAR_COMPRESSED, BLOB_COMPRESSED})
_CHARSETS = frozenset(CHARSETS.values()) | {"utf8", ""}


def check_column(column: Column) -> None:
    """Raise ValueError for an impossible column."""
    allowed = _META.get(column.code)
    if allowed is not None and column.meta not in allowed:
        raise ValueError(f"column {column.name} is of type {column.code} with the metadata {column.meta}")
    if column.code == NEWDECIMAL:
        check_digits(column.meta >> 8, column.meta & 0xFF)
    if column.charset not in _CHARSETS:
        raise ValueError(f"column {column.name} is in the unknown character set {column.charset[:100]!r}")
    if column.code in _CHARACTERS and not column.charset:
        raise ValueError(f"column {column.name} is of type {column.code} without a character set")
    if len(column.members) > MOST_MEMBERS.get(column.code, 0):
        raise ValueError(f"column {column.name} of type {column.code} has {len(column.members)} members")
