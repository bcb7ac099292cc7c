"""The end of the relay log as readers may see it, and of what is on disk, shared by its writer and its readers."""

from __future__ import annotations

import threading

from relay_store.layout.directory import RelayPosition
from schemas.errors import RelayError


class RelayTail:
    """Two positions guarded by a condition. Only the writer moves them; a recovery moves the first backwards."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._position: RelayPosition | None = None
        self._durable: RelayPosition | None = None
        self._waker = 0
        self._closed = False
        #: whether a reader waits for an fsync that the writer would leave to the operating system
        self.sync_wanted = False
        #: the upstream had nothing behind a position, which readers may see, at a time in ms since 1970
        self.heard: tuple[RelayPosition, int] | None = None

    @property
    def position(self) -> RelayPosition | None:
        """The end of the last transaction group that readers may see; None before the first file."""
        return self._position

    def advance(self, position: RelayPosition, *, durable: bool = True) -> None:
        """Make `position`, the end of a complete group, visible to readers; `durable` if it is on disk."""
        with self._changed:
            self._position = position
            if durable:
                self._durable = max(position, self._durable or position, key=lambda end: end.order)
                self.sync_wanted = False
            self._changed.notify_all()

    def wait_until_durable(self, position: RelayPosition) -> None:
        """Wait until everything before `position` is on disk. Raises RelayError TR309 if the writer is closed."""
        with self._changed:
            while self._durable is None or self._durable.order < position.order:
                if self._closed:
                    raise RelayError("TR309", f"the relay log ended before {position} was on disk")
                self.sync_wanted = True
                self._changed.wait()

    @property
    def closed(self) -> bool:
        """Whether the writer is closed."""
        return self._closed

    def close(self) -> None:
        """Mark the writer as closed, so that readers stop waiting for it."""
        with self._changed:
            self._closed = True
        self.wake()

    def wake(self) -> None:
        """Make every waiting thread return at once, to stop quickly."""
        with self._changed:
            self._waker += 1
            self._changed.notify_all()

    def wait_for_change(self, seen: RelayPosition | None, timeout: float) -> RelayPosition | None:
        """Return the tail as soon as it differs from `seen`, after `timeout` seconds, or on `wake`."""
        with self._changed:
            waker = self._waker
            self._changed.wait_for(lambda: self._position != seen or self._waker != waker, timeout)
            return self._position
