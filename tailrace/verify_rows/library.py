"""Decodes events of relay files with mysql-replication's packet and event classes, without a connection.

Some events are changed first, because the library cannot read them: MariaDB's compressed column types and MySQL's
VECTOR become the BLOB or VARCHAR that they are stored as, and metadata fields unknown to the library are left out.
Text and JSON documents are returned as bytes, so that one value that the library cannot convert does not fail the
whole event; ``values`` calls the library's conversions afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pymysql.protocol import MysqlPacket
from pymysqlreplication.bitmap import BitGet
from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    MetadataFieldType,
    PartialUpdateRowsEvent,
    RowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
    find_charset,
)

from producer.events.table_map import TableMap, packed_length, table_names
from schemas.binlog.framing import CHECKSUM_SIZE, HEADER, HEADER_SIZE, header
from schemas.gtid.sets import Flavor
from schemas.types.binary import BLOB_COMPRESSED, VARCHAR_COMPRESSED, VECTOR

_EVENTS = frozenset({TableMapEvent, WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent, PartialUpdateRowsEvent})
_PLAIN_TYPES = bytes.maketrans(
    bytes((BLOB_COMPRESSED, VARCHAR_COMPRESSED, VECTOR)),
    bytes((FIELD_TYPE.BLOB, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB)),
)
_METADATA = frozenset(kind.value for kind in MetadataFieldType)
_TEXT = frozenset({FIELD_TYPE.VARCHAR, FIELD_TYPE.VAR_STRING, FIELD_TYPE.STRING, FIELD_TYPE.BLOB})
_NO_CHECKSUM = bytes(CHECKSUM_SIZE)
_BODY_AT = HEADER_SIZE + 8  # of a TABLE_MAP event, after the table id and flags


@dataclass(frozen=True)
class Document:
    """The bytes of a JSON document, or of a JSON diff (``is_diff``)."""

    data: bytes
    is_diff: bool


@dataclass(frozen=True)
class LibraryTable:
    """A TABLE_MAP event as the library reads it.

    Attributes:
        table: the library's Table with its Columns.
        encodings: for each column, Python's name of the character set that the library found; None if the column is
            not text or its character set is unknown.
    """

    table: Any
    encodings: tuple[str | None, ...]


@dataclass(frozen=True)
class LibraryImage:
    """A row image: the values of all columns, and a bitmap of the columns that the event contains."""

    values: dict[str, Any]
    present: bytes

    def has(self, i: int) -> bool:
        """Return whether column ``i`` is in the event."""
        return bool(BitGet(self.present, i))


@dataclass(frozen=True)
class LibraryRow:
    """A row as the library reads it. An image that the event does not have is None."""

    before: LibraryImage | None
    after: LibraryImage | None


class _Connection:
    """The part of a connection that the library's classes use."""

    charset = "utf8mb4"

    def __init__(self, flavor: Flavor) -> None:
        self._flavor = flavor

    def _get_dbms(self) -> str:
        return self._flavor


class _Packet(BinLogPacketWrapper):  # type: ignore[misc]
    """An event whose JSON values stay bytes."""

    def read_binary_json(self, size: int, is_partial: bool) -> Document:
        return Document(self.read_length_coded_pascal_string(size), is_partial)


def read_table_map(event: bytes, known: TableMap) -> LibraryTable:
    """Read a TABLE_MAP event without its checksum; ``known`` is our reading of it. Raises the library's errors."""
    body = _readable(event[_BODY_AT:], known)
    made: TableMapEvent = _event(event[:_BODY_AT] + body, {}, known.flavor)
    columns = made.table_obj.columns
    if not made.optional_metadata.column_name_list:
        _without_names(made, known.flavor)
    encodings = tuple(column.character_set_name for column in columns)
    for column in columns:
        if column.type in _TEXT:
            column.character_set_name = "binary"  # Python has no such codec, so it leaves the bytes alone
    return LibraryTable(made.table_obj, encodings)


class LibraryEvent:
    """A rows event without its checksum. Raises the library's errors.

    Attributes:
        present: the bitmap of the columns in the before images; for an INSERT, in the after images.
    """

    def __init__(self, event: bytes, table: LibraryTable, flavor: Flavor) -> None:
        table_id = int.from_bytes(event[HEADER_SIZE : HEADER_SIZE + 6], "little")
        self._event: RowsEvent = _event(event, {table_id: table.table}, flavor)
        self.present: bytes = self._event.columns_present_bitmap

    def rows(self) -> Iterator[LibraryRow]:
        """Yield the rows one by one, since all rows of an event may not fit into memory."""
        event = self._event
        while event.packet.read_bytes < event.event_size:
            row = event._fetch_one_row()
            if isinstance(event, UpdateRowsEvent):
                after = LibraryImage(row["after_values"], event.columns_present_bitmap2)
                yield LibraryRow(LibraryImage(row["before_values"], self.present), after)
            else:
                image = LibraryImage(row["values"], self.present)
                yield (
                    LibraryRow(image, None) if isinstance(event, DeleteRowsEvent) else LibraryRow(None, image)
                )


def _event(event: bytes, tables: dict[int, Any], flavor: Flavor) -> Any:
    # A checksum is always added, and never verified: without one the library drops a TABLE_MAP's last four bytes.
    head = header(event)._replace(size=len(event) + CHECKSUM_SIZE)
    data = b"\0" + HEADER.pack(*head) + event[HEADER_SIZE:] + _NO_CHECKSUM
    packet = _Packet(
        MysqlPacket(data, "utf8mb4"),
        tables,
        _Connection(flavor),
        mysql_version=(0, 0, 0),
        use_checksum=True,
        allowed_events=_EVENTS,
        only_tables=None,
        ignored_tables=None,
        only_schemas=None,
        ignored_schemas=None,
        freeze_schema=False,
        ignore_decode_errors=False,
        verify_checksum=False,
        optional_meta_data=True,
        enable_logging=False,
    )
    return packet.event


def _readable(body: bytes, known: TableMap) -> bytes:
    """Return the body of a TABLE_MAP event without the types and fields that the library cannot read."""
    count, types_at = packed_length(body, table_names(body)[2])
    end = types_at + count
    size, meta_at = packed_length(body, end)
    optional_at = meta_at + size + (count + 7) // 8
    optional = b"".join(
        bytes((kind,)) + _packed(len(data)) + data
        for kind, data in known.optional.items()
        if kind in _METADATA
    )
    return body[:types_at] + body[types_at:end].translate(_PLAIN_TYPES) + body[end:optional_at] + optional


def _packed(length: int) -> bytes:
    """Encode a length; the inverse of ``packed_length``."""
    if length < 251:
        return bytes((length,))
    size, mark = (2, 252) if length < 1 << 16 else (3, 253) if length < 1 << 24 else (8, 254)
    return bytes((mark,)) + length.to_bytes(size, "little")


def _without_names(made: Any, flavor: Flavor) -> None:
    """Name columns by number; set their signs and collations, which the library reads but drops without names."""
    metadata = made.optional_metadata
    collations = iter(metadata.charset_collation_list or ())
    for i, column in enumerate(made.columns):
        column.name = f"@{i + 1}"
        column.unsigned = bool(metadata.unsigned_column_list and metadata.unsigned_column_list[i])
        if made._is_character_column(column.type, dbms=flavor) and (collation := next(collations, None)):
            column.character_set_name = find_charset(str(collation), dbms=flavor)[0]
        elif column.type == FIELD_TYPE.ENUM:
            column.enum_values = ["", *map(str, range(1, 1 << 8 * column.size))]
        elif column.type == FIELD_TYPE.SET:
            column.set_values = [str(number) for number in range(1, 8 * column.size + 1)]
