"""Converts a JSON document with typed scalars to a SQL expression that creates the same document with its types.

For MariaDB, whose JSON is text, the expression is the text. Each of the two expressions is in a comment that only one
of the servers executes. Every string is hexadecimal, so that nothing in it can end the comment.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from typing import Any

from schemas.types.json_avro import read_typed
from schemas.types.json_binary import OPAQUE, quoted

_OPAQUE = re.compile(r"opaque\(([0-9]{1,3})\)")
_DIGITS = re.compile(r"-?[0-9]{1,20}")
_MOMENT = re.compile(r"[-0-9: .]{1,32}")
# The allowed text of a value by its type; nothing else becomes part of a statement.
_FORMS = (
    (re.compile(r"(un)?signed"), _DIGITS),
    (re.compile(r"decimal\([0-9]{1,2},[0-9]{1,2}\)"), re.compile(r"-?[0-9]{1,65}(\.[0-9]{1,65})?")),
    (re.compile(r"date|(time|datetime|timestamp)\(6\)"), _MOMENT),
)
_Text = tuple[str, str | None]  # JSON text, and SQL if it holds typed scalars


class _Number(str):
    """A number's original text."""

    __slots__ = ()


class _Members(list[Any]):
    """An object's members in their order."""


def typed_literal(v: bytes, p: int) -> tuple[bytes, int]:
    """Return the expression for a typed document at ``v[p]``, and the offset after it."""
    text, types, p = read_typed(v, p)
    document = json.loads(
        text,
        object_pairs_hook=_Members,
        parse_int=_Number,
        parse_float=_Number,
        parse_constant=_no_constant,
        strict=False,
    )
    _, sql = _expression(document, "$", types)
    if not isinstance(document, list):
        # Any scalar becomes JSON as an element of an array; CAST refuses bytes.
        sql = f"JSON_EXTRACT(JSON_ARRAY({sql}),'$[0]')"
    return f"/*M!{_string(text)}*//*!50708 {sql}*/".encode(), p


def _no_constant(name: str) -> None:
    raise ValueError(f"a JSON document contains {name}")


def _string(data: bytes) -> str:
    return f"_utf8mb4 X'{data.hex()}'"


def _expression(node: Any, path: str, types: dict[str, str]) -> _Text:
    if isinstance(node, _Members):
        members = [(quoted(key.encode()), key, value) for key, value in node]
        return _container(
            [(f"{name}: ", f"{_string(key.encode())},", _expression(value, f"{path}.{name}", types))
             for name, key, value in members],
            "{}", "JSON_OBJECT",
        )  # fmt: skip
    if isinstance(node, list):
        return _container(
            [("", "", _expression(value, f"{path}[{i}]", types)) for i, value in enumerate(node)],
            "[]", "JSON_ARRAY",
        )  # fmt: skip
    text = node if isinstance(node, _Number) else json.dumps(node, ensure_ascii=False)
    sql_type = types.get(path)
    return text, None if sql_type is None else _scalar(text if isinstance(node, _Number) else node, sql_type)


def _container(items: list[tuple[str, str, _Text]], brackets: str, function: str) -> _Text:
    text = brackets[0] + ", ".join(name + value for name, _, (value, _) in items) + brackets[1]
    if all(sql is None for *_, (_, sql) in items):
        return text, None
    parts = [key + (sql or f"CAST({_string(value.encode())} AS JSON)") for _, key, (value, sql) in items]
    return text, f"{function}({','.join(parts)})"


def _scalar(value: Any, sql_type: str) -> str:
    """Return an expression of the type; ``value`` is a number's text or a string."""
    if opaque := _OPAQUE.fullmatch(sql_type):
        head = f"base64:type{opaque[1]}:"
        if int(opaque[1]) not in OPAQUE or not isinstance(value, str) or not value.startswith(head):
            raise ValueError(f"a JSON document has no value of the type {sql_type}")
        return _bytes(int(opaque[1]), b64decode(value[len(head) :], validate=True))
    form = next((form for name, form in _FORMS if name.fullmatch(sql_type)), None)
    if form is None or not isinstance(value, str) or form.fullmatch(value) is None:
        raise ValueError(f"a JSON document has no value of the type {sql_type[:60]!r}")
    if sql_type == "timestamp(6)":
        return _column(sql_type, f"JSON_ARRAY('{value}')")
    return f"CAST('{value}' AS {sql_type.upper()})"


def _bytes(field_type: int, data: bytes) -> str:
    """Return an expression that gives bytes of this type; each was tested on MySQL 9.7."""
    literal = f"X'{data.hex()}'"
    if field_type == 16:
        return _column(f"BIT({len(data) * 8})", f"JSON_ARRAY({int.from_bytes(data, 'big')})")
    if field_type in (250, 251):
        # The type depends on the longest possible value.
        return f"IF(1,{literal},REPEAT(X'00',{70_000 if field_type == 250 else 20_000_000}))"
    if field_type == 252:
        return _column("BLOB", f"JSON_ARRAY({literal})")
    if field_type == 254:
        return _column(f"BINARY({len(data)})", f"JSON_ARRAY({literal})")
    return literal


def _column(sql_type: str, array: str) -> str:
    """Return the first element of an array as a column of a type for which there is no CAST."""
    return f"(SELECT c FROM JSON_TABLE({array},'$[0]' COLUMNS (c {sql_type} PATH '$')) AS q)"
