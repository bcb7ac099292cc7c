"""CPU seconds and peak memory of processes with everything below them, sampled from ``/proc``."""

from __future__ import annotations

import os
import resource
import threading
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVERY_S = 0.25


def peak_rss_mb() -> float:
    """Return the peak memory of this process so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6, 1)


class Usage(NamedTuple):
    """The resource usage of a process tree."""

    cpu_seconds: float
    peak_rss_mb: float


class _Stat(NamedTuple):
    parent: int
    cpu_ticks: int
    rss_pages: int


def _stat(pid: int) -> _Stat | None:
    try:
        # The second field is the program's name in brackets and may contain blanks.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return _Stat(int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[21]))


def _all() -> dict[int, _Stat]:
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]
    return {pid: stat for pid in pids if (stat := _stat(pid))}


class Meter:
    """Watches one process and its descendants from now until ``stop``.

    Memory shared by forked processes counts for each of them, so the peak is an upper bound.
    """

    def __init__(self, pid: int) -> None:
        self._root = pid
        self._members = {pid}
        first = _stat(pid)
        self._before = {pid: first.cpu_ticks if first else 0}
        self._ticks: dict[int, int] = {}
        self._peak = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> Usage:
        """Return the usage so far."""
        self._stopped.set()
        self._thread.join()
        self._sample()
        ticks = sum(count - self._before.get(pid, 0) for pid, count in self._ticks.items())
        return Usage(round(ticks / _TICKS, 2), round(self._peak * _PAGE / 1e6, 1))

    def _watch(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            with suppress(OSError):
                self._sample()

    def _sample(self) -> None:
        stats = _all()
        grown = True
        while grown:
            below = {pid for pid, stat in stats.items() if stat.parent in self._members}
            grown = not below <= self._members
            self._members |= below
        rss = 0
        for pid in self._members & stats.keys():
            self._ticks[pid] = stats[pid].cpu_ticks
            rss += stats[pid].rss_pages
        self._peak = max(self._peak, rss)
