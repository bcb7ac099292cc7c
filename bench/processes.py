"""Starts the measured programs, each as a process, and measures their usage."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench.meter import Meter, Usage
from compose.kafka import Kafka
from compose.processes import Program

_PATIENCE_S = 900.0


class Measured(Program):
    """One running program under a meter."""

    def __init__(self, name: str, arguments: list[str], directory: Path) -> None:
        super().__init__(name, arguments, directory, ended="TR723", late="TR722", failed="TR723")
        self._meter = Meter(self.start())

    def usage_at_end(self, stop: bool = False) -> Usage:
        """Wait until it ends, by itself or by SIGTERM. Raises StackError if it fails or takes too long."""
        self.stop(_PATIENCE_S) if stop else self.wait(_PATIENCE_S)
        return self._meter.stop()


@contextlib.contextmanager
def measured(name: str, arguments: list[str], directory: Path) -> Iterator[Measured]:
    """Run a measured program, which is killed with its child processes when the block ends."""
    program = Measured(name, arguments, directory)
    try:
        yield program
    finally:
        program.kill_all()


@contextlib.contextmanager
def running_kafka(directory: Path) -> Iterator[Kafka]:
    """Run a broker that has already served a transaction: its very first one takes a second, to create a topic."""
    kafka = Kafka(directory)
    try:
        kafka.start()
        # Without messages about the topic that is not there yet.
        settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": "first", "log_level": 0}
        Producer(settings).init_transactions(_PATIENCE_S)
        yield kafka
    finally:
        kafka.stop()


def run_part(part: str, settings: dict[str, Any], directory: Path) -> tuple[dict[str, Any], Usage]:
    """Run ``bench.parts PART`` to its end; returns its result and its usage."""
    file = directory / f"{part}.json"
    file.write_text(json.dumps(settings))
    with measured(part, ["bench.parts", part, str(file)], directory) as program:
        usage = program.usage_at_end()
        return json.loads(program.out.read_text()), usage
