"""The concurrent workload: threads with transactions on the shop, and one that alters its tables."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

import pymysql

from compose.databases import Database
from demo.actors import ACTORS
from demo.schema import DATABASE

THREADS = 4
_PAUSE = 0.03  # seconds between two transactions of a thread: three servers share the machine
# Deadlock, lock wait, duplicate, two kinds of foreign key: errors that users get, and retry.
_EXPECTED = frozenset({1213, 1205, 1062, 1451, 1452})

DDL = (
    "ALTER TABLE customers ADD COLUMN loyalty INT NOT NULL DEFAULT 7 AFTER tier",
    "CREATE TABLE campaigns (id INT PRIMARY KEY, title VARCHAR(80) NOT NULL, budget DECIMAL(9,2))",
    "INSERT INTO campaigns VALUES (1, 'spring 🌱', 100.50), (2, 'summer', NULL)",
    "ALTER TABLE orders ADD INDEX by_status (status, placed_at)",
    "RENAME TABLE campaigns TO promotions",
    "UPDATE promotions SET title = CONCAT(title, ' sale')",
    "CREATE TABLE drafts LIKE documents",
    "INSERT INTO drafts SELECT * FROM documents LIMIT 20",
    "ALTER TABLE products ADD COLUMN grams INT UNSIGNED NULL, ADD INDEX by_price (price)",
    "TRUNCATE TABLE drafts",
    "ALTER TABLE order_lines MODIFY COLUMN amount BIGINT UNSIGNED NOT NULL",
    "CREATE TABLE countries (code CHAR(2) PRIMARY KEY, name VARCHAR(50))",
    "INSERT INTO countries VALUES ('no', 'Norge 🇳🇴'), ('jp', '日本'), ('de', 'Deutschland')",
    "DROP TABLE drafts",
    "ALTER TABLE seats ADD COLUMN row_letter CHAR(1) NULL, ADD COLUMN price DECIMAL(7,2) DEFAULT 12.50",
    "TRUNCATE TABLE sessions",
    "CREATE UNIQUE INDEX by_name ON countries (name)",
)  # fmt: skip


@dataclass
class Done:
    """Counters; each field is written by one thread or under a lock."""

    transactions: int = 0
    ddl: int = 0


class Workload:
    """Runs until it is stopped. An unexpected error ends it, and is raised by ``check``."""

    def __init__(self, upstream: Database, seconds: float) -> None:
        self._upstream, self._seconds = upstream, seconds
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(THREADS + 1)
        self._running: list[Future[None]] = []
        self.done = Done()

    def start(self) -> None:
        self._running = [self._pool.submit(self._user, number) for number in range(THREADS)]
        self._running.append(self._pool.submit(self._admin))

    def stop(self) -> None:
        """Stop after the current transactions; returns when all threads have ended."""
        self._stop.set()
        self._pool.shutdown()

    def check(self) -> None:
        """Raise the error that ended a thread early, if any."""
        for thread in self._running:
            if thread.done():
                thread.result()

    def _user(self, number: int) -> None:
        rng = Random(number)
        actors, weights = list(ACTORS), list(ACTORS.values())
        with self._upstream.connect(database=DATABASE, autocommit=False) as connection:
            while not self._stop.wait(_PAUSE):
                try:
                    with connection.cursor() as cursor:
                        rng.choices(actors, weights)[0](cursor, rng)
                    connection.commit()
                except pymysql.MySQLError as error:
                    if error.args[0] not in _EXPECTED:
                        raise
                    connection.rollback()
                with self._lock:
                    self.done.transactions += 1

    def _admin(self) -> None:
        """Run the DDL, spread over the workload's time; all of it runs, even after an early stop."""
        begin = time.monotonic()
        with self._upstream.connect(database=DATABASE) as connection, connection.cursor() as cursor:
            for number, statement in enumerate(DDL, 1):
                due = begin + 0.9 * self._seconds * number / len(DDL)
                self._stop.wait(max(0.0, due - time.monotonic()))
                cursor.execute(statement)
                self.done.ddl += not statement.startswith(("INSERT", "UPDATE"))
