"""Reads the relay log, decodes each rows event with both decoders, and compares the values."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from producer.decode.rows_events import ROWS, DecodedTable
from producer.events.compressed import COMPRESSED, plain_event, unpacked
from producer.events.table_map import (
    CHARACTER,
    TableMap,
    full_structure,
    read_table_map,
    sql_type,
    stated_columns,
)
from relay_store.check.verify import Progress
from relay_store.layout import directory as layout
from relay_store.read.reader import RelayReader
from schemas.binlog import framing
from schemas.binlog.framing import HEADER_SIZE
from schemas.errors import DecodeError
from schemas.gtid.sets import Flavor
from schemas.structure import Column, TableStructure
from schemas.types import check_column
from schemas.types.enum_set import ENUM, SET
from tailrace.reader.event_rows import Images, decoded_rows
from tailrace.verify_rows.known import cannot_be_read, known_difference
from tailrace.verify_rows.library import LibraryEvent, LibraryImage, LibraryTable
from tailrace.verify_rows.library import read_table_map as read_library_table_map
from tailrace.verify_rows.values import is_same, library_value, our_value

_MOST_DIFFERENCES = 100  # listed one by one
_MOST_TABLES = 10_000  # whose structures are kept in memory
_TABLE_ID = slice(HEADER_SIZE, HEADER_SIZE + 6)
_BODY_AT = HEADER_SIZE + 8  # of a TABLE_MAP event
_DAMAGED = (ValueError, IndexError, KeyError, struct.error)
# Text of an unknown character set is compared by its bytes: both decoders return bytes for utf32.
_UNKNOWN_CHARSET = "utf32"


@dataclass(frozen=True)
class Difference:
    """A value that the two decoders read differently.

    Attributes:
        file: the relay file, with its sub-directory.
        position: the position of the event, or of the compressed transaction that contains it.
        row: the row's number in the event, from 1; 0 if the difference is about the event or its table.
        image: ``before`` or ``after``; ``""`` if the difference is not about one image.
        ours, theirs: the values in the common form, or a text that says why there is no value.
    """

    file: str
    position: int
    table: str
    row: int
    image: str
    column: str
    ours: Any
    theirs: Any


@dataclass
class RowsReport:
    """The result of a comparison.

    Attributes:
        events, rows, values: how many were compared.
        different: how many differences were found; ``differences`` holds the first of them.
        known: how many values the library read wrongly or not at all as documented, by the names in
            docs/RELAY_LOG.md.
        not_compared: how many rows events were not compared because a decoder cannot read them, by the reason.
    """

    events: int = 0
    rows: int = 0
    values: int = 0
    different: int = 0
    differences: list[Difference] = field(default_factory=list)
    known: Counter[str] = field(default_factory=Counter)
    not_compared: Counter[str] = field(default_factory=Counter)


def compare_rows(root: Path, progress: Progress = lambda done, total: None) -> RowsReport:
    """Decode every row of a relay log twice, and compare each value.

    Args:
        root: the relay directory. The checksums of its files must have been verified.
        progress: called periodically with the bytes done and the total bytes.

    Raises RelayError when a file is damaged, or was deleted meanwhile.
    """
    return _Comparison(root, progress).run()


@dataclass
class _Table:
    """A TABLE_MAP event, as both decoders read it."""

    event: TableMap
    structure: TableStructure
    library: LibraryTable
    decoders: dict[tuple[str, ...], DecodedTable] = field(default_factory=dict)

    def decoder(self, present: bytes) -> DecodedTable:
        """Return our decoder. If the key is unknown, each set of present columns has a decoder of its own."""
        key = self.structure.key
        if not self.event.full:
            bits = int.from_bytes(present, "little")
            names = tuple(column.name for i, column in enumerate(self.structure.columns) if bits >> i & 1)
            key = names if len(names) < len(self.structure.columns) else ()
        if (found := self.decoders.get(key)) is None:
            found = self.decoders[key] = DecodedTable(replace(self.structure, key=key))
        return found


class _Comparison:
    """One pass over a relay log."""

    def __init__(self, root: Path, progress: Progress) -> None:
        self._root, self._progress = root, progress
        self._report = RowsReport()
        self._flavor: Flavor = "mysql"
        self._has_checksum = False
        # Tables by the event's body, and the current file's tables by their ids; the reason if a table is not compared.
        self._read: dict[tuple[Flavor, bytes], _Table | str] = {}
        self._tables: dict[bytes, _Table | str] = {}
        self._file, self._position = "", 0

    def run(self) -> RowsReport:
        """Compare all files and return the report."""
        total = sum(
            (self._root / subdir / file).stat().st_size
            for subdir in layout.read_index(self._root)
            for file in layout.binlog_files(self._root / subdir)
        )
        done = 0
        self._progress(done, total)
        reader = RelayReader(self._root)
        try:
            while block := reader.read_block():
                self._file = f"{block.subdir}/{block.file}"
                for at, event in _events(block.data):
                    self._position = block.pos + at
                    self._compare_stored(event)
                done += len(block.data)
                self._progress(done, total)
        finally:
            reader.close()
        return self._report

    def _compare_stored(self, event: bytes) -> None:
        """Compare the rows of an event as it is in the file: with its checksum, possibly a compressed transaction."""
        if event[4] == framing.FORMAT_DESCRIPTION:
            self._has_checksum = framing.checksum_algorithm(event) == framing.CHECKSUM_CRC32
            self._flavor = framing.flavor_of(event)
            self._tables.clear()
            return
        bare = event[: -framing.CHECKSUM_SIZE] if self._has_checksum else event
        try:
            if event[4] == framing.TRANSACTION_PAYLOAD:
                for data in unpacked(bare[HEADER_SIZE:]):
                    for _, inner in _events(data):
                        self._compare_plain(inner)
            else:
                self._compare_plain(bare)
        except DecodeError as error:
            self._report.not_compared[f"{error.code}: {error.message}"] += 1
        except _DAMAGED as error:
            self._differ("", 0, "", "", _error_text(error), "not read, because we unpack it first")

    def _compare_plain(self, event: bytes) -> None:
        """Compare the rows of an event without its checksum; remember the table of a TABLE_MAP event."""
        if event[4] in COMPRESSED:
            event = plain_event(event, 0)
        if event[4] == framing.TABLE_MAP:
            self._tables[event[_TABLE_ID]] = self._table(event)
        elif event[4] in ROWS:
            table = self._tables.get(event[_TABLE_ID], "its TABLE_MAP is not in the log")
            if isinstance(table, str):
                self._report.not_compared[table] += 1
            else:
                self._compare_rows(event, table)

    def _table(self, event: bytes) -> _Table | str:
        key = (self._flavor, event[_BODY_AT:])
        if (found := self._read.get(key)) is None:
            if len(self._read) >= _MOST_TABLES:
                self._read.clear()
            found = self._read[key] = self._new_table(event)
        return found

    def _new_table(self, event: bytes) -> _Table | str:
        try:
            known = read_table_map(event[_BODY_AT:], self._flavor)
            if known.old_temporal and self._flavor == "mariadb":
                return "the log does not say how many digits the fractions of old temporal columns have"
            structure = full_structure(known) if known.full else _unnamed(known)
        except DecodeError as error:
            return f"{error.code}: {error.message}"
        except _DAMAGED as error:
            self._differ("", 0, "", "", _error_text(error), "a table")
            return "we cannot read the TABLE_MAP"
        try:
            return _Table(known, structure, read_library_table_map(event, known))
        except Exception as error:  # the library may raise any error
            self._differ(structure.name, 0, "", "", "a table", _error_text(error))
            return "mysql-replication cannot read the TABLE_MAP"

    def _compare_rows(self, event: bytes, table: _Table) -> None:
        """Compare a rows event."""
        name = table.structure.name
        self._report.events += 1
        try:
            library_event = LibraryEvent(event, table.library, self._flavor)
        except Exception as error:  # the library may raise any error
            self._differ(name, 0, "", "", "rows", _error_text(error))
            return
        our_rows = _rows(table.decoder(library_event.present), event)
        library_rows = _guarded(library_event.rows())
        try:
            for number, (our_row, library_row) in enumerate(zip_longest(our_rows, library_rows), 1):
                if isinstance(library_row, Exception):
                    self._library_failed(table, our_row, our_rows, number, library_row)
                    return
                if our_row is None or library_row is None:
                    found = ("no row", "a row") if our_row is None else ("a row", "no row")
                    self._differ(name, number, "", "", *found)
                    return
                self._report.rows += 1
                for side, image in (("before", library_row.before), ("after", library_row.after)):
                    self._compare_images(table, number, side, our_row[side], image)
        except DecodeError as error:
            self._report.not_compared[f"{error.code}: {error.message}"] += 1
        except _DAMAGED as error:
            self._differ(name, 0, "", "", _error_text(error), "rows")

    def _compare_images(
        self, table: _Table, number: int, side: str, ours: dict[str, Any] | None, library: LibraryImage | None
    ) -> None:
        name = table.structure.name
        if ours is None or library is None:
            if (ours is None) != (library is None):
                sides = ["an image" if image is not None else "no image" for image in (ours, library)]
                self._differ(name, number, side, "", *sides)
            return
        for i, column in enumerate(table.structure.columns):
            if not library.has(i):
                # A column that an after image lacks did not change: we publish its old value.
                if side == "before" and column.name in ours:
                    self._differ(name, number, side, column.name, ours[column.name], "not in the event")
                continue
            if column.name not in ours:
                self._differ(name, number, side, column.name, "not in the event", library.values[column.name])
                continue
            self._report.values += 1
            value, library_column = ours[column.name], table.library.table.columns[i]
            our = our_value(column, value)
            encoding = table.library.encodings[i]
            found = library_value(
                column, library.values[column.name], our, encoding, library_column.set_values
            )
            if is_same(our, found):
                continue
            if known := known_difference(column, value, found, library_column):
                self._report.known[known] += 1
            else:
                self._differ(name, number, side, column.name, our, found)

    def _library_failed(
        self, table: _Table, our_row: Images | None, rest: Iterator[Images], number: int, error: Exception
    ) -> None:
        """Count an event that the library cannot read, or report it if the reason is not a known one."""
        images = [image for row in (our_row, *rest) if row is not None for image in row.values() if image]
        for column in table.structure.columns:
            values = (image[column.name] for image in images if column.name in image)
            if reason := next(filter(None, (cannot_be_read(column, value) for value in values)), ""):
                self._report.not_compared[reason] += 1
                return
        self._differ(table.structure.name, number, "", "", "a row", _error_text(error))

    def _differ(self, table: str, row: int, image: str, column: str, ours: Any, theirs: Any) -> None:
        report = self._report
        report.different += 1
        if len(report.differences) < _MOST_DIFFERENCES:
            report.differences.append(
                Difference(self._file, self._position, table, row, image, column, ours, theirs)
            )


def _events(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        size = framing.header(data, at).size
        yield at, data[at : at + size]
        at += size


def _rows(table: DecodedTable, event: bytes) -> Iterator[Images]:
    for rows, _ in decoded_rows(table, event[4], event):
        yield from rows


def _guarded(rows: Iterator[Any]) -> Iterator[Any]:
    """Yield the library's rows; if it raises an error, yield the error last."""
    try:
        yield from rows
    except Exception as error:  # the library may raise any error
        yield error


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _unnamed(event: TableMap) -> TableStructure:
    """Return the structure of a TABLE_MAP event without names: columns and members are named by their numbers."""
    columns, _, has_charsets = stated_columns(event)
    named = (_numbered(column, f"@{i}", has_charsets) for i, column in enumerate(columns, 1))
    return TableStructure(event.db, event.table, tuple(replace(c, sql_type=sql_type(c)) for c in named))


def _numbered(column: Column, name: str, has_charset: bool) -> Column:
    has_members = column.code in (ENUM, SET)
    if has_members or (column.code in CHARACTER and not has_charset):
        column = replace(column, charset="utf8mb4" if has_members else _UNKNOWN_CHARSET)
    column = replace(column, name=name)
    check_column(column)
    if not has_members:
        return column
    count = (1 << 8 * column.meta) - 1 if column.code == ENUM else 8 * column.meta
    return replace(column, members=tuple(map(str, range(1, count + 1))))
