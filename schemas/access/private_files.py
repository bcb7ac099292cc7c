"""Files and folders that only this user can read, whatever the umask: they hold rows, positions and passwords."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: permissions of the group and of everybody
OTHERS = 0o077


def make_folder(path: Path, *, chosen: bool = False) -> str:
    """Make a folder for this user alone, with the parents that it lacks; one that is there becomes such a one.

    Args:
        chosen: an operator has named it, so it may hold more than what is ours: it is left as it is unless empty.

    Returns:
        What others may do there, ``read`` or ``write``; empty if nothing.

    Raises:
        OSError: it cannot be made.
    """
    for missing in reversed([one for one in (path, *path.parents) if not one.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    if others_may(path) and not (chosen and any(path.iterdir())):
        with suppress(PermissionError):  # another user's
            path.chmod(0o700)
    return others_may(path)


def others_may(path: Path) -> str:
    """What other users may do to a file or folder, by its own mode: ``read`` or ``write``; empty if nothing."""
    mode = path.stat().st_mode
    if mode & 0o022:
        return "write"
    return "read" if mode & OTHERS else ""


def opener(path: str, flags: int) -> int:
    """For ``open``: a file that is made, or was there, is for this user alone."""
    fd = os.open(path, flags, 0o600)
    if os.fstat(fd).st_mode & OTHERS:
        with suppress(PermissionError):
            os.fchmod(fd, 0o600)
    return fd
