"""A channel of one database between two servers, without Spark, and tables that change in many ways."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.route import Route
from tailrace.config.file import load
from tailrace.config.model import Config
from tailrace.validate import Report, validate
from tests.support.applying.consuming import consume
from tests.support.epochs.producer_case import Case
from tests.support.epochs.source_log import SourceLog
from tests.support.statements.value_types import LOOSE


class Channel:
    """A log of an upstream's database, a channel without Spark, and a configuration for the command."""

    def __init__(
        self,
        log: SourceLog | Case,
        downstream: Database,
        folder: Path,
        consistency: Literal["batch", "worker"] = "batch",
        route: str = "",
    ) -> None:
        self.log, self.downstream, self.db = log, downstream, log.db
        self.there = route or log.db
        self.consumer = ConsumerConfig(
            log.config.bootstrap_servers,
            log.config.prefix,
            ServerUrl.parse(downstream.url("tailrace")),
            channel=log.db,
            checkpoint_dir=folder / "checkpoint",
            until_caught_up=True,
            include=(f"{log.db}.*",),
            routes=(Route(log.db, route),) if route else (),
            consistency=consistency,
            worker_count=3,
        )
        file = folder / "tailrace.toml"
        file.write_text(
            f"""
            [source]
            url = "{log.upstream.url()}"
            [kafka]
            bootstrap-servers = "{log.config.bootstrap_servers}"
            prefix = "{log.config.prefix}"
            [target]
            url = "{downstream.url()}"
            [consumer]
            channel = "{log.db}"
            [tables]
            include = ["{log.db}.*"]
            """
            + (f'[[routes]]\nschema-pattern = "{log.db}"\ntarget-schema = "{route}"\n' if route else "")
        )
        self.config: Config = load(file)

    def replicate(self) -> None:
        if isinstance(self.log, SourceLog):
            self.log.publish()
        else:
            self.log.catch_up()
        consume(self.consumer)

    def there_sql(self, *statements: str) -> Any:
        with self.downstream.connect(database=self.there) as connection, connection.cursor() as cursor:
            cursor.execute(LOOSE)
            cursor.execute("SET time_zone = '+00:00', foreign_key_checks = 0")
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    def validate(self, **options: Any) -> Report:
        return validate(self.config, **options)

    @contextmanager
    def running(self, *works: Callable[[], None]) -> Iterator[None]:
        """Do each of ``works`` again and again in a thread of its own."""
        stop, failed = threading.Event(), []

        def again(step: Callable[[], None]) -> None:
            try:
                while not stop.is_set():
                    step()
            except Exception as error:
                failed.append(error)
                raise

        threads = [threading.Thread(target=again, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failed


def make_busy_tables(pipe: Channel) -> None:
    """Make the tables, with 2,000 flags and 600 words, and replicate them."""
    pipe.log.sql(
        "CREATE TABLE flags (id INT PRIMARY KEY, v INT) ",
        "CREATE TABLE words (w VARCHAR(30) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT) CHARSET utf8mb4",
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "CREATE TABLE emptied (id INT PRIMARY KEY, v INT)",
        *(
            f"INSERT INTO flags VALUES {', '.join(f'({n * 100 + i}, 0)' for i in range(100))}"
            for n in range(20)
        ),
        *(f"INSERT INTO words VALUES ('é{n}', 0), ('w{n}', 0)" for n in range(300)),
    )
    pipe.replicate()


def change_busy_tables(pipe: Channel, chance: random.Random, n: int) -> None:
    """Change values back and forth, move keys, delete with cascades, and alter; the last ids and words stay."""
    gone, came = chance.sample(range(1900), 2)
    word = f"{chance.choice('éw')}{chance.randrange(200)}"
    pipe.log.sql(
        "BEGIN",
        *(f"UPDATE flags SET v = 1 - v WHERE id = {chance.randrange(1900)}" for _ in range(5)),
        f"DELETE FROM flags WHERE id = {gone}",
        f"INSERT IGNORE INTO flags VALUES ({came}, 0)",
        f"UPDATE IGNORE flags SET id = {gone} WHERE id = {came}",
        f"UPDATE words SET v = v + 1 WHERE w = '{word}'",
        "COMMIT",
        f"REPLACE INTO parent VALUES ({n % 7})",
        *(f"REPLACE INTO child VALUES ({n % 50 * 10 + i}, {n % 7})" for i in range(10)),
        f"DELETE FROM parent WHERE id = {(n + 3) % 7}",
        *(f"REPLACE INTO emptied (id, v) VALUES ({i}, {n})" for i in range(20)),
        *(("TRUNCATE TABLE emptied",) if n % 5 == 0 else ()),
        *((f"ALTER TABLE emptied ADD COLUMN c{n} INT DEFAULT {n}",) if n % 20 == 0 else ()),
    )
