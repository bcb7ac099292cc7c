"""BINARY, VARBINARY, BLOBs, BIT, GEOMETRY and VECTOR. Avro bytes; BINARY and BIT in their full declared length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.binlog.mariadb_zlib import inflate_column
from schemas.structure import Column
from schemas.types.codec import (
    NULL_MARK,
    Codec,
    Lines,
    NumberLine,
    any_field,
    read_counted_field,
    read_length,
    short_field,
)
from schemas.types.parameter import BIG_ENDIAN, COUNTED, UNSIGNED_LONGLONG, Parameter, counted_value
from schemas.types.parameter import BLOB as BLOB_VALUE

# The COMPRESSED columns are MariaDB's.
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
COMPRESSED = frozenset({BLOB_COMPRESSED, VARCHAR_COMPRESSED})
VARCHAR, BIT, VECTOR, BLOB, VAR_STRING, STRING, GEOMETRY = 15, 16, 242, 252, 253, 254, 255


_ADDRESS_SIZES = (4, 16)  # bytes
# Longer values are written as they are: twice as many digits could be more than a server takes.
_LONG = 4096  # bytes
_RAW = b"_binary'"


def digits_of(literal: bytes) -> bytes:
    """Return the hexadecimal digits of a value's literal."""
    if literal.startswith(_RAW):
        return literal[len(_RAW) : -1].replace(b"''", b"'").hex().encode()
    return literal[2:-1]


def length_bytes(column: Column) -> int:
    """Return the number of bytes of a value's length prefix in the binlog."""
    if column.code in (BLOB, BLOB_COMPRESSED, GEOMETRY, VECTOR):
        return column.meta
    return 1 if column.meta < 256 else 2


def read_counted(size: int) -> Lines:
    """Return decoding lines that read a length-prefixed value into ``d`` and its length into ``l``."""
    if size == 1:
        head = "l = b[p]; p += 1"
    elif size == 2:
        head = "l = b[p] | b[p+1] << 8; p += 2"
    else:
        head = f"l = from_bytes(b[p:p+{size:d}], 'little'); p += {size:d}"
    form = {1: "B", 2: "H", 4: "I"}.get(size)
    return [NumberLine(head, form, "l", whole=False) if form else head, "q = p + l; d = b[p:q]; p = q"]


def read_value(column: Column) -> Lines:
    """Return the lines of ``read_counted`` for the column's value, uncompressed."""
    lines = read_counted(length_bytes(column))
    if column.code in COMPRESSED:
        lines.append("d = inflate_column(d); l = len(d)")
    return lines


def value_field(column: Column) -> Lines:
    """Return encoding lines that read the column's value into ``d``, and its length into ``l``."""
    short = column.code in (VARCHAR, VAR_STRING, STRING, VARCHAR_COMPRESSED) and column.meta < NULL_MARK
    return short_field() if short else any_field()


class Binary(Codec):
    """Bytes with a length prefix."""

    names: Mapping[str, Any] = {
        "inflate_column": inflate_column,
        "read_counted_field": read_counted_field,
    }

    def avro(self, column: Column) -> list[Any]:
        """Avro bytes."""
        return ["bytes"]

    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        """The binlog has no trailing zero bytes of BINARY; they are added again."""
        lines = read_value(column)
        if column.code == STRING:
            lines.append(f"if l < {column.meta:d}: d = d.ljust({column.meta:d}, b'\\0'); l = {column.meta:d}")
        return [*lines, f"{target} = {tags[0]} + encode_varint(l << 1) + d"]

    def select(self, column: Column, quoted: str) -> list[str]:
        """MariaDB's UUID, INET4 and INET6 are BINARY in the binlog, and text without a cast."""
        if column.code == STRING and column.meta in _ADDRESS_SIZES:
            return [f"CAST({quoted} AS BINARY({column.meta}))"]
        return [quoted]

    def encode(self, column: Column, target: str, tags: list[str]) -> Lines:
        lines = value_field(column)
        if column.code == STRING:
            lines.append(f"if l != {column.meta:d}: raise ValueError('a BINARY has another length')")
        return [*lines, f"{target} = {tags[0]} + encode_varint(l << 1) + d"]

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        return [
            *read_length("d"),
            f'if len(d) <= {_LONG}: {target} = b"X\'" + d.hex().encode() + b"\'"',
            f'else: {target} = {_RAW!r} + d.replace(b"\'", b"\'\'") + b"\'"',
        ]

    def parameter(self, column: Column, target: str, branches: int) -> Parameter:
        return Parameter(BLOB_VALUE, [*read_length("d"), counted_value(target)], COUNTED)

    def value(self, column: Column, target: str, branches: int) -> Lines:
        """Bytes."""
        return read_length(target)

    def predicate(self, column: Column, quoted: bytes) -> tuple[bytes, bytes]:
        if column.code in (GEOMETRY, VECTOR):
            return b"HEX(" + quoted + b") <=> HEX(", b")"
        return super().predicate(column, quoted)


class Bit(Codec):
    """BIT(n): the declared number of bits, in whole bytes, big-endian."""

    def avro(self, column: Column) -> list[Any]:
        """Avro bytes."""
        return ["bytes"]

    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        size = (column.meta + 7) // 8
        return [f"{target} = {tags[0]} + {bytes((size << 1,))!r} + b[p:p+{size:d}]; p += {size:d}"]

    def encode(self, column: Column, target: str, tags: list[str]) -> Lines:
        size = (column.meta + 7) // 8
        return [
            *short_field(),
            f"if l != {size:d}: raise ValueError('a BIT has another length')",
            f"{target} = {tags[0]} + {bytes((size << 1,))!r} + d",
        ]

    def literal(self, column: Column, target: str, branches: int) -> Lines:
        """A number, since BIT is compared as a number."""
        return [*read_length("d"), f"{target} = b'%d' % from_bytes(d, 'big')"]

    def parameter(self, column: Column, target: str, branches: int) -> Parameter:
        """A number, as the literal."""
        lines = [*read_length("d"), f"{target} = pack_Q(from_bytes(d, 'big'))"]
        return Parameter(UNSIGNED_LONGLONG, lines, BIG_ENDIAN)

    def value(self, column: Column, target: str, branches: int) -> Lines:
        """An int, as in every comparison with BIT."""
        return [*read_length("d"), f"{target} = from_bytes(d, 'big')"]
