"""Rows on the wire: the start of a key, the header with a value's schema, and the parts of a large value.

A value starts with a header that identifies its schema: the Avro specification's single-object encoding (``c3 01``
and the schema's fingerprint), or, with a schema registry, Confluent's wire format (``00`` and the schema's id). The
log's records identify a schema by the header without its marker, in 16 or 8 hexadecimal digits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from schemas.structure import TableStructure
from schemas.varint import encode_bytes, read_bytes

SINGLE_OBJECT = b"\xc3\x01"
CONFLUENT = b"\0"
#: bytes of the single-object header, which is followed by the envelope
HEADER_SIZE = 10
_ID_SIZE = 4
_CONFLUENT_SIZE = len(CONFLUENT) + _ID_SIZE
_PADDING = bytes(HEADER_SIZE - _CONFLUENT_SIZE)

#: header of the records of a divided row: ``1/3``, ``2/3``, ``3/3``
PART = "tailrace.part"
#: bytes; only the last part of a row may be shorter, so a shorter value that is not the last part is a whole row
LEAST_PART = 16 << 10

Headers = list[tuple[str, bytes]]
_NUMBERS = re.compile(rb"([1-9][0-9]{0,8})/([1-9][0-9]{0,8})")


def value_header(name: bytes) -> bytes:
    """Return the header for a schema's fingerprint (8 bytes) or its id in the registry (4 bytes)."""
    return (CONFLUENT if len(name) == _ID_SIZE else SINGLE_OBJECT) + name


def schema_name(value: bytes) -> bytes:
    """Return the fingerprint or id in a value's header; the value may be ``widened``."""
    return value[2:HEADER_SIZE] if value[0] else value[1:_CONFLUENT_SIZE]


def header_size(value: bytes) -> int:
    """Return the size of a value's header in bytes."""
    return HEADER_SIZE if value[0] else _CONFLUENT_SIZE


def widened(value: bytes) -> bytes:
    """Return the value, or a header alone, with a header padded to ``HEADER_SIZE`` bytes."""
    return value if value[0] else value[:_CONFLUENT_SIZE] + _PADDING + value[_CONFLUENT_SIZE:]


def split_value(value: bytes, size: int) -> list[tuple[bytes, tuple[str, bytes]]]:
    """Divide a value into parts of at most ``size`` bytes, each with its header."""
    count = -(-len(value) // size)
    return [(value[i * size : (i + 1) * size], (PART, b"%d/%d" % (i + 1, count))) for i in range(count)]


class Joiner:
    """Joins the parts of divided rows of one partition."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._count = 0

    def add(self, value: bytes, headers: Sequence[tuple[str, bytes]]) -> bytes | None:
        """Add a record. Returns the row's whole value with its last part or if it is not divided, else None.

        Raises:
            ValueError: a part is missing.
        """
        part = next((content for name, content in headers if name == PART), None)
        number, count = 1, 1
        if part is not None:
            found = _NUMBERS.fullmatch(part)
            if found is None:
                raise ValueError(f"it is the part {part[:40]!r} of a row")
            number, count = int(found[1]), int(found[2])
        if number != len(self._parts) + 1 or number > count or (self._parts and count != self._count):
            raise ValueError(f"part {number} of {count} of a row follows {len(self._parts)} parts")
        self._parts.append(value)
        self._count = count
        if number < count:
            return None
        whole, self._parts = b"".join(self._parts) if count > 1 else value, []
        return whole

    @property
    def incomplete(self) -> bool:
        """Whether parts of a row are still missing."""
        return bool(self._parts)


def key_prefix(structure: TableStructure) -> bytes:
    """Return the start of every Kafka key of a table: schema and table as Avro strings."""
    return encode_bytes(structure.db.encode()) + encode_bytes(structure.table.encode())


def key_table(key: bytes) -> tuple[str, str]:
    """Return schema and table of a Kafka key."""
    db, pos = read_bytes(key, 0)
    table, _ = read_bytes(key, pos)
    return db.decode(), table.decode()
