"""Event kinds that a session can switch on in mid-stream, from real servers through the producer."""

from __future__ import annotations

import pytest

from relay_store.layout import directory as layout
from tests.support.epochs.producer_case import Case

pytestmark = pytest.mark.servers


def _images(case: Case, table: str = "t") -> list[dict[str, object]]:
    """What is published of a table, in its key's order."""
    return sorted(case.published().tables()[table].values(), key=lambda image: str(image["id"]).zfill(9))


@pytest.mark.parametrize("flavor", ["mysql"])
def test_statements_inside_compressed_transactions(case: Case) -> None:
    """Savepoints, and a table made from a query, whose DDL and rows share one TRANSACTION_PAYLOAD."""
    case.sql(
        "SET SESSION binlog_transaction_compression = ON",
        "BEGIN",
        "INSERT INTO t (id, v) VALUES (1, 'kept')",
        "SAVEPOINT s",
        "INSERT INTO t (id, v) VALUES (2, 'lost')",
        "ROLLBACK TO s",
        "INSERT INTO t (id, v) VALUES (3, 'kept')",
        "COMMIT",
        "CREATE TABLE made (id INT PRIMARY KEY) SELECT id, v FROM t",
        "INSERT INTO made VALUES (4, 'behind')",
    )
    case.catch_up()
    assert [image["id"] for image in _images(case)] == [1, 3]
    assert [image["id"] for image in _images(case, "made")] == [1, 3, 4]
    assert [e.ddl.kind for e in case.published().epochs if e.ddl] == ["CREATE TABLE"]


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_compressed_statements_and_both_phases_of_an_alter(case: Case, compressed_events: None) -> None:
    """ALTER is logged twice and takes effect once; rows come in compressed events of every kind."""
    case.sql(
        "SET SESSION binlog_alter_two_phase = ON",
        "ALTER TABLE t ADD COLUMN w VARCHAR(50) NOT NULL DEFAULT 'a default of some length'",
        "INSERT INTO t (id, v) VALUES (1, REPEAT('a', 90)), (2, REPEAT('b', 90)), (3, 'c')",
        "UPDATE t SET v = CONCAT(v, REPEAT('c', 90))",
        "DELETE FROM t WHERE id = 1",
    )
    case.catch_up()
    ddl = [e.ddl for e in case.published().epochs if e.ddl]
    assert [(change.kind, change.statement[:25]) for change in ddl] == [
        ("ALTER TABLE", "ALTER TABLE t ADD COLUMN ")
    ]
    assert [tuple(image.values()) for image in _images(case)] == case.content("t")


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_rows_that_mariadb_logs_although_they_were_rolled_back(case: Case, compressed_events: None) -> None:
    """Behind a temporary table or a MyISAM change it cannot cut its log; what such tables hold stays."""
    case.sql(
        "CREATE TABLE m (id INT PRIMARY KEY) ENGINE = MyISAM",
        "BEGIN",
        "INSERT INTO t (id) VALUES (1)",
        "SAVEPOINT `A savepoint of some length`",
        "CREATE TEMPORARY TABLE x (id INT)",
        "INSERT INTO t (id) VALUES (2)",
        "INSERT INTO m VALUES (2)",
        "UPDATE t, m SET t.id = t.id + 100, m.id = m.id + 100 WHERE t.id = 2",
        "ROLLBACK TO `a Savepoint of some length`",
        "INSERT INTO t (id) VALUES (3)",
        "COMMIT",
        "BEGIN",
        "SAVEPOINT a",
        "INSERT INTO t (id) VALUES (4)",
        "INSERT INTO m VALUES (4)",
        "ROLLBACK TO a",
        "INSERT INTO t (id) VALUES (5)",
        "ROLLBACK",
        "XA START 'x'",
        "INSERT INTO t (id) VALUES (6)",
        "SAVEPOINT a",
        "CREATE TEMPORARY TABLE y (id INT)",
        "INSERT INTO t (id) VALUES (7)",
        "ROLLBACK TO a",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA COMMIT 'x'",
    )
    case.catch_up()
    for table in ("t", "m"):
        assert [image["id"] for image in _images(case, table)] == [row[0] for row in case.content(table)]
    assert [row[0] for row in case.content("t")] == [1, 3, 6]


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_numbers_that_go_back(case: Case) -> None:
    """As with two servers that write into one domain, in MariaDB's default mode; over restarts and files."""
    case.upstream.execute("SET GLOBAL gtid_strict_mode = OFF")
    try:
        for run in range(3):
            case.sql(
                f"INSERT INTO t (id) VALUES ({run}1)",
                f"SET server_id = 77, gtid_seq_no = {2 * run + 1}",
                f"INSERT INTO t (id) VALUES ({run}2)",
                "SET server_id = 101",
                f"INSERT INTO t (id) VALUES ({run}3)",
                f"SET server_id = 77, gtid_seq_no = {2 * run + 2}",
                f"INSERT INTO t (id) VALUES ({run}4)",
            )
            if run == 1:
                case.sql("FLUSH BINARY LOGS")
            case.catch_up()
    finally:
        case.upstream.execute("SET GLOBAL gtid_strict_mode = ON")
    assert [image["id"] for image in _images(case)] == [row[0] for row in case.content("t")]
    assert len(case.content("t")) == 12


def test_a_table_without_engine_says_which_one_it_took(case: Case) -> None:
    case.sql(
        "CREATE TABLE usual (id INT PRIMARY KEY)",
        "SET SESSION default_storage_engine = MyISAM",
        "CREATE TABLE sessions_own (id INT PRIMARY KEY)",
        "CREATE TABLE gone (id INT PRIMARY KEY)",
        "DROP TABLE gone",
        "CREATE TABLE named (id INT PRIMARY KEY) ENGINE=MEMORY",
        "CREATE TABLE alike LIKE named",
    )
    case.catch_up()
    made = [e.ddl for e in case.published().epochs if e.ddl and e.ddl.kind == "CREATE TABLE"]
    took = {ddl.tables[0].table: dict(ddl.settings).get("default_storage_engine") for ddl in made}
    assert took == {
        "usual": "InnoDB",
        "sessions_own": "MyISAM",
        "gone": "InnoDB",
        "named": None,
        "alike": None,
    }
    # Without the upstream, as in a recovery, its default is known.
    assert layout.read_default_engine(case.config.relay.dir) == "InnoDB"
