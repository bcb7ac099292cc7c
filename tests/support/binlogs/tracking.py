"""Tracks tables' structures through the DDL that a server has logged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from compose.databases import Database
from producer.events.query_event import epoch_ddl, parse_query_event
from producer.structures.interpret import Catalog, Unresolved, created, ddl_changes
from schemas.binlog.framing import CHECKSUM_SIZE, HEADER_SIZE, QUERY
from schemas.charsets.collations import CHARSETS
from schemas.ddl.classify import classify
from schemas.ddl.column_types import DdlContext
from schemas.ddl.kinds import Category
from schemas.ddl.table_definition import TableDefinition
from tests.support.binlogs.binlog_rows import binlog_end

_TABLE_MAP = 19
_MODES = "SET SESSION sql_mode = '', foreign_key_checks = 0"
# Statements that the tracker does not follow, because servers differ or the text is not sufficient.
_LEFT_OPEN = (
    "it names two character sets",
    "the members of ",
    "which of the keys the server has named ",
    "whether the key ",
    "a unique key of a column of geometry",
)


class Tracker:
    """Executes DDL on a server, and tracks it from the server's binlog."""

    def __init__(self, upstream: Database, cursor: Any, db: str) -> None:
        self.flavor, self.cursor, self.db = upstream.flavor, cursor, db
        self.catalog = Catalog({}, {}, complete=True)
        self.log: list[str] = []
        self._upstream, self._begin = upstream, binlog_end(upstream)

    def begin(self, db: str) -> None:
        """Create a database and continue in it."""
        self.cursor.execute(f"DROP DATABASE IF EXISTS {db}")
        self.db, self.log = db, []
        assert self.run(f"CREATE DATABASE {db}")
        self.cursor.execute(f"USE {db}")

    def run(self, statement: str) -> bool:
        """Execute a statement. Return False if the server refuses it."""
        try:
            self.cursor.execute(statement)
        except Exception:
            statement = ""
        for kind, body in self.logged():
            if kind == QUERY and not self._track(body):
                self.begin(self.db)
        self.log += [statement] if statement else []
        return bool(statement)

    def logged(self) -> Iterator[tuple[int, bytes]]:
        """Return type and body of each event since the last call."""
        file, at = self._begin
        data = (self._upstream.data / file).read_bytes()[at:]
        self._begin = file, at + len(data)
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at + 9 : at + 13], "little")
            yield data[at + 4], data[at + HEADER_SIZE : at + size - CHECKSUM_SIZE]
            at += size

    def _track(self, body: bytes) -> bool:
        """Track the events. Return False for a statement that failed halfway, at which a producer stops."""
        query = parse_query_event(body)
        mode = query.sql_mode or 0
        found = classify(query.statement, query.default_db, self.flavor, sql_mode=mode)
        assert found.category not in (Category.UNKNOWN, Category.DML), (query.statement, found)
        if query.error_code or found.category is not Category.DDL:
            return not query.error_code
        change = epoch_ddl(query, found, self.flavor, 0)
        server = CHARSETS[change.collation_server] if change.collation_server else None
        explicit = change.explicit_defaults_for_timestamp
        session = DdlContext(self.flavor, change.default_db, mode, explicit, server)
        changes = ddl_changes(change.statement, found, session, self.catalog)
        for name, table in changes.tables.items():
            if table is None:
                self.catalog.tables.pop(name, None)
            else:
                self.catalog.tables[name] = table
        for database, charset in changes.databases.items():
            if charset is not None:
                self.catalog.databases[database] = charset
        return True

    def check(self) -> None:
        """Assert that every table is tracked as SHOW CREATE TABLE shows it."""
        self.cursor.execute("SET SESSION sql_mode = ''")
        self.cursor.execute(
            "SHOW FULL TABLES WHERE Table_type IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE')"
        )
        names = [row[0] for row in self.cursor.fetchall()]
        assert sorted(names) == sorted(t for db, t in self.catalog.tables if db == self.db), self.log
        plain = DdlContext(self.flavor, self.db, 0, True, from_show_create=True)
        for name in names:
            self.cursor.execute(f"SHOW CREATE TABLE `{name}`")
            text = self.cursor.fetchone()[1]
            tracked = self.catalog.tables[self.db, name]
            if isinstance(tracked, Unresolved):
                assert tracked.reason.startswith(_LEFT_OPEN), (tracked, self.log)
            elif not text.startswith("CREATE SEQUENCE"):
                shown = created(text, plain)
                assert _comparable(_filled(tracked, shown)) == _comparable(shown), (text, self.log)


def _comparable(table: TableDefinition) -> tuple[Any, ...]:
    """Return a table without the lengths of TEXT(n), which the statement alone does not determine."""
    columns = [replace(c, length=None) if c.type in ("text", "blob") else c for c in table.columns]
    keys = [key for key in table.keys if key.kind != "other"]
    return columns, [(key.name.lower(), key.kind, key.parts) for key in keys], table.charset, table.row_key()


def _filled(tracked: TableDefinition, shown: TableDefinition) -> TableDefinition:
    """Return a table with the server's character sets if MariaDB's text of CREATE … SELECT has none."""
    pairs = zip(tracked.columns, shown.columns, strict=True)
    columns = tuple(replace(c, charset=s.charset if c.charset is None else c.charset) for c, s in pairs)
    return replace(
        tracked, columns=columns, charset=shown.charset if tracked.charset is None else tracked.charset
    )


def table_maps(server: Database, begin: tuple[str, int]) -> Iterator[bytes]:
    """Return the bodies of the TABLE_MAP events after ``begin`` in the same file."""
    file, at = begin
    data = (server.data / file).read_bytes()
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        if data[at + 4] == _TABLE_MAP:
            yield data[at + 27 : at + size - 4]
        at += size


@contextmanager
def tracker_in(upstream: Database, db: str) -> Iterator[Tracker]:
    """Yield a tracker in a database of its own."""
    upstream.execute(f"DROP DATABASE IF EXISTS {db}")
    try:
        with upstream.connect() as connection, connection.cursor() as cursor:
            tracker = Tracker(upstream, cursor, db)
            cursor.execute(_MODES)
            assert tracker.run(f"CREATE DATABASE {db}")
            cursor.execute(f"USE {db}")
            yield tracker
    finally:
        upstream.execute(f"DROP DATABASE IF EXISTS {db}")
