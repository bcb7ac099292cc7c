"""Tracked structures against the servers' own word: what DDL texts make of tables, and what TABLE_MAPs say."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pymysql
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compose.databases import Database
from producer.events.table_map import full_structure, read_table_map
from producer.set_structure import set_structure
from producer.structures.forms import matched, predicted
from producer.structures.interpret import Unresolved
from schemas.ddl.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES
from schemas.ddl.table_definition import TableDefinition
from schemas.errors import DecodeError
from tests.support.binlogs.binlog_rows import binlog_end
from tests.support.binlogs.tracking import _TABLE_MAP, Tracker, table_maps, tracker_in
from tests.support.epochs.producer_case import SMALL_EPOCHS, Case
from tests.support.statements.random_ddl import ORACLE, Maker
from tests.support.statements.value_types import TYPES

pytestmark = pytest.mark.servers

# For a search for new counterexamples; the ordinary run takes the same ones each time.
_EXAMPLES = os.environ.get("STRUCTURE_EXAMPLES")


_MORE = {
    "mysql": ["VECTOR(3)", "GEOMETRY SRID 4326", "JSON", "CHAR(4) BYTE", "LONG", "LONG VARBINARY", "SERIAL"],
    "mariadb": ["VECTOR(3)", "UUID", "INET4", "INET6", "JSON", "VARCHAR(20) COMPRESSED", "TEXT COMPRESSED",
                "BLOB COMPRESSED", "CHAR(4) BYTE"],
}  # fmt: skip
_SPELLINGS = [
    "INT(11) ZEROFILL", "INTEGER", "DEC(5)", "FIXED(7,2) SIGNED", "NUMERIC", "DOUBLE PRECISION", "REAL", "FLOAT(24)",
    "FLOAT(25)", "FLOAT(5,2)", "BIT", "BOOL", "YEAR(4)", "NATIONAL CHARACTER VARYING(9)", "NCHAR(3)", "NVARCHAR(4)",
    "NATIONAL VARCHAR(5)", "CHARACTER VARYING(7)", "CHARACTER(3)", "CHAR", "BINARY", "TEXT(20)", "BLOB(300)",
    "TEXT(70000)", "VARCHAR(30000)", "VARCHAR(9) ASCII", "CHAR(9) UNICODE", "VARCHAR(9) BINARY",
    "VARCHAR(9) CHARACTER SET binary", "TEXT CHARSET binary", "LONGTEXT CHARACTER SET latin1 COLLATE latin1_bin",
    "VARCHAR(5) COLLATE koi8r_bin", "ENUM('a','b ','c''d') CHARACTER SET ucs2", "SET('x','ä')", "GEOMETRYCOLLECTION",
    "POINT", "INT DEFAULT -1", "DECIMAL(5,3) DEFAULT 1.5", "DOUBLE DEFAULT 1.5e-3", "BIT(4) DEFAULT b'101'",
    "VARCHAR(9) DEFAULT 'NOT NULL' COMMENT 'UNIQUE, PRIMARY KEY'", "DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3)",
    "TIMESTAMP(6) NOT NULL DEFAULT NOW(6) ON UPDATE NOW(6)", "INT NOT NULL", "INT CHECK (1 > 0)", "INT INVISIBLE",
    "INT GENERATED ALWAYS AS (1 + 1) VIRTUAL", "INT AS (2) STORED",
]  # fmt: skip


def test_every_type_shows_as_its_definition_says(upstream: Database) -> None:
    """The TABLE_MAP's codes, signs, charsets, members and key are those predicted from the DDL's text."""
    with tracker_in(upstream, "shown") as tracker:
        types = [text for text, _, _ in TYPES] + _SPELLINGS + _MORE[upstream.flavor]
        tables = 0
        for number, text in enumerate(types):
            made = tracker.run(
                f"CREATE TABLE t{number} (id INT PRIMARY KEY, `c` {text}) DEFAULT CHARSET latin1"
            )
            tables += made
        assert tables > len(types) * 0.9
        tracker.check()
        begin = binlog_end(upstream)
        for _, table in list(tracker.catalog.tables):
            tracker.cursor.execute(f"INSERT IGNORE INTO {table} (id) VALUES (1)")
        seen = 0
        for body in table_maps(upstream, begin):
            event = read_table_map(body, upstream.flavor)
            definition = tracker.catalog.tables[event.db, event.table]
            assert isinstance(definition, TableDefinition)
            stated = full_structure(event)
            without = replace(event, optional={})
            assert matched(without, definition, tracker.flavor) == stated
            assert predicted(event.db, event.table, definition, tracker.flavor) in (stated, None)
            seen += 1
        assert seen > tables * 0.95


_FIRST = (
    "CREATE TABLE t (a INT NOT NULL, B VARCHAR(20) NOT NULL, c TEXT, UNIQUE (B), UNIQUE (a), KEY k3 (c(9)))"
)
_SQL_MODES = [
    "",
    "",
    "ANSI_QUOTES",
    "NO_BACKSLASH_ESCAPES",
    "ANSI_QUOTES,NO_BACKSLASH_ESCAPES",
    "REAL_AS_FLOAT",
]
_OWN_MODES = {
    "mysql": ["ANSI"],
    "mariadb": ["ORACLE", "MAXDB", "NO_TABLE_OPTIONS", "NO_FIELD_OPTIONS", "MYSQL40"],
}


def _sql_mode(cursor: Any) -> int:
    """The bits of the session's that decide how statements have to be written."""
    cursor.execute("SELECT @@sql_mode")
    names = cursor.fetchone()[0].split(",")
    bits = {"ANSI_QUOTES": ANSI_QUOTES, "NO_BACKSLASH_ESCAPES": NO_BACKSLASH_ESCAPES, "ORACLE": ORACLE}
    return sum(bit for name, bit in bits.items() if name in names)


def _rows_of_each(tracker: Tracker) -> int:
    """Write a row into each table; the TABLE_MAP says of it what is tracked. Returns how many could be compared."""
    for db, table in list(tracker.catalog.tables):
        # A sequence takes none, nor a partition, a CHECK and the like at times.
        with suppress(pymysql.MySQLError):
            tracker.cursor.execute(f"INSERT IGNORE INTO {db}.`{table.replace('`', '``')}` () VALUES ()")
    seen = 0
    for kind, body in tracker.logged():
        if kind != _TABLE_MAP:
            continue
        event = read_table_map(body[8:], tracker.flavor)
        known = tracker.catalog.tables[event.db, event.table]
        if isinstance(known, Unresolved) or any(column.charset is None for column in known.columns):
            continue
        stated = full_structure(event)
        assert matched(replace(event, optional={}), known, tracker.flavor) == stated, tracker.log
        assert predicted(event.db, event.table, known, tracker.flavor) in (stated, None), tracker.log
        seen += 1
    return seen


@settings(max_examples=int(_EXAMPLES or 25), derandomize=not _EXAMPLES,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(st.randoms(use_true_random=False))
def test_any_ddl_is_tracked_as_the_server_carries_it_out(upstream: Database, rng: random.Random) -> None:
    """Whatever the server accepts: columns, places, keys, charsets and the row's key are the server's own."""
    with tracker_in(upstream, "followed") as tracker:
        mode = rng.choice(_SQL_MODES + _OWN_MODES[upstream.flavor])
        explicit = rng.randrange(2)
        tracker.cursor.execute(
            f"SET SESSION innodb_strict_mode = 0, explicit_defaults_for_timestamp = {explicit}, sql_mode = '{mode}'"
        )
        maker = Maker(
            rng, tracker.flavor, tracker.db, lambda: tracker.catalog.tables, _sql_mode(tracker.cursor)
        )
        assert tracker.run(_FIRST)
        for _ in range(12):
            tracker.run(maker.statement())
        tracker.check()
        _rows_of_each(tracker)


_BEGIN = "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200), n INT NOT NULL DEFAULT 0)"
_WORK = [
    "INSERT INTO t (v) VALUES ('a'), ('b')",
    "UPDATE t SET n = 5 WHERE id = 1",
    "ALTER TABLE t ADD COLUMN e ENUM('x','y''z') NOT NULL DEFAULT 'x' AFTER id, CHANGE n m BIGINT UNSIGNED",
    "INSERT INTO t (v, e, m) VALUES ('c', 'y''z', 18446744073709551615)",
    "CREATE TABLE u (k CHAR(3) CHARACTER SET latin1 NOT NULL, s SET('p','q'), d DECIMAL(9,3), UNIQUE KEY (k))",
    "INSERT INTO u VALUES ('\u00e9', 'p,q', -1.5)",
    "ALTER TABLE u MODIFY k VARCHAR(9) NOT NULL, ADD w TEXT FIRST",
    "INSERT INTO u VALUES ('text', 'k', 'q', 0)",
    "CREATE TABLE u2 LIKE u",
    "INSERT INTO u2 SELECT * FROM u",
    "RENAME TABLE t TO tmp, u2 TO t",
    "INSERT INTO t (w, k) VALUES (NULL, 'swap')",
    "UPDATE tmp SET id = id + 100",
    "DROP TABLE t",
    "ALTER TABLE tmp RENAME TO t, DROP COLUMN v, ADD ts TIMESTAMP(3) NULL DEFAULT NULL",
    "INSERT INTO t (ts) VALUES ('2024-01-01 00:00:01.234')",
    "CREATE TABLE c SELECT * FROM t",
    "DELETE FROM c",
    "ALTER TABLE c ADD UNIQUE (id), CONVERT TO CHARACTER SET utf8mb3",
    "INSERT INTO c SELECT * FROM t",
    "CREATE UNIQUE INDEX other ON u (d)",
    "ALTER TABLE u DROP INDEX k, MODIFY d DECIMAL(9,3) NOT NULL",
    "DELETE FROM u WHERE k = '\u00e9'",
]


def _shape(row: Any, db: str) -> tuple[Any, ...]:
    """A row without the name of its database."""
    structure = row.structure.to_dict() | {"db": ""}
    record = row.avro()
    key = row.key.replace(bytes([len(db) << 1]) + db.encode(), b"", 1)
    return structure, row.op, record["before"], record["after"], key


def _last_of(epochs: Any, table: tuple[str, str]) -> list[str]:
    return [v.fingerprint for e in epochs for v in e.structures if (v.db, v.table) == table]


def _foretold(epochs: Any) -> int:
    """How many DDL statements said which structure the table's next rows had; none said a wrong one."""
    right = 0
    for number, epoch in enumerate(epochs):
        for table in epoch.ddl.tables if epoch.ddl else ():
            name = (table.renamed_to_db or table.db, table.renamed_to or table.table)
            for later in epochs[number:]:
                found = {(t.db, t.table): t.fingerprint for t in later.tables}
                if name in found:
                    assert table.after in (None, found[name])
                    right += table.after is not None
                if name in found or (later.ddl and later is not epoch):
                    break
    return right


def test_without_metadata_all_is_as_with_it(case: Case, tmp_path: Any) -> None:
    """The same work in two databases, logged with full metadata and without any; killed and begun anew on the way."""
    other = f"{case.db}_full"
    setting = "NO_LOG" if case.upstream.flavor == "mariadb" else "MINIMAL"
    case.config = replace(
        case.config, include=(f"{case.db}.*", f"{other}.*"), epoch=replace(SMALL_EPOCHS, max_rows=1)
    )
    case.catch_up()
    try:
        case.upstream.execute(f"DROP DATABASE IF EXISTS {other}", f"CREATE DATABASE {other}")
        case.upstream.execute(f"USE {other}", _BEGIN, *_WORK)
        case.upstream.execute(f"SET GLOBAL binlog_row_metadata = '{setting}'")
        case.sql(*_WORK)
        for crash_at in ("publish.after_commit:25", "publish.before_commit:6"):
            assert case.process(crash_at=crash_at).wait(120) == -signal.SIGKILL
        case.config.relay.dir.rename(tmp_path / "gone")
        assert case.process(crash_at="publish.after_commit:4", start="earliest").wait(120) == -signal.SIGKILL
        case.catch_up()
        case.upstream.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
        before = case.published()
        case.sql("INSERT INTO t (m) VALUES (1)")
        case.catch_up()
    finally:
        case.upstream.execute("SET GLOBAL binlog_row_metadata = 'FULL'", f"DROP DATABASE {other}")
    rows = case.published().all_rows
    assert _foretold(before.epochs) > 10
    bare = [_shape(row, case.db) for row in rows if row.structure.db == case.db]
    full = [_shape(row, other) for row in rows if row.structure.db == other]
    assert len(full) > 20
    assert bare[:-1] == full
    table = (case.db, "t")
    assert (
        rows[-1].structure
        == [r for r in before.all_rows if (r.structure.db, r.structure.table) == table][-1].structure
    )
    # Nothing was stated anew when the upstream went over to full metadata: the schema is the same.
    assert _last_of(case.published().epochs, table) == _last_of(before.epochs, table)


_OLD_VALUES = {
    "TIME": ["'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:00.9'", "'-00:00:01.000001'", "'12:34:56.789123'"],
    "DATETIME": ["'0000-00-00'", "'9999-12-31 23:59:59'", "'2024-02-30 01:02:03.5'", "'2024-01-01 00:00:00.000001'",
                 "'0001-00-00 00:00:00'", "'1000-01-01 12:34:56.789123'"],
    "TIMESTAMP": ["'0000-00-00'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.999999'", "'2001-09-09 01:46:40.5'",
                  "'2024-02-29 23:59:59.000001'", "'1999-12-31 23:59:59'"],
}  # fmt: skip


@pytest.mark.parametrize("flavor", ["mariadb"])
@pytest.mark.parametrize("metadata", ["FULL", "NO_LOG"])
def test_temporal_columns_of_old_servers(case: Case, metadata: str) -> None:
    """mysql56_temporal_format = OFF: fractions come from the structure; every value is the server's own text."""
    names = {f"{kind}{n}".lower(): f"{kind}({n}) NULL" for kind in _OLD_VALUES for n in range(7)}
    columns = ", ".join(f"{name} {text}" for name, text in names.items())
    loose = "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
    try:
        case.upstream.execute(
            f"SET GLOBAL binlog_row_metadata = '{metadata}'", "SET GLOBAL mysql56_temporal_format = OFF"
        )
        case.sql(f"CREATE TABLE old (id INT PRIMARY KEY, {columns})")
        for i in range(6):
            values = ", ".join(_OLD_VALUES[text.partition("(")[0]][i] for text in names.values())
            case.sql(loose, f"INSERT INTO old VALUES ({i}, {values})")
        case.catch_up()
    finally:
        case.upstream.execute(
            "SET GLOBAL binlog_row_metadata = 'FULL'", "SET GLOBAL mysql56_temporal_format = ON"
        )
    rows = [row for row in case.published().all_rows if row.structure.table == "old"]
    assert {column.code for column in rows[0].structure.columns} == {3, 7, 11, 12}
    texts = ", ".join(f"CAST({name} AS CHAR)" for name in names)
    for expected, row in zip(case.sql(loose, f"SELECT {texts} FROM old ORDER BY id"), rows, strict=True):
        assert [row.avro()["after"][name] for name in names] == list(expected)


def test_a_structure_stated_by_hand_is_as_good_as_ddl(case: Case, tmp_path: Any) -> None:
    """What DDL outside of the binlog has spoilt is set right; a wrong statement stops as before."""
    case.sql("CREATE TABLE h (a INT PRIMARY KEY)")
    case.catch_up()
    sql = tmp_path / "h.sql"
    try:
        case.upstream.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
        case.sql("SET sql_log_bin = 0", "ALTER TABLE h ADD b VARCHAR(5) CHARACTER SET latin1 FIRST",
                 "SET sql_log_bin = 1", "INSERT INTO h VALUES ('x', 1)")  # fmt: skip
        for text in ("", "CREATE TABLE h (a INT PRIMARY KEY, b VARCHAR(5) CHARACTER SET latin1)"):
            if text:
                sql.write_text(text)
                set_structure(case.config, (case.db, "h"), sql, None)
            with pytest.raises(DecodeError) as stopped:
                case.catch_up()
            assert stopped.value.code == "TR419"
        sql.write_text("CREATE TABLE h (b VARCHAR(5) CHARACTER SET latin1, a INT PRIMARY KEY)")
        epoch = set_structure(case.config, (case.db, "h"), sql, None)
        assert epoch.structures[0].table == "h"
        case.catch_up()
    finally:
        case.upstream.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
    published = case.published()
    assert [row.avro()["after"] for row in published.all_rows] == [{"b": "x", "a": 1}]
    assert published.all_rows[0].structure.key == ("a",)
