"""Brings the values of both decoders into one form: values as in Kafka (docs/TYPES.md), JSON documents as trees."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from pymysqlreplication.json_binary import parse_json

from schemas.binlog.mariadb_zlib import inflate_column
from schemas.structure import Column
from schemas.types.binary import (
    BIT,
    BLOB,
    BLOB_COMPRESSED,
    COMPRESSED,
    STRING,
    VAR_STRING,
    VARCHAR,
    VARCHAR_COMPRESSED,
)
from schemas.types.enum_set import SET
from schemas.types.json_binary import quoted
from schemas.types.json_type import JSON
from schemas.types.temporal import DATE, DATETIME, DATETIME2, TIME, TIME2, TIMESTAMP, TIMESTAMP2, YEAR
from tailrace.verify_rows.library import Document

_TEXT = frozenset({VARCHAR, VAR_STRING, STRING, BLOB, BLOB_COMPRESSED, VARCHAR_COMPRESSED})
_MOMENTS = frozenset({DATETIME, DATETIME2, TIMESTAMP, TIMESTAMP2})

#: kind and content: ``object`` and ``array`` contain trees, all others a scalar
Tree: TypeAlias = tuple[str, Any]
#: makes the tree of a JSON scalar that has an SQL type: (SQL type, text)
Typed: TypeAlias = Callable[[str, str], Tree]


@dataclass(frozen=True)
class Undecodable:
    """Stands for a value for which the library raises an error."""

    why: str = field(default="", compare=False)


#: stands for a JSON diff, which the library does not apply
DIFF: Tree = ("diff", None)


def is_same(our: Any, library: Any) -> bool:
    """Return whether two values in the common form are equal. 0.0 and -0.0 are different."""
    return bool(our == library) and (not isinstance(our, float) or repr(our) == repr(library))


def our_value(column: Column, value: Any) -> Any:
    """Return a value of our decoder, as fastavro reads it, in the common form."""
    return document(value, true_scalar) if column.code == JSON and value is not None else value


def library_value(
    column: Column, value: Any, our: Any, encoding: str | None, members: list[str] | None
) -> Any:
    """Return a value of the library in the common form.

    Args:
        our: our value. Text that we publish as bytes in the column's character set stays bytes.
        encoding: Python's name of the character set that the library found; None if there is none.
        members: the members of a SET, as the library read them.
    """
    if value is None:
        return None
    if column.code in _TEXT:
        data = value or b""  # the library returns "" for empty text without decoding it
        data = inflate_column(data) if column.code in COMPRESSED else data
        return data if isinstance(our, bytes) or encoding is None else _decoded(data, encoding)
    if column.code in _MOMENTS:
        return moment_text(value, column.meta)
    if column.code == DATE:
        return value.isoformat()
    if column.code in (TIME, TIME2):
        return time_text(value, column.meta)
    if column.code == YEAR:
        return f"{value:04d}"
    if column.code == BIT:
        return int(value, 2).to_bytes((column.meta + 7) // 8, "big")
    if column.code == SET:
        return ",".join(member for member in dict.fromkeys(members or ()) if member in value)
    return _library_document(value) if isinstance(value, Document) else value


def moment_text(value: datetime, fsp: int) -> str:
    """Return a date and time as text with ``fsp`` fractional digits."""
    return value.isoformat(" ", "microseconds")[: 19 + fsp + (fsp > 0)]


def time_text(value: timedelta, fsp: int) -> str:
    """Return a TIME as text with ``fsp`` fractional digits."""
    micros = value // timedelta(microseconds=1)
    seconds, fraction = divmod(abs(micros), 1_000_000)
    text = f"{'-' if micros < 0 else ''}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}"[: len(text) + fsp + (fsp > 0)]


def _decoded(data: bytes, encoding: str) -> str | bytes | Undecodable:
    try:
        return data.decode(encoding)
    except LookupError:
        return data
    except UnicodeDecodeError as error:
        return Undecodable(str(error))


def _library_document(value: Document) -> Any:
    if value.is_diff:
        return DIFF
    if not value.data:
        return None
    try:
        return _tree(parse_json(value.data[0], value.data[1:]))
    except Exception as error:  # the library may raise any error
        return Undecodable(f"{type(error).__name__}: {error}")


def _tree(value: Any) -> Tree:
    """Return the tree of a document that the library decoded."""
    if isinstance(value, dict):
        return "object", tuple((key.decode(), _tree(one)) for key, one in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_tree, value))
    if value is None or isinstance(value, bool):
        return "literal", value
    if isinstance(value, bytes):
        return "text", value.decode()
    if isinstance(value, datetime):
        return "datetime", moment_text(value, 6)
    if isinstance(value, time):
        return "time", value.isoformat("microseconds")
    if isinstance(value, float):
        return "double", repr(value)
    if isinstance(value, Decimal):
        return "decimal", f"{value:f}"
    # The library returns bytes as str.
    return "integer" if isinstance(value, int) else "bytes", str(value)


def true_scalar(sql_type: str, text: str) -> Tree:
    """Return the correct tree of a JSON scalar that has an SQL type."""
    base = sql_type.split("(")[0]
    if base in ("unsigned", "signed"):
        return "integer", text
    if base == "opaque":
        return "base64", text
    return base, text


def opaque_bytes(text: str) -> bytes:
    """Return the bytes of ``base64:type<n>:…``."""
    return b64decode(text.split(":", 2)[2])


class _Number(str):
    """The text of a JSON number."""


def document(value: str | Mapping[str, str], typed: Typed) -> Tree:
    """Return the tree of a document in Kafka's form. Raises the errors of ``typed``."""
    types = {} if isinstance(value, str) else value
    text = value if isinstance(value, str) else value["text"]
    made = json.loads(text, object_pairs_hook=tuple, parse_int=_Number, parse_float=_Number)
    return _tree_of(made, "$", types, typed)


def _tree_of(value: Any, path: str, types: Mapping[str, str], typed: Typed) -> Tree:
    if isinstance(value, tuple):
        members = ((key, f"{path}.{quoted(key.encode())}", one) for key, one in value)
        return "object", tuple((key, _tree_of(one, at, types, typed)) for key, at, one in members)
    if isinstance(value, list):
        return "array", tuple(_tree_of(one, f"{path}[{i}]", types, typed) for i, one in enumerate(value))
    if value is None or isinstance(value, bool):
        return "literal", value
    if path in types:
        return typed(types[path], str(value))
    if isinstance(value, _Number):
        return ("integer", str(value)) if value.lstrip("-").isdigit() else ("double", repr(float(value)))
    return "text", value
