"""Queries of views under other names, on real servers: the view has the rows that the upstream's has.

The tables that the upstream's views read are gone by then, so that a name which was overlooked would be missed.
"""

from __future__ import annotations

from typing import Any

import pytest

from compose.databases import Database
from schemas.ddl.lexer import Flavor
from schemas.ddl.names import rename
from tests.support.statements.view_queries import QUERIES

pytestmark = pytest.mark.servers
_NAMES = {"t": "t2", "q": "q2"}


def _new_name(db: str, table: str | None) -> tuple[str, str | None]:
    return (db, table) if db != "src" else ("dst", None if table is None else _NAMES.get(table, table))


def test_a_view_with_other_names_has_the_same_rows(upstream: Database, flavor: Flavor) -> None:
    columns = "(id INT PRIMARY KEY, v INT, d DATE, s VARCHAR(9), j JSON, KEY i (v))"
    statements = [
        f"{verb} {db}"
        for db in ("src", "dst", "keep")
        for verb in ("DROP DATABASE IF EXISTS", "CREATE DATABASE")
    ]
    for name in ("src.t", "src.u", "src.k", "keep.w", "src.p"):
        parts = " PARTITION BY HASH (id) PARTITIONS 3" if name == "src.p" else ""
        statements += [
            f"CREATE TABLE {name} {columns}{parts}",
            f"INSERT INTO {name} VALUES (1, {len(statements)}, '2020-02-03', 'xay', '[1, 2]'),"
            " (2, 2, NULL, 'b', '[3]')",
        ]
    if flavor == "mariadb":
        statements += [
            "CREATE TABLE src.h (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
            "INSERT INTO src.h VALUES (1)",
        ]
        statements += ["CREATE SEQUENCE src.q"]
    upstream.execute(*statements)
    made = [f"CREATE VIEW src.v{n} AS {query}" for n, query in enumerate(QUERIES[flavor])]
    volatile = {n for n, query in enumerate(QUERIES[flavor]) if "VALUE FOR" in query}
    with upstream.connect(database="src") as connection, connection.cursor() as cursor:

        def rows(view: str) -> list[tuple[Any, ...]]:
            cursor.execute(f"SELECT * FROM {view}")
            return sorted(cursor.fetchall(), key=str)

        for statement in made:
            cursor.execute(statement)
        expected = [[] if n in volatile else rows(f"src.v{n}") for n in range(len(made))]
        assert sum(map(bool, expected)) > len(made) * 0.8
        moved = "tupkhq" if flavor == "mariadb" else "tupk"
        cursor.execute(
            "RENAME TABLE " + ", ".join(f"src.{old} TO dst.{_NAMES.get(old, old)}" for old in moved)
        )
        for n, statement in enumerate(made):
            renamed = rename(statement, "src", flavor, _new_name).statement
            try:
                cursor.execute(renamed)
                found = rows(f"dst.v{n}")
            except Exception as error:
                pytest.fail(f"{statement}\nas {renamed}\nis refused: {error}")
            assert n in volatile or found == expected[n], renamed
        for db in ("src", "dst", "keep"):
            cursor.execute(f"DROP DATABASE {db}")
