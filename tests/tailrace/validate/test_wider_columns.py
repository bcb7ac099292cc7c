"""Columns that are wider downstream: equal values are equal, also in keys, and planted differences are found."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tailrace.validate import Report
from tests.support.applying.validated import Channel

pytestmark = pytest.mark.servers

Make = Callable[..., Channel]

_UTC = "SET time_zone = '+00:00'"
# By column: upstream's type, downstream's, and two values.
_KEYS = {
    "m": ("DATETIME", "DATETIME(6)", "'2024-01-01 00:00:00'", "'2024-01-01 00:00:10'"),
    "n": ("DECIMAL(5,2)", "DECIMAL(12,4)", "1.50", "-1.05"),
    "i": ("INT", "DECIMAL(14,2)", "7", "-70"),
    "t": ("TIME", "TIME(3)", "'-01:02:03'", "'01:02:30'"),
    "s": ("TIMESTAMP(2)", "TIMESTAMP(4)", "'2024-01-02 03:04:05.10'", "'2024-01-02 03:04:05.01'"),
    "z": ("TIMESTAMP", "DATETIME(1)", "'2024-01-02 03:04:05'", "'2024-01-02 03:04:50'"),
    "a": ("DATE", "DATETIME(2)", "'2024-01-02'", "'2024-01-20'"),
}
_OTHERS = {
    "f": ("FLOAT", "DOUBLE", "0.1e0", "0.2e0"),
    "v": ("VARCHAR(10)", "TEXT", "'a '", "'a'"),
    "e": ("ENUM('a','b')", "ENUM('b','a','c')", "'a'", "'b'"),
    "b": ("BINARY(5)", "VARBINARY(9)", "X'01'", "X'02'"),
    "l": ("VARCHAR(5) CHARACTER SET latin1", "VARCHAR(9)", "'é'", "'e'"),
    "y": ("BIT(5)", "BIT(9)", "3", "4"),
}
_COLUMNS = _KEYS | _OTHERS


def _make(pipe: Channel) -> dict[str, str]:
    """Make a table with each column by its side, without a key, and in the key; return the widening of each."""
    widened = {}
    for name, (kind, wider, one, other) in _COLUMNS.items():
        tables = {f"keyed_{name}": "id INT PRIMARY KEY", f"bag_{name}": "id INT"}
        if name in _KEYS:
            tables[f"key_{name}"] = f"id INT, PRIMARY KEY ({name}, id)"
        for table, rest in tables.items():
            pipe.log.sql(
                _UTC,
                f"CREATE TABLE {table} ({name} {kind} NOT NULL, {rest}) DEFAULT CHARSET utf8mb4",
                f"INSERT INTO {table} VALUES ({one}, 1), ({other}, 2), ({one}, 3)",
            )
            widened[table] = f"ALTER TABLE {table} MODIFY {name} {wider} NOT NULL"
    return widened


def _different(report: Report) -> dict[str, int]:
    return {table.table.partition(".")[2]: table.different for table in report.tables if table.different}


@pytest.mark.parametrize(("up", "down"), [("mysql", "mysql"), ("mysql", "mariadb"), ("mariadb", "mysql")])
def test_equal_values_are_equal_and_others_found(channel: Make, up: str, down: str) -> None:
    pipe = channel(up, down)
    widened = _make(pipe)
    pipe.replicate()
    pipe.there_sql(*widened.values())
    chance = random.Random(5)

    def work() -> None:
        changed = [chance.choice(list(_COLUMNS)) for _ in range(4)]
        pipe.log.sql(
            _UTC,
            *(
                f"UPDATE {table}_{name} SET {name} = {chance.choice(_COLUMNS[name][2:])} WHERE id = 2"
                for name in changed
                for table in ("keyed", "bag", *(("key",) if name in _KEYS else ()))
            ),
        )
        pipe.replicate()

    work()
    report = pipe.validate()
    assert (_different(report), report.pending) == ({}, 0), report.as_dict()
    with pipe.running(work):
        report = pipe.validate()
    assert _different(report) == {}, report.as_dict()
    for table in widened:
        name = table.rpartition("_")[2]
        pipe.there_sql(_UTC, f"UPDATE {table} SET {name} = {_COLUMNS[name][3]} WHERE id = 3")
    report = pipe.validate()
    assert _different(report) == {table: 1 if "keyed" in table else 2 for table in widened}, report.as_dict()
