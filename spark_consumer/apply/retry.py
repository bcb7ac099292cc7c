"""Retry with growing pauses until a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_LONGEST = 10.0


class RetryTimer:
    """Pauses that grow up to ten seconds, until ``limit`` seconds have passed since the first of them.

    Args:
        limit: seconds; with 0 there is no second attempt.
        cancelled: event that ends all waiting.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self, limit: float, cancelled: threading.Event, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit, self._cancelled, self._clock = limit, cancelled, clock
        self._began: float | None = None
        self.attempts = 0

    def reset(self) -> None:
        """Reset the time limit after progress."""
        self._began, self.attempts = None, 0

    def wait_for_retry(self) -> bool:
        """Pause. Returns whether to retry."""
        now = self._clock()
        if self._began is None:
            self._began = now
        left = self._began + self._limit - now
        if left <= 0 or self._cancelled.is_set():
            return False
        self.attempts += 1
        return not self._cancelled.wait(min(pause_before(self.attempts), left))


def pause_before(attempt: int) -> float:
    """Return the seconds to wait before an attempt; the first retry is number 1."""
    return float(min(_LONGEST, 0.1 * 2 ** min(attempt, 10)))
