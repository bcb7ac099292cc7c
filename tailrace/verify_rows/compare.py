"""Walks over the relay log, and compares what the two decoders make of each rows event."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from producer.decode.rows_head import ROWS, RowsTable
from producer.events.compressed import COMPRESSED, plain_event
from producer.events.payload import unpacked
from producer.events.table_map import (
    CHARACTER,
    TableMap,
    full_structure,
    read_table_map,
    sql_type,
    stated_columns,
)
from relay_store.layout import directory as layout
from relay_store.read.reader import RelayReader
from schemas.binlog import framing
from schemas.binlog.framing import HEADER_SIZE
from schemas.errors import DecodeError
from schemas.gtid.sets import Flavor
from schemas.structure import Column, TableStructure
from schemas.types.checks import check_column
from schemas.types.enum_set import ENUM, SET
from tailrace.reader.event_rows import Images, decoded_rows
from tailrace.verify_rows.known import cannot_be_read, known_difference
from tailrace.verify_rows.library import TheirEvent, TheirImage, TheirTable
from tailrace.verify_rows.library import read_table_map as their_table_map
from tailrace.verify_rows.values import is_same, our_form, their_form

Progress = Callable[[int, int], None]

_MOST_DIFFERENCES = 100  # that are told one by one
_MOST_TABLES = 10_000  # whose structures are kept
_TABLE_ID = slice(HEADER_SIZE, HEADER_SIZE + 6)
_BODY_AT = HEADER_SIZE + 8  # of a TABLE_MAP event
_DAMAGED = (ValueError, IndexError, KeyError, struct.error)
# Both decoders give bytes for it, so text whose character set nobody knows is compared by its bytes.
_UNTOLD_CHARSET = "utf32"


@dataclass(frozen=True)
class Difference:
    """A value that the two decoders read differently.

    Attributes:
        file: of the relay directory, with its sub-directory.
        position: of the event, or of the compressed transaction that it is in.
        row: its number in the event, from 1; 0: the event or its table as a whole.
        image: ``before`` or ``after``.
        ours, theirs: the values in the common form, or why there is none.
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
    """What came of comparing.

    Attributes:
        events, rows, values: compared.
        different: how many differences there are; ``differences`` holds the first of them.
        known: values that the library is known to read wrongly or not at all, by the names in docs/RELAY_LOG.md.
        not_compared: rows events that only one decoder can read, or none, by the reason.
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
        root: the relay directory, of whose files the checksums are right.
        progress: called now and then with the bytes done, and those to do in all.

    Raises RelayError when a file is damaged, or was deleted meanwhile.
    """
    return _Comparison(root, progress).run()


@dataclass
class _Table:
    """A TABLE_MAP event, read by both."""

    event: TableMap
    structure: TableStructure
    their: TheirTable
    decoders: dict[tuple[str, ...], RowsTable] = field(default_factory=dict)

    def decoder(self, present: bytes) -> RowsTable:
        """Our decoder. Where nobody knows the key, images that lack columns are told apart by those that they have."""
        key = self.structure.key
        if not self.event.full:
            bits = int.from_bytes(present, "little")
            names = tuple(column.name for i, column in enumerate(self.structure.columns) if bits >> i & 1)
            key = names if len(names) < len(self.structure.columns) else ()
        if (found := self.decoders.get(key)) is None:
            found = self.decoders[key] = RowsTable(replace(self.structure, key=key))
        return found


class _Comparison:
    """One pass over a relay log."""

    def __init__(self, root: Path, progress: Progress) -> None:
        self._root, self._progress = root, progress
        self._report = RowsReport()
        self._flavor: Flavor = "mysql"
        self._has_checksum = False
        # By the event's body, and those of the current file by their ids: a refusal where one cannot be read.
        self._read: dict[tuple[Flavor, bytes], _Table | str] = {}
        self._tables: dict[bytes, _Table | str] = {}
        self._file, self._position = "", 0

    def run(self) -> RowsReport:
        """Compare all files."""
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
                    self._take_outer(event)
                done += len(block.data)
                self._progress(done, total)
        finally:
            reader.close()
        return self._report

    def _take_outer(self, event: bytes) -> None:
        """An event as it is in the file."""
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
                        self._take(inner)
            else:
                self._take(bare)
        except DecodeError as error:
            self._report.not_compared[f"{error.code}: {error.what}"] += 1
        except _DAMAGED as error:
            self._differ("", 0, "", "", _said(error), "not read, since we unpack it first")

    def _take(self, event: bytes) -> None:
        """An event without checksum."""
        if event[4] in COMPRESSED:
            event = plain_event(event, 0)
        if event[4] == framing.TABLE_MAP:
            self._tables[event[_TABLE_ID]] = self._table(event)
        elif event[4] in ROWS:
            table = self._tables.get(event[_TABLE_ID], "its TABLE_MAP is not in the log")
            if isinstance(table, str):
                self._report.not_compared[table] += 1
            else:
                self._compare(event, table)

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
            return f"{error.code}: {error.what}"
        except _DAMAGED as error:
            self._differ("", 0, "", "", _said(error), "a table")
            return "we cannot read the TABLE_MAP"
        try:
            return _Table(known, structure, their_table_map(event, known))
        except Exception as error:  # a library's decoder raises anything
            self._differ(structure.name, 0, "", "", "a table", _said(error))
            return "mysql-replication cannot read the TABLE_MAP"

    def _compare(self, event: bytes, table: _Table) -> None:
        """A rows event."""
        name = table.structure.name
        self._report.events += 1
        try:
            their = TheirEvent(event, table.their, self._flavor)
        except Exception as error:  # a library's decoder raises anything
            self._differ(name, 0, "", "", "rows", _said(error))
            return
        ours, theirs = _rows(table.decoder(their.present), event), _guarded(their.rows())
        try:
            for number, (mine, other) in enumerate(zip_longest(ours, theirs), 1):
                if isinstance(other, Exception):
                    self._unread(table, mine, ours, number, other)
                    return
                if mine is None or other is None:
                    has = ("no row", "a row") if mine is None else ("a row", "no row")
                    self._differ(name, number, "", "", *has)
                    return
                self._report.rows += 1
                for side, image in (("before", other.before), ("after", other.after)):
                    self._compare_images(table, number, side, mine[side], image)
        except DecodeError as error:
            self._report.not_compared[f"{error.code}: {error.what}"] += 1
        except _DAMAGED as error:
            self._differ(name, 0, "", "", _said(error), "rows")

    def _compare_images(
        self, table: _Table, number: int, side: str, mine: dict[str, Any] | None, their: TheirImage | None
    ) -> None:
        name = table.structure.name
        if mine is None or their is None:
            if (mine is None) != (their is None):
                has = ["an image" if image is not None else "no image" for image in (mine, their)]
                self._differ(name, number, side, "", *has)
            return
        for i, column in enumerate(table.structure.columns):
            if not their.has(i):
                # What an after image lacks is as it was before, and is published so.
                if side == "before" and column.name in mine:
                    self._differ(name, number, side, column.name, mine[column.name], "not in the event")
                continue
            if column.name not in mine:
                self._differ(name, number, side, column.name, "not in the event", their.values[column.name])
                continue
            self._report.values += 1
            value, their_column = mine[column.name], table.their.table.columns[i]
            ours = our_form(column, value)
            encoding = table.their.encodings[i]
            theirs = their_form(column, their.values[column.name], ours, encoding, their_column.set_values)
            if is_same(ours, theirs):
                continue
            if known := known_difference(column, value, theirs, their_column):
                self._report.known[known] += 1
            else:
                self._differ(name, number, side, column.name, ours, theirs)

    def _unread(
        self, table: _Table, mine: Images | None, rest: Iterator[Images], number: int, error: Exception
    ) -> None:
        """The library gave an event up."""
        images = [image for row in (mine, *rest) if row is not None for image in row.values() if image]
        for column in table.structure.columns:
            values = (image[column.name] for image in images if column.name in image)
            if reason := next(filter(None, (cannot_be_read(column, value) for value in values)), ""):
                self._report.not_compared[reason] += 1
                return
        self._differ(table.structure.name, number, "", "", "a row", _said(error))

    def _differ(self, table: str, row: int, image: str, column: str, ours: Any, theirs: Any) -> None:
        report = self._report
        report.different += 1
        if len(report.differences) < _MOST_DIFFERENCES:
            place = (self._file, self._position, table, row, image, column)
            report.differences.append(Difference(*place, ours, theirs))


def _events(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        size = framing.header(data, at).size
        yield at, data[at : at + size]
        at += size


def _rows(table: RowsTable, event: bytes) -> Iterator[Images]:
    for rows, _ in decoded_rows(table, event[4], event):
        yield from rows


def _guarded(rows: Iterator[Any]) -> Iterator[Any]:
    """The library's rows, and at the end the error that it gave up with."""
    try:
        yield from rows
    except Exception as error:  # a library's decoder raises anything
        yield error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _unnamed(event: TableMap) -> TableStructure:
    """The structure of a table as far as a TABLE_MAP without names tells: columns and members by their numbers."""
    columns, _, has_charsets = stated_columns(event)
    named = (_numbered(column, f"@{i}", has_charsets) for i, column in enumerate(columns, 1))
    return TableStructure(event.db, event.table, tuple(replace(c, sql_type=sql_type(c)) for c in named))


def _numbered(column: Column, name: str, has_charset: bool) -> Column:
    has_members = column.code in (ENUM, SET)
    if has_members or (column.code in CHARACTER and not has_charset):
        column = replace(column, charset="utf8mb4" if has_members else _UNTOLD_CHARSET)
    column = replace(column, name=name)
    check_column(column)
    if not has_members:
        return column
    count = (1 << 8 * column.meta) - 1 if column.code == ENUM else 8 * column.meta
    return replace(column, members=tuple(map(str, range(1, count + 1))))
