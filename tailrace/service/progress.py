"""Shows the progress of commands: rate and time left, on a terminal or periodically in the log."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from schemas.counted import counted
from tailrace.service.logs import may_draw
from tailrace.service.systemd_notify import tell_status

_WINDOW_S = 10.0
_LOG_EVERY_S = 10.0
#: environment variable: seconds between two lines of progress in the log
LINES_EVERY = "TAILRACE_PROGRESS_EVERY"
_log = structlog.get_logger()


@dataclass(frozen=True)
class Snapshot:
    """The progress of a run at one moment.

    Attributes:
        done, remaining: in the same unit, such as bytes or epochs.
        paused: why the run is paused; None if it is not.
        copy: how far the copy of tables is; empty if none is running.
    """

    rows: int
    position: str
    lag_s: float | None = None
    done: float = 0.0
    remaining: float | None = None
    paused: str | None = None
    copy: str = ""


class RateMeter:
    """Measures rates over the last ten seconds. Times are arguments, in seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Snapshot]] = deque()

    def add(self, now: float, snapshot: Snapshot) -> None:
        self._samples.append((now, snapshot))
        while len(self._samples) > 2 and self._samples[1][0] <= now - _WINDOW_S:
            self._samples.popleft()

    def rows_per_s(self) -> float:
        (t0, first), (t1, last) = self._samples[0], self._samples[-1]
        return (last.rows - first.rows) / (t1 - t0) if t1 > t0 else 0.0

    def seconds_left(self) -> float | None:
        """Return the time left; None if there is no end or no progress."""
        (t0, first), (t1, last) = self._samples[0], self._samples[-1]
        speed = (last.done - first.done) / (t1 - t0) if t1 > t0 else 0.0
        if last.remaining is None or (speed <= 0 and last.remaining > 0):
            return None
        return last.remaining / speed if last.remaining > 0 else 0.0


def describe(snapshot: Snapshot, rate: float, left: float | None) -> str:
    """Return the progress as a line of text."""
    parts = [counted(snapshot.rows, "row"), f"{rate:,.0f} rows/s", snapshot.position or "no position yet"]
    if snapshot.lag_s is not None:
        parts.append(f"lag {snapshot.lag_s:.1f} s")
    if left is not None:
        parts.append("caught up" if left < 0.5 else f"{left:,.0f} s left")
    if snapshot.paused:
        parts.insert(0, f"paused: {snapshot.paused}")
    if snapshot.copy:
        parts.append(f"copy: {snapshot.copy}")
    return " · ".join(parts)


@contextmanager
def live_line(title: str) -> Iterator[Callable[..., None]]:
    """Yield a function that shows a text: a live line on a terminal, otherwise its fields as a log line every 10 s."""
    if may_draw():
        from rich.console import Console

        with Console(stderr=True).status(f"{title}: starting") as status:
            yield lambda text, **_: status.update(f"{title}: {text}")
        return
    every = float(os.environ.get(LINES_EVERY) or _LOG_EVERY_S)
    next_line = time.monotonic() + every

    def log(text: str, **fields: Any) -> None:
        nonlocal next_line
        if fields and time.monotonic() >= next_line:
            next_line = time.monotonic() + every
            _log.info("progress", **fields)

    yield log


@contextmanager
def _progress_panel(title: str) -> Iterator[Callable[..., None]]:
    """Yield a function that shows the progress of a process's one part."""
    from tailrace.service.panel import live_panel

    with live_panel(f"tailrace {title}") as panel:
        yield lambda text, **fields: panel.show(title.split()[-1], fields)


@contextmanager
def progress_display(title: str) -> Iterator[Callable[[Snapshot], None]]:
    """Yield a function that shows progress, with rate and time left. systemd is told, too."""
    meter = RateMeter()
    with _progress_panel(title) if may_draw() else live_line(title) as line:

        def show(snapshot: Snapshot) -> None:
            meter.add(time.monotonic(), snapshot)
            rate, left = meter.rows_per_s(), meter.seconds_left()
            text = describe(snapshot, rate, left)
            tell_status(text)
            line(
                text,
                rows=snapshot.rows,
                rows_per_s=round(rate),
                position=snapshot.position,
                lag_s=None if snapshot.lag_s is None else round(snapshot.lag_s, 3),
                seconds_left=None if left is None else round(left),
                paused=snapshot.paused,
                copy=snapshot.copy or None,
            )

        yield show
