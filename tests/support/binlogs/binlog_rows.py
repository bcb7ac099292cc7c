"""Reads row records from a server's binlog files with the producer's decoder, without relay log and Kafka."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import fastavro

from compose.databases import Database
from producer.epochs.open_epoch import OpenEpoch, Records
from schemas.binlog.framing import header
from schemas.structure import TableStructure
from schemas.tables import TableFilter
from schemas.wire.avro_schema import row_schema
from schemas.wire.rows import schema_name
from tests.support.binlogs.decoder import new_decoder, run

_MAGIC = 4


@dataclass(frozen=True)
class Row:
    """One Kafka record, with the structure that its fingerprint names."""

    structure: TableStructure
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def op(self) -> str:
        """c, u or d."""
        return chr(self.value[11])

    def avro(self) -> dict[str, Any]:
        """The envelope as fastavro reads it."""
        return dict(self._record)

    @cached_property
    def _record(self) -> Any:
        fingerprint = self.value[2:10]
        # By the fingerprint, since a structure's hash is one of all its columns.
        if (schema := _schemas.get(fingerprint)) is None:
            schema = fastavro.parse_schema(json.loads(row_schema(self.structure).text))
            _schemas[fingerprint] = schema
        return fastavro.schemaless_reader(io.BytesIO(self.value[10:]), schema, None)


_schemas: dict[bytes, Any] = {}


def binlog_end(server: Database) -> tuple[str, int]:
    """Return the present end of the server's binlog."""
    statement = "SHOW MASTER STATUS" if server.flavor == "mariadb" else "SHOW BINARY LOG STATUS"
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        row: Any = cursor.fetchone()
    return row[0], row[1]


def event_types(server: Database, begin: tuple[str, int]) -> set[int]:
    """Return the types of the events after ``begin`` in the same file."""
    file, at = begin
    data, types = (server.data / file).read_bytes(), set()
    while at < len(data):
        types.add(data[at + 4])
        at += header(data, at).size
    return types


def rows_since(server: Database, begin: tuple[str, int], include: str) -> list[Row]:
    """Return the rows after ``begin`` in the same file, of tables that match ``include``.

    There must be no DDL in between.
    """
    file, pos = begin
    assert binlog_end(server)[0] == file
    data = (server.data / file).read_bytes()
    decoder = new_decoder(server.flavor, TableFilter(include=(include,)), root=server.data)
    size = int.from_bytes(data[_MAGIC + 9 : _MAGIC + 13], "little")
    decoder.leave_file_for("", file)
    decoder.read_format(data[_MAGIC : _MAGIC + size], "", file)
    rows: list[Row] = []
    end = run(decoder, data, pos, 0, lambda part: rows.extend(rows_of(decoder.state.epoch, part)))
    assert end == len(data), "a DDL stopped the decoder"
    return rows + rows_of(decoder.state.epoch)


def rows_of(epoch: OpenEpoch, records: Records | None = None) -> list[Row]:
    """The records that an epoch has at hand, or some that it handed out."""
    structures = {schema_name(header): structure for header, structure in epoch.touched.items()}
    records = records or epoch.records
    return [
        Row(structures[value[2:10]], key, value, tuple(records.headers.get(number, ())))
        for number, (key, value) in enumerate(zip(records.keys, records.values, strict=True), records.first)
    ]
