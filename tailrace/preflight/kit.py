"""Reads a server's collations, engines, time zones and tables, which are not variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pymysql
from pymysql.connections import Connection

from schemas.tables import TableFilter
from tailrace import servers
from tailrace.preflight.agreement import Kit

_T = TypeVar("_T")
_COLLATIONS = "SELECT collation_name FROM information_schema.collations WHERE collation_name IS NOT NULL"
# MariaDB's names of collations that several charsets have.
_FULL_COLLATIONS = "SELECT full_collation_name FROM information_schema.collation_character_set_applicability"
_ENGINES = "SELECT engine FROM information_schema.engines WHERE support IN ('YES', 'DEFAULT')"
_USED_COLLATIONS = (
    "SELECT DISTINCT table_schema, table_name, collation_name FROM information_schema.columns"
    " WHERE collation_name IS NOT NULL"
)
_USED_ENGINES = (
    "SELECT table_schema, table_name, engine FROM information_schema.tables"
    " WHERE table_type = 'BASE TABLE' AND engine IS NOT NULL"
)


def attempt(read: Callable[[], _T]) -> _T | None:
    """What was read; None where the account may not look."""
    try:
        return read()
    except pymysql.MySQLError:
        return None


def read_kit(connection: Connection[Any], tables: TableFilter | None = None) -> Kit:
    """A server's kit.

    Args:
        tables: of an upstream, those that are replicated.
    """

    def names(sql: str) -> frozenset[str]:
        return frozenset(str(name) for (name,) in servers.rows(connection, sql) if name is not None)

    def used(sql: str) -> dict[str, str]:
        assert tables is not None
        rows = servers.rows(connection, sql)
        return {str(name): f"{db}.{table}" for db, table, name in rows if tables.allows(str(db), str(table))}

    zone = "SELECT CONVERT_TZ('2020-01-01 00:00:00', 'UTC', 'Europe/Berlin') IS NOT NULL"
    collations = attempt(lambda: names(_COLLATIONS))
    return Kit(
        attempt(lambda: bool(servers.rows(connection, zone)[0][0])),
        None
        if collations is None
        else collations | (attempt(lambda: names(_FULL_COLLATIONS)) or frozenset()),
        attempt(lambda: names(_ENGINES)),
        attempt(lambda: used(_USED_COLLATIONS)) if tables is not None else None,
        attempt(lambda: used(_USED_ENGINES)) if tables is not None else None,
    )
