"""FLOAT and DOUBLE. Avro float and double have the same bytes as the binlog, so nothing is converted."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any

from schemas.structure import Column
from schemas.types.codec import Codec, Lines

FLOAT, DOUBLE = 4, 5
_float = Struct("<f").unpack_from
_double = Struct("<d").unpack_from


def float_text(number: float) -> bytes:
    """Return the shortest literal that is read back as the same double. Raises ValueError for infinity and NaN.

    The exponent makes it a double in MySQL: without one it would be a DECIMAL literal. A FLOAT is written as the
    double that it equals, so a comparison with the column finds it.
    """
    text = repr(number)
    if "n" in text:
        raise ValueError(f"no server stores the number {text}")
    return (text if "e" in text else text + "e0").encode()


class Floating(Codec):
    """FLOAT and DOUBLE."""

    names: Mapping[str, Any] = {"read_float": _float, "read_double": _double, "float_text": float_text}

    def avro(self, column: Column) -> list[Any]:
        """Avro float or double."""
        return ["float" if column.code == FLOAT else "double"]

    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        size = 4 if column.code == FLOAT else 8
        return [f"{target} = {tags[0]} + b[p:p+{size}]; p += {size}"]

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        kind, size = ("float", 4) if column.code == FLOAT else ("double", 8)
        return [f"{target} = float_text(read_{kind}(v, p)[0]); p += {size}"]

    def value(self, column: Column, target: str, branches: int) -> Lines:
        """A float; for FLOAT the double that it equals."""
        kind, size = ("float", 4) if column.code == FLOAT else ("double", 8)
        return [f"{target} = read_{kind}(v, p)[0]; p += {size}"]
