"""MySQL's JSON type. Avro string: MySQL's own text. (MariaDB's JSON is LONGTEXT and travels as text.)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.structure import Column
from schemas.types.binary import read_counted
from schemas.types.codec import Lines, read_length
from schemas.types.json_binary import json_text
from schemas.varint import encode_bytes

JSON = 245


def json_avro(data: bytes) -> bytes:
    """Binary JSON to an Avro string."""
    return encode_bytes(json_text(data))


class Json:
    """JSON."""

    names: Mapping[str, Any] = {"json_avro": json_avro}

    def avro(self, column: Column) -> list[Any]:
        """Avro string."""
        return ["string"]

    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        """See ``Codec.decode``."""
        return [*read_counted(column.meta), f"{target} = {tags[0]} + json_avro(d)"]

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        """See ``Codec.literal``."""
        return [*read_length("d"), f'{target} = b"\'" + d.replace(b"\'", b"\'\'") + b"\'"']

    def predicate(self, column: Column, quoted: bytes) -> tuple[bytes, bytes]:
        """See ``Codec.predicate``. By text: the server's own comparison takes 1.0 for 1."""
        return b"CAST(CAST(" + quoted + b" AS CHAR) AS BINARY) <=> CAST(", b" AS BINARY)"
