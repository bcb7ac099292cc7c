"""Values of prepared statements in the servers' binary protocol, which costs a server less than literals.

Source: "Binary Protocol Value" in the documentation of both servers' client protocols.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

# The types, each with a byte of flags.
DOUBLE, LONGLONG, UNSIGNED_LONGLONG = b"\x05\0", b"\x08\0", b"\x08\x80"
DECIMAL, BLOB, STRING = b"\xf6\0", b"\xfc\0", b"\xfe\0"

# The forms that compiled code knows (``schemas/sql/compiled``): how a value begins and what is written.
(
    LEFT_OUT,  # none
    NUMBER,  # a zig-zag value; 64 bits
    BIG_ENDIAN,  # bytes, the highest first, with their length of one byte; 64 bits
    FLOAT_BYTES,  # four bytes; the double
    DOUBLE_BYTES,  # eight bytes; the same
    COUNTED,  # bytes with their length; the same, unless they are as many NUL characters as the detail says
    SHORT_COUNTED,  # bytes with their length of one byte; the same
    DECIMAL_TEXT,  # two's complement bytes with their length; the text with as many decimals as the detail says
) = range(8)

#: LENGTH[2 * n]: how a value of n bytes begins; by Avro's zig-zag length
LENGTH = [bytes((length >> 1,)) for length in range(2 * 251)]


class NoParameter(Exception):
    """The value can only be written as a literal."""


class Parameter(NamedTuple):
    """How a column's values become those of a prepared statement.

    Attributes:
        type: their type.
        lines: set a variable to a value's bytes.
        form: how compiled code makes the same bytes. The value is that of the first union branch behind NULL's.
        detail: a number that the form needs; -1 if it needs none.
    """

    type: bytes
    lines: list[str]
    form: int = LEFT_OUT
    detail: int = -1


def length_prefix(size: int) -> bytes:
    """Return how a value of so many bytes begins."""
    if size < 251:
        return bytes((size,))
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little")
    if size < 1 << 24:
        return b"\xfd" + size.to_bytes(3, "little")
    return b"\xfe" + size.to_bytes(8, "little")


def counted_value(target: str) -> str:
    """Return the line for the value in ``d``, whose zig-zag length is in ``l``."""
    return f"{target} = (LENGTH[l] if l < {len(LENGTH)} else length_prefix(l >> 1)) + d"


#: what the lines call
NAMES: dict[str, Any] = {
    "LENGTH": LENGTH,
    "NoParameter": NoParameter,
    "length_prefix": length_prefix,
    "pack_q": Struct("<q").pack,
    "pack_Q": Struct("<Q").pack,
    "pack_d": Struct("<d").pack,
}
