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
    begin = time.monotonic()
    while not (found := condition()):
        if time.monotonic() > deadline:
            missing = what() if callable(what) else what
            raise AssertionError(f"not within {seconds:g} seconds: {missing or 'what the test waits for'}")
        # A look that takes long is one that the others, and what it waits for, have to wait for too.
        time.sleep(max(0.05, 2 * (time.monotonic() - begin)))
        begin = time.monotonic()
    return found
