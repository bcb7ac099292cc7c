"""Reads table structures from the upstream, and the DDL in the relay log up to the time of reading."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import structlog
from pymysql.connections import Connection

from producer.events.compressed import plain_event, unpacked
from producer.events.query_event import in_lower_case, parse_query_event
from producer.structures.interpret import Tracked, Unresolved, created
from producer.structures.store import BinlogPosition, ReadPosition, UpstreamSnapshot
from producer.upstream.connect import connect, connected, describe, query
from relay_store.layout.directory import file_number
from relay_store.read.reader import RelayReader
from relay_store.read.tail import RelayTail
from schemas.access.server_url import ServerUrl
from schemas.binlog import framing
from schemas.binlog.groups import GroupScanner
from schemas.ddl.classify import classify
from schemas.ddl.column_types import DdlContext
from schemas.ddl.kinds import Category, ClassifiedStatement
from schemas.ddl.lexer import Flavor
from schemas.errors import RelayError, UpstreamError
from schemas.gtid.sets import parse_gtid_set
from schemas.quote import quoted
from schemas.tables import QualifiedName, TableFilter, never_replicated

log = structlog.get_logger()

_NO_SUCH_TABLE = 1146
_MAX_ANSWER = 512 << 20  # bytes: a list of a million tables has a quarter
_RETRY = 1.0  # seconds
_SILENCE = 10.0  # seconds for which an upstream that is away is not asked what may be left open
_ENGINE = "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
_GTIDS = frozenset({framing.GTID, framing.GTID_TAGGED, framing.ANONYMOUS_GTID, framing.MARIADB_GTID})
_START_ALTER, _ROLLBACK_ALTER = 2, 8
# Character sets with characters that utf8mb3 lacks; None where the definition does not tell it.
_WHOLE_UNICODE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030", None})
_FRAMES = (b"BEGIN", b"COMMIT")


class Interrupted(Exception):
    """The producer was stopped during a wait."""


class UpstreamStructures:
    """The upstream and its relay log, as ``store.Upstream``.

    Args:
        stop: ends every wait, with ``Interrupted``.
    """

    def __init__(
        self,
        url: ServerUrl,
        flavor: Flavor,
        tables: TableFilter,
        root: Path,
        tail: RelayTail,
        stop: threading.Event,
    ) -> None:
        self._url, self._flavor, self._tables = url, flavor, tables
        self._root, self._tail, self._stop = root, tail, stop
        self._silent_until = 0.0

    def read(self) -> UpstreamSnapshot:
        """All tables that are replicated."""
        return self._reading(list_tables)

    def read_one(self, name: QualifiedName) -> UpstreamSnapshot:
        """One table, however long it takes to reach the upstream."""
        while True:
            try:
                return self._reading(lambda connection: [name])
            except UpstreamError as error:
                if not error.retryable:
                    raise
                log.warning("upstream_unreachable", table=".".join(name), reason=error.message)
            if self._stop.wait(_RETRY):
                raise Interrupted

    def engine(self, name: QualifiedName) -> str | None:
        """The storage engine that a table has now; None if the upstream does not respond quickly."""
        if time.monotonic() < self._silent_until:
            return None
        try:
            with closing(connect(self._url, connect_timeout=3, read_timeout=10)) as connection:
                rows = query(connection, _ENGINE, name)
        except (UpstreamError, pymysql.err.MySQLError, OSError) as error:
            log.warning("engine_not_asked", table=".".join(name), reason=str(error))
            self._silent_until = time.monotonic() + _SILENCE
            return None
        return str(rows[0][0]) if rows and rows[0][0] else None

    def is_current_server(self, position: BinlogPosition) -> bool:
        """Whether a position is one of the server that is the upstream now."""
        return position.server == self._position().server

    def touched(self, since: ReadPosition, until: BinlogPosition) -> set[QualifiedName]:
        """The tables that DDL in the relay log touches; waits until the mirror has come as far as ``until``."""
        if since.binlog_position.reached(until):
            return set()
        scan = _Scan(self._flavor, str(since.tracker), self._tables.folds)
        reader = RelayReader(self._root, since.relay, self._tail)
        try:
            scan.enter(reader.format_description())
            while True:
                block = reader.read_block(_RETRY / 2)
                if block is not None:
                    scan.walk(block.data)
                    if ReadPosition(block.end, since.tracker).binlog_position.reached(until):
                        return scan.names
                elif self._stop.is_set():
                    raise Interrupted
                elif self._tail.closed:
                    raise RelayError(
                        "TR309", "the mirror stopped before it reached the position of a structure"
                    )
        finally:
            reader.close()

    def _position(self) -> BinlogPosition:
        while True:
            try:
                info = describe(self._url)
            except UpstreamError as error:
                if not error.retryable:
                    raise
            else:
                return BinlogPosition(info.server_uuid, file_number(info.file), info.position)
            if self._stop.wait(_RETRY):
                raise Interrupted

    def _reading(self, names: Callable[[Connection[Any]], Iterable[QualifiedName]]) -> UpstreamSnapshot:
        since = self._position()
        options = {"charset": "utf8mb4", "read_timeout": 60, "max_answer": _MAX_ANSWER}
        with connected(self._url, **options) as connection:
            prepare_to_show(connection)
            wanted = [name for name in names(connection) if self._tables.allows(*name)]
            tables = {name: found for name in wanted if (found := _table(connection, name, self._flavor))}
            rows = query(
                connection, "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA"
            )
            databases = {
                str(db): _charset(str(charset)) for db, charset in rows if not never_replicated(str(db))
            }
        whole = not any(isinstance(table, Unresolved) for table in tables.values())
        return UpstreamSnapshot(since, self._position(), tables, databases, whole)


def _charset(name: str) -> str:
    return "utf8mb3" if name == "utf8" else name


def prepare_to_show(connection: Connection[Any]) -> None:
    """SHOW CREATE TABLE is to say everything, in the quotes that are read here."""
    query(connection, "SET SESSION sql_mode = '', sql_quote_show_create = 1")
    try:
        query(connection, "SET SESSION show_gipk_in_create_table_and_information_schema = ON")
    except pymysql.err.MySQLError:
        return  # a server without generated invisible primary keys


def list_tables(connection: Connection[Any]) -> list[QualifiedName]:
    rows = query(
        connection,
        "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES"
        " WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE')",
    )
    return [(str(db), str(table)) for db, table in rows]


def _table(connection: Connection[Any], name: QualifiedName, flavor: Flavor) -> Tracked | None:
    """A table as it is; None if it is none (any more)."""
    try:
        row = query(connection, f"SHOW CREATE TABLE {quoted(*name)}")[0]
    except pymysql.err.MySQLError as error:
        if error.args[0] == _NO_SUCH_TABLE:
            return None
        if isinstance(error, pymysql.err.OperationalError) and error.args[0] > 2000 and error.args[0] < 3000:
            raise
        return Unresolved(f"the upstream does not show it: {error.args[-1]}")
    if not str(row[1]).startswith("CREATE TABLE"):
        return None
    return shown_table(str(row[1]), name[0], flavor)


def shown_table(statement: str, db: str, flavor: Flavor) -> Tracked:
    """The table of a SHOW CREATE TABLE, or why that does not tell it.

    Servers show definitions in utf8mb3: a ? in a member of ENUM or SET may be any character behind the first plane.
    """
    try:
        table = created(statement, DdlContext(flavor, db, 0, True, from_show_create=True))
    except ValueError as error:  # Unparsable, LexError, and numbers that are none
        return Unresolved(f"what SHOW CREATE TABLE says is not understood: {error}", statement[:1000])
    for column in table.columns:
        if column.charset in _WHOLE_UNICODE and any("?" in member for member in column.members):
            said = f"SHOW CREATE TABLE has a ? among the members of {column.name}, which it writes for 😀 as well"
            return Unresolved(said, statement[:1000])
    return table


class _Scan:
    """Scans events for DDL only."""

    def __init__(self, flavor: Flavor, executed: str, folds: bool) -> None:
        self._flavor, self._folds = flavor, folds
        self._tracker = parse_gtid_set(executed, flavor).tracker()
        self._scanner = GroupScanner()
        self._checksum = 0
        self._done = False
        self.names: set[QualifiedName] = set()

    def enter(self, format_description: bytes) -> None:
        """Whether events have checksums."""
        has = framing.checksum_algorithm(format_description) == framing.CHECKSUM_CRC32
        self._checksum = framing.CHECKSUM_SIZE if has else 0

    def walk(self, data: bytes) -> None:
        """Process complete events."""
        i = 0
        while i < len(data):
            kind, size = data[i + 4], int.from_bytes(data[i + 9 : i + 13], "little")
            if kind in _GTIDS:
                self._group(kind, data[i : i + size])
            elif kind == framing.FORMAT_DESCRIPTION:
                self.enter(data[i : i + size])
            elif kind == framing.QUERY and not self._done:
                self._query(data[i : i + size], self._checksum)
            elif kind == framing.MARIADB_QUERY_COMPRESSED and not self._done:
                self._query(plain_event(data[i : i + size], self._checksum), 0)
            elif kind == framing.TRANSACTION_PAYLOAD and not self._done:
                for block in unpacked(data[i + framing.HEADER_SIZE : i + size - self._checksum]):
                    self._payload(block)
            i += size

    def _group(self, kind: int, event: bytes) -> None:
        """Skip transactions that are already executed."""
        scanner, tracker = self._scanner, self._tracker
        scanner.feed(kind, event, bool(self._checksum))
        self._done = scanner.source is not None and tracker.contains(scanner.source, scanner.number)
        if scanner.source is not None and not self._done:
            tracker.add(scanner.source, scanner.number, scanner.server_id)

    def _payload(self, data: bytes) -> None:
        i = 0
        while i < len(data):
            size = int.from_bytes(data[i + 9 : i + 13], "little")
            if data[i + 4] == framing.QUERY:
                self._query(data[i : i + size], 0)
            i += size

    def _query(self, event: bytes, checksum: int) -> None:
        if framing.query_text(event, bool(checksum)) in _FRAMES:
            return
        found = parse_query_event(event[framing.HEADER_SIZE : len(event) - checksum])
        if found.alter_flags in (_START_ALTER, _ROLLBACK_ALTER):
            return
        if self._folds:
            found = in_lower_case(found, self._flavor)
        self._take(classify(found.statement, found.default_db, self._flavor, sql_mode=found.sql_mode or 0))

    def _take(self, statement: ClassifiedStatement) -> None:
        if statement.category is Category.UNKNOWN:
            self.names.add(("", ""))
        if statement.category is not Category.DDL:
            return
        if statement.kind == "DROP DATABASE" and statement.database:
            self.names.add((statement.database, ""))
        for table in statement.tables:
            self.names.add((table.db, table.table))
            if table.renamed_to:
                self.names.add((table.renamed_to_db or table.db, table.renamed_to))
