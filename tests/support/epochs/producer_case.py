"""Runs the producer with a test's own database, topic prefix and relay directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from compose.databases import Database
from producer.epochs.open_epoch import EpochLimits
from producer.run import ProducerConfig
from producer.settings import RelaySettings
from relay_store.purge.purge import PurgeRules
from schemas.access.server_url import ServerUrl
from tailrace.assemble.producer import producer
from tests.support.epochs.published import Published, count_rows, read_published
from tests.support.paths import PROGRAMS

SMALL_EPOCHS = EpochLimits(max_rows=500, max_bytes=1 << 20, max_delay=0.05)
NO_PURGE = PurgeRules(interval=0, remain_space=0)
_PROGRAM = PROGRAMS / "producer_process.py"


@dataclass
class Case:
    """One test's upstream, log and producer."""

    upstream: Database
    config: ProducerConfig
    db: str

    def sql(self, *statements: str) -> Any:
        """Execute statements in the test's database, and return the rows of the last one."""
        with self.upstream.connect(database=self.db) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    def catch_up(self, **changes: Any) -> None:
        """Run the producer in this process until everything is published."""
        changes = {"until_caught_up": True} | changes
        producer(replace(self.config, **changes)).run(threading.Event())

    def published(self) -> Published:
        """Return the log as a consumer reads it."""
        return read_published(self.config.bootstrap_servers, self.config.prefix)

    def visible_rows(self) -> int:
        """Return how many rows a consumer may read, which are those of the log's epochs."""
        return count_rows(self.config.bootstrap_servers, self.config.prefix)

    def process(self, crash_at: str = "", program: Path = _PROGRAM, **changes: Any) -> subprocess.Popen[str]:
        """Start the producer as a process."""
        values = asdict(replace(self.config, **changes))
        values["source"] = self.upstream.url()
        return subprocess.Popen(
            [sys.executable, str(program), json.dumps(values, default=str)],
            env=os.environ | {"TAILRACE_CRASH_AT": crash_at, "PYTHONPATH": os.getcwd()},
            stdout=subprocess.PIPE,
            text=True,
        )

    def executed(self) -> str:
        """Return the upstream's executed GTID set."""
        variable = "@@gtid_binlog_pos" if self.upstream.flavor == "mariadb" else "@@gtid_executed"
        ((text,),) = self.sql(f"SELECT {variable}")
        return str(text)

    def content(self, table: str) -> list[tuple[Any, ...]]:
        """Return a table's rows on the upstream, by the first column."""
        return list(self.sql(f"SELECT * FROM {table} ORDER BY 1"))


_numbers = iter(range(1000))


@contextmanager
def producer_case(
    upstream: Database, bootstrap: str, folder: Path, start: Literal["current", "copy"] = "current"
) -> Iterator[Case]:
    """Yield a log of its own: with epoch 0, on a table ``t``; or, to begin with a copy, not yet begun."""
    number = next(_numbers)
    db, prefix = f"pub{number}", f"pub-{os.getpid()}-{number}"
    source = ServerUrl.parse(upstream.url())
    config = ProducerConfig(
        source=source,
        server_id=7000 + number,
        start=start,
        relay=RelaySettings(dir=folder / "relay"),
        epoch=SMALL_EPOCHS,
        purge=NO_PURGE,
        bootstrap_servers=bootstrap,
        prefix=prefix,
        partitions=3,
        include=(f"{db}.*",),
    )
    upstream.execute(f"DROP DATABASE IF EXISTS {db}", f"CREATE DATABASE {db}")
    made = Case(upstream, config, db)
    if start == "current":
        made.sql(
            "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200), n INT NOT NULL DEFAULT 0)"
        )
        made.catch_up()
    yield made
    upstream.execute(f"DROP DATABASE {db}")
