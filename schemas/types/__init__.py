"""The type families: each converts the binlog's bytes to Avro, and Avro to a SQL literal."""

from __future__ import annotations

from typing import Any

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
from schemas.types.checks import check_column
from schemas.types.codec import Codec
from schemas.types.decimals import NEWDECIMAL, Decimals
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
_BYTES = (VARCHAR, VAR_STRING, STRING, BLOB, VARCHAR_COMPRESSED, BLOB_COMPRESSED)
_TEXT, _BINARY = Text(), Binary()
_BY_NUMBER, _AS_TEXT = ByNumber(), AsText()


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
