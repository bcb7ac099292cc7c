"""Tables that clients write to while they are copied."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pymysql

from tests.support.epochs.producer_case import Case

TABLES = {
    "orders": "(id INT PRIMARY KEY, state VARCHAR(20) UNIQUE, n INT)",
    "items": "(order_id INT, number INT, note VARCHAR(40), PRIMARY KEY (number, order_id))",
    "names": "(name VARCHAR(30) CHARACTER SET latin1 PRIMARY KEY, n INT)",
    "events": "(n INT, note VARCHAR(40))",
    "visits": "(id INT PRIMARY KEY, n INT) ENGINE=MyISAM",
}


def fill(case: Case) -> None:
    """Create the tables, with rows in them."""
    case.sql(
        *(f"CREATE TABLE {name} {definition}" for name, definition in TABLES.items()),
        "INSERT INTO orders VALUES " + ", ".join(f"({i}, 'old {i}', {i})" for i in range(0, 3000, 2)),
        "INSERT INTO items VALUES " + ", ".join(f"({i}, {i % 7}, 'old {i}')" for i in range(0, 3000, 3)),
        "INSERT INTO names VALUES " + ", ".join(f"('name {i} é', {i})" for i in range(0, 500, 2)),
        "INSERT INTO events VALUES " + ", ".join(f"({i // 2}, 'old {i}')" for i in range(2000)),
        "INSERT INTO visits VALUES " + ", ".join(f"({i}, {i})" for i in range(0, 3000, 5)),
    )


@contextmanager
def writing(case: Case, seed: int) -> Iterator[None]:
    """A client changes the tables at random inside the block."""
    stop = threading.Event()

    def write() -> None:
        chance = random.Random(seed)
        with case.upstream.connect(database=case.db) as connection, connection.cursor() as cursor:
            while not stop.is_set():
                for _ in range(chance.randrange(1, 4)):
                    # A test's DDL may be in the way.
                    with suppress(pymysql.err.MySQLError):
                        cursor.execute(_statement(chance))
                connection.commit()
                # Each test that reads this log again has more to do the more is written.
                time.sleep(0.005)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _statement(chance: random.Random) -> str:
    number, other = chance.randrange(3000), chance.randrange(3000)
    return chance.choice(
        [
            f"REPLACE INTO orders VALUES ({number}, 'state {other}', {other})",
            f"UPDATE IGNORE orders SET id = {other} WHERE id = {number}",
            f"DELETE FROM orders WHERE id = {number}",
            f"REPLACE INTO items VALUES ({number}, {other % 7}, 'note {other}')",
            f"UPDATE IGNORE items SET number = {number % 7} WHERE order_id = {other}",
            f"DELETE FROM items WHERE order_id BETWEEN {number} AND {number + 3}",
            f"REPLACE INTO names VALUES ('name {number % 500} é', {other})",
            f"INSERT INTO events VALUES ({number}, 'note {other % 3}')",
            f"DELETE FROM events WHERE n = {number} LIMIT 1",
            f"UPDATE events SET note = 'new {other}' WHERE n = {number} LIMIT 1",
            f"REPLACE INTO visits VALUES ({number}, {other})",
            f"DELETE FROM visits WHERE id = {number}",
            f"DELETE FROM names WHERE name = 'name {number % 500} é'",
        ]
    )
