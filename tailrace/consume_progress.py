"""How far the consumer is: its counters, against the end of the epoch log."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from schemas.errors import TailraceError
from spark_consumer.config import ConsumerConfig
from spark_consumer.log_reader import LogReader
from spark_consumer.progress import Counters
from tailrace.progress import Snapshot, shown

_LOOK_EVERY_S = 5.0


@contextmanager
def watching(settings: ConsumerConfig, counters: Counters) -> Iterator[None]:
    """Show the counters once a second while the block runs."""
    done = threading.Event()
    with shown(f"consume {settings.channel}") as show:

        def watch() -> None:
            ends = _LogEnd(LogReader(settings))
            while not done.wait(1.0):
                show(snapshot(counters, ends.epoch()))
            show(snapshot(counters, None))

        thread = threading.Thread(target=watch, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(2.0)


def snapshot(counters: Counters, last_epoch: int | None) -> Snapshot:
    """The progress to show; ``last_epoch`` is the log's, None if unknown."""
    remaining = None if last_epoch is None else float(max(0, last_epoch - counters.position_epoch))
    position = f"epoch {counters.position_epoch}" if counters.position_epoch >= 0 else ""
    # At the end of the log the last commit's age is idleness, not lag.
    lag = 0.0 if remaining == 0 else counters.lag_s
    return Snapshot(counters.rows, position, lag, float(counters.position_epoch), remaining)


class _LogEnd:
    """The log's last epoch, looked up now and then."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._epoch: int | None = None
        self._next_look = 0.0

    def epoch(self) -> int | None:
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_EVERY_S
            with suppress(TailraceError):
                last = self._log.last_epoch()
                self._epoch = last.record.epoch if last else None
        return self._epoch
