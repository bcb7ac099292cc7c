"""Finds out from the epoch log which rows may have changed between two positions. Its answers err on the safe side."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal, InvalidOperation
from typing import Any

from schemas.wire.epoch import BEGIN, END, EpochCommitted
from spark_consumer.epochs.log_reader import LogReader
from tailrace.compare.catalog import ComparedColumn
from tailrace.config.addresses import log_address
from tailrace.config.model import Config
from tailrace.reader.log import EpochReader
from tailrace.validate.protocol import Key
from tailrace.validate.tables import TablePair

_CODECS = {"utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf8": "utf-8", "ascii": "ascii"}
_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"}
_MOMENTS = {"date", "time", "datetime", "timestamp", "year"}


class History:
    """The epochs of the log, read again for each question."""

    def __init__(self, config: Config) -> None:
        log = log_address(config.kafka)
        self._log = LogReader(log)
        self._reader = EpochReader(log.bootstrap_servers, log.prefix, log.kafka_security)
        self._copying: set[tuple[str, str]] = set()
        self._looked_to: int | None = None

    def close(self) -> None:
        """Close the connection to Kafka."""
        self._reader.__exit__()

    def end(self) -> int:
        """Return the number of the last committed epoch; -1 without any."""
        found = self._log.last_epoch()
        return found.record.epoch if found else -1

    def source_id(self) -> str | None:
        """Return the id of the server that the log's last epoch comes from; None without any."""
        found = self._log.last_epoch()
        return found.record.source_id if found else None

    def has_ddl(self, offset: int, last: int) -> bool:
        """Return whether an epoch behind an offset, up to number ``last``, is a DDL."""
        return any(e.record.ddl is not None for e in self._log.epochs_after(offset) if e.record.epoch <= last)

    def touched(self, pair: TablePair, keys: Collection[Key], offset: int, last: int) -> Collection[Key]:
        """Return those keys that epochs behind an offset, up to number ``last``, may have changed."""
        tables = {(table.db, table.name) for table in pair.sources}
        moved: set[Key] = set()
        for logged in self._log.epochs_after(offset):
            if logged.record.epoch > last:
                break
            moved |= self._touched(logged.record, pair, tables, set(keys) - moved)
            if len(moved) == len(keys):
                return moved
        # While a table is copied, rows that no epoch of the range names may be missing downstream.
        return keys if tables & self._tables_in_copy(last) else moved

    def _touched(
        self, epoch: EpochCommitted, pair: TablePair, tables: set[tuple[str, str]], keys: set[Key]
    ) -> set[Key]:
        if epoch.ddl is not None or (epoch.copy and (epoch.copy.db, epoch.copy.table) in tables):
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
                    # An image may lack columns; the record's key has those that the producer's key has.
                    names = {name.lower(): value for name, value in {**row.key, **image}.items()}
                    parts = (names.get(column.name.lower(), _UNKNOWN) for column in columns)
                    found |= _matching(wanted, tuple(map(_of_log, columns, parts)))
        return found

    def _tables_in_copy(self, last: int) -> set[tuple[str, str]]:
        """Return the tables that are being copied at the end of the log."""
        start = None if self._looked_to is None else self._looked_to + 1
        for logged in self._log.epochs(start):
            self._looked_to = logged.offset
            if (step := logged.record.copy) is None:
                continue
            if step.step == BEGIN:
                self._copying.add((step.db, step.table))
            elif step.step == END:
                self._copying.discard((step.db, step.table))
        return self._copying


#: stands for a part of a key that cannot be compared; it may be any value
_UNKNOWN = object()


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
