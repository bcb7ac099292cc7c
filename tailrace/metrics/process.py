"""What every process tells: what it is, its memory, and what it repeated; and whether something moves."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from schemas import tally
from tailrace.metrics.exposition import Sample
from tailrace.metrics.memory import memory_by_program

#: what happens to rows
OPERATIONS = ("insert", "update", "delete", "copy")
#: seconds without progress, while there is something to do, after which a process is not ready
STANDS_STILL = 60.0


class Movement:
    """Notes when a mark, such as a position, has changed."""

    def __init__(self) -> None:
        self._mark: object = None
        self._since = -STANDS_STILL

    def stands_for(self, mark: object, now: float) -> float:
        """Return the seconds since the mark changed, as far as it was asked for. Args: ``now``, seconds, monotonic."""
        if mark != self._mark:
            self._mark, self._since = mark, now
        return now - self._since


class Process:
    """This process.

    Args:
        kind: producer, consumer or validator.
        prefix: of the log.
        channel: empty for the producer.
    """

    def __init__(self, kind: str, prefix: str, channel: str = "") -> None:
        self._labels, self._started = (kind, prefix, channel), time.time()

    def samples(self, *, is_ready: bool) -> Iterator[Sample]:
        """Yield the metrics of every process."""
        # Its import takes as long as a small batch.
        from importlib.metadata import version

        yield Sample("tailrace_info", 1, (*self._labels, version("tailrace")))
        yield Sample("tailrace_ready", is_ready)
        yield Sample("tailrace_start_time_seconds", self._started)
        for program, size in memory_by_program(os.getpid()).items():
            yield Sample("tailrace_memory_bytes", size, (program,))
        for waits_for in ("upstream", "kafka", "downstream"):
            yield Sample("tailrace_retries_total", tally.RETRIES[waits_for], (waits_for,))
        for code, count in tuple(tally.ERRORS.items()):
            yield Sample("tailrace_errors_total", count, (code,))
