"""DDL of every kind on real servers: what the upstream has, the downstream has as well."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from compose.databases import Database
from schemas.errors import DownstreamError
from spark_consumer.apply.ddl.intent import intent_of
from spark_consumer.rules.ddl_options import DdlOptions
from tests.support.applying.binlog_applied import Channel, definitions, epochs_since
from tests.support.binlogs.binlog_rows import binlog_end
from tests.support.names import own_name

pytestmark = pytest.mark.servers


@pytest.fixture
def db(request: pytest.FixtureRequest, upstream: Database, downstream: Database) -> Iterator[str]:
    """A database of the test's own; what begins with its name goes with it."""
    name = own_name("d_", request).lower()
    yield name
    for server in (upstream, downstream):
        there = server.execute(f"SHOW DATABASES LIKE '{name}%'")
        server.execute(*(f"DROP DATABASE `{found}`" for (found,) in there))


def run(server: Database, db: str, script: list[str], **options: Any) -> None:
    """Statements in one session, which begins without a database."""
    with server.connect(**options) as connection, connection.cursor() as cursor:
        for statement in script:
            cursor.execute(statement.replace("{db}", db))


SESSIONS = [
    "CREATE DATABASE {db} CHARACTER SET latin1",
    "USE {db}",
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
    "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    # the values of rows that are there already come from the session
    "SET time_zone = '+05:30', timestamp = 1700000000.123456",
    "ALTER TABLE t ADD ts TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), ADD dt DATETIME(6) DEFAULT NOW(6)",
    "SET timestamp = DEFAULT",
    "ALTER TABLE t MODIFY ts DATETIME(6)",
    "SET auto_increment_increment = 7, auto_increment_offset = 3",
    "ALTER TABLE t DROP PRIMARY KEY, ADD n INT AUTO_INCREMENT PRIMARY KEY FIRST",
    "SET auto_increment_increment = 1, auto_increment_offset = 1",
    "SET sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES,PIPES_AS_CONCAT')",
    "CREATE TABLE \"q\" (\"a\" VARCHAR(9) DEFAULT ('x' || 'y') COMMENT '\\\\', c INT)",
    "CREATE VIEW v AS SELECT \"a\" || 'z' AS x FROM q",
    "SET sql_mode = DEFAULT, foreign_key_checks = 0",
    "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES later (id))",
    "SET foreign_key_checks = 1",
    "CREATE TABLE later (id INT PRIMARY KEY)",
    "SET character_set_server = utf8mb4, collation_server = utf8mb4_bin",
    "CREATE DATABASE {db}_inherits",
    "SET explicit_defaults_for_timestamp = 0",
    "CREATE TABLE stamps (a TIMESTAMP, b TIMESTAMP NULL)",
    "SET explicit_defaults_for_timestamp = 1",
    "CREATE TABLE stamps2 (a TIMESTAMP, b TIMESTAMP NULL)",
    "SET NAMES latin1",
    "CREATE VIEW older AS SELECT 'x' AS y",
    "CREATE PROCEDURE older() SELECT 'x'",
    "SET NAMES utf8mb4, lc_time_names = 'de_DE'",
    "CREATE VIEW wide AS SELECT 'größe_表' AS y",
    "ALTER DATABASE {db} CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
    "CREATE TABLE after_it (s VARCHAR(9))",
]
OF_FLAVOR = {
    "mysql": [
        "SET sql_generate_invisible_primary_key = 1",
        "CREATE TABLE invisible (a INT)",
        "INSERT INTO invisible (a) VALUES (5)",
        "SET sql_generate_invisible_primary_key = 0",
        "SET default_collation_for_utf8mb4 = utf8mb4_general_ci",
        "CREATE TABLE general (s VARCHAR(9)) CHARACTER SET utf8mb4",
        "ALTER TABLE general ADD x INT, ALGORITHM=INSTANT",
        "ALTER TABLE general ADD KEY (x), ALGORITHM=INPLACE, LOCK=NONE",
        "CREATE TABLE /*!80023 IF NOT EXISTS */ executable (a INT /*!80023 INVISIBLE */, b INT)",
        "INSERT INTO executable (a, b) VALUES (1, 2)",
        "CREATE TABLE parts (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3",
        "CREATE TABLE picked AS SELECT 1 AS a, 'x' AS b UNION SELECT 2, 'y'",
    ],
    "mariadb": [
        "SET character_set_collations = 'utf8mb4=utf8mb4_bin'",
        "CREATE TABLE general (s VARCHAR(9)) CHARACTER SET utf8mb4",
        "SET character_set_collations = ''",
        "CREATE OR REPLACE TABLE general (s VARCHAR(8))",
        "CREATE SEQUENCE s START WITH 5 INCREMENT BY 3",
        "CREATE TABLE numbered (id INT DEFAULT NEXTVAL(s))",
        "INSERT INTO numbered VALUES (DEFAULT), (DEFAULT)",
        "SET STATEMENT lock_wait_timeout = 5 FOR ALTER TABLE general ADD x INT",
        "SET binlog_alter_two_phase = 1",
        "ALTER TABLE general ADD y INT",
        "SET binlog_alter_two_phase = 0",
        "CREATE TABLE /*M! IF NOT EXISTS */ executable (a INT /*M!100300 INVISIBLE */, b INT)",
        "INSERT INTO executable (a, b) VALUES (1, 2)",
        "CREATE TABLE versions (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
        "CREATE OR REPLACE TABLE picked AS SELECT 1 AS a, 'x' AS b UNION SELECT 2, 'y'",
        "SET sql_mode = 'ORACLE'",
        "CREATE PACKAGE pk AS PROCEDURE p(); END",
        "CREATE PACKAGE BODY pk AS PROCEDURE p() AS BEGIN NULL; END; END",
        "SET sql_mode = DEFAULT",
    ],
}
LISTS = [
    "CREATE TABLE d1 (id INT PRIMARY KEY)",
    "CREATE TABLE d2 (id INT PRIMARY KEY)",
    "INSERT INTO d1 VALUES (1)",
    "INSERT INTO d2 VALUES (2)",
    "RENAME TABLE d1 TO d3, d2 TO d1, d3 TO d2",
    "INSERT INTO d1 VALUES (10)",
    "CREATE TABLE like_it LIKE d1",
    "CREATE TABLE IF NOT EXISTS d1 (other INT)",
    "ALTER TABLE like_it RENAME TO liked, ADD v INT",
    "CREATE TABLE old (id INT, PRIMARY KEY (id)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100))",
    "INSERT INTO old VALUES (1), (2)",
    "CREATE TABLE swap (id INT PRIMARY KEY)",
    "INSERT INTO swap VALUES (50)",
    "ALTER TABLE old EXCHANGE PARTITION p0 WITH TABLE swap",
    "ALTER TABLE old ADD PARTITION (PARTITION p1 VALUES LESS THAN (200))",
    "ALTER TABLE old TRUNCATE PARTITION p0",
    "INSERT INTO old VALUES (150)",
    "ALTER TABLE old DROP PARTITION p0",
    "CREATE TABLE gone (id INT)",
    "DROP TABLE IF EXISTS gone, never_there",
    "CREATE TEMPORARY TABLE tmp (a INT)",
    "INSERT INTO tmp VALUES (1)",
    "CREATE TABLE mixed (a INT)",
    "DROP TABLE tmp, mixed",
    "ANALYZE TABLE d1",
    "OPTIMIZE TABLE d1",
    "FLUSH TABLES",
]
PROGRAMS = [
    "CREATE DEFINER = nobody@nowhere PROCEDURE p() SQL SECURITY INVOKER BEGIN SELECT 1; END",
    "ALTER PROCEDURE p COMMENT 'x'",
    "CREATE FUNCTION f(x INT) RETURNS VARCHAR(9) RETURN CONCAT('n', x)",
    "CREATE VIEW uses_it AS SELECT f(1) AS y",
    "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND DO INSERT INTO d1 VALUES (NULL)",
    "ALTER EVENT e ENABLE",
    "CREATE EVENT e2 ON SCHEDULE AT NOW() + INTERVAL 1 DAY ON COMPLETION PRESERVE DISABLE COMMENT 'do' DO SELECT 1",
    "ALTER EVENT e2 RENAME TO e3",
    "CREATE TRIGGER tr BEFORE INSERT ON d1 FOR EACH ROW SET NEW.id = NEW.id + 1000",
    "INSERT INTO d1 VALUES (5)",
    "CREATE PROCEDURE gone() SELECT 1",
    "DROP PROCEDURE gone",
    "CREATE TABLE from_trigger (id INT)",
    "INSERT INTO d1 VALUES (6)",
]


def test_everything_arrives_as_it_is(db: str, upstream: Database, downstream: Database) -> None:
    begin = binlog_end(upstream)
    run(upstream, db, [*SESSIONS, *OF_FLAVOR[upstream.flavor], *LISTS, *PROGRAMS])
    applier = Channel(downstream, db).apply(epochs_since(upstream, begin))
    databases = [name for (name,) in upstream.execute(f"SHOW DATABASES LIKE '{db}%'")]
    wanted, found = definitions(upstream, *databases), definitions(downstream, *databases)
    assert wanted.keys() == found.keys()
    for what, definition in wanted.items():
        assert at_rest(found[what]) == at_rest(definition), what
    events = downstream.execute(
        f"SELECT DISTINCT STATUS FROM information_schema.EVENTS WHERE EVENT_SCHEMA = '{db}'"
    )
    assert events in ([("REPLICA_SIDE_DISABLED",)], [("SLAVESIDE_DISABLED",)])
    assert downstream.execute(f"SHOW TRIGGERS FROM {db}") == []
    assert applier.position.ddl_intent is None
    [[applied, left_out, ignored]] = downstream.execute(
        f"SELECT ddl_applied, ddl_left_out, ddl_ignored FROM tailrace.channel_counters WHERE channel = '{db}'"
    )
    assert applied > 50
    assert (left_out, ignored) == (1, 1)  # the trigger
    audited = downstream.execute(
        "SELECT ddl, ddl_left_out FROM tailrace.applied_epochs"
        f" WHERE channel = '{db}' AND ddl_left_out IS NOT NULL"
    )
    assert [("TRIGGER" in text.upper(), why) for text, why in audited] == [(True, "ignored")]


def at_rest(shown: Any) -> str:
    """A definition without the one thing that differs on purpose: whether an event runs."""
    return re.sub(r"(ENABLE|DISABLE ON (SLAVE|REPLICA)|DISABLE) ", "", str(shown))


GHOST = [
    "create /* gh-ost */ table `{db}`.`_t_ghc` (id bigint auto_increment, hint varchar(64) charset ascii not null,"
    " value varchar(4096) charset ascii not null, primary key(id), unique key hint_uidx(hint)) auto_increment=256",
    "create /* gh-ost */ table `{db}`.`_t_gho` like `{db}`.`t`",
    "alter /* gh-ost */ table `{db}`.`_t_gho` add column v int not null default 7, drop column s",
    "alter /* gh-ost */ table `{db}`.`_t_gho` add key (v)",
    "insert /* gh-ost */ into `{db}`.`_t_ghc` (id, hint, value) values (1, 'heartbeat', 'x')",
    "INSERT INTO {db}.t VALUES (3, 'c')",
    "insert /* gh-ost */ ignore into `{db}`.`_t_gho` (id) select id from `{db}`.`t`",
    "create /* gh-ost */ table `{db}`.`_t_del` (id int auto_increment primary key) comment='ghost-cut-over-sentry'",
    "drop /* gh-ost */ table if exists `{db}`.`_t_del`",
    "rename /* gh-ost */ table `{db}`.`t` to `{db}`.`_t_del`, `{db}`.`_t_gho` to `{db}`.`t`",
    "INSERT INTO {db}.t VALUES (4, 8)",
    "drop /* gh-ost */ table if exists `{db}`.`_t_ghc`",
    "drop /* gh-ost */ table if exists `{db}`.`_t_del`",
]
PT_OSC = [
    "CREATE TABLE {db}._t_new LIKE {db}.t",
    "ALTER TABLE {db}._t_new ADD w VARCHAR(9) NOT NULL DEFAULT 'x', MODIFY v BIGINT",
    "CREATE TRIGGER {db}.pt_osc_ins AFTER INSERT ON {db}.t FOR EACH ROW"
    " REPLACE INTO {db}._t_new (id, v) VALUES (NEW.id, NEW.v)",
    "INSERT INTO {db}.t VALUES (5, 9)",
    "INSERT LOW_PRIORITY IGNORE INTO {db}._t_new (id, v) SELECT id, v FROM {db}.t LOCK IN SHARE MODE",
    "RENAME TABLE {db}.t TO {db}._t_old, {db}.bystander TO {db}.moved, {db}._t_new TO {db}.t",
    "DROP TABLE IF EXISTS {db}._t_old",
    "DROP TRIGGER IF EXISTS {db}.pt_osc_ins",
    "INSERT INTO {db}.t VALUES (6, 10, 'y')",
    # one that is replicated as a table: the rows get the tool's time
    "CREATE TABLE {db}._t_new LIKE {db}.t",
    "ALTER TABLE {db}._t_new ADD at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
    "INSERT INTO {db}._t_new (id, v, w) SELECT id, v, w FROM {db}.t",
    "RENAME TABLE {db}.t TO {db}._t_old, {db}._t_new TO {db}.t",
    "DROP TABLE {db}._t_old",
    # and one that was given up
    "CREATE TABLE {db}._t_gho LIKE {db}.t",
    "INSERT INTO {db}._t_gho SELECT * FROM {db}.t",
    "DROP TABLE {db}._t_gho",
]
BEFORE = [
    "CREATE DATABASE {db}",
    "CREATE TABLE {db}.t (id INT PRIMARY KEY, s VARCHAR(9))",
    "CREATE TABLE {db}.bystander (id INT PRIMARY KEY)",
    "INSERT INTO {db}.t VALUES (1, 'a'), (2, 'b')",
    "INSERT INTO {db}.bystander VALUES (1)",
]


@pytest.mark.parametrize("online", [True, False])
def test_an_online_schema_change_is_carried_over_through_crashes(
    db: str, upstream: Database, downstream: Database, online: bool
) -> None:
    begin = binlog_end(upstream)
    run(upstream, db, [*BEFORE, *GHOST, *PT_OSC])
    epochs = epochs_since(upstream, begin)
    channel = Channel(downstream, db, ddl=DdlOptions(online_ddl=online))
    died = 0
    # Now behind each DDL, now before the second of a run: between the statements of a swap, too.
    while code := channel.apply_until_it_dies(epochs, "ddl.after" if died % 2 else "ddl.before:2"):
        assert code == signal.SIGKILL
        died += 1
        assert died < 60
    assert died >= 8
    assert definitions(downstream, db) == definitions(upstream, db)
    [[left_out, tables]] = downstream.execute(
        "SELECT ddl_left_out, online_tables FROM tailrace.channel_counters JOIN tailrace.relay_log_info"
        f" ON channel = Channel_name WHERE channel = '{db}'"
    )
    assert tables is None
    assert left_out > 10 if online else left_out == 2  # the triggers


def test_a_ddl_of_several_statements_ends_under_the_rules_that_it_began_with(
    db: str, upstream: Database, downstream: Database
) -> None:
    begin = binlog_end(upstream)
    run(upstream, db, [*BEFORE, *GHOST])
    epochs = epochs_since(upstream, begin)
    online = DdlOptions(online_ddl=True)
    channel = Channel(downstream, db, ddl=online)
    intent = f"SELECT ddl_intent FROM tailrace.relay_log_info WHERE Channel_name = '{db}'"
    # Until it dies behind the first of the two statements that the swap becomes.
    while channel.apply_until_it_dies(epochs, "ddl.after") == signal.SIGKILL:
        found = intent_of(downstream.execute(intent)[0][0])
        if found is not None and len(found.translated.statements) == 2:
            break
    columns = (
        f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{db}' AND table_name = 't'"
    )
    assert ("v",) in downstream.execute(columns)
    assert downstream.execute(f"SHOW KEYS FROM {db}.t WHERE Key_name = 'v'") == []
    Channel(downstream, db, ddl=online, exclude=(f"{db}.t", f"{db}._t_gho")).apply(epochs)
    assert downstream.execute(intent) == [(None,)]
    assert len(downstream.execute(f"SHOW KEYS FROM {db}.t WHERE Key_name = 'v'")) == 1


def test_an_online_schema_change_that_began_before_the_channel_stops_at_its_end(
    db: str, upstream: Database, downstream: Database
) -> None:
    run(upstream, db, [*BEFORE, *GHOST[:4]])
    run(downstream, db, BEFORE)
    begin = binlog_end(upstream)
    run(upstream, db, GHOST[7:])
    channel = Channel(downstream, db, ddl=DdlOptions(online_ddl=True))
    with pytest.raises(DownstreamError, match="TR626"):
        channel.apply(epochs_since(upstream, begin))
    assert downstream.execute(f"SELECT COUNT(*) FROM {db}.t") == [(2,)]
