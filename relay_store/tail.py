"""The durable tail: how far the relay log is fsynced and whole, shared by its writer and readers."""

from __future__ import annotations

import threading

from relay_store.layout import RelayPosition


class DurableTail:
    """One position guarded by a condition. Only the writer moves it; it goes back only when it recovers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._position: RelayPosition | None = None
        self._waker = 0

    @property
    def position(self) -> RelayPosition | None:
        """The end of the last transaction group that is on disk; None before the first file."""
        return self._position

    def advance(self, position: RelayPosition) -> None:
        """State that everything before `position` is on disk and whole groups."""
        with self._changed:
            self._position = position
            self._changed.notify_all()

    def wake(self) -> None:
        """Let every waiter return at once, for a prompt stop."""
        with self._changed:
            self._waker += 1
            self._changed.notify_all()

    def wait_for_change(self, seen: RelayPosition | None, timeout: float) -> RelayPosition | None:
        """The tail, as soon as it differs from `seen`, or after `timeout` seconds, or on `wake`."""
        with self._changed:
            waker = self._waker
            self._changed.wait_for(lambda: self._position != seen or self._waker != waker, timeout)
            return self._position
