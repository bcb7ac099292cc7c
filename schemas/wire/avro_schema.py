"""The Avro schema of a table structure: Debezium's envelope, in the Avro specification's single-object encoding."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import fastavro
from fastavro.schema import to_parsing_canonical_form

from schemas.codegen import kept
from schemas.structure import Column, TableStructure
from schemas.types import avro_type
from schemas.wire.rows import HEADER_SIZE, value_header

#: offset of an Envelope's operation letter: after the string's length, and in a value with a wide header
OP_BEHIND = 1
OP_AT = HEADER_SIZE + OP_BEHIND
#: offset of the union branch of an Envelope's `after`
AFTER_AT = OP_AT + 1

#: `source.flags` of both halves of an UPDATE that changes the key
KEY_CHANGE = 0x10000

SOURCE: dict[str, Any] = {
    "type": "record",
    "name": "Source",
    "fields": [
        {"name": "seq", "type": "long", "doc": "number of the row within its epoch, from 0"},
        {"name": "epoch", "type": "long"},
        {"name": "flags", "type": "int", "doc": "the rows event's flags; 0x10000: half of a key change"},
        {"name": "db", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "server_id", "type": "long"},
        {"name": "gtid", "type": ["null", "string"]},
        {"name": "file", "type": "string", "doc": "upstream binlog file"},
        {"name": "pos", "type": "long", "doc": "start of the rows event in it"},
        {
            "name": "ts_ms",
            "type": "long",
            "doc": "upstream commit time where the log has it, else event time",
        },
    ],
}


def avro_name(name: str) -> str:
    """Convert an identifier to an Avro name; characters not allowed become ``_xHHHH``, so names stay distinct."""
    return re.sub(r"[^A-Za-z0-9_]|^[0-9]|_(?=x[0-9a-f]{4})", lambda m: f"_x{ord(m[0]):04x}", name)


def _row(name: str, columns: tuple[Column, ...]) -> dict[str, Any]:
    fields = [
        {
            "name": avro_name(column.name),
            "type": avro_type(column),
            "mysql.name": column.name,
            "mysql.type": column.sql_type,
            **({"mysql.charset": column.charset} if column.charset else {}),
        }
        for column in columns
    ]
    return {"type": "record", "name": name, "fields": fields}


def _images(structure: TableStructure) -> tuple[Any, Any]:
    """Return the types of `after` and `before`: one record, unless the images have different columns."""
    after, before = structure.after_image, structure.before_image
    if not before or not after or before == after:
        return _row("Row", after or before), "Row"
    return _row("Row", after), _row("OldRow", before)


def envelope(structure: TableStructure) -> dict[str, Any]:
    """Return the schema of a table's row values.

    The namespace contains a digest of the structure: Avro's canonical form leaves out decimal scales, charsets
    and signedness, so without it two structures that need different decoders could share a fingerprint.
    """
    digest = blake2b(structure.to_json().encode(), digest_size=8).hexdigest()
    after, before = _images(structure)
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": f"{avro_name(structure.db)}.{avro_name(structure.table)}.s{digest}",
        "fields": [
            {"name": "op", "type": "string", "doc": "c, u, d or r"},
            {"name": "after", "type": ["null", after]},
            {"name": "before", "type": ["null", before]},
            {"name": "source", "type": SOURCE},
            {"name": "ts_ms", "type": "long", "doc": "time of publishing"},
        ],
    }


@dataclass(frozen=True)
class RowSchema:
    """A structure's Avro schema and its fingerprint on the wire."""

    text: str
    fingerprint: bytes

    @property
    def header(self) -> bytes:
        """The ten bytes before every value: marker and fingerprint."""
        return value_header(self.fingerprint)


@kept
def row_schema(structure: TableStructure) -> RowSchema:
    """Return the Avro schema of a structure's rows and its CRC-64-AVRO fingerprint, little-endian as on the wire."""
    schema = envelope(structure)
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return RowSchema(text, schema_fingerprint(json.loads(text)))


def schema_fingerprint(schema: dict[str, Any]) -> bytes:
    """The CRC-64-AVRO fingerprint of a schema's parsing canonical form, little-endian as on the wire.

    fastavro makes the table anew for each fingerprint, which took 0.5 ms of a thousand tables each.
    """
    crc = _EMPTY
    for byte in to_parsing_canonical_form(schema).encode():
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc.to_bytes(8, "little")


def _crc(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_EMPTY if byte & 1 else 0)
    return byte


# Of no bytes, and the polynomial. Source: the Avro specification, Schema Fingerprints.
_EMPTY = 0xC15D213AA4D7A795
_CRC = tuple(map(_crc, range(256)))


def read_record(schema: Any, data: bytes) -> Any:
    """Read a value of a parsed schema, which must be all of ``data`` (too slow for every row).

    Raises:
        ValueError, LookupError, EOFError, TypeError, struct.error: the bytes are not such a value.
    """
    stream = io.BytesIO(data)
    record: Any = fastavro.schemaless_reader(stream, schema, None)
    if stream.tell() != len(data):
        raise ValueError(f"{len(data) - stream.tell()} bytes follow it")
    return record


def fingerprint_of(structure: TableStructure) -> bytes:
    """Return the fingerprint of a structure's schema, which is on the wire if there is no registry."""
    return row_schema(structure).fingerprint
