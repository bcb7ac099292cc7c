"""``validate`` on real servers: planted differences of every family of types are found, and none invented."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from compose.kafka import Kafka
from producer.settings import CopySettings
from spark_consumer.rules.route import Route
from tailrace.commands.app import app
from tailrace.config.model import RouteRule
from tailrace.request_copy import ask_for_copy
from tailrace.validate import Report
from tests.support.applying.consuming import consume
from tests.support.applying.validated import Channel, change_busy_tables, make_busy_tables
from tests.support.epochs.producer_case import producer_case
from tests.support.statements.value_families import COLUMNS, FAMILIES, VALUES
from tests.support.statements.value_types import LOOSE

pytestmark = pytest.mark.servers

Make = Callable[..., Channel]


def _counts(report: Report) -> dict[str, int]:
    return {table.table.partition(".")[2]: table.different for table in report.tables}


def _verdicts(report: Report) -> dict[str, str]:
    return {table.table.partition(".")[2]: table.verdict for table in report.tables}


@pytest.mark.parametrize(("up", "down"), [("mysql", "mariadb"), ("mariadb", "mysql")])
def test_each_familys_differences_are_found_under_load(channel: Make, up: str, down: str) -> None:
    pipe = channel(up, down)
    charset = "DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_general_ci"
    # The last ten ids change all the time.
    resting, ids = len(FAMILIES) + 3, len(FAMILIES) + 13
    tables = ("keyed", "named", "bag")
    pipe.log.sql(
        LOOSE,
        "SET time_zone = '+00:00'",
        f"CREATE TABLE keyed (id INT PRIMARY KEY, {COLUMNS}) {charset}",
        f"CREATE TABLE named (id VARCHAR(20) PRIMARY KEY, {COLUMNS}) {charset}",
        f"CREATE TABLE bag (id INT, {COLUMNS}) {charset}",
        *(f"INSERT INTO {table} VALUES ({n}, {VALUES})" for table in tables for n in range(ids)),
        "INSERT INTO bag SELECT * FROM bag",
    )
    pipe.replicate()
    chance = random.Random(3)

    def work() -> None:
        changes = []
        for name, (_, one, other) in chance.sample(list(FAMILIES.items()), 2):
            table, number = chance.choice(tables), chance.randrange(resting, ids)
            changes.append(f"UPDATE {table} SET {name} = {chance.choice([one, other])} WHERE id = {number}")
        pipe.log.sql(LOOSE, "SET time_zone = '+00:00'", *changes)
        pipe.replicate()

    for n, (name, (_, _, other)) in enumerate(FAMILIES.items()):
        pipe.there_sql(*(f"UPDATE {t} SET {name} = {other} WHERE id = {n}" for t in tables))
    with pipe.running(work):
        report = pipe.validate()
    # A row without a key that differs is two: one upstream, one downstream. JSON is no part of what they are told by.
    planted = {"keyed": len(FAMILIES), "named": len(FAMILIES), "bag": 2 * len(FAMILIES) - 2}
    assert _counts(report) == planted, report.as_dict()
    pipe.replicate()
    report = pipe.validate()
    assert (_counts(report), report.pending, report.rows) == (planted, 0, 4 * ids), report.as_dict()


@pytest.mark.parametrize(("up", "down"), [("mysql", "mysql"), ("mariadb", "mysql")])
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


def test_the_command_with_a_route_and_more_columns(channel: Make, tmp_path: Path) -> None:
    pipe = channel("mysql", "mysql", route="elsewhere_v")
    pipe.log.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    pipe.replicate()
    command = ["validate", "--config", str(tmp_path / "tailrace.toml"), "--max-rows-per-s", "1000", "--json"]
    codes = []
    for statement in ("ALTER TABLE t ADD COLUMN extra INT DEFAULT 7", "DELETE FROM t WHERE id = 1"):
        pipe.there_sql(statement)
        done = CliRunner().invoke(app, command)
        found = json.loads(done.stdout)
        codes.append((done.exit_code, found["rows"], found["different"], found["repaired"], found["pending"]))
    assert codes == [(0, 2, 0, 0, 0), (4, 2, 1, 0, 0)]
    assert [(t["table"], t["verdict"], t["keys"]) for t in found["tables"]] == [
        ("elsewhere_v.t", "different", ["id=1  only upstream"])
    ]


def test_merged_tables(channel: Make) -> None:
    pipe = channel("mysql", "mysql")
    for n in (1, 2):
        pipe.log.sql(
            f"CREATE TABLE part{n} (id INT PRIMARY KEY, v INT)", f"INSERT INTO part{n} VALUES ({n}, {n})"
        )
    pipe.consumer = replace(pipe.consumer, routes=(Route(pipe.db, pipe.db, "part*", "part1"),))
    pipe.replicate()
    rule = RouteRule(
        schema_pattern=pipe.db, target_schema=pipe.db, table_pattern="part*", target_table="part1"
    )
    pipe.config = pipe.config.model_copy(update={"routes": (rule,)})
    assert [(t.table, t.rows, t.verdict) for t in pipe.validate().tables] == [
        (f"{pipe.db}.part1", 2, "equal")
    ]
    pipe.there_sql("UPDATE part1 SET v = 3 WHERE id = 2")
    assert pipe.validate().tables[0].keys == ["id=2  different values"]


def test_a_column_that_comes_after_the_first_chunk_is_compared(
    channel: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.validate.validator.chunk_rows", lambda table: 10)
    pipe = channel("mysql", "mysql")
    rows = ", ".join(f"({n})" for n in range(25))
    pipe.log.sql("CREATE TABLE t (id INT PRIMARY KEY)", f"INSERT INTO t VALUES {rows}")
    pipe.replicate()
    looks: list[int] = []

    def alter_once(report: Report) -> None:
        looks.append(report.rows)
        if len(looks) == 1:
            pipe.log.sql("ALTER TABLE t ADD COLUMN v INT DEFAULT 7")
            pipe.replicate()
            pipe.there_sql("UPDATE t SET v = 8 WHERE id = 3")

    report = pipe.validate(progress=alter_once)
    assert (looks[0], report.rows, report.tables[0].keys) == (10, 25, ["id=3  different values"])


def test_tables_in_copy_are_pending_and_different_ones_are_repaired(
    request: pytest.FixtureRequest, kafka: Kafka, tmp_path: Path
) -> None:
    upstream, downstream = (request.getfixturevalue(f"{side}_mysql") for side in ("upstream", "downstream"))
    with producer_case(upstream, kafka.bootstrap, tmp_path, start="copy") as case:
        for table in "ab":
            case.sql(
                f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)",
                f"INSERT INTO {table} VALUES " + ", ".join(f"({n}, {n})" for n in range(60)),
            )
        case.catch_up(copy=CopySettings(chunk_rows=60))
        downstream.execute(f"DROP DATABASE IF EXISTS {case.db}", f"CREATE DATABASE {case.db}")
        pipe = Channel(case, downstream, tmp_path)
        try:
            verdicts = []
            # An epoch at a time: all of them are at one position of the upstream, and the log has all of the copies.
            for _ in range(40):
                consume(pipe.consumer, 1)
                report = pipe.validate(patience=5)
                if _verdicts(report) not in verdicts:
                    verdicts.append(_verdicts(report))
                if report.pending == 0:
                    break
            assert [sorted(found.values()) for found in verdicts] == [
                ["pending", "pending"],
                ["equal", "pending"],
                ["equal", "equal"],
            ]
            assert report.rows == 120
            pipe.there_sql(
                "UPDATE a SET v = -1 WHERE id = 1",
                "DELETE FROM a WHERE id = 2",
                "INSERT INTO a VALUES (99, 99)",
            )
            with pipe.running(pipe.replicate):
                report = pipe.validate(repair=partial(ask_for_copy, case.config))
            assert (report.is_different, report.repaired, report.rows) == (False, 3, 120), report.as_dict()
        finally:
            downstream.execute(f"DROP DATABASE {case.db}")


def test_under_load_planted_differences_are_found_and_none_invented(channel: Make) -> None:
    pipe = channel("mariadb", "mysql", "worker")
    make_busy_tables(pipe)
    chance, numbers = random.Random(7), itertools.count()

    def work() -> None:
        for _ in range(5):
            change_busy_tables(pipe, chance, next(numbers))
        pipe.replicate()

    with pipe.running(work):
        pipe.there_sql(
            "UPDATE flags SET v = 1 WHERE id = 1950",
            "DELETE FROM flags WHERE id = 1951",
            "INSERT INTO flags VALUES (5000, 0)",
            "UPDATE words SET v = 1 WHERE w = 'é250'",
            "INSERT INTO words VALUES ('x1', 0)",
        )
        report = pipe.validate()
    planted = {"flags": 3, "words": 2, "parent": 0, "child": 0, "emptied": 0}
    assert _counts(report) == planted, report.as_dict()
    found = sorted(key for table in report.tables for key in table.keys)
    assert found == [
        "id=1950  different values",
        "id=1951  only upstream",
        "id=5000  only downstream",
        "w=x1  only downstream",
        "w=é250  different values",
    ]
    pipe.replicate()
    report = pipe.validate()
    assert (_counts(report), report.pending) == (planted, 0)
