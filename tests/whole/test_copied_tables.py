"""From server to server: tables are copied into the log while they are written to, and a channel has them all."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pymysql
import pytest

from compose.databases import Database
from compose.kafka import Kafka
from producer.settings import CopySettings
from schemas.access.server_url import ServerUrl
from spark_consumer.rules.config import ConsumerConfig
from tests.support.applying.consuming import consume
from tests.support.epochs.producer_case import Case, producer_case

pytestmark = pytest.mark.servers

_TABLES = {
    "orders": "id INT PRIMARY KEY, state VARCHAR(20) UNIQUE, n INT",
    "items": "order_id INT, number INT, note VARCHAR(40), PRIMARY KEY (number, order_id)",
    "names": "name VARCHAR(30) CHARACTER SET latin1 PRIMARY KEY, n INT, twice INT AS (2 * n) STORED UNIQUE",
    "parts": "id INT PRIMARY KEY, of_order INT, FOREIGN KEY (of_order) REFERENCES orders (id)",
}

_DDL = (
    "ALTER TABLE items MODIFY note VARCHAR(50)",
    "TRUNCATE TABLE names",
    "RENAME TABLE parts TO old_parts, old_parts TO parts",
    "ALTER TABLE orders ADD COLUMN more INT DEFAULT 7",
)


@pytest.fixture
def case(upstream: Database, kafka: Kafka, tmp_path: Path) -> Iterator[Case]:
    with producer_case(upstream, kafka.bootstrap, tmp_path, start="copy") as made:
        for name, columns in _TABLES.items():
            made.sql(f"CREATE TABLE {name} ({columns})")
        made.sql(
            "INSERT INTO orders VALUES " + ", ".join(f"({i}, 'old {i}', {i})" for i in range(0, 2000, 2)),
            "INSERT INTO items VALUES " + ", ".join(f"({i}, {i % 7}, 'old {i}')" for i in range(0, 2000, 3)),
            "INSERT INTO names (name, n) VALUES "
            + ", ".join(f"('name {i} é', {i})" for i in range(0, 400, 2)),
            "INSERT INTO parts VALUES " + ", ".join(f"({i}, {i})" for i in range(0, 2000, 4)),
        )
        yield made


@contextmanager
def _writing(case: Case) -> Iterator[None]:
    """Change the tables meanwhile; statements that a constraint refuses change nothing."""
    stop, chance = threading.Event(), random.Random(1)

    def write() -> None:
        with case.upstream.connect(database=case.db) as connection, connection.cursor() as cursor:
            for number in count():
                for _ in range(chance.randrange(1, 5)):
                    with suppress(pymysql.err.MySQLError):
                        cursor.execute(_statement(chance))
                connection.commit()
                # As fast as it can, it would write more the longer a busy machine takes to read it.
                time.sleep(0.005)
                if number % 60 == 30 and number // 60 < len(_DDL):
                    cursor.execute(_DDL[number // 60])
                if stop.is_set():
                    break

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _statement(chance: random.Random) -> str:
    one, other = chance.randrange(2000), chance.randrange(2000)
    return chance.choice(
        [
            f"INSERT INTO orders (id, state, n) VALUES ({one}, 'state {other}', {other})",
            f"UPDATE orders SET id = {other} WHERE id = {one}",
            # A unique value changes hands.
            f"UPDATE orders SET state = IF(id = {one}, CONCAT('state ', {other}), NULL) WHERE id IN ({one}, {other})",
            f"UPDATE orders SET n = n + 1 WHERE id BETWEEN {one} AND {one + 9}",
            f"DELETE FROM orders WHERE id = {one}",
            f"REPLACE INTO items VALUES ({one}, {other % 7}, 'note {other}')",
            f"UPDATE items SET number = {one % 7} WHERE order_id = {other}",
            f"DELETE FROM items WHERE order_id BETWEEN {one} AND {one + 3}",
            f"REPLACE INTO names (name, n) VALUES ('name {one % 400} é', {other})",
            f"DELETE FROM names WHERE name = 'name {one % 400} é'",
            f"INSERT INTO parts VALUES ({one}, {other})",
            f"DELETE FROM parts WHERE id = {one}",
        ]
    )


@pytest.mark.parametrize("consistency", ["batch", "worker"])
def test_a_channel_has_the_copied_tables(case: Case, downstream: Database, consistency: str) -> None:
    downstream.execute(f"DROP DATABASE IF EXISTS {case.db}", f"CREATE DATABASE {case.db}")
    config = ConsumerConfig(
        case.config.bootstrap_servers,
        case.config.prefix,
        ServerUrl.parse(downstream.url("tailrace")),
        channel=f"{case.db}_{consistency}",
        consistency="worker" if consistency == "worker" else "batch",
        max_batch_rows=300,
        retry_time=5,
    )
    with _writing(case):
        case.catch_up(copy=CopySettings(chunk_rows=50))
        consume(config)
    case.catch_up()
    consume(config)
    for table in _TABLES:
        query = f"SELECT * FROM {case.db}.{table} ORDER BY 1, 2"
        assert downstream.execute(query) == case.upstream.execute(query), table
    downstream.execute(f"DROP DATABASE {case.db}")
