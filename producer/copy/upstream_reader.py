"""Reads the upstream for copies: which tables there are, their definitions, and chunks of their rows.

What is read shows everything that was executed up to a given boundary, and nothing after a position that is noted
afterwards. MySQL is made to wait for the boundary's GTIDs; their changes are visible then. MariaDB states a snapshot's
position exactly, and it must not be before the boundary's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pymysql
from pymysql.connections import Connection

from producer.copy.bounds import bound_of, chunk_query, last_row_query, table_query
from producer.copy.cascades import CHANGING, NO_CASCADES, Cascades, CascadingKey, cascades_of, hidden_parents
from producer.copy.copies import (
    Answer,
    Boundary,
    ChunkRead,
    Copies,
    ObjectsFound,
    TableFound,
    TablesFound,
    Work,
)
from producer.copy.objects import object_reader
from producer.copy.row_encoder import CopySource, RowEncoder, copied_values, session_setup
from producer.copy.row_packets import RowPackets
from producer.copy.table_lock import NotVisible, TableLock
from producer.copy.window import NO_LIMIT, ROW
from producer.settings import CopySettings, replica_url
from producer.structures.forms import predicted
from producer.structures.interpret import Unresolved
from producer.structures.store import BinlogPosition
from producer.upstream.connect import UpstreamInfo, connect, describe, query, upstream_errors, variable
from producer.upstream.structures import prepare_to_show, shown_table
from relay_store.layout.directory import RelayPosition, file_number
from schemas.access.server_url import ServerUrl
from schemas.ddl.table_definition import TableDefinition
from schemas.errors import TailraceError, UpstreamError, Where
from schemas.letter_case import lowered
from schemas.names import binlog_file
from schemas.quote import quoted
from schemas.structure import TableStructure
from schemas.tables import QualifiedName, TableFilter
from schemas.wire.epoch import SchemaChanged, TableChanged

_WAIT = 5.0  # seconds in which a server has to show what it has sent
_PAUSE = 0.005
_LAG = 10  # seconds that a replica may be behind
_ALL: QualifiedName = ("", "")
_FACTS = (
    "SELECT TABLE_TYPE, ENGINE, TABLE_ROWS, AVG_ROW_LENGTH FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
_SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT"
# Without a name of the parent's key, or with another than this one, the key may be of any columns.
_CASCADES = (
    "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME, UPDATE_RULE, DELETE_RULE,"
    " COALESCE(UNIQUE_CONSTRAINT_NAME, '') FROM information_schema.REFERENTIAL_CONSTRAINTS"
)
_MOST_ATTEMPTS = 10  # to read a chunk while other tables change
# Bytes of a chunk: its number of rows is chosen for the first, and it ends early at the second.
_CHUNK, _MOST_BYTES = 8 << 20, 32 << 20
# Seconds that a chunk is to take; the first and the smallest chunks have this part of the most rows.
_CHUNK_TIME, _SMALLEST = 0.5, 50
_NO_SUCH_TABLE = 1146
_DENIED = frozenset({1142, 1143})  # no access to the table, to the column
_UTF8MB4 = 45  # the id of one of its collations


class NeedsHold(Exception):
    """The table's rows have to be read at one position, while the publisher stands still."""

    def __init__(self, cascades: Cascades) -> None:
        super().__init__()
        self.cascades = cascades


class _Table(NamedTuple):
    """How a table's rows are read."""

    run: int
    structure: TableStructure
    is_versioned: bool
    encoder: RowEncoder
    bound: Callable[[bytes], tuple[str, ...]]
    row_size: int
    row_limit: int


class _HeldTable(NamedTuple):
    """A table whose rows are read at one position."""

    structure: TableStructure
    rows: RowPackets
    has_snapshots: bool


class UpstreamReader:
    """One connection to the upstream, for one thread; and one to a replica if chunks are read from there.

    Args:
        tables: those that are replicated.
    """

    def __init__(self, url: ServerUrl, tables: TableFilter, settings: CopySettings) -> None:
        self._url, self._tables, self._settings = url, tables, settings
        self._replica = replica_url(url, settings.read_from) if settings.read_from else None
        self._open: Connection[Any] | None = None
        self._replica_open: Connection[Any] | None = None
        self._info: UpstreamInfo | None = None
        self._known: dict[QualifiedName, _Table] = {}
        self._most_rows = settings.chunk_rows
        if settings.max_rows_per_s:
            self._most_rows = min(self._most_rows, max(1, settings.max_rows_per_s // settings.connections))
        # Small chunks would help nobody where each takes long however small it is.
        self._least_rows = max(1, self._most_rows // _SMALLEST)

    def read(self, work: Work, most: int = NO_LIMIT) -> Answer:
        """Read what is asked for.

        Args:
            most: bytes of a chunk, with ``ROW`` for each row.

        Raises:
            NotVisible: it cannot be read yet.
            UpstreamError: the upstream cannot be reached, or refuses; or TR212, the table cannot be copied.
        """
        try:
            if self._replica is not None and work.is_begun and work.name != _ALL:
                return self._read_from(self._replica, work, most)
            with upstream_errors(self._url):
                connection, info = self._connected()
                with self._visible(connection, info, work.base) as snapshot:
                    found = self._read(connection, info, work, most)
                    # A chunk that became too large has closed the connection.
                    visible = snapshot or _position(*self._connected())
            if visible.server != info.server_uuid:
                raise NotVisible
            return found(visible)
        except TailraceError:
            self.close()
            raise

    def check(self, name: QualifiedName) -> None:
        """Raise UpstreamError TR212 if a table cannot be copied."""
        work = Work(name, 0, Boundary(-1, "", BinlogPosition("", 0, 0)), is_begun=False)
        try:
            with upstream_errors(self._url):
                self._definition(*self._connected(), work, is_held=True)
        except NotVisible:
            raise UpstreamError(
                "TR212",
                "the table cannot be copied: it was dropped just now",
                where=Where(table=".".join(name)),
                hint="nothing was asked for; ask again",
            ) from None
        except TailraceError:
            self.close()
            raise

    def _read_from(self, replica: ServerUrl, work: Work, most: int) -> Answer:
        """Read a chunk from a replica. What it shows is in the upstream's binlog by then."""
        with upstream_errors(self._url):
            _, info = self._connected()
        with upstream_errors(replica):
            connection = self._connected_to(replica, info)
            _await_executed(connection, replica, info, work.base)
            query(connection, _SNAPSHOT)
            with self._ending(connection):
                found = self._chunk(connection, info, work, most)
        with upstream_errors(self._url):
            visible = _position(*self._connected())
        if visible.server != info.server_uuid:
            raise NotVisible
        return found(visible)

    def read_held(self, held: Sequence[Work], copies: Copies, stop: threading.Event) -> None:
        """Read whole tables at one position, and hand them in; the publisher stands still.

        They are locked until the rows of the last one are being read; without snapshots of its engine, until all are.

        Raises:
            NotVisible: others use the tables.
            UpstreamError: see ``read``.
        """
        try:
            with upstream_errors(self._url):
                connection, info = self._connected()
                with TableLock(self._url, [work.name for work in held]) as lock:
                    position = _snapshot(connection, info) or _position(connection, info)
                    for work in held:
                        found = self._definition(connection, info, work, is_held=True)(position)
                        rows = self._rows(connection, info, work) if found.ddl is not None else None
                        copies.go_on_to(work, position)
                        copies.hand_in(found, stop)
                        if rows is not None:
                            released = lock if work is held[-1] else None
                            self._hand_in(rows, work, position, info, copies, stop, released)
                connection.rollback()
        except BaseException:
            self.close()
            raise

    def _hand_in(
        self,
        table: _HeldTable,
        work: Work,
        position: BinlogPosition,
        info: UpstreamInfo,
        copies: Copies,
        stop: threading.Event,
        lock: TableLock | None,
    ) -> None:
        """Hand in the rows of a table in parts."""
        values = partial(_values, work.name, info.server_id, time.time_ns() // 1_000_000)
        is_last = False
        while not is_last and not stop.is_set():
            keys: list[bytes] = []
            after: list[bytes] = []
            counted, size = 0, 0
            while not is_last and size < _CHUNK:
                is_last = not table.rows.read(keys.append, after.append)
                if lock is not None and (table.has_snapshots or is_last):
                    lock.release()
                size += sum(map(len, after[counted:]))
                counted = len(after)
            copies.hand_in(
                ChunkRead(
                    work=replace(work, is_begun=True),
                    visible=position,
                    size=size,
                    structure=table.structure,
                    keys=keys,
                    after=after,
                    values=values,
                    upper=(),
                    is_last=is_last,
                ),
                stop,
            )

    def _rows(self, connection: Connection[Any], info: UpstreamInfo, work: Work) -> _HeldTable:
        table = self._table(connection, info, work)
        engine = _facts(connection, work.name)[1]
        sql = table_query(table.structure, table.encoder.expressions, is_versioned=table.is_versioned)
        rows = RowPackets.select(connection, table.encoder, sql)
        return _HeldTable(table.structure, rows, engine == "InnoDB")

    def close(self) -> None:
        """Close the connections."""
        for connection in (self._open, self._replica_open):
            if connection is not None and connection.open:
                connection.close()
        self._open = self._replica_open = None

    def _connected(self) -> tuple[Connection[Any], UpstreamInfo]:
        if self._open is None or self._info is None or not self._open.open:
            self._info = describe(self._url)
            check_upstream(self._url, self._info)
            self._open = _prepared(self._url, self._info)
        return self._open, self._info

    def _connected_to(self, replica: ServerUrl, info: UpstreamInfo) -> Connection[Any]:
        if self._replica_open is None or not self._replica_open.open:
            _check_replica(replica, describe(replica), info)
            self._replica_open = _prepared(replica, info)
        return self._replica_open

    @contextmanager
    def _visible(
        self, connection: Connection[Any], info: UpstreamInfo, base: Boundary
    ) -> Iterator[BinlogPosition | None]:
        """What is read inside shows all that was executed at a boundary; yields the snapshot's position, if known."""
        if info.flavor == "mysql":
            if base.executed:
                late = query(connection, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)", (base.executed, _WAIT))
                if late[0][0] != 0:
                    raise NotVisible
            _snapshot(connection, info)
            with self._ending(connection):
                yield None
            return
        deadline = time.monotonic() + _WAIT
        while True:
            position = _snapshot(connection, info)
            if position is not None and position.reached(base.position):
                break
            connection.rollback()
            if time.monotonic() > deadline:
                raise NotVisible
            time.sleep(_PAUSE)
        with self._ending(connection):
            yield position

    @contextmanager
    def _ending(self, connection: Connection[Any]) -> Iterator[None]:
        """The connection's transaction ends with the block."""
        try:
            yield
        finally:
            # Rows that cannot be decoded have closed it, and their error is to be seen.
            if connection.open:
                connection.rollback()

    def _read(
        self, connection: Connection[Any], info: UpstreamInfo, work: Work, most: int
    ) -> Callable[[BinlogPosition], Answer]:
        if work.name == _ALL:
            return self._objects(connection, info, work)
        if not work.is_begun:
            return self._definition(connection, info, work)
        return self._chunk(connection, info, work, most)

    def _objects(
        self, connection: Connection[Any], info: UpstreamInfo, work: Work
    ) -> Callable[[BinlogPosition], Answer]:
        """Databases and the list of tables; or views and programs."""
        with object_reader(connection, info.flavor, self._tables) as reader:
            if work.is_begun:
                found = (*reader.routines(), *reader.views(), *reader.events())
                return lambda visible: ObjectsFound(work=work, visible=visible, statements=found)
            databases, names = tuple(reader.databases()), (*reader.tables(), *reader.sequences())
        refused = self._refused(connection, info, work, names) if work.is_complete else {}
        return lambda visible: TablesFound(
            work=work, visible=visible, names=names, statements=databases, refused=refused
        )

    def _refused(
        self, connection: Connection[Any], info: UpstreamInfo, work: Work, names: Collection[QualifiedName]
    ) -> dict[QualifiedName, str]:
        """The tables that cannot be copied, and why."""
        refused = {}
        for name in names:
            try:
                self._definition(connection, info, replace(work, name=name), is_held=True)
            except UpstreamError as error:
                if error.code != "TR212":
                    raise
                refused[name] = error.message
        return refused

    def _definition(
        self, connection: Connection[Any], info: UpstreamInfo, work: Work, *, is_held: bool = False
    ) -> Callable[[BinlogPosition], TableFound]:
        statement = _shown(connection, info, work.name)
        if statement is None:
            return lambda visible: TableFound(work=work, visible=visible, ddl=None)
        table = self._understood(statement, info, work)
        kind, engine, rows, _ = _facts(connection, work.name)
        if kind == "SEQUENCE":
            raise _cannot(work.name, "it is a sequence")
        cascades = self._cascades(connection, work.name)
        if not is_held and (engine != "InnoDB" or not table.row_key() or cascades.circle):
            raise NeedsHold(cascades)
        _try_rows(connection, info, work.name, table)
        ddl = _created(statement, work.name, info)
        return lambda visible: TableFound(
            work=work,
            visible=visible,
            ddl=ddl,
            definition=table,
            estimate=int(rows or 0),
            is_held=is_held,
            cascades=cascades,
        )

    def _cascades(self, connection: Connection[Any], name: QualifiedName) -> Cascades:
        """What changes rows without a trace in the binlog. Raises UpstreamError TR212 if no copy could follow that."""
        keys = cascading_keys(connection, folds=self._tables.folds)
        found = cascades_of(name, keys)
        children = frozenset(child for child in found.children if self._tables.allows(*child))
        for one in (name, *sorted(children)):
            if hidden := hidden_parents(cascades_of(one, keys), self._tables):
                parent = ".".join(min(hidden))
                why = f"changes of {parent}, which is not replicated, change its rows by foreign keys, and this server"
                raise _cannot(one, f"{why} does not log that")
        return replace(found, children=children)

    def _understood(self, statement: str, info: UpstreamInfo, work: Work) -> TableDefinition:
        table = shown_table(statement, work.name[0], info.flavor)
        if isinstance(table, Unresolved):
            raise _cannot(work.name, table.reason)
        return table

    def _chunk(
        self, connection: Connection[Any], info: UpstreamInfo, work: Work, most: int
    ) -> Callable[[BinlogPosition], Answer]:
        table = self._known.get(work.name)
        if table is None or table.run != work.run:
            table = self._known[work.name] = self._table(connection, info, work)
        if work.attempt > _MOST_ATTEMPTS:
            raise NeedsHold(NO_CASCADES)
        size_limit = min(_CHUNK // max(1, table.row_size), most // (table.row_size + ROW))
        limit = max(1, min(table.row_limit, size_limit))
        begin = time.monotonic()
        sql = chunk_query(
            table.structure, table.encoder.expressions, work.lower, limit, is_versioned=table.is_versioned
        )
        rows = RowPackets.select(connection, table.encoder, sql)
        keys: list[bytes] = []
        after: list[bytes] = []
        is_whole, counted, size = False, 0, 0
        while not is_whole and size < _MOST_BYTES:
            is_whole = not rows.read(keys.append, after.append)
            size += sum(map(len, after[counted:]))
            counted = len(after)
        if not is_whole:
            rows.close()
        if counted:
            seconds = time.monotonic() - begin
            row_limit = next_limit(counted, seconds, self._least_rows, self._most_rows)
            self._known[work.name] = table._replace(row_size=max(1, size // counted), row_limit=row_limit)
        upper = table.bound(keys[-1]) if keys else work.lower
        values = partial(_values, work.name, info.server_id, time.time_ns() // 1_000_000)
        is_last = is_whole and counted < limit
        if is_last and not _ends_at(connection, table, upper):
            raise NotVisible
        return lambda visible: ChunkRead(
            work=work,
            visible=visible,
            size=size,
            structure=table.structure,
            keys=keys,
            after=after,
            values=values,
            upper=upper,
            is_last=is_last,
        )

    def _table(self, connection: Connection[Any], info: UpstreamInfo, work: Work) -> _Table:
        statement = _shown(connection, info, work.name)
        if statement is None:
            raise NotVisible  # it was dropped just now: another run begins
        definition = self._understood(statement, info, work)
        structure = _structure(work.name, definition, info)
        row_size = _facts(connection, work.name)[3]
        encoder, bound = RowEncoder(structure), bound_of(structure)
        return _Table(
            work.run, structure, definition.versioned, encoder, bound, int(row_size or 100), self._least_rows
        )


def _structure(name: QualifiedName, definition: TableDefinition, info: UpstreamInfo) -> TableStructure:
    """How the binlog shows a table's rows. Raises UpstreamError TR212."""
    structure = predicted(*name, definition, info.flavor, shown=True)
    if structure is None:
        raise _cannot(name, "its definition does not say for sure how the binlog shows its rows")
    return structure


def _try_rows(
    connection: Connection[Any], info: UpstreamInfo, name: QualifiedName, definition: TableDefinition
) -> None:
    """Raise UpstreamError TR212 if a table's rows cannot be read, as long as no reader has emptied the table."""
    structure = _structure(name, definition, info)
    expressions = RowEncoder(structure).expressions
    try:
        query(connection, f"{table_query(structure, expressions, is_versioned=definition.versioned)} LIMIT 0")
    except pymysql.err.MySQLError as error:
        if error.args[0] in _DENIED:
            raise _cannot(name, f"its rows cannot be read: {error.args[-1]}") from error
        raise


def next_limit(rows: int, seconds: float, least: int, most: int) -> int:
    """The rows of a table's next chunk: as many as take the wanted time, and at most twice those of the last one.

    Args:
        rows, seconds: of the last chunk.
        least, most: bounds.
    """
    wanted = int(rows * _CHUNK_TIME / max(seconds, 0.001))
    return max(least, min(wanted, 2 * rows, most))


def _values(
    name: QualifiedName,
    server_id: int,
    read_ms: int,
    after: list[bytes],
    header: bytes,
    epoch: int,
    end: RelayPosition,
) -> list[bytes]:
    """The values of a chunk's rows in an epoch that ends at a place."""
    return copied_values(
        after, header, epoch, 0, CopySource(*name, server_id, *end.upstream, read_ms, read_ms)
    )


def _prepared(url: ServerUrl, info: UpstreamInfo) -> Connection[Any]:
    """A connection whose SELECTs can be encoded."""
    connection = connect(url, charset="utf8mb4")
    # Other levels have no snapshots.
    query(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    for statement in session_setup(info.flavor):
        query(connection, statement)
    return connection


def _check_replica(replica: ServerUrl, found: UpstreamInfo, upstream: UpstreamInfo) -> None:
    """Whether chunks can be read from a server. Raises UpstreamError TR212."""
    if found.flavor != upstream.flavor or not found.has_gtids:
        raise UpstreamError(
            "TR212",
            f"{replica} is no replica that shows by GTIDs what it has: it needs gtid_mode = ON, and to be of the"
            " upstream's kind",
            hint="set [copy] read-from to another replica, or remove it",
        )


def _await_executed(
    connection: Connection[Any], replica: ServerUrl, info: UpstreamInfo, base: Boundary
) -> None:
    """Wait until a replica shows all that was executed at a boundary. Raises UpstreamError if that takes long."""
    wait = "WAIT_FOR_EXECUTED_GTID_SET" if info.flavor == "mysql" else "MASTER_GTID_WAIT"
    if not base.executed or query(connection, f"SELECT {wait}(%s, %s)", (base.executed, _LAG))[0][0] != 0:
        raise UpstreamError(
            "TR201",
            f"{replica} does not show within {_LAG} s what the upstream has executed",
            hint="wait until it has caught up, or remove [copy] read-from",
            retryable=True,
        )


def _facts(connection: Connection[Any], name: QualifiedName) -> tuple[Any, ...]:
    """Kind, engine, rows, and bytes of a row of a table. Raises NotVisible if it was dropped just now."""
    rows = query(connection, _FACTS, name)
    if not rows:
        raise NotVisible
    return rows[0]


def _ends_at(connection: Connection[Any], table: _Table, upper: tuple[str, ...]) -> bool:
    """Whether a table has no rows above a bound. A SELECT that shows none proves nothing: it may have been killed."""
    rows = query(connection, last_row_query(table.structure, upper, is_versioned=table.is_versioned))
    if rows:
        return not rows[0][0]
    return not query(connection, table_query(table.structure, "COUNT(*)", is_versioned=table.is_versioned))[
        0
    ][0]


def cascading_keys(connection: Connection[Any], *, folds: bool) -> list[CascadingKey]:
    """The foreign keys through which a server changes rows without logging that.

    Args:
        folds: whether the server has all names in lower case.
    """
    # Since 9.6 MySQL logs the rows that foreign keys change.
    if variable(connection, "innodb_native_foreign_keys") == "OFF":
        return []
    lower = lowered if folds else str
    return [
        CascadingKey(
            (lower(row[0]), lower(row[1])),
            (lower(row[2]), lower(row[3])),
            follows_updates=row[4] in CHANGING and row[6] != "PRIMARY",
        )
        for row in query(connection, _CASCADES)
        if not CHANGING.isdisjoint(row[4:6])
    ]


def check_upstream(url: ServerUrl, info: UpstreamInfo) -> None:
    """Whether tables can be copied from a server. Raises UpstreamError TR212."""
    if not info.has_gtids:
        raise UpstreamError(
            "TR212",
            f"{url} writes no GTIDs, without which it does not tell what a SELECT shows",
            hint="set gtid_mode = ON upstream, which can be done while it runs",
        )
    if info.row_image not in ("FULL", "FULL_NODUP"):
        raise UpstreamError(
            "TR212",
            f"{url} has binlog_row_image = {info.row_image}, and changes of rows to be copied need all columns",
            hint="SET GLOBAL binlog_row_image = FULL upstream, and reconnect its clients",
        )


def _shown(connection: Connection[Any], info: UpstreamInfo, name: QualifiedName) -> str | None:
    """A table's SHOW CREATE TABLE; None if there is none."""
    prepare_to_show(connection)
    try:
        row = query(connection, f"SHOW CREATE TABLE {quoted(*name)}")[0]
    except pymysql.err.ProgrammingError as error:
        if error.args[0] == _NO_SUCH_TABLE:
            return None
        raise
    finally:
        for statement in session_setup(info.flavor):
            query(connection, statement)
    return str(row[1]) if str(row[1]).startswith("CREATE TABLE") else None


def _created(statement: str, name: QualifiedName, info: UpstreamInfo) -> SchemaChanged:
    """The record of a CREATE TABLE as the upstream shows it."""
    return SchemaChanged(
        statement=statement,
        default_db=name[0],
        kind="CREATE TABLE",
        tables=(TableChanged(*name),),
        source_flavor=info.flavor,
        timestamp=int(time.time()),
        sql_mode=0,
        charset_client=_UTF8MB4,
        collation_connection=_UTF8MB4,
        collation_server=_UTF8MB4,
        explicit_defaults_for_timestamp=True,
        foreign_key_checks=False,
        unique_checks=False,
    )


def _snapshot(connection: Connection[Any], info: UpstreamInfo) -> BinlogPosition | None:
    """Begin to read a snapshot. Returns its position, which only MariaDB knows."""
    query(connection, _SNAPSHOT)
    if info.flavor == "mysql":
        return None
    status = dict(query(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
    file, _ = binlog_file(str(status["Binlog_snapshot_file"]))
    return BinlogPosition(info.server_uuid, file_number(file), int(status["Binlog_snapshot_position"]))


def _position(connection: Connection[Any], info: UpstreamInfo) -> BinlogPosition:
    try:
        row = query(connection, "SHOW BINARY LOG STATUS")[0]
    except pymysql.err.ProgrammingError:  # before 8.2 it had the old name only
        row = query(connection, "SHOW MASTER STATUS")[0]
    return BinlogPosition(info.server_uuid, file_number(binlog_file(str(row[0]))[0]), int(row[1]))


def _cannot(name: QualifiedName, why: str) -> UpstreamError:
    return UpstreamError(
        "TR212",
        f"the table cannot be copied: {why}",
        where=Where(table=".".join(name)),
        hint="exclude it from the copy, and bring it to the downstream by hand",
    )
