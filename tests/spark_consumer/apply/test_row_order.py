"""The order in which compacted rows are written: pages of the downstream are filled, as upstream."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from schemas.structure import TableStructure
from spark_consumer.rules.config import ConsumerConfig
from tests.support.applying.parts import MemoryLog, apply_log
from tests.support.epochs.fake_topic import insert, integer, text, update
from tests.support.names import own_name

pytestmark = pytest.mark.servers


@pytest.fixture
def db(request: pytest.FixtureRequest, downstream: Database) -> str:
    """A database and channel of the test's own."""
    name = own_name("order_", request, 40)
    downstream.execute(f"CREATE DATABASE {name}")
    return name


@pytest.fixture
def config(downstream: Database, db: str) -> ConsumerConfig:
    return ConsumerConfig("", "p", ServerUrl.parse(downstream.url("tailrace")), channel=db)


def test_inserted_rows_fill_their_pages(downstream: Database, db: str, config: ConsumerConfig) -> None:
    """Also those that were changed in the same batch, whose rows come from several partitions."""
    downstream.execute(
        f"CREATE TABLE {db}.filled (id INT PRIMARY KEY, s VARCHAR(200))",
        f"CREATE TABLE {db}.ideal LIKE {db}.filled",
    )
    structure = TableStructure(db, "filled", (integer("id"), text("s", nullable=True)), ("id",))
    log, random = MemoryLog(), Random(1)
    rows: list[dict[str, Any]] = [{"id": n, "s": "x" * random.randrange(100, 150)} for n in range(6_000)]
    log.add(*(insert(structure, row) for row in rows))
    log.add(*(update(structure, row, {**row, "s": "y" + row["s"]}) for row in rows[::2]))
    apply_log(config, log)
    downstream.execute(
        f"INSERT INTO {db}.ideal SELECT * FROM {db}.filled ORDER BY id",
        f"ANALYZE TABLE {db}.filled, {db}.ideal",
    )
    [(filled,), (ideal,)] = downstream.execute(
        f"SELECT data_length FROM information_schema.tables WHERE table_schema = '{db}'"
        " AND table_name IN ('filled', 'ideal') ORDER BY table_name"
    )
    assert filled < 1.2 * ideal
