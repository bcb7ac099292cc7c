"""TINYINT to BIGINT. Avro int and long; BIGINT UNSIGNED is a decimal, since long is signed."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any

from schemas.structure import Column
from schemas.types.codec import Codec, Lines, NumberLine, number_field
from schemas.types.parameter import BIG_ENDIAN, UNSIGNED_LONGLONG, Parameter
from schemas.types.parameter import LONGLONG as SIGNED_LONGLONG
from schemas.types.parameter import NUMBER as NUMBER_FORM
from schemas.varint import LOW, encode, read_lines

TINY, SHORT, LONG, LONGLONG, INT24 = 1, 2, 3, 8, 9
_SIZES = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8}
_FORMATS = {(1, False): "b", (1, True): "B", (2, False): "<h", (2, True): "<H"}
_FORMATS |= {(4, False): "<i", (4, True): "<I", (8, False): "<q", (8, True): "<Q"}

#: SQL text of small zig-zag values
NUMBER_TEXT = [b"%d" % ((z >> 1) ^ -(z & 1)) for z in range(1 << 14)]
#: the same as values of prepared statements
NUMBER = [((z >> 1) ^ -(z & 1)).to_bytes(8, "little", signed=True) for z in range(1 << 14)]


def unsigned_decimal(number: int) -> bytes:
    """Encode an unsigned 64-bit number as Avro decimal bytes with their length."""
    data = number.to_bytes((number.bit_length() >> 3) + 1, "big")
    return bytes((len(data) << 1,)) + data


class Integer(Codec):
    """All integer types."""

    names: Mapping[str, Any] = {
        "encode_varint": encode,
        "LOW": LOW,
        "unsigned_decimal": unsigned_decimal,
        "NUMBER_TEXT": NUMBER_TEXT,
        "NUMBER": NUMBER,
        "from_bytes": int.from_bytes,
        **{f"int_{f[-1]}": Struct(f).unpack_from for f in _FORMATS.values()},
    }

    def avro(self, column: Column) -> list[Any]:
        """Return decimal(20,0) for BIGINT UNSIGNED, long if the value may exceed 31 bits, else int."""
        size = _SIZES[column.code]
        if size == 8 and column.unsigned:
            return [{"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}]
        return ["long" if size == 8 or (size == 4 and column.unsigned) else "int"]

    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        size = _SIZES[column.code]
        if size == 3:
            lines = [f"i = from_bytes(b[p:p+3], 'little', signed={not column.unsigned}); p += 3"]
        else:
            form = _FORMATS[size, column.unsigned][-1]
            read = "i = b[p]" if form == "B" else f"i, = int_{form}(b, p)"
            lines = [NumberLine(f"{read}; p += {size:d}", form, "i", whole=True)]
        tag = "" if tags[0] == "b''" else f"{tags[0]} + "
        if size == 8 and column.unsigned:
            return [*lines, f"{target} = {tag}unsigned_decimal(i)"]
        zigzag = "i << 1" if column.unsigned else "i << 1 if i >= 0 else (~i << 1) | 1"
        return [
            *lines,
            f"z = {zigzag}",
            f"{target} = {tag}(VARINT[z] if z < 131072 else encode_varint(z))",
        ]

    def encode(self, column: Column, target: str, tags: list[str]) -> Lines:
        size = _SIZES[column.code]
        tag = "" if tags[0] == "b''" else f"{tags[0]} + "
        if size == 8 and column.unsigned:
            return [*number_field(), f"{target} = {tag}unsigned_decimal(i)"]
        zigzag = "i << 1" if column.unsigned else "i << 1 if i >= 0 else (~i << 1) | 1"
        varint = "VARINT[z] if z < 131072 else "
        if size > 2:
            varint += "LOW[z & 16383] + VARINT[z >> 14] if z < 2147483648 else "
        return [*number_field(), f"z = {zigzag}", f"{target} = {tag}({varint}encode_varint(z))"]

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        if column.code == LONGLONG and column.unsigned:
            return [
                "q = p + 1 + (v[p] >> 1)",
                f"{target} = b'%d' % from_bytes(v[p+1:q], 'big')",
                "p = q",
            ]
        return [
            *read_lines("z"),
            f"{target} = NUMBER_TEXT[z] if z < 16384 else b'%d' % ((z >> 1) ^ -(z & 1))",
        ]

    def parameter(self, column: Column, target: str, branches: int) -> Parameter:
        if column.code == LONGLONG and column.unsigned:
            lines = ["q = p + 1 + (v[p] >> 1)", f"{target} = pack_Q(from_bytes(v[p+1:q], 'big'))", "p = q"]
            return Parameter(UNSIGNED_LONGLONG, lines, BIG_ENDIAN)
        read = f"{target} = NUMBER[z] if z < 16384 else pack_q((z >> 1) ^ -(z & 1))"
        return Parameter(SIGNED_LONGLONG, [*read_lines("z"), read], NUMBER_FORM)

    def value(self, column: Column, target: str, branches: int) -> Lines:
        """An int."""
        if column.code == LONGLONG and column.unsigned:
            return ["q = p + 1 + (v[p] >> 1)", f"{target} = from_bytes(v[p+1:q], 'big'); p = q"]
        return [
            *read_lines("z"),
            f"{target} = (z >> 1) ^ -(z & 1)",
        ]
