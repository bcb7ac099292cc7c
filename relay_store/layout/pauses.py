"""Which halves of the producer an operator has paused: a file in the relay directory, so a pause outlives restarts.

pauses.json   {"mirror": "2026-11-26T16:30:00.000+00:00", "publishing": "…"}   since when; only what is paused
"""

from __future__ import annotations

import json
import os
import stat
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

from relay_store.layout.directory import UnreadableFile, disk_errors, write_atomically
from relay_store.layout.locks import files_locked

PAUSES_NAME = "pauses.json"
Half = Literal["mirror", "publishing"]
HALVES: Final[tuple[Half, ...]] = ("mirror", "publishing")
_MOST_BYTES = 4096
_LOOK = 0.5  # seconds between two looks


def read_pauses(root: Path) -> dict[Half, str]:
    """Return what is paused in a relay directory, and since when. Raises RelayError: TR302; TR306, no such file."""
    path = root / PAUSES_NAME
    with disk_errors(f"reading {path.name}"):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return {}
        with os.fdopen(fd, "rb") as file:
            text = file.read(_MOST_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    try:
        found = json.loads(text)
        return {
            half: datetime.fromisoformat(found[half]).isoformat(timespec="milliseconds")
            for half in HALVES
            if half in found
        }
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        hint = "delete the file, and pause again what is to stand still"
        raise UnreadableFile("TR306", f"{path} cannot be read: {error}", hint=hint) from error


def set_pause(root: Path, half: Half, paused: bool) -> str | None:
    """Pause or resume a half of the producer. Returns since when it was paused before. Raises RelayError."""
    with files_locked(root), disk_errors(f"writing {PAUSES_NAME}"):
        found = read_pauses(root)
        before = found.pop(half, None)
        if paused:
            found[half] = before or datetime.now(UTC).isoformat(timespec="milliseconds")
        write_atomically(root / PAUSES_NAME, json.dumps(found))
    return before


class PauseSwitch:
    """Whether one half of the producer is paused, looked up twice a second at most. One thread asks."""

    def __init__(self, root: Path, half: Half) -> None:
        self._root, self._half = root, half
        self._since: str | None = None
        self._next_look = 0.0

    def __call__(self) -> str | None:
        """Return since when it is paused; None if it is not. Raises RelayError."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK
            self._since = read_pauses(self._root).get(self._half)
        return self._since
