"""Rows of a table as a copy selects and encodes them, beside the same rows in the binlog."""

from __future__ import annotations

import io
from collections import defaultdict
from functools import lru_cache
from typing import Any

import fastavro
from pymysql.connections import Connection

from producer.copy.row_encoder import RowEncoder
from producer.copy.row_packets import RowPackets
from schemas.quote import quoted
from schemas.structure import TableStructure
from schemas.wire.avro_schema import AFTER_AT, envelope
from tests.support.binlogs.binlog_rows import Row

#: a row's Kafka key, and its `after` with the branch of the union
Encoded = tuple[bytes, bytes]


def selected(connection: Connection[Any], structure: TableStructure, where: str = "") -> list[Encoded]:
    """A table's rows, read on a connection with ``session_setup``."""
    encoder = RowEncoder(structure)
    sql = f"SELECT {encoder.expressions} FROM {quoted(structure.db, structure.table)} {where}"
    keys: list[bytes] = []
    afters: list[bytes] = []
    rows = RowPackets.select(connection, encoder, sql)
    while rows.read(keys.append, afters.append):
        pass
    return list(zip(keys, afters, strict=True))


def inserted(rows: list[Row]) -> dict[TableStructure, list[Encoded]]:
    """The same of the binlog's inserts, by table."""
    found: dict[TableStructure, list[Encoded]] = defaultdict(list)
    for row in rows:
        assert row.op == "c"
        found[row.structure].append((row.key, after_of(row)))
    return found


def after_of(row: Row) -> bytes:
    """A row's `after` with the branch of the union."""
    stream = io.BytesIO(row.value)
    stream.seek(AFTER_AT + 1)
    fastavro.schemaless_reader(stream, _row_schema(row.structure), None)
    return row.value[AFTER_AT : stream.tell()]


@lru_cache
def _row_schema(structure: TableStructure) -> Any:
    schema = envelope(structure)
    (_, record) = next(field["type"] for field in schema["fields"] if field["name"] == "after")
    return fastavro.parse_schema(record)
