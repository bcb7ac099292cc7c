"""Keeps tests apart on servers that they share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compose.databases import Database


def own_name(prefix: str, request: pytest.FixtureRequest, most: int = 40) -> str:
    """Return a name for a database, channel or topic that no other test uses. Each module has its own prefix."""
    return prefix + "".join(c if c.isalnum() else "_" for c in request.node.name)[-most:]


def own_database(prefix: str, request: pytest.FixtureRequest, *servers: Database) -> Iterator[str]:
    """Yield a name as ``own_name``, and drop the database with it on these servers afterwards."""
    name = own_name(prefix, request, 30)
    yield name
    for server in servers:
        server.execute(f"DROP DATABASE IF EXISTS {name}")


def forget_others(downstream: Database) -> None:
    """Make checks ignore the channels of other tests on a shared server."""
    there = "SELECT 1 FROM information_schema.TABLES WHERE (TABLE_SCHEMA, TABLE_NAME) = ('tailrace', 'relay_log_info')"
    if downstream.execute(there):
        downstream.execute("UPDATE tailrace.relay_log_info SET replicates = NULL")
