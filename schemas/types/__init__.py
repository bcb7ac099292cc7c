"""The type families: each converts the binlog's bytes to Avro, and Avro to a SQL literal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.charsets.collations import CHARSETS
from schemas.codegen import indent
from schemas.errors import DecodeError, Where
from schemas.structure import Column, WrittenColumn
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
    Binary,
    Bit,
)
from schemas.types.codec import Codec
from schemas.types.decimals import NEWDECIMAL, Decimals, check_digits
from schemas.types.enum_set import ENUM, SET, AsText, ByNumber, EnumSet
from schemas.types.floating import DOUBLE, FLOAT, Floating
from schemas.types.integer import INT24, LONG, LONGLONG, SHORT, TINY, Integer
from schemas.types.json_type import JSON, Json
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
    Temporal,
)
from schemas.types.text import Text

_CODECS: dict[int, Codec] = {
    **dict.fromkeys((TINY, SHORT, INT24, LONG, LONGLONG), Integer()),
    **dict.fromkeys((FLOAT, DOUBLE), Floating()),
    **dict.fromkeys((DATE, NEWDATE, TIME2, DATETIME2, TIMESTAMP2, YEAR), Temporal()),
    **dict.fromkeys((TIME, DATETIME, TIMESTAMP), Temporal()),
    **dict.fromkeys((ENUM, SET), EnumSet()),
    **dict.fromkeys((GEOMETRY, VECTOR), Binary()),
    NEWDECIMAL: Decimals(),
    BIT: Bit(),
    JSON: Json(),
}
_BYTES = frozenset({VARCHAR, VAR_STRING, STRING, BLOB, VARCHAR_COMPRESSED, BLOB_COMPRESSED})
_TEXT, _BINARY = Text(), Binary()
_BY_NUMBER, _AS_TEXT = ByNumber(), AsText()

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
_CHARSETS = frozenset(CHARSETS.values()) | {"utf8", ""}


def codec_of(column: Column) -> Codec:
    """Return the family that handles a column.

    Raises:
        DecodeError: TR401, a column type that cannot be decoded without guessing.
        ValueError: an impossible column.
    """
    check_column(column)
    if isinstance(column, WrittenColumn):
        return _BY_NUMBER if column.by_number else _AS_TEXT
    if column.code in _BYTES:
        return _BINARY if column.charset == "binary" else _TEXT
    codec = _CODECS.get(column.code)
    if codec is None:
        raise DecodeError(
            "TR401",
            f"column {column.name} has binlog type {column.code} ({column.sql_type}), which cannot be decoded",
            where=Where(table=column.name),
            hint="ALTER TABLE … FORCE upstream converts columns of old formats; otherwise exclude the table",
        )
    return codec


def check_column(column: Column) -> None:
    """Raise ValueError for an impossible column, since a record from outside may have any type with any size.

    The generated code for rows, and the SQL that it produces, depend on these values.
    """
    allowed = _META.get(column.code)
    if allowed is not None and column.meta not in allowed:
        raise ValueError(f"column {column.name} is of type {column.code} with the metadata {column.meta}")
    if column.code == NEWDECIMAL:
        check_digits(column.meta >> 8, column.meta & 0xFF)
    if column.charset not in _CHARSETS:
        raise ValueError(f"column {column.name} is in the unknown character set {column.charset[:100]!r}")
    if column.code in _BYTES and not column.charset:
        raise ValueError(f"column {column.name} is of type {column.code} without a character set")
    if len(column.members) > MOST_MEMBERS.get(column.code, 0):
        raise ValueError(f"column {column.name} of type {column.code} has {len(column.members)} members")


def constants_of(column: Column, target: str) -> dict[str, Any]:
    """Return the names that the generated code of this column needs in addition to its family's ``names``."""
    codec = codec_of(column)
    return {f"{target}_table": codec.constant(column)} if isinstance(codec, EnumSet) else {}


def literal_constants(column: Column) -> dict[str, Any]:
    """Return the globals that the generated code of this column's literals needs."""
    names = dict(codec_of(column).names)
    if isinstance(column, WrittenColumn) and column.by_number:
        names |= _BY_NUMBER.numbers(column)
    return names


def avro_type(column: Column) -> Any:
    """Return the column's Avro type, a union if it may be NULL or has several types."""
    branches = codec_of(column).avro(column)
    if column.nullable:
        return ["null", *branches]
    return branches if len(branches) > 1 else branches[0]


def union_tags(column: Column) -> list[bytes]:
    """Return the union branch byte for each Avro type of the column; empty without a union."""
    count = len(codec_of(column).avro(column))
    if count == 1 and not column.nullable:
        return [b""]
    first = 1 if column.nullable else 0
    return [bytes(((first + i) * 2,)) for i in range(count)]


def with_tag(column: Column, lines: list[str], null: str) -> list[str]:
    """Return the lines of a value behind those that read its union branch; ``null`` is the line for NULL."""
    if not union_tags(column)[0]:
        return lines
    read_tag = ["t = v[p]; p += 1"]
    if not column.nullable:
        return [*read_tag, *lines]
    return [*read_tag, f"if not t: {null}", "else:", *indent(lines)]
