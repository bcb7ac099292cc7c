"""The structures at the position where the log is being read: first read from the upstream, then changed by DDL.

Of each table it holds what is known *now*, and what was read from the upstream *later*: at a position
that is still ahead. That one is in force from there on, and before it as far back as no DDL touches the
table. Each change is written with the epoch in which it came about, so after any crash the structures are those
of the last committed epoch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import structlog

from producer.events.table_map import TableMap, full_structure, read_table_map
from producer.structures.forms import SET_HINT, completed, definition_of, matched, predicted
from producer.structures.interpret import Catalog, Tracked, Unresolved, ddl_changes
from relay_store.layout.directory import RelayPosition, file_number, subdir_uuid
from schemas.charsets.collations import CHARSETS
from schemas.ddl.column_types import DdlContext
from schemas.ddl.kinds import ClassifiedStatement
from schemas.ddl.lexer import Flavor
from schemas.ddl.table_definition import TableDefinition
from schemas.errors import DecodeError, TailraceError
from schemas.gtid.sets import GtidTracker
from schemas.structure import TableStructure
from schemas.tables import QualifiedName, TableFilter
from schemas.wire.epoch import SchemaChanged

log = structlog.get_logger()


class BinlogPosition(NamedTuple):
    """A position in the binlog of one server; only those of the same server can be compared."""

    server: str
    number: int
    pos: int

    def reached(self, other: BinlogPosition) -> bool:
        """Whether this position is at or after the other one."""
        return self.server == other.server and self[1:] >= other[1:]


@dataclass(frozen=True)
class UpstreamSnapshot:
    """Tables and databases read from the upstream at an unknown moment between two binlog positions.

    Attributes:
        since: the last position before the reading.
        position: the first position after it.
        whole: whether all replicated tables were asked for, and all could be read.
    """

    since: BinlogPosition
    position: BinlogPosition
    tables: dict[QualifiedName, Tracked]
    databases: dict[str, str]
    whole: bool


class ReadPosition(NamedTuple):
    """Where the log is being read: the event's position, and what was executed before its group."""

    relay: RelayPosition
    tracker: GtidTracker

    @property
    def binlog_position(self) -> BinlogPosition:
        """The same in the upstream's binlog."""
        file, pos = self.relay.upstream
        return BinlogPosition(subdir_uuid(self.relay.subdir), file_number(file), pos)


class Upstream(Protocol):
    """Source of structures that the log's DDL does not provide."""

    def read(self) -> UpstreamSnapshot:
        """All tables that are replicated. Raises UpstreamError."""
        ...

    def read_one(self, name: QualifiedName) -> UpstreamSnapshot:
        """One table, however long it takes to reach the upstream. Raises UpstreamError if it refuses."""
        ...

    def is_current_server(self, position: BinlogPosition) -> bool:
        """Whether a position is one of the server that is the upstream now."""
        ...

    def engine(self, name: QualifiedName) -> str | None:
        """The storage engine that a table has now; None if unavailable."""
        ...

    def touched(self, since: ReadPosition, until: BinlogPosition) -> set[QualifiedName]:
        """Tables changed by DDL between two positions.

        ``(db, "")`` stands for all tables of a database, ``("", "")`` for all there are.
        """
        ...


@dataclass(frozen=True)
class Later:
    """A structure that is in force from a later position on, if no DDL on the table comes after ``since``."""

    since: BinlogPosition
    position: BinlogPosition
    table: Tracked


@dataclass
class _TableEntry:
    now: Tracked | None = None
    later: Later | None = None


@dataclass
class _State:
    tables: dict[QualifiedName, _TableEntry] = field(default_factory=dict)
    databases: dict[str, str] = field(default_factory=dict)
    seeded: bool = False


#: key of the record that says that all tables were read once
SEEDED = b"[]"


def topic_key(*name: str) -> bytes:
    """The key of a table's or a database's record."""
    return json.dumps(name, ensure_ascii=False, separators=(",", ":")).encode()


class Structures:
    """The tracked structures of one log.

    Args:
        stored: the records of the last committed epoch, by ``topic_key``.
        upstream: where to read structures; None where there is no upstream.
    """

    def __init__(
        self,
        flavor: Flavor,
        tables: TableFilter,
        stored: Mapping[bytes, bytes],
        upstream: Upstream | None,
    ) -> None:
        self._flavor, self._tables, self._upstream = flavor, tables, upstream
        self._state = _loaded(stored)
        self._changed: dict[bytes, bytes | None] = {}

    @property
    def seeded(self) -> bool:
        """Whether all tables were read from the upstream at some time."""
        return self._state.seeded

    def take_changes(self) -> tuple[tuple[bytes, bytes | None], ...]:
        """Return and clear the changed records; None marks a deleted one."""
        changed, self._changed = tuple(self._changed.items()), {}
        return changed

    # -- from the upstream -----------------------------------------------------------------------

    def seed(self) -> None:
        """Read all tables from the upstream. They are valid from there on, and before if no DDL lies between.

        Raises:
            UpstreamError: it cannot be read just now.
        """
        if self._upstream is None:
            return
        reading = self._upstream.read()
        for name, table in reading.tables.items():
            entry = self._state.tables.setdefault(name, _TableEntry())
            entry.later = Later(reading.since, reading.position, table)
            self._note(name)
        for database, charset in reading.databases.items():
            self._set_database(database, self._state.databases.get(database, charset))
        self._state.seeded = self._state.seeded or reading.whole
        self._changed[SEEDED] = b"true" if self._state.seeded else b"false"
        log.info("structures_read", tables=len(reading.tables))

    # -- row events ------------------------------------------------------------------------------

    def structure(self, body: bytes, here: ReadPosition) -> TableStructure:
        """Return the structure for a TABLE_MAP, completed from the tracked one if needed.

        Raises:
            DecodeError: TR418 not known, TR419 the tracked one does not fit.
            UpstreamError: the structure had to be read from the upstream, and could not be.
        """
        event = read_table_map(body, self._flavor)
        if event.full and not event.old_temporal:
            return self._stated(event, here)
        name = (event.db, event.table)
        entry = self._entry(name, here)
        table = entry.now
        if not isinstance(table, TableDefinition):
            table = self._resolve(event, name, entry, here)
        found = matched(event, table, self._flavor)
        if event.full:
            self._agree(event, found)
        self._refresh(name, entry, completed(table, list(found.columns)))
        return found

    def _agree(self, event: TableMap, found: TableStructure) -> None:
        """What the TABLE_MAP does say of old temporal tables must be what is tracked."""
        names = [column.name for column in full_structure(event).columns]
        if names != [column.name for column in found.columns]:
            raise DecodeError(
                "TR419",
                "the tracked structure does not match the rows: different column names",
                where=event.where,
                hint=SET_HINT.format(table=event.where.table),
            )

    def _stated(self, event: TableMap, here: ReadPosition) -> TableStructure:
        """Full metadata: the event is right in any case, and what is tracked follows it."""
        stated = full_structure(event)
        name = (event.db, event.table)
        entry = self._entry(name, here)
        if isinstance(entry.now, TableDefinition):
            try:
                if matched(event, entry.now, self._flavor) == stated:
                    self._refresh(name, entry, completed(entry.now, list(stated.columns)))
                    return stated
            except DecodeError as error:
                log.info("tracked_structure_replaced", table=stated.name, reason=error.message)
        self._refresh(name, entry, definition_of(stated))
        return stated

    def _refresh(self, name: QualifiedName, entry: _TableEntry, table: TableDefinition) -> None:
        if entry.now != table:
            entry.now = table
            self._note(name)

    def _entry(self, name: QualifiedName, here: ReadPosition) -> _TableEntry:
        """What is known of a table; what was read ahead is in force once its position is reached."""
        entry = self._state.tables.setdefault(name, _TableEntry())
        if entry.later is not None and here.binlog_position.reached(entry.later.position):
            entry.now, entry.later = entry.later.table, None
            self._note(name)
        return entry

    def _resolve(
        self, event: TableMap, name: QualifiedName, entry: _TableEntry, here: ReadPosition
    ) -> TableDefinition:
        """Find out a structure that no DDL of the log tells. Raises DecodeError TR418."""
        if self._upstream is None:
            raise _not_known(event, entry.now, "no upstream is available")
        later = entry.later
        if (
            later is None
            or isinstance(later.table, Unresolved)
            or not self._upstream.is_current_server(later.position)
        ):
            reading = self._upstream.read_one(name)
            if name not in reading.tables:
                raise _not_known(event, entry.now, "the upstream no longer has this table")
            later = Later(reading.since, reading.position, reading.tables[name])
        if isinstance(later.table, Unresolved):
            raise _not_known(event, entry.now, later.table.reason)
        touched = self._upstream.touched(here, later.position)
        if touched & _all_of(name):
            raise _not_known(
                event,
                entry.now,
                "DDL changed the table after these rows, before it was read from the upstream",
            )
        entry.later = later
        self._activate_at(later.position, touched)
        return later.table

    def _activate_at(self, position: BinlogPosition, touched: set[QualifiedName]) -> None:
        """All that was read at a position is in force already, but for what DDL changes on the way there."""
        for name, entry in list(self._state.tables.items()):
            if entry.later is not None and entry.later.position == position and not touched & _all_of(name):
                entry.now, entry.later = entry.later.table, None
                self._note(name)

    # -- DDL -------------------------------------------------------------------------------------

    def apply(self, change: SchemaChanged, found: ClassifiedStatement, here: ReadPosition) -> None:
        """Apply a DDL to the tracked structures."""
        self._meet(change, found, here)
        known = {name: _known_now(entry) for name, entry in self._state.tables.items()}
        tables = {name: table for name, table in known.items() if table is not None}
        catalog = Catalog(tables, self._state.databases, self._state.seeded)
        changes = ddl_changes(change.statement, found, self._session(change), catalog)
        for name, table in changes.tables.items():
            if not self._tables.allows(*name):
                continue
            if isinstance(table, Unresolved):
                table = replace(
                    table, statement=change.statement[:1000], place=table.place or str(here.relay)
                )
            self._state.tables.setdefault(name, _TableEntry()).now = table
            self._note(name)
        for database, charset in changes.databases.items():
            self._set_database(database, charset)

    def _meet(self, change: SchemaChanged, found: ClassifiedStatement, here: ReadPosition) -> None:
        """Activate structures that become valid here; drop those read while this DDL may have been running."""
        for name in list(self._state.tables):
            # Also those that the statement only takes over, as CREATE TABLE … LIKE does.
            self._entry(name, here)
        names = [(t.db, t.table) for t in change.tables]
        names += [(t.renamed_to_db or t.db, t.renamed_to) for t in change.tables if t.renamed_to]
        if found.kind == "DROP DATABASE":
            names += [name for name in self._state.tables if name[0] == found.database]
        for name in names:
            entry = self._entry(name, here)
            if entry.later is not None and here.binlog_position.reached(entry.later.since):
                entry.later = None
                self._note(name)

    def define(self, name: QualifiedName, table: TableDefinition) -> None:
        """A table is known to be like this here."""
        self._state.tables[name] = _TableEntry(table)
        self._note(name)

    def after(self, name: QualifiedName) -> TableStructure | None:
        """What a table's next TABLE_MAP will say, if that is known for sure."""
        entry = self._state.tables.get(name)
        if entry is None or not isinstance(entry.now, TableDefinition):
            return None
        return predicted(*name, entry.now, self._flavor)

    def _session(self, change: SchemaChanged) -> DdlContext:
        return DdlContext(
            self._flavor,
            change.default_db,
            change.mode,
            change.explicit_defaults_for_timestamp,
            CHARSETS.get(change.collation_server) if change.collation_server is not None else None,
        )

    # -- records ---------------------------------------------------------------------------------

    def _set_database(self, database: str, charset: str | None) -> None:
        if charset is None:
            self._state.databases.pop(database, None)
        else:
            self._state.databases[database] = charset
        self._changed[topic_key(database)] = None if charset is None else json.dumps(charset).encode()

    def _note(self, name: QualifiedName) -> None:
        entry = self._state.tables[name]
        empty = entry.now is None and entry.later is None
        self._changed[topic_key(*name)] = None if empty else encode_entry(entry.now, entry.later)
        if empty:
            del self._state.tables[name]


def _all_of(name: QualifiedName) -> set[QualifiedName]:
    return {name, (name[0], ""), ("", "")}


def _known_now(entry: _TableEntry) -> Tracked | None:
    if entry.now is None and entry.later is not None:
        return Unresolved("it was read from the upstream only at a later position")
    return entry.now


def _not_known(event: TableMap, now: Tracked | None, why: str) -> TailraceError:
    cause = ""
    if isinstance(now, Unresolved):
        cause = f"; since {now.place or 'a DDL'}, {now.reason}: {now.statement[:200]}"
    return DecodeError(
        "TR418",
        f"the TABLE_MAP has no column names and the table structure is unknown: {why}{cause}",
        where=event.where,
        hint=SET_HINT.format(table=event.where.table),
    )


def encode_entry(now: Tracked | None, later: Later | None = None) -> bytes:
    """The record of a table."""
    record: dict[str, Any] = {"now": _plain(now)}
    if later is not None:
        positions = {"since": list(later.since), "place": list(later.position)}
        record["later"] = {**positions, "table": _plain(later.table)}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


def loaded_entry(record: bytes) -> tuple[Tracked | None, Later | None]:
    """The inverse of ``encode_entry``. Raises ValueError, LookupError, TypeError for what is none."""
    data = json.loads(record)
    later = data.get("later")
    return _parsed(data["now"]), _ahead(later) if later else None


def check_record(key: bytes, record: bytes) -> None:
    """Raises ValueError, LookupError, TypeError for a record of the tracked topic that is none."""
    name = json.loads(key)
    if not isinstance(name, list) or len(name) > 2 or not all(isinstance(part, str) for part in name):
        raise ValueError(f"its key is {key[:100]!r}")
    if len(name) == 2:
        loaded_entry(record)
    elif type(json.loads(record)) is not (str if name else bool):
        raise ValueError("it says something else than its key")


def _plain(table: Tracked | None) -> dict[str, Any] | None:
    if isinstance(table, Unresolved):
        return {"unresolved": asdict(table)}
    return None if table is None else table.to_dict()


def _ahead(data: dict[str, Any]) -> Later:
    table, since, position = (
        _parsed(data["table"]),
        BinlogPosition(*data["since"]),
        BinlogPosition(*data["place"]),
    )
    if table is None or not all(
        isinstance(one.server, str) and type(one.number) is int and type(one.pos) is int
        for one in (since, position)
    ):
        raise ValueError("what is in force later is nothing, or at no position")
    return Later(since, position, table)


def _parsed(data: dict[str, Any] | None) -> Tracked | None:
    if data is None:
        return None
    if "unresolved" not in data:
        return TableDefinition.from_dict(data)
    unresolved = Unresolved(**data["unresolved"])
    if not all(isinstance(text, str) for text in asdict(unresolved).values()):
        raise ValueError("what is said of an unknown structure is no text")
    return unresolved


def _loaded(stored: Mapping[bytes, bytes]) -> _State:
    state = _State()
    for key, value in stored.items():
        name, data = json.loads(key), json.loads(value)
        # Other records are of copies.
        if len(name) > 2:
            continue
        if not name:
            state.seeded = data
        elif len(name) == 1:
            state.databases[name[0]] = data
        else:
            state.tables[name[0], name[1]] = _TableEntry(*loaded_entry(value))
    return state
