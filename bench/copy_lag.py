"""How late the changes of another table arrive downstream, before large tables are copied again and meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import NamedTuple

from bench.drain import Ask, wait_until
from bench.processes import Measured
from compose.databases import MySQL

DATABASE = "beside"
_TABLE = f"{DATABASE}.beats"
_EVERY_S = 0.05
_BEFORE_S = 20.0


class Lag(NamedTuple):
    """Seconds from a row's insert upstream until a query finds it downstream, and what the copy needed.

    Attributes:
        p50, p99: during the copy.
        before_p50, before_p99: before it.
        copy_rows_per_s: from the request to the last row.
    """

    p50: float
    p99: float
    before_p50: float
    before_p99: float
    copy_rows_per_s: float


def measure_lag(upstream: MySQL, ask: Ask, consume: Measured, rows: int, copy: Callable[[], None]) -> Lag:
    """Insert rows upstream, for a while before the tables are copied again, and until they are. Raises StackError.

    Args:
        ask: asks the downstream.
        rows: of the tables.
        copy: asks for the copy, and does not wait for its end.
    """
    wait_until(lambda: _copying(ask) is False, _EVERY_S, consume)
    lags: list[tuple[float, float]] = []
    last, has_begun = 0, False

    def look() -> None:
        nonlocal last
        for number, begin in ask(f"SELECT id, at FROM {_TABLE} WHERE id > {last} AND at > 0 ORDER BY id"):
            last = number
            lags.append((begin, time.time() - begin))

    def passed(until: float) -> bool:
        look()
        return time.time() > until

    def copied() -> bool:
        nonlocal has_begun
        look()
        copying = bool(_copying(ask))
        has_begun = has_begun or copying
        return has_begun and not copying

    with _beats(upstream):
        start = time.time()
        wait_until(lambda: passed(start + _BEFORE_S), _EVERY_S, consume)
        begin = time.time()
        copy()
        wait_until(copied, _EVERY_S, consume)
        end = time.time()
    before = [lag for at, lag in lags if at + lag < begin]
    during = [lag for at, lag in lags if at >= begin]
    return Lag(*_cut(during), *_cut(before), round(rows / (end - begin), 1))


def _cut(lags: list[float]) -> tuple[float, float]:
    cuts = quantiles(lags, n=100, method="inclusive")
    return round(cuts[49], 2), round(cuts[98], 2)


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


def _copying(ask: Ask) -> bool | None:
    """Whether a copy is not applied completely; None before there is a channel."""
    rows = ask("SELECT copying FROM tailrace.relay_log_info WHERE epoch >= 0")
    return bool(rows[0][0]) if rows else None
