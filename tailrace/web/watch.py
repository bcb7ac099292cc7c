"""Looks at the pipeline every few seconds, and keeps what the charts of the last hour need."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import structlog

from schemas.errors import TailraceError

Part = dict[str, Any]
#: seconds between two looks, and seconds that are kept of them
EVERY, KEPT = 5.0, 3600.0
_log = structlog.get_logger()


@dataclass(frozen=True)
class ChannelPoint:
    """A channel at one moment; a number is None if it is not known.

    Attributes:
        lag: seconds.
        rows: row changes that it has applied, ever.
    """

    lag: float | None
    rows: int | None


@dataclass(frozen=True)
class Point:
    """What a look has seen in numbers.

    Attributes:
        at: seconds since 1970.
        published: row changes that were published since the page runs; None if Kafka was not read.
    """

    at: float
    published: int | None
    channels: dict[str, ChannelPoint] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """All that the page shows of the pipeline.

    Attributes:
        report: that of ``tailrace status``; None before the first look has ended.
        at: when the last look began, in seconds since 1970.
        points: of the last hour, the oldest first.
        epochs: the last ones, the newest first.
        problem: why the last look failed; "" if it did not.
    """

    report: Part | None
    at: float
    points: Sequence[Point] = ()
    epochs: Sequence[Part] = ()
    problem: str = ""


class Watch:
    """The looks of a process.

    Args:
        look: returns the report.
        epochs: returns the rows published so far, and the last epochs, the newest first. Raises TailraceError.
    """

    def __init__(self, look: Callable[[], Part], epochs: Callable[[], tuple[int, list[Part]]]) -> None:
        self._look, self._epochs = look, epochs
        self._seen = Seen(None, time.time())
        self._points: deque[Point] = deque(maxlen=int(KEPT / EVERY) + 1)

    @property
    def seen(self) -> Seen:
        """What was seen last."""
        return self._seen

    def run(self, stop: threading.Event) -> None:
        """Look until ``stop`` is set."""
        while True:
            began = time.monotonic()
            self.look_once()
            if stop.wait(max(0.5, EVERY - (time.monotonic() - began))):
                return

    def look_once(self) -> None:
        """Look once. An unexpected error is shown and logged, and the next look follows."""
        at = time.time()
        try:
            report = self._look()
        except Exception as error:
            _log.exception("look_failed")
            problem = f"the last look failed: {type(error).__name__}"
            last = self._seen
            self._seen = Seen(last.report, last.at, last.points, last.epochs, problem)
            return
        published, epochs = None, self._seen.epochs
        if "error" not in report["kafka"] and report["kafka"].get("epoch") is not None:
            try:
                published, epochs = self._epochs()
            except TailraceError as error:
                report["kafka"]["error"] = error.as_dict()
        self._points.append(point_of(report, at, published))
        while self._points[0].at < at - KEPT:
            self._points.popleft()
        self._seen = Seen(report, at, tuple(self._points), epochs)


def point_of(report: Part, at: float, published: int | None) -> Point:
    """Return the numbers of a report."""
    channels = {}
    for channel in report["downstream"].get("channels", ()):
        counters, memory = channel.get("counters") or {}, channel.get("memory") or {}
        rows = counters.get("row_changes", memory.get("rows"))
        channels[channel["channel"]] = ChannelPoint((channel.get("lag") or {}).get("seconds"), rows)
    return Point(at, published, channels)


def rates(points: Sequence[tuple[float, int | None]]) -> list[tuple[float, float | None]]:
    """Return the growth per second between each two points, None where it is not known."""
    found: list[tuple[float, float | None]] = []
    for (before, first), (at, last) in pairwise(points):
        is_known = first is not None and last is not None and last >= first and at > before
        # A gap, such as a suspended machine, is no rate.
        is_known = is_known and at - before < 10 * EVERY
        found.append((at, (last - first) / (at - before) if is_known else None))  # type: ignore[operator]
    return found
