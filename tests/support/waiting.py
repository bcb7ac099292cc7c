"""The one way in which tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], T], what: str | Callable[[], object] = "", *, seconds: float = 120, pause: float = 0.02
) -> T:
    """The condition's first true value; if there is none in time, the test fails and says what was missing."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            missing = what() if callable(what) else what
            raise AssertionError(f"not within {seconds:g} seconds: {missing or 'what the test waits for'}")
        time.sleep(pause)
    return found
