"""Finds out from the epoch log which rows may have changed between two positions. Its answers err on the safe side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Set
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
from tailrace.validate.protocol import Key
from tailrace.validate.tables import StructureChanged, TablePair

_CODECS = {"utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf8": "utf-8", "ascii": "ascii"}
#: the codec of text that the log has as a string, but not of its control characters
_WINDOWS = {"latin1": "cp1252"}
_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"}
_MOMENTS = {"date", "time", "datetime", "timestamp", "year"}


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

    def touched(self, pair: TablePair, keys: Collection[Key], offset: int, last: int) -> Collection[Key]:
        """Return those keys that epochs behind an offset, up to number ``last``, may have changed.

        Raises StructureChanged if DDL has changed a table since its structure was read.
        """
        self.check_structure(pair.concerns, pair.since)
        tables = pair.source_names
        moved: set[Key] = set()
        for logged in self.epochs(offset, last):
            if len(moved) == len(keys):
                break
            moved |= self._touched(logged.record, pair, tables, set(keys) - moved)
        return moved

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
                    parts = map(_key_part, pair.sources[0].key, _key_values(pair, row.key, image))
                    key = tuple(part for part in parts if part is not None)
                    if len(key) == len(pair.sources[0].key):
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

    def _touched(
        self, epoch: EpochCommitted, pair: TablePair, tables: Set[QualifiedName], keys: set[Key]
    ) -> set[Key]:
        if epoch.for_new_channels:
            return set()
        if epoch.ddl is not None and pair.concerns(epoch.ddl):
            return keys
        if any((table.db, table.table) in pair.parents for table in epoch.tables):
            return keys
        here = [table for table in epoch.tables if (table.db, table.table) in tables]
        if not here:
            return set()
        if pair.division == "whole" or any(table.incomplete for table in here):
            return keys
        columns = pair.sources[0].key
        wanted: dict[tuple[Any, ...], set[Key]] = {}
        for key in keys:
            wanted.setdefault(tuple(map(_of_server, columns, key)), set()).add(key)
        found: set[Key] = set()
        for row in self._reader.rows(epoch, lambda db, table: (db, table) in tables):
            for image in (row.before, row.after):
                if image is not None:
                    values = _key_values(pair, row.key, image)
                    found |= _matching(wanted, tuple(map(_of_log, columns, values)))
        return found


#: stands for a part of a key that cannot be compared; it may be any value
_UNKNOWN = object()


def _key_values(pair: TablePair, key: Image, image: Image) -> list[Any]:
    """Return the log's values of a key. An image may lack columns; the record's key has those of the producer's."""
    names = {name.lower(): value for name, value in {**key, **image}.items()}
    return [names.get(column.name.lower(), _UNKNOWN) for column in pair.sources[0].key]


def _matching(wanted: dict[tuple[Any, ...], set[Key]], key: tuple[Any, ...]) -> set[Key]:
    if _UNKNOWN not in key and not any(_UNKNOWN in one for one in wanted):
        return wanted.get(key, set())
    return {
        name
        for one, names in wanted.items()
        if all(a is _UNKNOWN or b is _UNKNOWN or a == b for a, b in zip(one, key, strict=True))
        for name in names
    }


def _of_server(column: ComparedColumn, value: bytes) -> Any:
    """Return a key's part, as a server sends it, in a form to compare with the log's."""
    kind = column.data_type
    try:
        if kind in _NUMBERS:
            return Decimal(value.decode())
        if kind in _MOMENTS:
            return value.decode()
        if kind == "bit":
            return int.from_bytes(value, "big")
    except (ValueError, InvalidOperation):
        return _UNKNOWN
    if kind in ("binary", "varbinary"):
        return value
    return value.rstrip(b" ") if column.charset in _CODECS and not column.members else _UNKNOWN


def _of_log(column: ComparedColumn, value: Any) -> Any:
    """Return a key's part of the log in the same form; docs/TYPES.md has the log's."""
    kind = column.data_type
    if value is _UNKNOWN or value is None:
        return _UNKNOWN
    if kind in ("float", "double"):
        return Decimal(repr(value)) if isinstance(value, int | float) else _UNKNOWN
    if kind in _NUMBERS:
        return Decimal(value)
    if kind in _MOMENTS:
        return str(value)
    if kind == "bit":
        return int.from_bytes(value, "big")
    if kind in ("binary", "varbinary"):
        return value
    if column.charset not in _CODECS or column.members:
        return _UNKNOWN
    data = value if isinstance(value, bytes) else str(value).encode(_CODECS[column.charset], "replace")
    return data.rstrip(b" ")


def _key_part(column: ComparedColumn, value: Any) -> bytes | None:
    """Return a key's part of the log as a server sends it; None if that is not certain."""
    kind = column.data_type
    if value is _UNKNOWN or value is None or column.members or kind in ("float", "double"):
        return None
    if isinstance(value, bytes):
        return value  # in the column's character set
    if kind in _NUMBERS:
        return f"{Decimal(value):f}".encode()
    if kind in _MOMENTS or value.isascii():
        return str(value).encode()
    try:
        return str(value).encode(_CODECS.get(column.charset) or _WINDOWS[column.charset])
    except (LookupError, UnicodeEncodeError):
        return None
