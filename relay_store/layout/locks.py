"""The lock for changes of the relay log's list of files: purges, new sub-directories, marks that move backwards."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relay_store.layout.directory import disk_errors

LOCK_NAME = "purge.lock"


@contextmanager
def files_locked(root: Path) -> Iterator[None]:
    """Hold the lock against other threads and processes, after waiting for it. Raises RelayError."""
    with disk_errors("locking the files of the relay log"):
        fd = os.open(root / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with disk_errors("locking the files of the relay log"):
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
