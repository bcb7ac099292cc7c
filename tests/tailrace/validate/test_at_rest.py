"""``compare_servers`` on real servers: sees every single bit, and nothing that is not there."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from spark_consumer.rules.route import Route
from tailrace.validate import Report, compare_servers

pytestmark = pytest.mark.servers

SCHEMA = "cmp_t"

# Every kind of key that orders in its own way, and values that a careless reader rounds or pads.
TABLES = {
    "plain": "id INT PRIMARY KEY, f FLOAT, d DOUBLE, d2 DOUBLE(10,2), t TIMESTAMP NULL,"
    " dt DATETIME(6), b BIT(9)",
    "words": "w VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, v INT",
    "latin": "w VARCHAR(20) CHARACTER SET latin1 PRIMARY KEY, v INT",
    "pair": "a VARBINARY(8), b DECIMAL(12,3), v BLOB, PRIMARY KEY (a, b)",
    "choice": "e ENUM('z','a','m') NOT NULL, n INT NOT NULL, PRIMARY KEY (e, n)",
    "moments": "at DATETIME(3) NOT NULL, bits BIT(20) NOT NULL, f FLOAT NOT NULL, UNIQUE KEY (at, bits, f)",
    "heap": "a INT, b VARCHAR(20)",
}
ROWS = [
    "INSERT INTO plain VALUES (1, 0.1, 0.1, 1.005, '2024-01-01 10:00:00', '0000-00-00', b'101'),"
    " (2, 16777217, 1e300, 2, NULL, '2024-02-30 23:59:59.999999', b'111111111'),"
    " (3, -0e0, 1e-320, 0, NULL, NULL, NULL)",
    "INSERT INTO words VALUES ('', 0), ('Äpfel', 1), ('zebra', 2), ('😀', 3), ('a\\'b', 4), ('x\\\\', 5)",
    "INSERT INTO latin VALUES ('é', 1), ('z', 2), ('ÿ', 3)",
    "INSERT INTO pair VALUES (x'00ff', -1.5, x'00'), (x'00ff', 2, NULL), ('', 0, ''), (x'ff', 99.999, x'ff')",
    "INSERT INTO choice VALUES ('z', 1), ('a', 1), ('m', 2), ('a', 3)",
    "INSERT INTO moments VALUES ('0000-00-00', 1, 0.1), ('2024-01-01 00:00:00.123', 2, 0.1),"
    " ('2024-01-01', 3, -7)",
    "INSERT INTO heap VALUES (1, 'x'), (1, 'x'), (NULL, NULL), (2, 'y')",
]


def _url(server: Any) -> ServerUrl:
    return ServerUrl.parse(server.url())


def _fill(server: Any) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {SCHEMA}")
        cursor.execute(f"CREATE DATABASE {SCHEMA}")
        cursor.execute(f"USE {SCHEMA}")
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        for name, columns in TABLES.items():
            cursor.execute(f"CREATE TABLE {name} ({columns}) DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_bin")
        for statement in ROWS:
            cursor.execute(statement)


def _do(server: Any, *statements: str) -> None:
    with server.connect(database=SCHEMA) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        for statement in statements:
            cursor.execute(statement)


def _compare(upstream: Any, downstream: Any) -> Report:
    return compare_servers(_url(upstream), _url(downstream), [f"{SCHEMA}.*"])


@pytest.fixture
def pair(upstream: Any, downstream: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Two servers with the same tables, and chunks so small that every boundary is met."""
    monkeypatch.setattr("tailrace.validate.validator.chunk_rows", lambda table: 1)
    _fill(upstream)
    _fill(downstream)
    return upstream, downstream


def test_equal_servers_are_equal(pair: tuple[Any, Any]) -> None:
    result = _compare(*pair)
    assert result.is_equal, result.not_equal
    assert [t.table for t in result.tables] == sorted(f"{SCHEMA}.{name}" for name in TABLES)
    assert result.rows == 27


@pytest.mark.parametrize(
    ("statement", "table", "key"),
    [
        ("UPDATE plain SET f = 0.10000001 WHERE id = 1", "plain", "id=1"),
        ("UPDATE plain SET d2 = 1.0051 WHERE id = 1", "plain", "id=1"),
        ("UPDATE plain SET d = 0.10000000000000002 WHERE id = 1", "plain", "id=1"),
        ("UPDATE plain SET f = 0.0 WHERE id = 3", "plain", "id=3"),
        ("UPDATE plain SET b = 0 WHERE id = 3", "plain", "id=3"),
        ("UPDATE plain SET dt = NULL WHERE id = 1", "plain", "id=1"),
        ("UPDATE words SET w = 'ÄPFEL' WHERE v = 1", "words", "w=ÄPFEL"),
        ("DELETE FROM words WHERE v = 0", "words", "w="),
        ("INSERT INTO words VALUES ('zzz', 9)", "words", "w=zzz"),
        ("DELETE FROM latin WHERE v = 3", "latin", "w=0xff"),
        ("UPDATE pair SET v = '' WHERE b = 2", "pair", "a=0x00ff, b=2.000"),
        ("DELETE FROM choice WHERE n = 3", "choice", "e=2, n=3"),
        ("DELETE FROM moments WHERE bits = 3", "moments", "at=2024-01-01 00:00:00.000"),
        ("UPDATE heap SET b = NULL WHERE a = 2", "heap", "a=2, b=y"),
        ("DELETE FROM heap WHERE a = 1 LIMIT 1", "heap", "a=1, b=x"),
    ],
)
def test_a_single_difference_is_found_and_named(
    pair: tuple[Any, Any], statement: str, table: str, key: str
) -> None:
    _do(pair[1], statement)
    result = _compare(*pair)
    [wrong] = [t for t in result.tables if t.verdict != "equal"]
    assert wrong.table == f"{SCHEMA}.{table}"
    assert (wrong.verdict, wrong.problem) == ("different", "")
    assert any(line.startswith(key) for line in wrong.keys), wrong


def test_a_missing_table_is_a_difference_on_either_side(pair: tuple[Any, Any]) -> None:
    _do(pair[0], "DROP TABLE latin")
    _do(pair[1], "DROP TABLE plain")
    result = _compare(*pair)
    problems = {t.table: t.problem for t in result.tables if t.verdict == "different"}
    assert problems == {f"{SCHEMA}.latin": "missing upstream", f"{SCHEMA}.plain": "missing downstream"}


def test_a_different_structure_is_shown(pair: tuple[Any, Any]) -> None:
    _do(pair[1], "ALTER TABLE heap ADD COLUMN c INT")
    [wrong] = [t for t in _compare(*pair).tables if t.verdict == "different"]
    assert (wrong.table, wrong.problem) == (f"{SCHEMA}.heap", "the structure differs")
    assert any("c" in line for line in wrong.structure)


def test_the_auto_increment_counter_does_not_count(pair: tuple[Any, Any]) -> None:
    for server in pair:
        _do(
            server,
            "CREATE TABLE counted (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
            "INSERT INTO counted (v) VALUES (1)",
        )
    _do(pair[0], "BEGIN", "INSERT INTO counted (v) VALUES (2)", "ROLLBACK")
    assert _compare(*pair).is_equal


def test_more_rows_than_a_chunk_on_one_side_only(pair: tuple[Any, Any]) -> None:
    _do(pair[1], "INSERT INTO plain (id) VALUES " + ", ".join(f"({i})" for i in range(100, 3000)))
    [wrong] = [t for t in _compare(*pair).tables if t.verdict == "different"]
    assert (wrong.table, wrong.different, len(wrong.keys)) == (f"{SCHEMA}.plain", 2900, 20)


def test_json_is_compared_by_value_between_flavors(upstream_mysql: Any, downstream_mariadb: Any) -> None:
    for server, text in ((upstream_mysql, '{"b": 1, "a": [2]}'), (downstream_mariadb, '{"a":[2], "b":1}')):
        server.execute(f"DROP DATABASE IF EXISTS {SCHEMA}", f"CREATE DATABASE {SCHEMA}")
        _do(server, "CREATE TABLE j (id INT PRIMARY KEY, v JSON)", f"INSERT INTO j VALUES (1, '{text}')")
    assert _compare(upstream_mysql, downstream_mariadb).is_equal
    _do(downstream_mariadb, """UPDATE j SET v = '{"a":[2], "b":2}'""")
    assert not _compare(upstream_mysql, downstream_mariadb).is_equal


def test_a_server_that_is_away_is_an_error_of_its_side(upstream: Any) -> None:
    nobody = ServerUrl("127.0.0.1", 1)
    with pytest.raises(DownstreamError, match="TR600"):
        compare_servers(_url(upstream), nobody)


def test_routed_tables_are_compared_under_their_names_and_merged_ones_together(pair: tuple[Any, Any]) -> None:
    upstream, downstream = pair
    there = f"{SCHEMA}_there"
    _do(
        downstream,
        f"DROP DATABASE IF EXISTS {there}",
        f"CREATE DATABASE {there}",
        f"CREATE TABLE {there}.terms LIKE words",
        f"INSERT INTO {there}.terms SELECT * FROM words",
        f"CREATE TABLE {there}.shards LIKE latin",
        f"INSERT INTO {there}.shards SELECT * FROM latin",
        f"INSERT INTO {there}.shards VALUES ('2', 2)",
    )
    _do(upstream, "CREATE TABLE latin2 LIKE latin", "INSERT INTO latin2 VALUES ('2', 2)")
    routes = (Route(SCHEMA, there, "words", "terms"), Route(SCHEMA, there, "latin*", "shards"))

    def compared() -> Report:
        names = [f"{SCHEMA}.words", f"{SCHEMA}.latin*"]
        urls = _url(upstream), _url(downstream)
        return compare_servers(*urls, names, routes=routes)

    result = compared()
    assert result.is_equal, result.not_equal
    assert [table.table for table in result.tables] == [f"{there}.shards", f"{there}.terms"]
    _do(
        downstream,
        f"DELETE FROM {there}.shards WHERE v = 2 LIMIT 1",
        f"UPDATE {there}.terms SET v = 9 WHERE w = 'zebra'",
    )
    assert [table.different for table in compared().tables] == [1, 1]
    _do(downstream, f"DROP DATABASE {there}")
