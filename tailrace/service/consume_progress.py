"""Shows the consumer's progress: its counters and the end of the epoch log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from schemas.errors import TailraceError
from schemas.wire.epoch import EpochCommitted
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.job.progress import Counters
from spark_consumer.rules.config import ConsumerConfig
from tailrace.service.background import repeated
from tailrace.service.progress import Snapshot, progress_display
from tailrace.service.systemd_notify import Watchdog

_LOOK_EVERY_S = 5.0
# Seconds, besides the waits for servers and for more epochs, that epochs may be in the log and none is in hand.
# A batch in hand always counts as moving: a statement may take hours.
_STANDSTILL_S = 600.0


@contextmanager
def show_progress(settings: ConsumerConfig, counters: Counters) -> Iterator[None]:
    """Show the counters once a second while the block runs."""
    ends = _LogEnd(LogReader(settings))
    watchdog = Watchdog(settings.retry_time + settings.max_batch_delay + _STANDSTILL_S)
    with progress_display(f"consume {settings.channel}") as show:

        def look() -> None:
            last, waiting_ms = ends.look(counters)
            is_idle = counters.in_hand is None and counters.paused is None
            is_due = last is not None and last > counters.position_epoch and is_idle
            watchdog.look((counters.position_epoch, counters.batches), is_due=is_due)
            show(snapshot(counters, last, waiting_ms, time.time()))

        try:
            with repeated(look, 1.0, "progress"):
                yield
        finally:
            show(snapshot(counters, None, None, time.time()))


def snapshot(counters: Counters, last_epoch: int | None, waiting_ms: int | None, now: float) -> Snapshot:
    """Return the progress to show.

    Args:
        last_epoch: the log's last epoch; None if unknown.
        waiting_ms: the commit time of the first transaction after the position, in ms since 1970; None if unknown.
        now: seconds since 1970.
    """
    remaining = None if last_epoch is None else float(max(0, last_epoch - counters.position_epoch))
    position = f"epoch {counters.position_epoch}" if counters.position_epoch >= 0 else ""
    oldest = oldest_in_hand(counters) or waiting_ms
    lag = 0.0 if remaining == 0 else max(0.0, now - oldest / 1000) if oldest else None
    paused = None if counters.paused is None else f"since {counters.paused}, with `tailrace pause channel`"
    return Snapshot(counters.rows, position, lag, float(counters.position_epoch), remaining, paused)


def oldest_in_hand(counters: Counters) -> int | None:
    """Return the commit time of the present batch's first transaction, in ms since 1970; None if there is none."""
    slice_ = counters.in_hand
    return None if slice_ is None else oldest_of(logged.record for logged in slice_.epochs)


def oldest_of(epochs: Iterable[EpochCommitted]) -> int | None:
    """Return the commit time of the epochs' first transaction, in ms since 1970; None if they have none."""
    return next((epoch.first_commit_ms for epoch in epochs if epoch.transactions), None)


class _LogEnd:
    """Periodically looks up the log's last epoch and the first epoch after the position."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._last: int | None = None
        self._waiting: tuple[int, int | None] = -1, None  # an epoch, and the commit time after it
        self._next_look = 0.0

    def look(self, counters: Counters) -> tuple[int | None, int | None]:
        """Return the last epoch's number, and the commit time of the first transaction after the position."""
        position = counters.position
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_EVERY_S
            with suppress(TailraceError):
                last = self._log.last_epoch()
                self._last = last.record.epoch if last else None
                if position is not None and self._last is not None and self._last > position.epoch:
                    behind = self._log.epochs_after(position.epochs_offset)
                    self._waiting = position.epoch, oldest_of(logged.record for logged in behind)
        epoch, waiting = self._waiting
        return self._last, waiting if epoch == counters.position_epoch else None
