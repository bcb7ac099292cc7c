"""Makes the records of a table structure that an operator sets with `tailrace schema set`; writes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from producer.structures.store import BinlogPosition, Later, encode_entry, loaded_entry, topic_key
from schemas.ddl.column_types import in_charset
from schemas.ddl.table_definition import ColumnDefinition, TableDefinition
from schemas.tables import QualifiedName


def corrected(
    stored: Mapping[bytes, bytes], name: QualifiedName, table: TableDefinition, place: BinlogPosition | None
) -> tuple[tuple[bytes, bytes], ...]:
    """The records that state a table's structure.

    Args:
        stored: the records as they are.
        position: valid from here on; None: from the end of the log.
    """
    database = stored.get(topic_key(name[0]))
    table = _with_default(table, json.loads(database) if database else None)
    old = stored.get(topic_key(*name))
    now, later = loaded_entry(old) if old else (None, None)
    if place is None:
        record = encode_entry(table, later)
    else:
        record = encode_entry(now, Later(place, place, table))
    return ((topic_key(*name), record),)


def _with_default(table: TableDefinition, charset: str | None) -> TableDefinition:
    """What names no character set is in that of its database."""
    if table.charset is not None or charset is None:
        return table

    def column(old: ColumnDefinition) -> ColumnDefinition:
        return in_charset(replace(old, charset=charset)) if old.charset is None else old

    return replace(table.with_columns(column), charset=charset)
