"""Repeats work in the background of a command."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_JOIN_TIMEOUT = 2.0  # seconds


@contextmanager
def repeated(work: Callable[[], None], every: float, name: str) -> Iterator[None]:
    """Call ``work`` in a thread while the block runs, ``every`` so many seconds."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(every):
            work()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        # A server that does not answer must not delay the end.
        thread.join(_JOIN_TIMEOUT)
