"""Tells systemd how this process is: ready, what it does, that its work moves, that it stops.

The messages are those of sd_notify(3). A process that systemd has not started sends none.
"""

from __future__ import annotations

import faulthandler
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress

import structlog

#: environment variable: where systemd listens
SOCKET = "NOTIFY_SOCKET"
_LONGEST_STATUS = 300  # characters
_log = structlog.get_logger()


def tell_status(text: str) -> None:
    """Tell what the process does."""
    # A line break would begin another message, and names of tables come from the upstream.
    line = "".join(one if one.isprintable() else " " for one in text[:_LONGEST_STATUS])
    _send(f"STATUS={line}")


def tell_stopping() -> None:
    """Tell that the process ends because it was asked to."""
    _send("STOPPING=1")


class Watchdog:
    """Keeps systemd from killing this process as long as its work moves.

    Args:
        limit: seconds that due work may stand still.
        clock: seconds of a monotonic clock.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._moved: object = None
        self._since: float | None = None
        if SOCKET in os.environ:
            # systemd ends a process that does not move by SIGABRT: its journal then has where each thread stands.
            with suppress(OSError, ValueError):
                faulthandler.enable()

    def look(self, moved: object, *, is_due: bool) -> bool:
        """Tell that the process is ready and well, unless due work has stood still for too long.

        Call it once the start has succeeded; systemd watches only from then on. Returns whether it was told.

        Args:
            moved: changes whenever the work moves.
            is_due: whether there is work that nothing but this process holds up.
        """
        now = self._clock()
        if self._since is None or moved != self._moved or not is_due:
            self._moved, self._since = moved, now
        if now - self._since > self._limit:
            _log.error("stands_still", for_s=round(now - self._since), at=str(moved))
            return False
        _send("READY=1\nWATCHDOG=1")
        return True


def _send(message: str) -> None:
    address = os.environ.get(SOCKET, "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]  # an abstract socket
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
        client.setblocking(False)
        client.sendto(message.encode(), address)
