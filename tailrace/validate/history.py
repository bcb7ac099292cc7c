"""Finds out from the epoch log which rows may have changed between two positions. Its answers err on the safe side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from decimal import Decimal, InvalidOperation
from itertools import takewhile
from typing import Any

from producer.copy.state import Plan, Step, TableCopy, load
from schemas.tables import QualifiedName
from schemas.wire.epoch import EpochCommitted, SchemaChanged
from spark_consumer.apply.tables.validation import ProvedPosition
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.slices import LoggedEpoch
from tailrace.reader.log import EpochReader
from tailrace.reader.rows import Image
from tailrace.validate.catalog import ComparedColumn
from tailrace.validate.protocol import Key, Row, Rows
from tailrace.validate.tables import StructureChanged, TablePair

_CODECS = {"utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf8": "utf-8", "ascii": "ascii"}
#: the codec of text that the log has as a string, but not of its control characters
_WINDOWS = {"latin1": "cp1252"}
_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"}
_MOMENTS = {"date", "time", "datetime", "timestamp", "year"}
# Servers send them in another form in a row than in a key.
_INEXACT = {"float", "double", "bit"}


TRUNCATE = "TRUNCATE"
#: how the keys of copies begin in the tracked topic
_COPY = b'["copy",'


class BeingCopied(Exception):
    """Rows of the table may be missing downstream, because a copy of it is not complete there."""


class History:
    """The epochs of the log. Their rows are read again for each question, their DDL once."""

    def __init__(self, log: LogReader, reader: EpochReader) -> None:
        self._log, self._reader = log, reader
        self._copies: dict[bytes, bytes] = {}
        self._copies_read = 0
        self._first: int | None = None
        self._next = 0
        self._statements: list[tuple[int, SchemaChanged]] = []

    def end(self) -> int:
        """Return the number of the last committed epoch; -1 without any."""
        found = self._log.last_epoch()
        return found.record.epoch if found else -1

    def source_id(self) -> str | None:
        """Return the id of the server that the log's last epoch comes from; None without any."""
        found = self._log.last_epoch()
        return found.record.source_id if found else None

    def statements(self, offset: int) -> Iterator[tuple[int, SchemaChanged]]:
        """Yield the DDL of all epochs behind an offset, with the epochs' offsets."""
        self._read_on(offset)
        return ((at, ddl) for at, ddl in self._statements if at > offset)

    def _read_on(self, offset: int) -> None:
        """Read epochs up to the end of the log, from an offset on or from where they are known already."""
        if self._first is None or offset < self._first:
            self._first = self._next = offset
            self._statements = []
        for logged in self._log.epochs_after(self._next):
            self._next = logged.offset
            if (ddl := logged.record.ddl) is not None and not logged.record.for_new_channels:
                self._statements.append((logged.offset, ddl))

    def touched(self, pair: TablePair, rows: Rows, offset: int, last: int) -> Collection[Key]:
        """Return those keys that epochs behind an offset, up to number ``last``, may have changed.

        Args:
            rows: what both servers have for each key.

        Raises:
            StructureChanged: DDL has changed a table since its structure was read.
        """
        self.check_structure(pair.concerns, pair.since)
        found = _InQuestion(pair, rows)
        for logged in self.epochs(offset, last):
            if not found.keys:
                break
            self._touch(logged.record, pair, found)
        return rows.keys() - found.keys

    def continues(self, before: ProvedPosition, now: ProvedPosition) -> bool:
        """Return whether the log has everything between a former position of the channel and the present one."""
        is_before = before.log_id == now.log_id and before.epoch <= now.epoch
        return is_before and self._log.bounds()[0] <= before.offset + 1

    def epochs(self, offset: int, last: int) -> Iterator[LoggedEpoch]:
        """Yield the epochs behind an offset, up to number ``last``."""
        return takewhile(lambda logged: logged.record.epoch <= last, self._log.epochs_after(offset))

    def changed_keys(
        self, epoch: EpochCommitted, pairs: Mapping[QualifiedName, TablePair]
    ) -> Iterator[tuple[TablePair, Key]]:
        """Yield the keys of the rows that an epoch changes, as servers send them, with the pair of their table.

        Rows are left out if a part of their key cannot be written as servers do: FLOAT, DOUBLE, ENUM and SET.

        Args:
            pairs: the wanted tables with a common key, by their upstream names.
        """
        for row in self._reader.rows(epoch, lambda db, table: (db, table) in pairs):
            pair = pairs[row.db, row.table]
            for image in (row.before, row.after):
                if image is not None:
                    columns = pair.sources[0].key
                    parts = map(_key_part, columns, _values(columns, row.key, image))
                    key = tuple(part for part in parts if part is not None)
                    if len(key) == len(columns):
                        yield pair, key

    def check_structure(self, concerns: Callable[[SchemaChanged], bool], offset: int) -> None:
        """Raise StructureChanged if DDL behind an offset concerns a table; TRUNCATE changes rows only."""
        for _, ddl in self.statements(offset):
            if ddl.kind != TRUNCATE and concerns(ddl):
                raise StructureChanged(ddl.kind)

    def was_copied(self, table: QualifiedName, since: int, epoch: int) -> bool:
        """Return whether a copy of an upstream table ended behind an epoch, and not behind another one."""
        _, copies = self._read_copies()
        return table in copies and copies[table].step is Step.DONE and since < copies[table].ended <= epoch

    def check_complete(self, tables: Set[QualifiedName], epoch: int, *, is_new: bool) -> None:
        """Raise BeingCopied if a copy of upstream tables is not complete behind an epoch.

        Args:
            is_new: whether the channel is in a copy for new channels, with which it began.
        """
        if is_new:
            raise BeingCopied
        plan, copies = self._read_copies()
        if plan is not None and not plan.objects and not plan.for_new:
            raise BeingCopied
        if any(copies[name].is_incomplete_at(epoch) for name in tables & copies.keys()):
            raise BeingCopied

    def _read_copies(self) -> tuple[Plan | None, dict[QualifiedName, TableCopy]]:
        for offset, key, value in self._log.tracked(self._copies_read):
            self._copies_read = offset + 1
            if value is None or key is None:
                self._copies.pop(key or b"", None)
            elif key.startswith(_COPY):
                self._copies[key] = value
        return load(self._copies)

    def _touch(self, epoch: EpochCommitted, pair: TablePair, found: _InQuestion) -> None:
        if epoch.for_new_channels:
            return
        tables = pair.source_names
        here = [table for table in epoch.tables if (table.db, table.table) in tables]
        if (
            (epoch.ddl is not None and pair.concerns(epoch.ddl))
            or any((table.db, table.table) in pair.parents for table in epoch.tables)
            or any(table.incomplete for table in here)
        ):
            found.keys.clear()
        elif here:
            for row in self._reader.rows(epoch, lambda db, table: (db, table) in tables):
                for image in (row.before, row.after):
                    if image is not None:
                        found.changed(row.key, image)


#: stands for a value that cannot be compared; it may be any
_UNKNOWN = object()


class _InQuestion:
    """Rows of which the log's images are compared with what servers send: by their keys, or by all columns without one.

    Attributes:
        keys: of those that no image has changed so far.
    """

    def __init__(self, pair: TablePair, rows: Rows) -> None:
        self.keys = set(rows)
        if pair.division == "whole":
            self._columns = _comparable(pair)
            compared = {key: _of_row(pair, self._columns, some[0]) for key, some in rows.items()}
        else:
            self._columns = pair.sources[0].key
            compared = {key: tuple(map(_of_server, self._columns, key)) for key in rows}
        self._by_values: dict[tuple[Any, ...], set[Key]] = {}
        for key, values in compared.items():
            self._by_values.setdefault(values, set()).add(key)
        self._is_exact = not any(_UNKNOWN in values for values in self._by_values)

    def changed(self, key: Image, image: Image) -> None:
        """Take out the rows that an image of the log may be."""
        values = tuple(map(_of_log, self._columns, _values(self._columns, key, image)))
        self.keys -= self._matching(values)

    def _matching(self, values: tuple[Any, ...]) -> set[Key]:
        if self._is_exact and _UNKNOWN not in values:
            return self._by_values.get(values, set())
        return {
            key
            for one, keys in self._by_values.items()
            if all(a is _UNKNOWN or b is _UNKNOWN or a == b for a, b in zip(one, values, strict=True))
            for key in keys
        }


def _comparable(pair: TablePair) -> tuple[ComparedColumn, ...]:
    """Return the columns by which rows without a common key are told apart: both servers and the log agree on them."""
    both = zip(pair.sources[0].columns, pair.target.columns, strict=True)
    return tuple(
        a
        for a, b in both
        if a.data_type == b.data_type
        and a.data_type not in _INEXACT
        and a.name.lower() not in pair.converted | pair.documents
    )


def _of_row(pair: TablePair, columns: Sequence[ComparedColumn], row: Row) -> tuple[Any, ...]:
    values = dict(zip((column.name for column in pair.sources[0].columns), row, strict=True))
    found = ((column, values[column.name]) for column in columns)
    return tuple(None if value is None else _of_server(column, value) for column, value in found)


def _values(columns: Sequence[ComparedColumn], key: Image, image: Image) -> list[Any]:
    """Return the log's values of columns. An image may lack some; the record's key has those of the producer's."""
    names = {name.lower(): value for name, value in {**key, **image}.items()}
    return [names.get(column.name.lower(), _UNKNOWN) for column in columns]


def _of_server(column: ComparedColumn, value: bytes) -> Any:
    """Return a value, as a server sends it, in a form to compare with the log's."""
    kind = column.data_type
    try:
        if kind in _NUMBERS:
            return Decimal(value.decode())
        if kind in _MOMENTS:
            return _moment(value.decode())
        if kind == "bit":
            return int.from_bytes(value, "big")
    except (ValueError, InvalidOperation):
        return _UNKNOWN
    if kind in ("binary", "varbinary"):
        return value
    return value.rstrip(b" ") if column.charset in _CODECS and not column.members else _UNKNOWN


def _of_log(column: ComparedColumn, value: Any) -> Any:
    """Return a value of the log in the same form; docs/TYPES.md has the log's."""
    kind = column.data_type
    if value is _UNKNOWN or value is None:
        return value
    if kind in ("float", "double"):
        return Decimal(repr(value)) if isinstance(value, int | float) else _UNKNOWN
    if kind in _NUMBERS:
        return Decimal(value)
    if kind in _MOMENTS:
        return _moment(str(value))
    if kind == "bit":
        return int.from_bytes(value, "big")
    if kind in ("binary", "varbinary"):
        return value
    if column.charset not in _CODECS or column.members:
        return _UNKNOWN
    data = value if isinstance(value, bytes) else str(value).encode(_CODECS[column.charset], "replace")
    return data.rstrip(b" ")


def _moment(text: str) -> str:
    """Return a time's text without zeros at the end of its fraction, of which the servers may show more or fewer."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _key_part(column: ComparedColumn, value: Any) -> bytes | None:
    """Return a key's part of the log as a server sends it; None if that is not certain."""
    kind = column.data_type
    if value is _UNKNOWN or value is None or column.members or kind in ("float", "double"):
        return None
    if isinstance(value, bytes):
        return value  # in the column's character set
    if kind in _NUMBERS:
        return f"{Decimal(value):f}{column.padding}".encode()
    if kind in _MOMENTS or value.isascii():
        return f"{value}{column.padding}".encode()
    try:
        return str(value).encode(_CODECS.get(column.charset) or _WINDOWS[column.charset])
    except (LookupError, UnicodeEncodeError):
        return None
