"""How late the changes of another table arrive downstream, before large tables are copied again and meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from bench.drain import Ask, wait_until
from bench.probe import EVERY_S, Probe, beats, percentiles
from bench.processes import Measured
from compose.databases import MySQL

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
    wait_until(lambda: _copying(ask) is False, EVERY_S, consume)
    probe, has_begun = Probe(ask), False

    def passed(until: float) -> bool:
        probe.look()
        return time.time() > until

    def copied() -> bool:
        nonlocal has_begun
        probe.look()
        copying = bool(_copying(ask))
        has_begun = has_begun or copying
        return has_begun and not copying

    with beats(upstream):
        start = time.time()
        wait_until(lambda: passed(start + _BEFORE_S), EVERY_S, consume)
        begin = time.time()
        copy()
        wait_until(copied, EVERY_S, consume)
        end = time.time()
    before = [lag for at, lag in probe.lags if at + lag < begin]
    during = probe.between(begin, end)
    return Lag(*percentiles(during), *percentiles(before), round(rows / (end - begin), 1))


def _copying(ask: Ask) -> bool | None:
    """Whether a copy is not applied completely; None before there is a channel."""
    rows = ask("SELECT copying FROM tailrace.relay_log_info WHERE epoch >= 0")
    return bool(rows[0][0]) if rows else None
