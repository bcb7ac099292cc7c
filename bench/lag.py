"""How late changes arrive downstream at a steady rate that a consumer keeps up with."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from bench import probe
from bench.backlog import make_pair, run_sysbench
from bench.drain import both, kept_connection, wait_until, write_config
from bench.shapes import SHAPES, Sysbench
from compose.databases import MySQL
from compose.kafka import Kafka

_ROWS_PER_S = 2_000
_SECONDS = 60
#: fifty looks a second
_EVERY_S = 0.02
_ROW_EVENTS = "SHOW GLOBAL STATUS WHERE Variable_name REGEXP '^Innodb_rows_(inserted|updated|deleted)$'"


class SteadyLag(NamedTuple):
    """Seconds from a row's insert upstream until a query finds it downstream, and the row events a second beside it."""

    p50_s: float
    p99_s: float
    rows_per_s: float


def measure_lag(directory: Path, kafka: Kafka) -> SteadyLag:
    """Let sysbench write for a minute to a fresh pair of servers that both processes keep equal.

    The rows that were written in this time count, also those that arrive after it.
    """
    shape = SHAPES["hot"]
    assert isinstance(shape, Sysbench)
    directory.mkdir()
    pair = make_pair(directory, shape, 0, *probe.CREATE_TABLE)
    target = pair.copy(directory / "target", server_id=5)
    config = write_config(directory, pair, kafka, target, "lag", probe.DATABASE)
    with ThreadPoolExecutor(1) as pool, both(config) as programs, kept_connection(target) as ask:
        found = probe.Probe(ask)
        with probe.beats(pair.upstream):
            # Both processes are at work as soon as the first row arrives.
            wait_until(lambda: found.has_passed(0), _EVERY_S, *programs)
            before = _row_events(pair.upstream)
            begin = time.time()
            options = (f"--rate={_ROWS_PER_S // shape.row_events}", f"--time={_SECONDS}", "--events=0")
            load = pool.submit(run_sysbench, pair.upstream, shape, "run", directory, *options)

            def loaded() -> bool:
                found.look()
                return load.done()

            wait_until(loaded, _EVERY_S, *programs)
            load.result()
            end = time.time()
            rows = _row_events(pair.upstream) - before
            wait_until(lambda: found.has_passed(end), _EVERY_S, *programs)
        for program in programs:
            program.usage_at_end(stop=True)
    pair.upstream.stop()
    target.stop()
    return SteadyLag(*probe.percentiles(found.between(begin, end)), round(rows / (end - begin), 1))


def _row_events(server: MySQL) -> int:
    return sum(int(value) for _, value in server.execute(_ROW_EVENTS))
