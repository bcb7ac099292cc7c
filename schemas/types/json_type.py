"""MySQL's JSON type. (MariaDB's JSON is LONGTEXT and is sent as text.)

Avro string: MySQL's own text. A document made from SQL values may have scalars whose type is not clear from the text
(1.50 as DECIMAL, a DATE). It is an Avro map of its text and the types by path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.structure import Column
from schemas.types.binary import read_counted
from schemas.types.codec import NULL_MARK, Codec, Lines, any_field, read_counted_field, read_length
from schemas.types.json_avro import json_avro
from schemas.types.json_select import selected_avro, types_expression
from schemas.types.json_sql import typed_literal
from schemas.types.parameter import COUNTED, STRING, Parameter, counted_value
from schemas.varint import encode_bytes

JSON = 245


class Json(Codec):
    """JSON."""

    names: Mapping[str, Any] = {
        "json_avro": json_avro,
        "typed_literal": typed_literal,
        "selected_avro": selected_avro,
        "encode_bytes": encode_bytes,
        "read_counted_field": read_counted_field,
    }

    def avro(self, column: Column) -> list[Any]:
        """A union: string, or a map of ``text`` and of types by path."""
        return ["string", {"type": "map", "values": "string"}]

    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        return [*read_counted(column.meta), f"{target} = json_avro(d, {tags[0]}, {tags[1]})"]

    def select(self, column: Column, quoted: str) -> list[str]:
        """The text, and the types of the scalars whose type it does not show."""
        return [quoted, types_expression(quoted)]

    def encode(self, column: Column, target: str, tags: list[str]) -> Lines:
        return [
            *any_field(),
            "if not d.isascii(): d.decode()  # or else it is not UTF-8",
            f"if b[p] == {NULL_MARK}: {target} = {tags[0]} + encode_bytes(d); p += 1",
            "else:",
            *(f"    {line}" for line in ["v = d", *any_field()]),
            f"    {target} = selected_avro(v, d, {tags[0]}, {tags[1]})",
        ]

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        return [
            f"if t == {branches * 2}:",
            *(f"    {line}" for line in read_length("d")),
            f'    {target} = b"\'" + d.replace(b"\'", b"\'\'") + b"\'"',
            f"else: {target}, p = typed_literal(v, p)",
        ]

    def parameter(self, column: Column, target: str, branches: int) -> Parameter:
        """A document with typed scalars has no form."""
        only = f"if t != {branches * 2}: raise NoParameter"
        return Parameter(STRING, [only, *read_length("d"), counted_value(target)], COUNTED)

    def value(self, column: Column, target: str, branches: int) -> Lines:
        """MySQL's own text."""
        return [*read_length("d"), f"{target} = d.decode()"]

    def predicate(self, column: Column, quoted: bytes) -> tuple[bytes, bytes]:
        """Compares the text, since 1.0 equals 1 in the server's own comparison."""
        return b"CAST(CAST(" + quoted + b" AS CHAR) AS BINARY) <=> CAST(CAST(", b" AS CHAR) AS BINARY)"
