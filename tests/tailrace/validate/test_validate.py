"""``validate`` on real servers: planted differences of every family of types are found, and none invented."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from schemas.access.server_url import ServerUrl
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.route import Route
from tailrace.config.file import load
from tailrace.config.model import Config
from tailrace.validate import Report, validate
from tests.support.applying.consuming import consume
from tests.support.epochs.source_log import SourceLog, source_log
from tests.support.statements.value_types import LOOSE

pytestmark = pytest.mark.servers

PAIRS = [(up, down) for up in ("mysql", "mariadb") for down in ("mysql", "mariadb")]

# By column: type, a value, and another value that a careless comparison takes for the same.
FAMILIES = {
    "i": ("INT", "1", "2"),
    "z": ("INT(6) ZEROFILL", "42", "43"),
    "u": ("BIGINT UNSIGNED", "18446744073709551615", "18446744073709551614"),
    "n": ("DECIMAL(30,10)", "1.0000000001", "1.0000000002"),
    "f": ("FLOAT", "16777216", "16777218"),
    "f0": ("FLOAT", "0e0", "-0e0"),
    "d": ("DOUBLE", "0.1e0", "0.10000000000000002e0"),
    "d0": ("DOUBLE", "0e0", "-0e0"),
    "y": ("YEAR", "2000", "0"),
    "a": ("DATE", "'0000-00-00'", "'2024-00-00'"),
    "t": ("TIME(6)", "'-00:00:00.000001'", "'00:00:00.000001'"),
    "m": ("DATETIME(6)", "'2024-01-01 00:00:00.000001'", "'2024-01-01 00:00:00.000002'"),
    "s": ("TIMESTAMP(3) NULL", "'2024-03-31 01:59:59.123'", "NULL"),
    "b": ("BIT(20)", "39", "40"),
    "v": ("VARCHAR(50)", "'a'", "'a '"),
    "v2": ("VARCHAR(50)", "'ß'", "'ss'"),
    "v3": ("VARCHAR(50)", "NULL", "''"),
    "v4": ("VARCHAR(50)", "'N'", "NULL"),
    "c": ("CHAR(10)", "'é'", "'e'"),
    "l": ("VARCHAR(10) CHARACTER SET latin1", "'é'", "'É'"),
    "g": ("VARCHAR(10) CHARACTER SET gbk", "'中'", "'文'"),
    "w": ("VARCHAR(10) CHARACTER SET utf16", "'a'", "'b'"),
    "x": ("TEXT", "REPEAT('x', 5000)", "CONCAT(REPEAT('x', 4999), 'y')"),
    "o": ("BLOB", "X'00'", "X'0000'"),
    "p": ("BINARY(5)", "X'01'", "X'02'"),
    "q": ("VARBINARY(20)", "X''", "X'20'"),
    "e": ("ENUM('x','y','')", "'x'", "''"),
    "h": ("SET('p','q')", "'p'", "'p,q'"),
    "j": ("JSON", """'{"a": 1, "b": [1.5, null]}'""", """'{"a": 1, "b": [1.5, 0]}'"""),
    "k": ("GEOMETRY", "ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('POINT(1 3)')"),
}


class Channel:
    """A log of an upstream's database, a channel without Spark, and a configuration for the command."""

    def __init__(
        self, log: SourceLog, downstream: Database, folder: Path, consistency: str, route: str
    ) -> None:
        self.log, self.downstream, self.db = log, downstream, log.db
        self.there = route or log.db
        self.consumer = ConsumerConfig(
            log.config.bootstrap_servers,
            log.config.prefix,
            ServerUrl.parse(downstream.url("tailrace")),
            channel=log.db,
            checkpoint_dir=folder / "checkpoint",
            until_caught_up=True,
            include=(f"{log.db}.*",),
            routes=(Route(log.db, route),) if route else (),
            consistency=consistency,
            worker_count=3,
        )
        file = folder / "tailrace.toml"
        file.write_text(
            f"""
            [source]
            url = "{log.upstream.url()}"
            [kafka]
            bootstrap-servers = "{log.config.bootstrap_servers}"
            prefix = "{log.config.prefix}"
            [target]
            url = "{downstream.url()}"
            [consumer]
            channel = "{log.db}"
            [tables]
            include = ["{log.db}.*"]
            """
            + (f'[[routes]]\nschema-pattern = "{log.db}"\ntarget-schema = "{route}"\n' if route else "")
        )
        self.config: Config = load(file)

    def replicate(self) -> None:
        self.log.publish()
        consume(self.consumer)

    def there_sql(self, *statements: str) -> Any:
        with self.downstream.connect(database=self.there) as connection, connection.cursor() as cursor:
            cursor.execute(LOOSE)
            cursor.execute("SET time_zone = '+00:00', foreign_key_checks = 0")
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    def validate(self, **options: Any) -> Report:
        return validate(self.config, **options)

    @contextmanager
    def running(self, work: Callable[[], None]) -> Iterator[None]:
        """Replicate all the time, and do ``work`` again and again in another thread."""
        stop, failed = threading.Event(), []

        def again(step: Callable[[], None]) -> None:
            try:
                while not stop.is_set():
                    step()
            except Exception as error:
                failed.append(error)
                raise

        threads = [threading.Thread(target=again, args=(step,)) for step in (work, self.replicate)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failed


Make = Callable[..., Channel]


@pytest.fixture
def channel(request: pytest.FixtureRequest, kafka: Kafka, tmp_path: Path) -> Iterator[Make]:
    """``channel(upstream, downstream)`` makes a channel between two flavors."""
    logs: list[Any] = []
    made: list[Channel] = []

    def make(up: str, down: str, consistency: str = "batch", route: str = "") -> Channel:
        upstream = request.getfixturevalue(f"upstream_{up}")
        downstream = request.getfixturevalue(f"downstream_{down}")
        logs.append(source_log(upstream, kafka.bootstrap, tmp_path))
        log = logs[-1].__enter__()
        downstream.execute(f"DROP DATABASE IF EXISTS {route or log.db}")
        # The log begins behind the statement that made the upstream's database.
        downstream.execute(f"CREATE DATABASE {route or log.db} CHARACTER SET utf8mb4")
        made.append(Channel(log, downstream, tmp_path, consistency, route))
        return made[-1]

    yield make
    for one in made:
        one.downstream.execute(f"DROP DATABASE IF EXISTS {one.there}")
    for each in logs:
        each.__exit__(None, None, None)


def _counts(report: Report) -> dict[str, int]:
    return {table.table.partition(".")[2]: table.different for table in report.tables}


@pytest.mark.parametrize(("up", "down"), PAIRS)
def test_each_familys_differences_are_found(channel: Make, up: str, down: str) -> None:
    pipe = channel(up, down)
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in FAMILIES.items())
    values = ", ".join(value for _, value, _ in FAMILIES.values())
    charset = "DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_general_ci"
    pipe.log.sql(
        LOOSE,
        "SET time_zone = '+00:00'",
        f"CREATE TABLE keyed (id INT PRIMARY KEY, {columns}) {charset}",
        f"CREATE TABLE named (id VARCHAR(20) PRIMARY KEY, {columns}) {charset}",
        f"CREATE TABLE bag (id INT, {columns}) {charset}",
        *(
            f"INSERT INTO {table} VALUES ({n}, {values})"
            for table in ("keyed", "named", "bag")
            for n in range(len(FAMILIES) + 3)
        ),
        "INSERT INTO bag SELECT * FROM bag",
    )
    pipe.replicate()
    report = pipe.validate()
    assert (report.is_different, report.pending) == (False, 0), report.as_dict()
    assert report.rows == 4 * (len(FAMILIES) + 3)

    for n, (name, (_, _, other)) in enumerate(FAMILIES.items()):
        pipe.there_sql(
            *(f"UPDATE {t} SET {name} = {other} WHERE id = {n}" for t in ("keyed", "named", "bag"))
        )
    report = pipe.validate()
    counts = _counts(report)
    assert report.pending == 0
    assert counts == {"keyed": len(FAMILIES), "named": len(FAMILIES), "bag": 2 * len(FAMILIES)}, (
        report.as_dict()
    )


@pytest.mark.parametrize(("up", "down"), PAIRS)
def test_keys_of_every_kind(channel: Make, up: str, down: str) -> None:
    pipe = channel(up, down)
    keys = {
        "i": ("BIGINT UNSIGNED", ["0", "5", "18446744073709551615"]),
        "n": ("DECIMAL(12,3)", ["-1.5", "0", "99.999"]),
        "t": (
            "VARCHAR(40) COLLATE utf8mb4_general_ci",
            ["''", "'Äpfel'", "'zebra'", "'a''b'", "'x\\\\'", "'Z2'"],
        ),
        "tb": ("VARCHAR(40) COLLATE utf8mb4_bin", ["'a'", "'A'", "'😀'"]),
        "l": ("VARCHAR(20) CHARACTER SET latin1", ["'é'", "'z'", "'ÿ'"]),
        "b": ("VARBINARY(8)", ["X''", "X'00'", "X'00ff'", "X'ff'"]),
        "m": ("DATETIME(3)", ["'0000-00-00'", "'2024-01-01 00:00:00.123'"]),
        "s": ("TIMESTAMP(2)", ["'2024-01-01 00:00:00.12'", "'2024-01-01 00:00:00.13'"]),
        "c": ("BIT(20)", ["1", "39", "1000"]),
        "e": ("ENUM('z','a','m')", ["'z'", "'a'", "'m'"]),
        "f": ("DOUBLE", ["-0.1e0", "0e0", "1e300"]),
    }
    for name, (kind, values) in keys.items():
        pipe.log.sql(
            LOOSE,
            "SET time_zone = '+00:00'",
            f"CREATE TABLE {name} (k {kind} NOT NULL, n INT NOT NULL, v INT, PRIMARY KEY (k, n)) CHARSET utf8mb4",
            *(f"INSERT INTO {name} VALUES ({v}, {n}, 0)" for v in values for n in (1, 2)),
        )
    pipe.replicate()
    report = pipe.validate()
    assert (report.is_different, report.pending) == (False, 0), report.as_dict()
    for name, (_, values) in keys.items():
        pipe.there_sql(
            f"UPDATE {name} SET v = 1 WHERE k = {values[-1]} AND n = 1",
            f"DELETE FROM {name} WHERE k = {values[-1]} AND n = 2",
            f"INSERT INTO {name} VALUES ({values[0]}, 3, 0)",
        )
    report = pipe.validate()
    assert _counts(report) == dict.fromkeys(keys, 3), report.as_dict()
    only = pipe.validate(tables=[f"{pipe.db}.i"], where="n < 3")
    assert _counts(only) == {"i": 2}


def test_routes_more_columns_and_rules(channel: Make) -> None:
    pipe = channel("mysql", "mysql", route="elsewhere_v")
    pipe.log.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    pipe.replicate()
    pipe.there_sql("ALTER TABLE t ADD COLUMN extra INT DEFAULT 7")
    report = pipe.validate()
    assert [(t.table, t.rows, t.is_different) for t in report.tables] == [("elsewhere_v.t", 2, False)]
    pipe.there_sql("DELETE FROM t WHERE id = 1")
    report = pipe.validate()
    assert report.tables[0].keys == ["id=1  only upstream"]


@pytest.mark.parametrize(("up", "down", "consistency"), [(*pair, "batch") for pair in PAIRS[:2] + PAIRS[3:]]
                         + [("mysql", "mysql", "worker"), ("mariadb", "mariadb", "worker")])  # fmt: skip
def test_under_load_planted_differences_are_found_and_none_invented(
    channel: Make, up: str, down: str, consistency: str
) -> None:
    pipe = channel(up, down, consistency)
    pipe.log.sql(
        "CREATE TABLE flags (id INT PRIMARY KEY, v INT) ",
        "CREATE TABLE words (w VARCHAR(30) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT) CHARSET utf8mb4",
        *(
            f"INSERT INTO flags VALUES {', '.join(f'({n * 100 + i}, 0)' for i in range(100))}"
            for n in range(20)
        ),
        *(f"INSERT INTO words VALUES ('é{n}', 0), ('w{n}', 0)" for n in range(300)),
    )
    pipe.replicate()
    chance = random.Random(7)

    def work() -> None:
        # Values go back and forth; keys move, go and come again. The last hundred ids and words stay.
        ids = [chance.randrange(1900) for _ in range(20)]
        words = [f"{chance.choice('éw')}{chance.randrange(200)}" for _ in range(5)]
        with pipe.log.upstream.connect(database=pipe.db) as connection, connection.cursor() as cursor:
            for number in ids:
                cursor.execute(f"UPDATE flags SET v = 1 - v WHERE id = {number}")
            gone, came = chance.sample(range(1900), 2)
            cursor.execute(f"DELETE FROM flags WHERE id = {gone}")
            cursor.execute(f"INSERT IGNORE INTO flags VALUES ({came}, 0)")
            cursor.execute(f"UPDATE IGNORE flags SET id = {gone} WHERE id = {came}")
            for word in words:
                cursor.execute(f"UPDATE words SET v = v + 1 WHERE w = '{word}'")
            connection.commit()

    with pipe.running(work):
        end = time.monotonic() + 8
        while time.monotonic() < end:
            report = pipe.validate()
            assert not report.is_different, report.as_dict()
        pipe.there_sql(
            "UPDATE flags SET v = 1 WHERE id = 1950",
            "DELETE FROM flags WHERE id = 1951",
            "INSERT INTO flags VALUES (5000, 0)",
            "UPDATE words SET v = 1 WHERE w = 'é250'",
            "INSERT INTO words VALUES ('x1', 0)",
        )
        report = pipe.validate()
    assert _counts(report) == {"flags": 3, "words": 2}, report.as_dict()
    found = sorted(key for table in report.tables for key in table.keys)
    assert found == [
        "id=1950  different values",
        "id=1951  only upstream",
        "id=5000  only downstream",
        "w=x1  only downstream",
        "w=é250  different values",
    ]
