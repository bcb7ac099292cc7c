"""Objects of an upstream are created on a downstream as they are, by the statements that are read for the log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from compose.databases import Database
from producer.copy.objects import _RIGHTS, ObjectReader, object_reader
from producer.copy.row_encoder import session_setup
from producer.events.query_event import epoch_ddl, parse_query_event
from schemas.access.server_url import ServerUrl
from schemas.binlog import framing
from schemas.ddl.classify import classify
from schemas.ddl.kinds import family
from schemas.ddl.lexer import Flavor
from schemas.errors import UpstreamError
from schemas.quote import quoted
from schemas.tables import TableFilter
from schemas.wire.epoch import SchemaChanged
from spark_consumer.apply.ddl import session as ddl_session
from spark_consumer.ddl.translate import DdlRules
from spark_consumer.rules.ddl_options import DdlOptions
from spark_consumer.rules.event_filter import EventFilter
from spark_consumer.rules.route import Router
from spark_consumer.target.session import connect
from tests.support.binlogs.binlog_rows import binlog_end

pytestmark = pytest.mark.servers

_A, _B, _C = "objects_a", "objects `'\"\\ 表", "objects_c"
_NAMES = {
    "a": quoted(_A),
    "b": quoted(_B),
    "c": quoted(_C),
    "odd": quoted("from `'\"\\ é"),
    "seq": quoted("`'\"\\é"),
}
_TABLES = TableFilter(["objects*"], ["objects_c.hidden"])
_PAST = 1_000_000_000  # 2001-09-09

_CREATED = (
    "CREATE DATABASE {a} CHARACTER SET latin1 COLLATE latin1_german1_ci",
    "CREATE DATABASE {b} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "CREATE DATABASE {c}",
    "CREATE TABLE {c}.hidden (id INT PRIMARY KEY)",
    "CREATE TABLE {c}.gone (id INT PRIMARY KEY)",
    "CREATE TABLE {c}.parent (id INT PRIMARY KEY)",
    "CREATE TABLE {a}.{odd} (id INT PRIMARY KEY, p INT)",
    "CREATE TABLE {a}.kid (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {c}.parent (id) ON DELETE CASCADE)",
    "CREATE TABLE {a}.child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES {a}.kid (id))",
    "CREATE TABLE {a}.self (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {a}.self (id) ON UPDATE SET NULL)",
    # Routines and triggers keep the session's settings, and the database's collation at this moment.
    "SET SESSION sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'",
    'CREATE FUNCTION {a}.{odd}(x VARCHAR(40)) RETURNS VARCHAR(90) DETERMINISTIC RETURN \'\\表😀"\' || "x"',
    "SET SESSION sql_mode = 'NO_ZERO_DATE,STRICT_ALL_TABLES', collation_connection = utf8mb4_unicode_ci",
    "CREATE DEFINER=`no``body`@`%` PROCEDURE {a}.{odd}(IN x TEXT) SQL SECURITY INVOKER COMMENT 'it''s \\\\'"
    " BEGIN SELECT CONCAT(x, '\\'\\\\'); CALL {a}.later(); END",
    "CREATE PROCEDURE {a}.later() SELECT * FROM {a}.a_last",
    "SET NAMES utf8mb3",
    "CREATE TRIGGER {a}.z_first BEFORE INSERT ON {a}.{odd} FOR EACH ROW SET NEW.p = 1",
    "CREATE TRIGGER {a}.{odd} BEFORE INSERT ON {a}.{odd} FOR EACH ROW PRECEDES z_first SET NEW.p = 'é\\''",
    "SET NAMES utf8mb4",
    "ALTER DATABASE {a} COLLATE latin1_swedish_ci",
    "SET SESSION sql_mode = 'PIPES_AS_CONCAT'",
    "CREATE VIEW {a}.z_first AS SELECT id AS {odd}, 'it''s \\\\ 表😀' || p AS `select` FROM {a}.{odd}",
    "CREATE ALGORITHM=MERGE DEFINER=`no``body`@`%` SQL SECURITY INVOKER VIEW {b}.{odd} AS"
    " SELECT {odd} FROM {a}.z_first WHERE {odd} > 1 WITH CHECK OPTION",
    "CREATE FUNCTION {a}.reads_view() RETURNS INT READS SQL DATA RETURN (SELECT COUNT(*) FROM z_first)",
    "CREATE VIEW {a}.a_by_function AS SELECT {a}.reads_view() AS n",
    "CREATE VIEW {a}.a_last AS SELECT {a}.{odd}('x') AS f, t.* FROM {b}.{odd} AS t"
    " UNION SELECT 1, id FROM {c}.parent",
    "CREATE VIEW {a}.b_invalid AS SELECT * FROM {c}.gone",
    "CREATE VIEW {a}.a_reads_invalid AS SELECT * FROM {a}.b_invalid",
    "DROP TABLE {c}.gone",
    "CREATE VIEW {a}.reads_hidden AS SELECT * FROM {c}.hidden",
    "CREATE FUNCTION {c}.hidden() RETURNS INT DETERMINISTIC RETURN 1",
    "CREATE VIEW {a}.calls_hidden AS SELECT {c}.hidden() AS n",
    "CREATE VIEW {a}.reads_servers AS SELECT TABLE_NAME FROM information_schema.TABLES",
    "SET SESSION sql_mode = 'ANSI_QUOTES', time_zone = '+05:30'",
    "CREATE EVENT {a}.{odd} ON SCHEDULE EVERY 1 DAY STARTS '2030-01-01 00:00:00' COMMENT 'DO ENABLE' DO DELETE"
    ' FROM {c}."parent"',
    f"SET SESSION timestamp = {_PAST}",
    "CREATE EVENT {b}.past ON SCHEDULE AT '2001-09-10 00:00:00' DISABLE DO SELECT '表😀'",
)
_OWN = {
    "mysql": (),
    "mariadb": (
        "ALTER DATABASE {b} COMMENT 'it''s \\\\ \"é'",
        "CREATE SEQUENCE {a}.{seq} START WITH 5 INCREMENT BY 2 MAXVALUE 5000 CYCLE CACHE 10",
        "DO NEXTVAL({a}.{seq})",
        "CREATE TABLE {a}.numbered (id INT PRIMARY KEY DEFAULT NEXTVAL({a}.{seq}))",
        "CREATE TABLE {a}.versioned (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
        "CREATE VIEW {b}.numbers AS SELECT LASTVAL({a}.{seq}) AS n",
        "SET SESSION sql_mode = 'ORACLE'",
        "CREATE PACKAGE {a}.{odd} AS FUNCTION f RETURN INT; END",
        "CREATE PACKAGE BODY {a}.{odd} AS FUNCTION f RETURN INT AS BEGIN RETURN 1; END; END",
        "SET SESSION sql_mode = DEFAULT",
    ),
}

Read = Callable[[Database], list[SchemaChanged]]


@pytest.fixture
def source(upstream: Database, downstream: Database, flavor: str) -> Iterator[Database]:
    """The upstream with objects; they are dropped on both servers."""
    drop = [f"DROP DATABASE IF EXISTS {name}" for name in (_NAMES["a"], _NAMES["b"], _NAMES["c"])]
    upstream.execute(*drop)
    upstream.execute("SET NAMES utf8mb4", *(one.format(**_NAMES) for one in (*_CREATED, *_OWN[flavor])))
    yield upstream
    for server in (upstream, downstream):
        server.execute("SET SESSION foreign_key_checks = 0", *drop)


@pytest.fixture
def known(flavor: str) -> Flavor:
    """The flavor, for the type checker."""
    return "mysql" if flavor == "mysql" else "mariadb"


def test_objects_are_created_as_they_are(source: Database, downstream: Database, known: Flavor) -> None:
    """All kinds, twice; what is read from the downstream then is what was read from the upstream."""
    with closing(source.connect()) as connection, closing(downstream.connect()) as there:
        with object_reader(connection, known, _TABLES) as reader:
            read = _read(reader)
            left_out = {one.name: one.reason for one in reader.left_out}
        _apply(read, downstream)
        begin = binlog_end(downstream)
        _apply(read, downstream)
        logged = _logged(downstream, begin, known)
        with object_reader(there, known, _TABLES) as reader:
            again = _read(reader)
            assert not reader.left_out
    assert [_comparable(one) for one in again] == [_comparable(one) for one in read]
    assert [_facts(one) for one in logged] == [_facts(one) for one in read if family(one.kind)]
    assert left_out == {
        (_A, "b_invalid"): "its query is invalid",
        (_A, "a_reads_invalid"): "its query is invalid",
        (_A, "calls_hidden"): "it uses objects_c.hidden, which is not replicated",
        (_A, "reads_hidden"): "it uses objects_c.hidden, which is not replicated",
    }
    source.execute(f"INSERT INTO {_NAMES['c']}.parent VALUES (7)")
    downstream.execute(f"INSERT INTO {_NAMES['c']}.parent VALUES (7)")
    calls = f"CALL {_NAMES['a']}.{_NAMES['odd']}('x')", f"SELECT * FROM {_NAMES['a']}.a_last"
    for call in calls:
        assert source.execute(call) == downstream.execute(call)


def _read(reader: ObjectReader) -> list[SchemaChanged]:
    """Read everything in the order of a copy; tables only as far as the others need them."""
    sequences = [statement for name in reader.sequences() for statement in reader.sequence(name)]
    tables = [_table(reader, *name) for name in reader.tables()]
    programs = [*reader.routines(), *reader.views(), *reader.events(), *reader.triggers()]
    return [*reader.databases(), *sequences, *tables, *programs]


def _table(reader: ObjectReader, db: str, name: str) -> SchemaChanged:
    with reader._connection.cursor() as cursor:
        cursor.execute(f"SHOW CREATE TABLE {quoted(db, name)}")
        text = cursor.fetchone()[1]
    return reader._statement(text.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1), db)


def _apply(statements: list[SchemaChanged], downstream: Database) -> None:
    """Run the statements as a consumer does, which also has triggers applied here."""
    rules = DdlRules(TableFilter(), EventFilter(), Router(), DdlOptions())
    for one in statements:
        with closing(connect(ServerUrl.parse(downstream.url("tailrace")))) as session:
            translated = one if one.kind.endswith("TRIGGER") else rules.translate(one, lambda: ())
            ddl_session.apply_settings(session, translated)
            session.execute(translated.statement)


def _logged(server: Database, begin: tuple[str, int], flavor: Flavor) -> list[SchemaChanged]:
    """Return the DDL on programs and views that is in the binlog after a position, as the log has it."""
    file, at = begin
    data, found = (server.data / file).read_bytes(), []
    while at < len(data):
        event = framing.header(data, at)
        if event.type == framing.QUERY:
            one = parse_query_event(data[at + framing.HEADER_SIZE : at + event.size - framing.CHECKSUM_SIZE])
            statement = classify(one.statement, one.default_db, flavor, sql_mode=one.sql_mode)
            found.append(epoch_ddl(one, statement, flavor, event.timestamp))
        at += event.size
    return [one for one in found if family(one.kind)]


def _facts(one: SchemaChanged) -> tuple[object, ...]:
    """Return what a statement has in the upstream's binlog and in the downstream's."""
    is_create = one.kind.startswith("CREATE")
    session = (
        (one.sql_mode, one.charset_client, one.collation_connection, one.default_db) if is_create else ()
    )
    return (
        one.kind,
        one.tables,
        one.source_flavor,
        one.time_zone if one.kind == "CREATE EVENT" else "",
        *session,
    )


def _comparable(one: SchemaChanged) -> SchemaChanged:
    """Return the statement without the table's counter, and without what a consumer changes in events."""
    text = re.sub(" (ENABLE|DISABLE ON (SLAVE|REPLICA)|DISABLE) (?=DO |COMMENT )", " ", one.statement)
    text = re.sub(r"RESTART \d+$", "RESTART", text) if one.kind == "ALTER SEQUENCE" else text
    return replace(one, statement=text, timestamp=0)


def test_tables_are_listed_in_order(source: Database, known: Flavor) -> None:
    """Parents first."""
    with closing(source.connect()) as connection, object_reader(connection, known, _TABLES) as reader:
        tables, sequences = reader.tables(), reader.sequences()
    kid, parent = (_A, "kid"), (_C, "parent")
    names = [kid, parent, (_A, "child"), (_A, "from `'\"\\ é"), (_A, "self")]
    own = [(_A, "numbered"), (_A, "versioned")] if known == "mariadb" else []
    assert sorted(tables) == sorted([*names, *own])
    assert tables.index(parent) < tables.index(kid) < tables.index((_A, "child"))
    assert sequences == ([(_A, "`'\"\\é")] if known == "mariadb" else [])


def test_an_event_in_the_past_and_the_session_afterwards(source: Database, known: Flavor) -> None:
    """The event gets the time of its last change; the reader's session is the copy's again."""
    with closing(source.connect()) as connection, connection.cursor() as cursor:
        for statement in session_setup(known):
            cursor.execute(statement)
        names = "SELECT @@sql_mode, @@character_set_results, @@time_zone"
        cursor.execute(names)
        before = cursor.fetchall()
        with object_reader(connection, known, _TABLES) as reader:
            events = {one.statement: one for one in reader.events() if one.kind == "CREATE EVENT"}
        cursor.execute(names)
        assert cursor.fetchall() == before
    (past,) = (one for text, one in events.items() if "`past`" in text)
    assert (past.timestamp, past.time_zone) == (_PAST, "+05:30")


def test_a_missing_privilege_is_named(source: Database, known: Flavor) -> None:
    """The account may read rows only."""
    options = {"user": "reads_rows", "password": "reads_rows"}
    source.execute("CREATE USER reads_rows IDENTIFIED BY 'reads_rows'", "GRANT SELECT ON *.* TO reads_rows")
    with (
        closing(source.connect(**options)) as connection,
        pytest.raises(UpstreamError, match="cannot be read") as raised,
        object_reader(connection, known, _TABLES) as reader,
    ):
        reader.views()
    assert raised.value.code == "TR202"
    assert "SHOW VIEW" in raised.value.hint


@pytest.mark.parametrize("flavor", ["mariadb"])
@pytest.mark.parametrize(
    "options",
    ["", "INCREMENT -1", "MAXVALUE 3 NOCACHE", "MINVALUE -3 MAXVALUE -1 INCREMENT -1 NOCACHE CYCLE"],
)
def test_sequences_continue(source: Database, downstream: Database, known: Flavor, options: str) -> None:
    """They give the same values next, also where they have run out."""
    name, get = (_A, "s"), f"SELECT NEXTVAL({quoted(_A, 's')})"
    source.execute(f"CREATE SEQUENCE {quoted(*name)} {options}", *[get] * 3)
    if not options:
        source.execute(f"SELECT SETVAL({quoted(*name)}, 9223372036854775806)")
    with closing(source.connect()) as connection, object_reader(connection, known, _TABLES) as reader:
        read = [*reader.databases(), *reader.sequence(name)]
        assert reader.sequence((_A, "none")) == []
    _apply(read, downstream)
    _apply(read, downstream)
    state = f"SELECT next_not_cached_value, minimum_value, maximum_value, increment FROM {quoted(*name)}"
    assert source.execute(state) == downstream.execute(state)


def test_objects_that_are_gone(source: Database, known: Flavor) -> None:
    """What was dropped after it was listed is left out."""
    kinds = ["FUNCTION", "PROCEDURE", "EVENT", "TRIGGER"]
    kinds += ["LIBRARY"] if known == "mysql" else ["PACKAGE", "PACKAGE BODY"]
    with closing(source.connect()) as connection, object_reader(connection, known, _TABLES) as reader:
        for kind in kinds:
            for db in (_A, "objects_none"):
                assert reader._program(kind, (db, "none")) == []
        assert reader._shown("SHOW CREATE VIEW objects_none.v", "VIEW", ("objects_none", "v")) is None
        assert reader._shown("SHOW CREATE VIEW objects_a.v", "VIEW", ("objects_a", "v")) is None


def test_the_rights_of_the_hint_are_enough(source: Database, known: Flavor) -> None:
    """An account with them reads what root reads."""
    user = "'objects'@'%'"
    source.execute(f"CREATE USER {user}", f"{_RIGHTS[known]} TO {user}")
    read = []
    for name in ("root", "objects"):
        with (
            closing(source.connect(user=name)) as connection,
            object_reader(connection, known, _TABLES) as reader,
        ):
            read.append([_comparable(one) for one in _read(reader)])
    source.execute(f"DROP USER {user}")
    assert read[0] == read[1]
