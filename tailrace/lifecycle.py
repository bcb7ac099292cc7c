"""How a long-running command ends: the first signal asks it to finish, the second one ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import structlog

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_log = structlog.get_logger()


def run_until_signalled(work: Callable[[threading.Event], None]) -> None:
    """Run ``work(stop)`` and raise what it raises; signals set ``stop``.

    The work runs in a thread of its own: signal handlers stay ours (PySpark takes SIGINT for itself where it
    is started in the main thread), and the main thread is always free to act on a second signal.
    """
    stop = threading.Event()
    failure: list[BaseException] = []

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:
            failure.append(error)

    previous = {number: signal.signal(number, _Handler(stop)) for number in _SIGNALS}
    thread = threading.Thread(target=run, name="work", daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(0.2)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if failure:
        raise failure[0]


class _Handler:
    """Counts signals; a second one leaves without unwinding, since what hangs could hang there too."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        if self._stop.is_set():
            os._exit(128 + number)
        self._stop.set()
        _log.info("stopping", signal=signal.Signals(number).name, hint="a second signal ends it at once")
