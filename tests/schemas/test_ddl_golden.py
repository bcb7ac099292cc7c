"""The golden statements on real servers: valid there, and touching exactly the tables that we say.

Each statement also comes back through the server's binlog, which proves the reader of QUERY events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compose.databases import FLAVORS, Database
from producer.events.compressed import plain_event
from producer.events.query_event import QueryEvent, epoch_ddl, parse_query_event
from schemas.binlog.framing import CHECKSUM_SIZE, HEADER, HEADER_SIZE, MARIADB_QUERY_COMPRESSED, QUERY
from schemas.ddl.classify import classify
from schemas.ddl.kinds import Category, ClassifiedStatement
from schemas.ddl.lexer import Flavor
from schemas.quote import quoted
from tests.support.golden.ddl_golden import Case, cases, render

pytestmark = pytest.mark.servers

DATABASES = ("app", "other", "newdb", "new-db", "odd`name", "charset", "comment", "encryption")
ONLINE = [case for case in cases() if "offline" not in case.options]
# These name tables that must come, go or move; the others may leave no trace in information_schema.
MOVERS = (
    "CREATE TABLE",
    "DROP TABLE",
    "RENAME TABLE",
    "CREATE VIEW",
    "DROP VIEW",
    "CREATE SEQUENCE",
    "DROP SEQUENCE",
)
FAST = ["--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0"]  # several hundred statements; no crash here
SQL_MODES = {4: "ANSI_QUOTES", 1 << 20: "NO_BACKSLASH_ESCAPES"}

Tables = dict[tuple[str, str], str]


class Golden:
    """A server with two connections that stay: connecting costs more than all else in these tests.

    One looks, the other runs the statements, since a session sees its own temporary tables.
    """

    def __init__(self, server: Database) -> None:
        server.start()
        self.server = server
        self._looking = server.connect()
        self._running = server.connect()

    def look(self, query: str) -> list[tuple[Any, ...]]:
        """A query's rows."""
        with self._looking.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def run(self, *statements: str) -> None:
        """Run statements in the session of the statement under test."""
        with self._running.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


Servers = Callable[[str], Golden]


@pytest.fixture(scope="module")
def golden_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Golden]]:
    """A server of each flavor of this module's own: the golden files want the databases app and other."""
    servers: dict[str, Golden] = {}

    def get(flavor: str) -> Golden:
        if flavor not in servers:
            servers[flavor] = Golden(FLAVORS[flavor](tmp_path_factory.mktemp(f"golden_{flavor}"), args=FAST))
        return servers[flavor]

    try:
        yield get
    finally:
        for golden in servers.values():
            golden.server.kill()


@pytest.mark.parametrize("case", ONLINE, ids=lambda c: f"{c.flavor}-{c.place}")
def test_the_server_agrees(case: Case, golden_servers: Servers) -> None:
    server = golden_servers(case.flavor)
    _prepare(server, case)
    modes = ",".join(name for bit, name in SQL_MODES.items() if case.sql_mode & bit)
    before, databases, place = _tables(server), _databases(server), _end_of_binlog(server)
    try:
        server.run(
            f"SET SESSION sql_mode = CONCAT_WS(',', @@GLOBAL.sql_mode, '{modes}'), time_zone = '+02:00'",
            case.statement,
        )
    finally:
        server.run("SET SESSION sql_mode = DEFAULT, time_zone = DEFAULT")
    statement = case.classify()
    _assert_tables(statement, before, _tables(server))
    _assert_databases(statement, databases, _databases(server))
    _assert_logged(case, statement, _queries(server, place))


def _prepare(server: Golden, case: Case) -> None:
    there = {db for (db,) in server.look("SHOW DATABASES")}
    server.run(*(f"DROP DATABASE {quoted(db)}" for db in DATABASES if db in there))
    server.run("CREATE DATABASE app", "CREATE DATABASE other", "USE app")
    server.run("DROP TEMPORARY TABLE IF EXISTS app.tmp, other.tmp", *case.given)
    if not case.default_db:  # there is no other way to leave a database
        server.run("CREATE DATABASE nothing", "USE nothing", "DROP DATABASE nothing")


def _tables(server: Golden) -> Tables:
    names = server.look(
        "SELECT table_schema, table_name FROM information_schema.tables"
        " WHERE table_schema IN ('app', 'other', 'odd`name')"
    )
    return {(db, table): _definition(server, db, table) for db, table in names}


def _definition(server: Golden, db: str, table: str) -> str:
    return str(server.look(f"SHOW CREATE TABLE {quoted(db, table)}")[0][1:])


def _databases(server: Golden) -> dict[str, str]:
    return {
        db: str(server.look(f"SHOW CREATE DATABASE {quoted(db)}")) for (db,) in server.look("SHOW DATABASES")
    }


def _assert_tables(statement: ClassifiedStatement, before: Tables, after: Tables) -> None:
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    if statement.category is Category.UNKNOWN:
        return
    named = {(t.db, t.table) for t in statement.tables}
    named |= {(t.renamed_to_db, t.renamed_to) for t in statement.tables if t.renamed_to and t.renamed_to_db}
    if statement.category is not Category.DDL:
        assert not changed
        return
    assert changed <= named
    if statement.kind in MOVERS or any(t.renamed_to for t in statement.tables):
        # A name that is there neither before nor after is the middle of a swap, or IF EXISTS of nothing.
        assert {name for name in named if name in before or name in after} == changed


def _assert_databases(statement: ClassifiedStatement, before: dict[str, str], after: dict[str, str]) -> None:
    changed = {db for db in before.keys() | after.keys() if before.get(db) != after.get(db)}
    assert changed <= {statement.database}


def _end_of_binlog(server: Golden) -> tuple[Path, int]:
    name, size = server.look("SHOW BINARY LOGS")[-1][:2]
    return server.server.data / str(name), int(size)


def _queries(server: Golden, place: tuple[Path, int], wanted: int = QUERY) -> list[QueryEvent]:
    path, position = place
    data, found = path.read_bytes(), []
    while position + HEADER_SIZE <= len(data):
        _, kind, _, size, _, _ = HEADER.unpack_from(data, position)
        event = data[position : position + size]
        if kind == wanted:
            is_plain = kind != MARIADB_QUERY_COMPRESSED
            plain = event[:-CHECKSUM_SIZE] if is_plain else plain_event(event, CHECKSUM_SIZE)
            found.append(parse_query_event(plain[HEADER_SIZE:]))
        position += size
    return found


def _assert_logged(case: Case, expected: ClassifiedStatement, queries: list[QueryEvent]) -> None:
    """What was logged is classified as the text that was run, apart from the servers' own rewriting."""
    for query in queries:
        assert query.unread_from is None
        assert query.charset is not None
        assert query.error_code == 0
    read = [(q, classify(q.statement, q.default_db, case.flavor, sql_mode=q.sql_mode or 0)) for q in queries]
    assert all(s.category is not Category.UNKNOWN or expected.category is Category.UNKNOWN for _, s in read)
    ddl = [(q, s) for q, s in read if s.category is Category.DDL]
    if expected.category is not Category.DDL:
        assert not ddl
        return
    assert [s.tables for _, s in ddl] == [expected.tables]
    assert [s.database for _, s in ddl] == [expected.database]
    query, statement = ddl[0]
    assert statement.creates_with_select is False
    assert epoch_ddl(query, statement, case.flavor, 0).kind == expected.kind
    if expected.creates_with_select:  # rows follow; MySQL marks that in the text, MariaDB does not
        assert statement.start_transaction is (case.flavor == "mysql")
        assert "START TRANSACTION" not in epoch_ddl(query, statement, case.flavor, 0).statement
    else:
        assert render(statement) == case.expected


def test_session_settings_arrive(golden_servers: Servers, flavor: Flavor) -> None:
    # The time zone is logged only with a statement that depends on it.
    text = """CREATE TABLE "größe" (a TIMESTAMP DEFAULT '2020-01-01 00:00:00')"""
    server = golden_servers(flavor)
    server.run("DROP DATABASE IF EXISTS app", "CREATE DATABASE app")
    place = _end_of_binlog(server)
    with server.server.connect(database="app", charset="latin1") as connection, connection.cursor() as cursor:
        cursor.execute(
            "SET foreign_key_checks = 0, unique_checks = 0, time_zone = '+05:30', sql_mode = 'ANSI_QUOTES'"
        )
        cursor.execute("SET auto_increment_increment = 3, auto_increment_offset = 2, lc_time_names = 'de_DE'")
        cursor.execute(text)
    (query,) = [q for q in _queries(server, place) if q.statement.startswith("CREATE")]
    assert query.statement == text
    assert query.default_db == "app"
    assert not query.foreign_key_checks
    assert not query.unique_checks
    assert query.time_zone == "+05:30"
    assert query.sql_mode is not None
    assert query.sql_mode & 4
    assert query.auto_increment == (3, 2)
    assert query.lc_time_names
    assert query.charset is not None
    assert query.charset[0] in (5, 8, 47)
    assert query.xid or flavor == "mariadb"
    assert query.explicit_defaults_for_timestamp is (True if flavor == "mysql" else None)


@pytest.mark.parametrize(
    "charset", ["gbk", "cp932", "utf8mb3", "big5", "cp1251", "koi8r", "euckr", "ujis", "greek"]
)
def test_every_client_charset_arrives(golden_servers: Servers, flavor: Flavor, charset: str) -> None:
    server = golden_servers(flavor)
    server.run("DROP DATABASE IF EXISTS app", "CREATE DATABASE app")
    place = _end_of_binlog(server)
    text = {"cp1251": "размер", "koi8r": "размер", "greek": "μέγεθος"}.get(charset, "大小")
    codec = {"utf8mb3": "utf-8", "koi8r": "koi8_r", "euckr": "cp949", "ujis": "euc_jp", "greek": "iso8859_7"}
    with server.server.connect(database="app") as connection, connection.cursor() as cursor:
        cursor.execute(f"SET NAMES {charset}")
        raw = f"CREATE TABLE `{text}` (a INT COMMENT '{text}')".encode(codec.get(charset, charset))
        plain: Any = connection  # cursors encode by themselves; this is COM_QUERY as bytes
        plain._execute_command(3, raw)
        plain._read_query_result()
    (query,) = [q for q in _queries(server, place) if q.statement.startswith("CREATE")]
    assert query.statement == f"CREATE TABLE `{text}` (a INT COMMENT '{text}')"
    assert server.look("SELECT table_name FROM information_schema.tables WHERE table_schema = 'app'") == [
        (text,)
    ]


def test_the_frames_of_row_events(golden_servers: Servers, flavor: Flavor) -> None:
    server = golden_servers(flavor)
    server.run("DROP DATABASE IF EXISTS app", "CREATE DATABASE app", "USE app", "CREATE TABLE t (a INT)")
    server.run("CREATE TABLE m (a INT) ENGINE=MyISAM")
    place = _end_of_binlog(server)
    server.run("BEGIN", "INSERT INTO t VALUES (1)", "SAVEPOINT `a ``b`", "INSERT INTO t VALUES (2)", "COMMIT")
    server.run("INSERT INTO m VALUES (1)")
    if flavor == "mariadb":  # MySQL with GTIDs refuses to mix engines in a transaction
        server.run("BEGIN", "INSERT INTO t VALUES (1)", "SAVEPOINT a", "INSERT INTO m VALUES (2)")
        server.run("ROLLBACK TO a", "COMMIT")
    server.run("XA START 'x1', 'branch', 7", "INSERT INTO t VALUES (3)", "XA END 'x1', 'branch', 7")
    server.run("XA PREPARE 'x1', 'branch', 7", "XA COMMIT 'x1', 'branch', 7")
    server.run("CREATE TEMPORARY TABLE tmp (a INT)", "INSERT INTO tmp VALUES (1)", "DROP TABLE tmp")
    read = [classify(q.statement, q.default_db, flavor) for q in _queries(server, place)]
    assert {s.category for s in read} <= {Category.TRANSACTION, Category.XA, Category.IGNORED}
    # MariaDB's GTID event stands for BEGIN; MySQL's XA PREPARE is an event of its own.
    expected = {"mysql": {"BEGIN", "XA START"}, "mariadb": {"ROLLBACK TO"}}[flavor]
    assert {"SAVEPOINT", "COMMIT", "XA END", "XA COMMIT"} | expected <= {s.kind for s in read}
    assert {s.xid for s in read if s.category is Category.XA} == {"X'7831',X'6272616e6368',7"}


def test_both_phases_of_an_alter_are_told_apart(golden_servers: Servers) -> None:
    server = golden_servers("mariadb")
    server.run("DROP DATABASE IF EXISTS app", "CREATE DATABASE app", "USE app", "CREATE TABLE t (a INT)")
    place = _end_of_binlog(server)
    server.run("SET binlog_alter_two_phase = 1", "ALTER TABLE t ADD b INT", "SET binlog_alter_two_phase = 0")
    start, commit = _queries(server, place)
    assert start.statement == commit.statement == "ALTER TABLE t ADD b INT"
    assert (start.alter_flags, commit.alter_flags) == (2, 4)
    assert commit.alter_seq_no


def test_compressed_statements_are_unpacked(golden_servers: Servers) -> None:
    server = golden_servers("mariadb")
    server.run("DROP DATABASE IF EXISTS app", "CREATE DATABASE app", "USE app")
    place = _end_of_binlog(server)
    text = f"CREATE TABLE t (a INT COMMENT '{'x' * 900}')"
    server.run("SET GLOBAL log_bin_compress = 1")
    try:
        server.run(text)
    finally:
        server.run("SET GLOBAL log_bin_compress = 0")
    (query,) = _queries(server, place, MARIADB_QUERY_COMPRESSED)
    assert query.statement == text
    assert query.default_db == "app"
