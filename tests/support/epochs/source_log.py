"""Publishes an upstream database with the producer, and reads the log."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compose.databases import Database
from producer.run import ProducerConfig
from producer.settings import RelaySettings
from schemas.access.server_url import ServerUrl
from schemas.wire.epoch import EpochCommitted
from tailrace.assemble.producer import producer
from tailrace.reader import EpochReader, Row
from tests.support.epochs.producer_case import NO_PURGE, SMALL_EPOCHS

_numbers = itertools.count()


@dataclass
class SourceLog:
    """A database of an upstream, and a log that starts with the empty database."""

    upstream: Database
    config: ProducerConfig
    db: str

    def sql(self, *statements: str) -> Any:
        """Execute statements in the database, and return the rows of the last one."""
        with self.upstream.connect(database=self.db) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    def publish(self, **changes: Any) -> None:
        """Run the producer until everything is published."""
        producer(replace(self.config, until_caught_up=True, **changes)).run(threading.Event())

    def epochs(self, start: str = "earliest") -> list[tuple[EpochCommitted, list[Row]]]:
        """Return the epochs as the reader library reads them."""
        with EpochReader(self.config.bootstrap_servers, self.config.prefix) as log:
            return [(epoch, list(log.rows(epoch))) for epoch in log.epochs(start)]

    def rows(self) -> list[Row]:
        """Return all rows in upstream order."""
        return [row for _, rows in self.epochs() for row in rows]


@contextmanager
def source_log(upstream: Database, bootstrap: str, folder: Path, **changes: Any) -> Iterator[SourceLog]:
    """Yield a log of its own with epoch 0. Its database is dropped at the end."""
    number = next(_numbers)
    db = f"wire{number}"
    config = ProducerConfig(
        source=ServerUrl.parse(upstream.url()),
        server_id=8000 + number,
        start="current",
        relay=RelaySettings(dir=folder / f"relay{number}"),
        epoch=SMALL_EPOCHS,
        purge=NO_PURGE,
        bootstrap_servers=bootstrap,
        prefix=f"wire-{os.getpid()}-{number}",
        partitions=3,
        include=(f"{db}.*",),
    )
    upstream.execute(f"DROP DATABASE IF EXISTS {db}", f"CREATE DATABASE {db} CHARACTER SET utf8mb4")
    made = SourceLog(upstream, replace(config, **changes), db)
    made.publish()
    try:
        yield made
    finally:
        upstream.execute(f"DROP DATABASE {db}")
