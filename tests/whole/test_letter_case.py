"""Servers with lower_case_table_names = 1 as upstream and as downstream, beside ones that tell cases apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from producer.settings import SkipRule
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from schemas.letter_case import lowered
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.route import Route
from tailrace.validate import compare_servers
from tests.support.applying.consuming import consume
from tests.support.epochs.producer_case import Case, producer_case

pytestmark = pytest.mark.servers
_OTHER = {"mysql": "mariadb", "mariadb": "mysql"}


@pytest.fixture
def folding(flavor: str, server: Callable[..., Database]) -> Database:
    """A server that has all names in lower case."""
    return server(flavor, role="upstream", server_id=301, args=["--lower-case-table-names=1"])


def _channel(case: Case, target: Database, folder: Path, **rules: object) -> ConsumerConfig:
    url, prefix = ServerUrl.parse(target.url()), case.config.prefix
    config = ConsumerConfig(case.config.bootstrap_servers, prefix, url, channel=prefix, checkpoint_dir=folder)
    return replace(config, **rules)  # type: ignore[arg-type]


def _rows(server: Database, db: str, table: str) -> list[tuple[object, ...]]:
    return server.execute(f"SELECT * FROM {db}.{table} ORDER BY 1")


_WORK = [
    "CREATE TABLE Foo (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET latin1, n INT)",
    "INSERT INTO FOO VALUES (1, 'é', 1), (2, 'b', 2)",
    "CREATE TABLE Bar LIKE fOO",
    "ALTER TABLE BAR ADD q BIGINT UNSIGNED FIRST, ADD CONSTRAINT CHECK (Bar.n < 9)",
    "INSERT INTO bar VALUES (18446744073709551615, 1, 'c', 3)",
    "ALTER TABLE foo ADD F INT, ADD FOREIGN KEY (f) REFERENCES {db}.BAR (ID)",
    "UPDATE Foo SET F = 1, v = 'd' WHERE id = 2",
    "RENAME TABLE bar TO `ÄÖ ß`",
    "INSERT INTO `äö ß` VALUES (0, 4, NULL, NULL)",
    "CREATE TABLE Ignored (id INT PRIMARY KEY)",
    "INSERT INTO IGNORED VALUES (1), (2)",
    "DELETE FROM Ignored WHERE id = 1",
    "CREATE TABLE Gone (id INT PRIMARY KEY)",
    "DROP TABLE GONE",
]


def test_names_of_an_upstream_in_lower_case_are_so_everywhere(
    folding: Database, request: pytest.FixtureRequest, kafka: Kafka, tmp_path: Path
) -> None:
    """DDL as it was typed, rows in lower case, rules in capitals, and no metadata: all is one."""
    target: Database = request.getfixturevalue(f"downstream_{folding.flavor}")
    least = "NO_LOG" if folding.flavor == "mariadb" else "MINIMAL"
    folding.execute(f"SET GLOBAL binlog_row_metadata = '{least}'")
    with producer_case(folding, kafka.bootstrap, tmp_path) as case:
        case.config = replace(
            case.config, include=(f"{case.db.upper()}.*",), skip=(SkipRule("PUB*", "FOO", ("statement",)),)
        )
        there = f"{case.db}_Low"
        target.execute(f"DROP DATABASE IF EXISTS {there}", f"CREATE DATABASE {there}", f"USE {there}",
                       "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200), n INT NOT NULL DEFAULT 0)")  # fmt: skip
        case.sql(f"CREATE DATABASE {case.db}_X", f"DROP DATABASE {case.db}_x")
        case.sql(*(text.format(db=case.db.upper()) for text in _WORK))
        case.sql(
            "SET SESSION binlog_format = 'STATEMENT'",
            "INSERT INTO Foo (id) VALUES (77)",
            "DELETE FROM Foo WHERE id = 77",
        )
        case.catch_up()
        routes = (Route(case.db.upper(), there), Route(case.db.upper(), there, "IGN*", "Kept"))
        config = _channel(case, target, tmp_path, include=(f"{case.db.upper()}.*",), routes=routes,
                          filters=(EventRule(case.db.upper(), "Ignore", "IGNORED", ("delete",)),))  # fmt: skip
        consume(config)
        for table in ("foo", "äö ß"):
            assert _rows(folding, case.db, f"`{table}`") == _rows(target, there, f"`{table}`")
        assert _rows(target, there, "Kept") == [(1,), (2,)]
        assert sorted(name for (name,) in target.execute(f"SHOW TABLES FROM {there}")) == sorted(
            ["t", "foo", "äö ß", "Kept"]
        )
        names = {v.table for e in case.published().epochs for v in e.structures}
        assert names == {"foo", "bar", "äö ß", "ignored"}
        skipped = {(s.table, s.kind): s.events for e in case.published().epochs for s in e.skipped}
        assert skipped == {("foo", "statement"): 2}
        source, aim = (ServerUrl.parse(server.url()) for server in (folding, target))
        found = compare_servers(source, aim, (f"{case.db.upper()}.Foo",), routes=routes)
        assert [(one.table, one.verdict) for one in found.tables] == [(f"{there}.foo", "equal")]
        target.execute(f"DROP DATABASE {there}")


def test_names_that_fall_together_on_the_downstream_stop_before_a_row(
    folding: Database, request: pytest.FixtureRequest, kafka: Kafka, tmp_path: Path
) -> None:
    upstream: Database = request.getfixturevalue(f"upstream_{_OTHER[folding.flavor]}")
    with producer_case(upstream, kafka.bootstrap, tmp_path) as case:
        folding.execute(f"CREATE DATABASE {case.db}", f"USE {case.db}",
                        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200), n INT NOT NULL DEFAULT 0)")  # fmt: skip
        case.sql("CREATE TABLE Foo (id INT PRIMARY KEY, v INT)", "INSERT INTO Foo VALUES (1, 1), (2, 2)",
                 "ALTER TABLE Foo ADD W INT", "UPDATE Foo SET w = 5 WHERE id = 1")  # fmt: skip
        case.catch_up()
        config = _channel(case, folding, tmp_path)
        consume(config)
        assert _rows(folding, case.db, "foo") == _rows(upstream, case.db, "Foo") == [(1, 1, 5), (2, 2, None)]
        urls = [ServerUrl.parse(server.url()) for server in (upstream, folding)]
        found = compare_servers(urls[0], urls[1], (f"{case.db}.*",))
        assert [(one.table, one.verdict) for one in found.tables] == [
            (f"{case.db}.foo", "equal"), (f"{case.db}.t", "equal")]  # fmt: skip
        case.sql(
            "CREATE TABLE IF NOT EXISTS foo (id INT PRIMARY KEY, v INT, W INT)",
            "INSERT INTO foo VALUES (9, 9, 9)",
        )
        case.catch_up()
        for _ in range(2):
            with pytest.raises(
                DownstreamError, match=rf"TR618.*{case.db}\.Foo and {case.db}\.foo are one table"
            ):
                consume(config)
        assert len(_rows(folding, case.db, "foo")) == 2
        with pytest.raises(DownstreamError, match="TR618"):
            compare_servers(urls[0], urls[1], (f"{case.db}.*",))
        consume(replace(config, exclude=(f"{case.db}.foo",)))
        assert len(_rows(folding, case.db, "foo")) == 2


def test_names_are_put_in_lower_case_as_the_server_does_it(folding: Database) -> None:
    letters = [chr(n) for n in range(0x21, 0x10000) if not 0xD800 <= n < 0xE000]
    with folding.connect() as connection, connection.cursor() as cursor:
        for begin in range(0, len(letters), 4096):
            some = letters[begin : begin + 4096]
            text = "".join(some)
            cursor.execute("SELECT LOWER(CONVERT(%s USING utf8mb3) COLLATE utf8mb3_general_ci)", (text,))
            [(lower,)] = cursor.fetchall()
            wrong = [(a, b) for a, b in zip(some, lower, strict=True) if lowered(a) != b]
            assert not wrong
