"""Shows rows of binlog events as plain values, decoded with the publisher's decoder."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any

import fastavro

from producer.decode.rows_events import ROWS, DecodedTable
from producer.epochs.open_epoch import Records
from producer.events.table_map import table_names, table_structure
from schemas.binlog.framing import HEADER_SIZE
from schemas.gtid.sets import Flavor
from schemas.structure import TableStructure
from schemas.wire.avro_schema import avro_name, envelope

_HEADER_OF_VALUE = 10  # marker and fingerprint
# Limits for one event. By default servers start a new event after 8 KB.
_MOST_ROWS, _MOST_BYTES = 100_000, 64 << 20

#: the images ``before`` and ``after`` of a row by column, as fastavro reads them; None if there is no such image
Images = dict[str, dict[str, Any] | None]
_TABLE_ID = slice(HEADER_SIZE, HEADER_SIZE + 6)


class BinlogRowDecoder:
    """Remembers the TABLE_MAP events of a file, and shows the rows that follow them."""

    def __init__(self) -> None:
        self._tables: dict[bytes, bytes] = {}
        self._parsed: dict[bytes, DecodedTable] = {}
        self._flavor: Flavor = "mysql"

    def enter_file(self, flavor: Flavor) -> None:
        """Forget the tables: ids are valid in one file only. ``flavor``: of the server that wrote the file."""
        self._tables.clear()
        if flavor != self._flavor:
            self._parsed.clear()
            self._flavor = flavor

    def table_map(self, event: bytes) -> None:
        """Remember a TABLE_MAP event without its checksum."""
        self._tables[event[_TABLE_ID]] = event[HEADER_SIZE + 8 :]

    def table_of(self, event: bytes) -> tuple[str, str] | None:
        """Return schema and table of a rows event; None if its TABLE_MAP was not seen."""
        body = self._tables.get(event[_TABLE_ID])
        return None if body is None else table_names(body)[:2]

    def rows(self, kind: int, event: bytes) -> list[dict[str, Any]] | None:
        """Return the rows of an event without its checksum: `before` and `after`; None if its table is unknown.

        Raises DecodeError, IndexError, ValueError and struct.error when they cannot be decoded.
        """
        body = self._tables.get(event[_TABLE_ID])
        if body is None or kind not in ROWS:
            return None
        table = self._parsed.get(body)
        if table is None:
            table = self._parsed[body] = DecodedTable(table_structure(body, self._flavor))
        shown: list[dict[str, Any]] = []
        held = 0
        for rows, size in decoded_rows(table, kind, event):
            shown += ({side: image and _plain(image) for side, image in row.items()} for row in rows)
            held += size
            if len(shown) > _MOST_ROWS or held > _MOST_BYTES:
                raise ValueError(f"more than {_MOST_ROWS} rows, or {_MOST_BYTES} bytes of them, in one event")
        return shown


def decoded_rows(table: DecodedTable, kind: int, event: bytes) -> Iterator[tuple[list[Images], int]]:
    """Yield the rows of an event without its checksum in portions, each with the size of its records in bytes.

    Raises DecodeError, IndexError, ValueError and struct.error when they cannot be decoded.
    """
    header, at = table.forms[kind].parse(event, 0)
    end = len(event)
    while at < end:
        records = Records()
        _, at = header.decode(
            event, at, min(end, at + header.bytes_at_a_time), 0,
            b"\0", header.table_source, header.table_source_moved, b"",
            records.keys.append, records.values.append, records.headers,
        )  # fmt: skip
        if at <= end:
            values = records.values
            yield (
                _merged([_images(value, header.decoder.structure) for value in values]),
                sum(map(len, values)),
            )
    if at != end:
        raise IndexError("a row image overruns its event")


def _images(value: bytes, structure: TableStructure) -> Images:
    found: Any = fastavro.schemaless_reader(io.BytesIO(value[_HEADER_OF_VALUE:]), _schema(structure), None)
    names = {avro_name(column.name): column.name for column in structure.columns}
    return {
        side: None if found[side] is None else {names[k]: v for k, v in found[side].items()}
        for side in ("before", "after")
    }


@lru_cache(maxsize=1024)
def _schema(structure: TableStructure) -> Any:
    """Return the schema of the images, without the fields after them that describe the row's source."""
    schema = envelope(structure)
    return fastavro.parse_schema({**schema, "fields": schema["fields"][:3]})


def _merged(images: list[Images]) -> list[Images]:
    """Join the delete and the create that an UPDATE of the key is published as."""
    rows: list[Images] = []
    for image in images:
        if rows and rows[-1]["after"] is None and image["before"] is None:
            rows[-1]["after"] = image["after"]
        else:
            rows.append(image)
    return rows


def _plain(image: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in image.items()}


def plain(value: Any) -> Any:
    """Return a value for JSON: numbers and text; bytes in hexadecimal."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, Decimal | date | datetime | time):
        return str(value)
    return value
