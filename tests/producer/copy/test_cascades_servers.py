"""Tables whose rows foreign keys change, which MariaDB does not log, are copied while clients write to them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pymysql
import pytest

from compose.databases import Database
from compose.kafka import Kafka
from producer.settings import CopySettings
from schemas.access.server_url import ServerUrl
from spark_consumer.rules.config import ConsumerConfig
from tailrace.request_copy import ask_for_copy
from tests.support.applying.consuming import consume
from tests.support.epochs.producer_case import Case, producer_case

pytestmark = [pytest.mark.servers, pytest.mark.parametrize("flavor", ["mariadb"])]

# A circle, a chain below it, a table that refers to itself, and a reference to another key than the primary one.
TABLES = {
    "stores": "(id INT PRIMARY KEY, boss INT)",
    "staff": "(id INT PRIMARY KEY, store INT, FOREIGN KEY (store) REFERENCES stores (id)"
    " ON DELETE CASCADE ON UPDATE CASCADE)",
    "customers": "(id INT PRIMARY KEY, store INT, email VARCHAR(30) UNIQUE, n INT, FOREIGN KEY (store)"
    " REFERENCES stores (id) ON DELETE SET NULL ON UPDATE CASCADE)",
    "orders": "(id INT PRIMARY KEY, customer INT, FOREIGN KEY (customer) REFERENCES customers (id)"
    " ON DELETE CASCADE ON UPDATE CASCADE)",
    "parts": "(order_id INT, number INT, PRIMARY KEY (order_id, number), FOREIGN KEY (order_id)"
    " REFERENCES orders (id) ON DELETE CASCADE ON UPDATE CASCADE)",
    "notes": "(id INT PRIMARY KEY, email VARCHAR(30), FOREIGN KEY (email) REFERENCES customers (email)"
    " ON DELETE SET NULL ON UPDATE CASCADE)",
    "groups": "(id INT PRIMARY KEY, above INT, FOREIGN KEY (above) REFERENCES `groups` (id) ON DELETE CASCADE)",
}


@pytest.fixture
def case(upstream: Database, kafka: Kafka, tmp_path: Path) -> Iterator[Case]:
    """A log that is not begun, of tables with rows."""
    with producer_case(upstream, kafka.bootstrap, tmp_path, start="copy") as made:
        made.sql(
            *(f"CREATE TABLE `{name}` {definition}" for name, definition in TABLES.items()),
            "INSERT INTO stores SELECT seq, NULL FROM seq_1_to_30",
            "INSERT INTO staff SELECT seq, seq % 30 + 1 FROM seq_1_to_60",
            "UPDATE stores SET boss = id",
            "ALTER TABLE stores ADD FOREIGN KEY (boss) REFERENCES staff (id) ON DELETE SET NULL ON UPDATE CASCADE",
            "INSERT INTO customers SELECT seq, seq % 30 + 1, CONCAT('old ', seq), 0 FROM seq_1_to_600",
            "INSERT INTO orders SELECT seq, seq % 600 + 1 FROM seq_1_to_1200",
            "INSERT INTO parts SELECT seq % 1200 + 1, seq FROM seq_1_to_2000",
            "INSERT INTO notes SELECT seq, CONCAT('old ', seq * 2) FROM seq_1_to_300",
            "INSERT INTO `groups` SELECT seq, NULLIF(seq DIV 3, 0) FROM seq_1_to_1000",
            # The client leaves these rows alone, so that only a copy can mend them.
            "INSERT INTO customers SELECT seq, NULL, CONCAT('quiet ', seq), 0 FROM seq_9000_to_9009",
            "INSERT INTO orders SELECT seq, seq FROM seq_9000_to_9009",
            "INSERT INTO parts SELECT seq, 1 FROM seq_9000_to_9009",
        )
        yield made


def _statement(chance: random.Random) -> str:
    one, other, few = chance.randrange(1000), chance.randrange(1000, 3000), chance.randrange(1, 40)
    return chance.choice(
        [
            f"DELETE FROM customers WHERE id = {one}",
            f"UPDATE customers SET id = {other} WHERE id = {one}",
            f"UPDATE customers SET email = 'new {other}' WHERE id = {one}",
            f"UPDATE customers SET n = n + 1 WHERE id BETWEEN {one} AND {one + 9}",
            f"INSERT INTO customers VALUES ({one}, {few}, 'again {other}', 1)",
            f"DELETE FROM orders WHERE id = {one}",
            f"UPDATE orders SET id = {other} WHERE id = {one}",
            f"INSERT INTO orders VALUES ({other}, {one})",
            f"UPDATE orders SET customer = {one} WHERE id = {other}",
            f"INSERT INTO parts VALUES ({other}, {few})",
            f"INSERT INTO notes SELECT {other}, email FROM customers WHERE id = {one}",
            f"DELETE FROM `groups` WHERE id = {one}",
            f"INSERT INTO `groups` VALUES ({one}, {few})",
            f"UPDATE staff SET id = {other} WHERE id = {few}",
            f"UPDATE stores SET id = {few + 40} WHERE id = {few}",
            f"DELETE FROM stores WHERE id = {few + 40}",
            f"INSERT INTO stores SELECT {few}, MIN(id) FROM staff",
            f"INSERT INTO staff VALUES ({few}, {few})",
        ]
    )


@contextmanager
def _writing(case: Case, seed: int) -> Iterator[None]:
    """A client changes the tables at random inside the block."""
    stop = threading.Event()

    def write() -> None:
        chance = random.Random(seed)
        with case.upstream.connect(database=case.db) as connection, connection.cursor() as cursor:
            while not stop.wait(0.003):
                for _ in range(chance.randrange(1, 4)):
                    with suppress(pymysql.err.MySQLError):  # a row is there, or its parent is not
                        cursor.execute(_statement(chance))
                connection.commit()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _assert_equal(case: Case, downstream: Database) -> None:
    for table in TABLES:
        query = f"SELECT * FROM {case.db}.`{table}` ORDER BY 1, 2"
        assert downstream.execute(query) == case.upstream.execute(query), table


def test_cascades_that_are_not_logged(case: Case, downstream: Database) -> None:
    downstream.execute(f"DROP DATABASE IF EXISTS {case.db}")
    config = ConsumerConfig(
        case.config.bootstrap_servers,
        case.config.prefix,
        ServerUrl.parse(downstream.url("tailrace")),
        channel=case.db,
        max_batch_rows=3000,
    )
    copy = CopySettings(chunk_rows=150)
    with _writing(case, 1):
        for point in ("publish.after_commit:8", "publish.before_commit:20"):
            killed = case.process(point, copy=copy)
            assert killed.wait() == -9
        case.catch_up(copy=copy)
    case.catch_up()
    consume(config)
    _assert_equal(case, downstream)
    # What somebody has changed downstream is mended, with everything that depends on it.
    downstream.execute(
        "SET foreign_key_checks = 0, autocommit = 1",
        f"DELETE FROM {case.db}.customers WHERE id > 9004",
        f"UPDATE {case.db}.parts SET number = -number WHERE order_id > 9000",
    )
    ask_for_copy(case.config, [f"{case.db}.customers"])
    with _writing(case, 2):
        case.catch_up(copy=copy)
    case.catch_up()
    consume(config)
    _assert_equal(case, downstream)
    downstream.execute(f"DROP DATABASE {case.db}")
