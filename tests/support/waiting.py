"""The one way in which tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str | Callable[[], object] = "", seconds: float = 300) -> T:
    """The condition's first true value.

    Args:
        what: what is waited for, for the message; a callable is asked when the time is up.

    Raises:
        AssertionError: there was none in time.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            missing = what() if callable(what) else what
            raise AssertionError(f"not within {seconds:g} seconds: {missing or 'what the test waits for'}")
        time.sleep(0.05)
    return found
