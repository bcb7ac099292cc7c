"""FLOAT and DOUBLE. Avro float and double have the same bytes as the binlog, so nothing is converted."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from struct import Struct
from typing import Any

from schemas.structure import Column
from schemas.types.codec import Codec, Lines, short_field
from schemas.types.parameter import DOUBLE as DOUBLE_VALUE
from schemas.types.parameter import DOUBLE_BYTES, FLOAT_BYTES, Parameter

FLOAT, DOUBLE = 4, 5
_FLOAT, _DOUBLE = Struct("<f"), Struct("<d")


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

    names: Mapping[str, Any] = {
        "read_float": _FLOAT.unpack_from,
        "read_double": _DOUBLE.unpack_from,
        "pack_float": _FLOAT.pack,
        "pack_double": _DOUBLE.pack,
        "float_text": float_text,
        "isfinite": isfinite,
    }

    def avro(self, column: Column) -> list[Any]:
        """Avro float or double."""
        return ["float" if column.code == FLOAT else "double"]

    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        size = 4 if column.code == FLOAT else 8
        return [f"{target} = {tags[0]} + b[p:p+{size}]; p += {size}"]

    def select(self, column: Column, quoted: str) -> list[str]:
        """The servers round the text of a FLOAT, and that of columns with a number of decimals.

        The product is a DOUBLE without one, whose text has as many digits as the value needs; -0 stays -0.
        """
        return [f"{quoted}*1e0"]

    def encode(self, column: Column, target: str, tags: list[str]) -> Lines:
        kind = "float" if column.code == FLOAT else "double"
        return [*short_field(), f"{target} = {tags[0]} + pack_{kind}(float(d))"]

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        kind, size = ("float", 4) if column.code == FLOAT else ("double", 8)
        return [f"{target} = float_text(read_{kind}(v, p)[0]); p += {size}"]

    def parameter(self, column: Column, target: str, branches: int) -> Parameter:
        """The double that a FLOAT equals."""
        kind, size = ("float", 4) if column.code == FLOAT else ("double", 8)
        lines = [
            f"d = read_{kind}(v, p)[0]; p += {size}",
            "if not isfinite(d): raise ValueError(f'no server stores the number {d}')",
            f"{target} = pack_d(d)",
        ]
        return Parameter(DOUBLE_VALUE, lines, FLOAT_BYTES if column.code == FLOAT else DOUBLE_BYTES)

    def value(self, column: Column, target: str, branches: int) -> Lines:
        """A float; for FLOAT the double that it equals."""
        kind, size = ("float", 4) if column.code == FLOAT else ("double", 8)
        return [f"{target} = read_{kind}(v, p)[0]; p += {size}"]
