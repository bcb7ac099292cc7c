"""How late the changes of another table arrive downstream while large tables are copied."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import NamedTuple

from bench.drain import wait_until
from bench.processes import Measured
from compose.databases import MySQL

DATABASE = "beside"
_TABLE = f"{DATABASE}.beats"
_EVERY_S = 0.05


class Lag(NamedTuple):
    """Seconds from a row's insert upstream until a query finds it downstream."""

    p50: float
    p99: float


def measure_lag(upstream: MySQL, target: MySQL, consume: Measured) -> Lag:
    """Insert rows upstream until the downstream's copy has come to its end. Raises StackError."""
    lags: list[float] = []
    last, first_found = -1, 0.0

    def copied() -> bool:
        nonlocal last, first_found
        found = _found(target, last)
        if found and last < 0:
            first_found = time.time()
        for number, begin in found:
            last = number
            # Those before have waited for the consumer's start, or came with the copy of their own table.
            if begin >= first_found:
                lags.append(time.time() - begin)
        return len(lags) > 1 and not target.execute("SELECT copying FROM tailrace.relay_log_info")[0][0]

    with _beats(upstream):
        wait_until(copied, _EVERY_S, consume)
    cuts = quantiles(lags, n=100, method="inclusive")
    return Lag(round(cuts[49], 2), round(cuts[98], 2))


@contextmanager
def _beats(upstream: MySQL) -> Iterator[None]:
    """Write the time into a table all the while."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(_EVERY_S):
            upstream.execute(f"INSERT INTO {_TABLE} (at) VALUES ({time.time()!r})")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()


def create_table(upstream: MySQL) -> None:
    """Create the table of these rows."""
    upstream.execute(
        f"CREATE DATABASE {DATABASE}",
        f"CREATE TABLE {_TABLE} (id INT AUTO_INCREMENT PRIMARY KEY, at DOUBLE NOT NULL)",
        f"INSERT INTO {_TABLE} (at) VALUES (0)",
    )


def _found(target: MySQL, last: int) -> list[tuple[int, float]]:
    try:
        return target.execute(f"SELECT id, at FROM {_TABLE} WHERE id > {last} ORDER BY id")
    except Exception:  # the table is just being created
        return []
