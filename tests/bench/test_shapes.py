"""The benchmark's own backlogs change the rows that they say, in SQL that a server takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from bench.backlog import write_changes
from bench.shapes import DATABASE, SHAPES, Changes
from compose.databases import Database

OWN = {name: shape for name, shape in SHAPES.items() if isinstance(shape, Changes)}
_ROW_EVENTS = "SHOW GLOBAL STATUS WHERE Variable_name REGEXP '^Innodb_rows_(inserted|updated|deleted)$'"


def _apply(tables: dict[str, set[int]], statements: Iterable[str]) -> int:
    """Follow the rows of each table through INSERT, UPDATE and DELETE; returns how many rows are changed."""
    count = 0
    for statement in statements:
        if found := re.match(r"INSERT INTO \S+\.(t\d+) SELECT (\d+) \+ i,.*WHERE i < (\d+)$", statement):
            table, first, size = found.groups()
            ids = set(range(int(first), int(first) + int(size)))
            assert ids.isdisjoint(tables.setdefault(table, set()))
            tables[table] |= ids
        elif found := re.match(r"(UPDATE|DELETE FROM) \S+\.(t\d+).*WHERE id IN \((.*)\)$", statement):
            kind, table, listed = found.groups()
            ids = set(map(int, listed.split(", ")))
            assert ids <= tables[table]
            if kind != "UPDATE":
                tables[table] -= ids
        else:
            ids = set()
        count += len(ids)
    return count


@pytest.mark.parametrize("name", OWN)
def test_each_change_finds_its_row_and_all_together_are_as_many_as_asked_for(name: str) -> None:
    shape, rows, tables = OWN[name], 4_000, dict[str, set[int]]()
    _apply(tables, shape.preparation(rows))
    assert len(tables) == shape.tables
    changed: list[set[str]] = []
    total = 0
    for connection in range(shape.connections):
        before = {table: set(ids) for table, ids in tables.items()}
        for transaction in shape.transactions(rows, connection):
            total += _apply(tables, transaction)
        changed.append({table for table, ids in tables.items() if ids != before[table]})
    assert total == rows
    # Connections that share a table would wait for each other.
    assert sum(map(len, changed)) == len(set.union(*changed)) > 0


def test_one_transaction_has_all_rows_in_statements_of_limited_size() -> None:
    shape = OWN["transaction"]
    [transaction] = shape.transactions(8_000, 0)
    assert len(transaction) == 6 + 2


def test_a_server_takes_the_statements_and_changes_as_many_rows(
    mysql_server: Callable[..., Database],
) -> None:
    options = [option for shape in OWN.values() for option in shape.server_options]
    server = mysql_server(args=options)
    for name, shape in OWN.items():
        small = replace(shape, tables=min(shape.tables, 4), there=10)
        server.execute(*small.preparation(40))
        before = _row_events(server)
        write_changes(server, small, 40)
        assert _row_events(server) - before == 40, name
        if name == "columns":
            assert len(server.execute(f"SHOW COLUMNS FROM {DATABASE}.t0")) == 100
        server.execute(f"DROP DATABASE {DATABASE}")


def _row_events(server: Database) -> int:
    return sum(int(value) for _, value in server.execute(_ROW_EVENTS))
