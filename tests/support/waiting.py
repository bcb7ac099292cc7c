"""The only way in which tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str | Callable[[], object] = "", seconds: float = 300) -> T:
    """Wait until the condition returns a true value, and return it.

    Args:
        what: describes the condition in the error; a callable is called after the timeout.

    Raises:
        AssertionError: the condition was not true in time.
    """
    deadline = time.monotonic() + seconds
    while True:
        begin = time.monotonic()
        if found := condition():
            return found
        if time.monotonic() > deadline:
            missing = what() if callable(what) else what
            raise AssertionError(f"not within {seconds:g} seconds: {missing or 'what the test waits for'}")
        # While a look takes long, what it waits for may have to wait, too.
        time.sleep(min(max(0.05, 2 * (time.monotonic() - begin)), 1.0))
