"""Reads the parts of the pipeline side by side, each for a limited time, so that a part that hangs hides no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from schemas.errors import LogError, TailraceError

Part = dict[str, Any]
Read = Callable[[], Part]
_LIMIT = 8.0  # seconds


class LimitedReads:
    """Reads parts in threads. A read that has not ended is waited for again; no second one of its part is started."""

    def __init__(self, limit: float = _LIMIT) -> None:
        self._limit = limit
        self._running: dict[str, _Reading] = {}

    def __call__(self, reads: Mapping[str, Read]) -> dict[str, Part]:
        """Return the parts by name; one that fails or takes longer than the limit has `error`."""
        for name, read in reads.items():
            if name not in self._running:
                self._running[name] = _Reading(name, read)
        deadline = time.monotonic() + self._limit
        return {name: self._result(name, deadline) for name in reads}

    def _result(self, name: str, deadline: float) -> Part:
        reading = self._running[name]
        reading.done.wait(max(0.0, deadline - time.monotonic()))
        if not reading.done.is_set():
            return {"error": _silent(name, time.monotonic() - reading.started).as_dict()}
        del self._running[name]
        if isinstance(reading.failure, TailraceError):
            return {"error": reading.failure.as_dict()}
        if reading.failure is not None:
            raise reading.failure
        return reading.part


class _Reading:
    """One read in a thread of its own."""

    def __init__(self, name: str, read: Read) -> None:
        self.done = threading.Event()
        self.started = time.monotonic()
        self.part: Part = {}
        self.failure: Exception | None = None
        self._read = read
        threading.Thread(target=self._run, name=f"read {name}", daemon=True).start()

    def _run(self) -> None:
        try:
            self.part = self._read()
        except Exception as error:
            self.failure = error
        finally:
            self.done.set()


def _silent(name: str, seconds: float) -> TailraceError:
    return LogError(
        "TR163",
        f"{name} has not answered for {seconds:.0f} s",
        hint="it is reached but hangs, or the network loses packets; it is still waited for",
        retryable=True,
    )
