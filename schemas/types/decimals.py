"""DECIMAL(p,s). Avro decimal: two's complement bytes of the unscaled number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache
from typing import Any

from schemas.codegen import compile_function
from schemas.structure import Column
from schemas.types.codec import Codec, Lines, read_length, short_field
from schemas.types.parameter import DECIMAL, DECIMAL_TEXT, Parameter, counted_value
from schemas.varint import encode_bytes

NEWDECIMAL = 246
# MySQL packs nine digits into four bytes, and the remaining digits into as few bytes as possible.
# Source: MySQL strings/decimal.cc, dig2bytes.
_LEFTOVER_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


# The limits of a DECIMAL. MySQL allows 30 digits after the point, MariaDB 38.
_MAX_PRECISION, _MAX_SCALE = 65, 38


def check_digits(precision: int, scale: int) -> None:
    """Raise ValueError for a DECIMAL that no server supports."""
    if not (1 <= precision <= _MAX_PRECISION and 0 <= scale <= min(_MAX_SCALE, precision)):
        raise ValueError(f"decimal({precision},{scale}) is not possible")


def packed_size(precision: int, scale: int) -> int:
    """Return the size of a DECIMAL value in the binlog, in bytes."""
    whole = precision - scale
    return whole // 9 * 4 + _LEFTOVER_BYTES[whole % 9] + scale // 9 * 4 + _LEFTOVER_BYTES[scale % 9]


def _groups(precision: int, scale: int) -> list[tuple[int, int]]:
    """Return (bytes, digits) for each packed group, from left to right."""
    whole = precision - scale
    groups = [(_LEFTOVER_BYTES[whole % 9], whole % 9)] if whole % 9 else []
    groups += [(4, 9)] * (whole // 9 + scale // 9)
    if scale % 9:
        groups.append((_LEFTOVER_BYTES[scale % 9], scale % 9))
    return groups


@cache
def unpacker(precision: int, scale: int) -> Callable[[bytes], int]:
    """Return a function that converts packed bytes to the unscaled number."""
    bits = 8 * packed_size(precision, scale)
    sign, digits, shift, terms = 1 << (bits - 1), precision, bits, []
    for length, in_group in _groups(precision, scale):
        digits -= in_group
        shift -= 8 * length
        terms.append(f"(n >> {shift:d} & {(1 << 8 * length) - 1:d}) * {10**digits:d}")
    number = " + ".join(terms)
    lines = [
        "n = from_bytes(data)",
        # The bits of a negative number are inverted, and the first one is the sign's.
        f"if n & {sign:d}: n ^= {sign:d}; return {number}",
        f"n ^= {sign - 1:d}; return -({number})",
    ]
    return compile_function(
        "unpack", "data", lines, {"from_bytes": int.from_bytes}, f"<decimal({precision},{scale})>"
    )


def decimal_avro(data: bytes, precision: int, scale: int) -> bytes:
    """Convert packed bytes to Avro bytes with their length."""
    return unscaled_avro(unpacker(precision, scale)(data))


def unscaled_avro(number: int) -> bytes:
    """Convert the unscaled number to Avro bytes with their length."""
    size = ((number if number >= 0 else ~number).bit_length() >> 3) + 1
    return encode_bytes(number.to_bytes(size, "big", signed=True))


def decimal_text(data: bytes, scale: int) -> bytes:
    """Convert two's complement bytes to MySQL's decimal text."""
    number = int.from_bytes(data, "big", signed=True)
    if not scale:
        return b"%d" % number
    digits = str(abs(number)).rjust(scale + 1, "0")
    return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}".encode()


class Decimals(Codec):
    """DECIMAL and NUMERIC."""

    names: Mapping[str, Any] = {
        "decimal_avro": decimal_avro,
        "unscaled_avro": unscaled_avro,
        "decimal_text": decimal_text,
        "Decimal": Decimal,
    }

    def avro(self, column: Column) -> list[Any]:
        """Avro decimal with the column's precision and scale."""
        precision, scale = column.meta >> 8, column.meta & 0xFF
        return [{"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}]

    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        precision, scale = column.meta >> 8, column.meta & 0xFF
        size = packed_size(precision, scale)
        return [
            f"{target} = {tags[0]} + decimal_avro(b[p:p+{size:d}], {precision:d}, {scale:d}); p += {size:d}"
        ]

    def encode(self, column: Column, target: str, tags: list[str]) -> Lines:
        """The text has all digits of the column's scale."""
        scale = column.meta & 0xFF
        if not scale:
            return [*short_field(), f"{target} = {tags[0]} + unscaled_avro(int(d))"]
        return [
            *short_field(),
            f"if d[-{scale + 1:d}:-{scale:d}] != b'.': raise ValueError('a DECIMAL has another scale')",
            f"{target} = {tags[0]} + unscaled_avro(int(d.replace(b'.', b'')))",
        ]

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        return [*read_length("d"), f"{target} = decimal_text(d, {column.meta & 0xFF:d})"]

    def parameter(self, column: Column, target: str, branches: int) -> Parameter:
        lines = [
            *read_length("d"),
            f"d = decimal_text(d, {column.meta & 0xFF:d}); l = len(d) << 1",
            counted_value(target),
        ]
        return Parameter(DECIMAL, lines, DECIMAL_TEXT, column.meta & 0xFF)

    def value(self, column: Column, target: str, branches: int) -> Lines:
        """A Decimal with all digits."""
        return [*read_length("d"), f"{target} = Decimal(decimal_text(d, {column.meta & 0xFF:d}).decode())"]
