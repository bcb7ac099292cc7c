"""Files and folders that only this user can read, whatever the umask: they contain rows, positions and passwords."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: permissions of the group and of all other users
OTHERS = 0o077


def make_folder(path: Path, *, chosen: bool = False) -> str:
    """Create a folder and its missing parents for this user alone, or restrict an existing folder to this user.

    Args:
        chosen: whether an operator chose the folder, so it may contain other files; it is then only changed if empty.

    Returns:
        Access that others have to the folder, ``read`` or ``write``; empty if none.

    Raises:
        OSError: it cannot be created.
    """
    for missing in reversed([folder for folder in (path, *path.parents) if not folder.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
    if others_may(path) and not (chosen and any(path.iterdir())):
        with suppress(PermissionError):  # another user's
            path.chmod(0o700)
    return others_may(path)


def others_may(path: Path) -> str:
    """Return the access that other users have by a file's or folder's mode: ``read`` or ``write``; empty if none."""
    mode = path.stat().st_mode
    if mode & 0o022:
        return "write"
    return "read" if mode & OTHERS else ""


def opener(path: str, flags: int) -> int:
    """Open a file for this user alone, whether it exists or not; for the ``opener`` argument of ``open``."""
    fd = os.open(path, flags, 0o600)
    if os.fstat(fd).st_mode & OTHERS:
        with suppress(PermissionError):
            os.fchmod(fd, 0o600)
    return fd
