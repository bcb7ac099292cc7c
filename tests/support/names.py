"""What belongs to one test, on servers that tests share."""

from __future__ import annotations

import pytest

from compose.databases import Database


def own_name(prefix: str, request: pytest.FixtureRequest, most: int = 40) -> str:
    """A name for a database, channel or topic that no other test has; each module has a prefix of its own."""
    return prefix + "".join(c if c.isalnum() else "_" for c in request.node.name)[-most:]


def forget_others(downstream: Database) -> None:
    """Make nothing count of what channels of other tests replicate on a server that tests share."""
    there = "SELECT 1 FROM information_schema.TABLES WHERE (TABLE_SCHEMA, TABLE_NAME) = ('tailrace', 'relay_log_info')"
    if downstream.execute(there):
        downstream.execute("UPDATE tailrace.relay_log_info SET replicates = NULL")
