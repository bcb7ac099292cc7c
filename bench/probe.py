"""Rows with the time at which they were written upstream, and how late each is found downstream."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import quantiles

from bench.drain import Ask
from compose.databases import MySQL

DATABASE = "beside"
_TABLE = f"{DATABASE}.beats"
#: between two rows
EVERY_S = 0.05
CREATE_TABLE = (
    f"CREATE DATABASE {DATABASE}",
    f"CREATE TABLE {_TABLE} (id INT AUTO_INCREMENT PRIMARY KEY, at DOUBLE NOT NULL)",
    f"INSERT INTO {_TABLE} (at) VALUES (0)",
)


class Probe:
    """Looks for the rows downstream.

    Attributes:
        lags: when each row was written, in seconds since 1970, and after how many seconds it was found.
    """

    def __init__(self, ask: Ask) -> None:
        self.lags: list[tuple[float, float]] = []
        self._ask, self._last = ask, 0

    def look(self) -> None:
        """Take the rows that have arrived since the last look."""
        found = self._ask(f"SELECT id, at FROM {_TABLE} WHERE id > {self._last} AND at > 0 ORDER BY id")
        for number, begin in found:
            self._last = number
            self.lags.append((begin, time.time() - begin))

    def has_passed(self, moment: float) -> bool:
        """Look, and say whether a row that was written after ``moment`` has arrived."""
        self.look()
        return bool(self.lags) and self.lags[-1][0] > moment

    def between(self, begin: float, end: float) -> list[float]:
        """Return the lags of the rows that were written between two moments."""
        return [lag for at, lag in self.lags if begin <= at <= end]


def percentiles(lags: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile."""
    cuts = quantiles(lags, n=100, method="inclusive")
    return round(cuts[49], 2), round(cuts[98], 2)


@contextmanager
def beats(upstream: MySQL) -> Iterator[None]:
    """Write the time into the table all the while."""
    stop = threading.Event()

    def write() -> None:
        with upstream.connect() as connection, connection.cursor() as cursor:
            while not stop.wait(EVERY_S):
                cursor.execute(f"INSERT INTO {_TABLE} (at) VALUES ({time.time()!r})")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join()
