"""Runs the whole replication: two servers, a topic prefix of its own, and `tailrace` processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

from compose.databases import Database
from compose.kafka import Kafka
from schemas.access.server_url import ServerUrl
from tailrace.validate import Report, compare_servers
from tests.support.waiting import wait_until

# Crash points that only Spark's batches reach.
_SPARK_ALONE = {"batch.before_return": {"TAILRACE_CONSUMER_DIRECT": "false"}}
TAILRACE = Path(sys.executable).with_name("tailrace")


class River:
    """One upstream, one downstream, and the configuration between them."""

    def __init__(
        self,
        folder: Path,
        upstream: Database,
        downstream: Database,
        kafka: Kafka,
        consistency: str = "batch",
    ) -> None:
        self.folder, self.upstream, self.downstream = folder, upstream, downstream
        self.config = folder / "tailrace.toml"
        self.config.write_text(
            f"""
            [source]
            url = "{upstream.url("tailrace")}"
            start = "earliest"
            [relay]
            dir = "relay"
            [kafka]
            bootstrap-servers = "{kafka.bootstrap}"
            prefix = "{folder.name}{time.time_ns()}"
            [epoch]
            max-rows = 40
            max-delay = "50ms"
            [target]
            url = "{downstream.url("tailrace")}"
            [consumer]
            checkpoint-dir = "checkpoint"
            max-batch-rows = 100
            consistency = "{consistency}"
            worker-count = 3
            """
        )
        self._started = 0

    def start(self, command: str, *options: str, crash_at: str = "") -> subprocess.Popen[bytes]:
        """Start a `tailrace` process; its stderr goes to a file in the folder."""
        self._started += 1
        log = (self.folder / f"{self._started:02}-{command}.log").open("wb")
        return subprocess.Popen(
            [str(TAILRACE), command, "--config", str(self.config), *options],
            stdout=log,
            stderr=log,
            env=os.environ
            | ({"TAILRACE_CRASH_AT": crash_at} if crash_at else {})
            | _SPARK_ALONE.get(crash_at, {}),
        )

    def told(self, command: str, event: str) -> None:
        """Wait until the newest process of a command has logged an event."""
        log = max(self.folder.glob(f"*-{command}.log"))
        wait_until(lambda: f'"event": "{event}"' in log.read_text(errors="replace"), self.talk)

    def run(self, command: str, *options: str, crash_at: str = "") -> int:
        """Run a `tailrace` process to its end. Return its exit code, negative for a signal."""
        process = self.start(command, *options, crash_at=crash_at)
        try:
            return process.wait(180)
        finally:
            process.kill()

    def catch_up(self) -> None:
        """Replicate everything to the downstream."""
        assert self.run("produce", "--until-caught-up") == 0, self.talk()
        assert self.run("consume", "--until-caught-up") == 0, self.talk()

    def crash(self, command: str, point: str) -> None:
        """Run a process that must die at a crash point."""
        code = self.run(command, crash_at=point)
        assert code == -signal.SIGKILL, (point, code, self.talk())

    def compare(self) -> Report:
        """Compare both servers row by row."""
        return compare_servers(ServerUrl.parse(self.upstream.url()), ServerUrl.parse(self.downstream.url()))

    def assert_equal(self) -> None:
        """Assert that both servers have the same tables and rows, and that each GTID was applied exactly once."""
        result = self.compare()
        assert result.is_equal, result.not_equal
        batches = self.downstream.execute(
            "SELECT first_epoch, last_epoch FROM tailrace.applied_epochs ORDER BY first_epoch"
        )
        for (_, last), (first, _) in pairwise(batches):
            assert first > last, f"epoch {first} was applied twice"

    def talk(self) -> str:
        """Return the end of the last process's log."""
        logs = sorted(self.folder.glob("*.log"))
        return logs[-1].read_text(errors="replace")[-3000:] if logs else ""
