"""Reads row records by the Avro schema that their header names, and restores the columns' real names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import fastavro

from schemas.structure import TableStructure
from schemas.types import avro_type
from schemas.wire.avro_schema import read_record, row_schema
from schemas.wire.epoch import StructureVersion
from schemas.wire.log_records import structure_of
from schemas.wire.row_check import compile_check
from schemas.wire.rows import header_size, widened

#: values by column: int, float, str, bytes, decimal.Decimal, None; dict for a JSON document with SQL types
Image = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """The change of one row.

    Attributes:
        op: ``c``, ``u`` or ``d``. An UPDATE that changes the key is two rows, a delete and a create.
        key: the key's columns; empty for a table without a key.
        before: the row before the change; None for an INSERT. It has only the columns that the upstream logged.
            docs/TYPES.md describes the values; text that Kafka does not hold as a string is bytes in the column's
            character set.
        after: the row after the change; None for a DELETE. A missing column did not change, or has its default.
        source: the row's origin: ``seq``, ``epoch``, ``gtid``, ``file``, ``pos``, ``ts_ms``, …
        ts_ms: when the row was published, in ms since 1970.
        partition, offset: the position of its record, or of the last record of a divided row.
    """

    op: str
    db: str
    table: str
    key: Image
    before: Image | None
    after: Image | None
    source: dict[str, Any]
    ts_ms: int
    partition: int
    offset: int

    @property
    def seq(self) -> int:
        """The row's number in the epoch, from 0, in upstream order."""
        return int(self.source["seq"])


class RowReader:
    """Reads the rows of one structure."""

    def __init__(self, structure: TableStructure) -> None:
        schema = json.loads(row_schema(structure).text)
        self._structure = structure
        self._names = {
            "before": [column.name for column in structure.before_image],
            "after": [column.name for column in structure.after_image],
        }
        types = ["string", "string", *map(avro_type, structure.key_columns)]
        # Avro writes a record as its fields in order, so the key can be read as a record.
        columns = [{"name": f"f{i}", "type": kind} for i, kind in enumerate(types)]
        self._key_names = structure.key
        self._envelope = fastavro.parse_schema(schema)
        self._key = fastavro.parse_schema({"type": "record", "name": "Key", "fields": columns})

    def read(self, key: bytes, value: bytes, partition: int, offset: int) -> Row:
        """Read a record whose value is complete.

        Raises:
            ValueError, LookupError, EOFError, TypeError: the record is not a row.
        """
        compile_check(self._structure)(key, widened(value))
        envelope = read_record(self._envelope, value[header_size(value) :])
        source = envelope["source"]
        return Row(
            envelope["op"],
            source["db"],
            source["table"],
            self.read_key(key),
            self._image(envelope, "before"),
            self._image(envelope, "after"),
            source,
            envelope["ts_ms"],
            partition,
            offset,
        )

    def read_key(self, key: bytes) -> Image:
        """Return the key's columns, of a table without a key none. Raises as ``read`` does."""
        _, _, *parts = read_record(self._key, key).values()
        return dict(zip(self._key_names, parts, strict=True))

    def _image(self, envelope: dict[str, Any], side: str) -> Image | None:
        image = envelope[side]
        return None if image is None else dict(zip(self._names[side], image.values(), strict=True))


def row_reader(version: StructureVersion) -> RowReader:
    """Return the reader of a structure's rows. Raises LogError TR568."""
    return _reader(structure_of(version))


@lru_cache(maxsize=4096)
def _reader(structure: TableStructure) -> RowReader:
    return RowReader(structure)
