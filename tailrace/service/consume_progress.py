"""Shows the consumer's progress: its counters and the end of the epoch log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from schemas.errors import TailraceError
from schemas.wire.epoch import EpochCommitted
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.job.progress import Counters
from spark_consumer.rules.config import ConsumerConfig
from tailrace.service.background import repeated
from tailrace.service.progress import Snapshot, progress_display
from tailrace.service.systemd_notify import Watchdog
from tailrace.service.true_lag import lag_seconds

_LOOK_EVERY_S = 5.0
# Seconds, besides the waits for servers and for more epochs, that epochs may be in the log and none is in hand.
# A batch in hand always counts as moving: a statement may take hours.
_STANDSTILL_S = 600.0


@contextmanager
def show_progress(settings: ConsumerConfig, counters: Counters) -> Iterator[LogEndReader]:
    """Show the counters once a second while the block runs. Yields what knows the log's end."""
    ends = LogEndReader(LogReader(settings))
    watchdog = Watchdog(settings.retry_time + settings.max_batch_delay + _STANDSTILL_S)
    with progress_display(f"consume {settings.channel}") as show:

        def look() -> None:
            end = ends.look(counters)
            is_idle = counters.in_hand is None and counters.paused is None
            is_due = bool(end.epochs_behind(counters)) and is_idle
            if counters.position is not None:
                watchdog.look((counters.position_epoch, counters.batches), is_due=is_due)
            show(snapshot(counters, end, time.time()))

        try:
            with repeated(look, 1.0, "progress"):
                yield ends
        finally:
            show(snapshot(counters, LogEnd(), time.time()))


@dataclass(frozen=True)
class LogEnd:
    """The end of the log as it was seen last, beside a channel's position.

    Attributes:
        last: the last epoch; None if unknown.
        waiting_ms: the commit time of the first transaction after the position, in ms since 1970; 0 if there is none,
            None if unknown.
        seen: when it was seen, seconds of a monotonic clock; None before the first time.
    """

    last: EpochCommitted | None = None
    waiting_ms: int | None = None
    seen: float | None = None

    def epochs_behind(self, counters: Counters) -> int | None:
        """Return how many epochs are not applied; None if unknown."""
        return None if self.last is None else max(0, self.last.epoch - counters.position_epoch)

    def lag_s(self, counters: Counters, now: float) -> float | None:
        """Return the channel's lag in seconds; None if unknown. Args: ``now``, seconds since 1970."""
        pending, complete_ms = oldest_in_hand(counters) or self.waiting_ms, counters.complete_ms
        if self.epochs_behind(counters) == 0:
            pending = 0
            complete_ms = max(complete_ms, self.last.complete_ms if self.last is not None else 0)
        return lag_seconds(pending, complete_ms, now)


def snapshot(counters: Counters, end: LogEnd, now: float) -> Snapshot:
    """Return the progress to show. Args: ``now``, seconds since 1970."""
    behind = end.epochs_behind(counters)
    remaining = None if behind is None else float(behind)
    position = f"epoch {counters.position_epoch}" if counters.position_epoch >= 0 else ""
    lag = end.lag_s(counters, now)
    paused = None if counters.paused is None else f"since {counters.paused}, with `tailrace pause channel`"
    return Snapshot(counters.rows, position, lag, float(counters.position_epoch), remaining, paused)


def oldest_in_hand(counters: Counters) -> int | None:
    """Return the commit time of the present batch's first transaction, in ms since 1970; None if there is none."""
    slice_ = counters.in_hand
    return None if slice_ is None else oldest_of(logged.record for logged in slice_.epochs)


def oldest_of(epochs: Iterable[EpochCommitted]) -> int | None:
    """Return the commit time of the epochs' first transaction, in ms since 1970; None if they have none."""
    return next((epoch.first_commit_ms for epoch in epochs if epoch.transactions), None)


class LogEndReader:
    """Looks at the log's end and the first epoch after the position, every few seconds.

    Attributes:
        end: what was seen last; any thread may read it.
    """

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._waiting: tuple[int, int | None] = -1, None  # an epoch, and the commit time after it
        self._next_look = 0.0
        self.end = LogEnd()

    def look(self, counters: Counters) -> LogEnd:
        """Return the end. One thread calls this."""
        position, last, seen = counters.position, self.end.last, self.end.seen
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_EVERY_S
            with suppress(TailraceError):
                found = self._log.last_epoch()
                last, seen = found.record if found else None, time.monotonic()
                if position is not None and last is not None and last.epoch > position.epoch:
                    behind = self._log.epochs_after(position.epochs_offset)
                    self._waiting = position.epoch, oldest_of(logged.record for logged in behind) or 0
        epoch, waiting = self._waiting
        self.end = LogEnd(last, waiting if epoch == counters.position_epoch else None, seen)
        return self.end
