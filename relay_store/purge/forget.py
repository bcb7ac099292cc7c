"""Removes a whole relay log, so that the next producer fetches it again."""

from __future__ import annotations

import shutil
from pathlib import Path

from relay_store.layout import directory as layout
from relay_store.layout.directory import disk_errors
from relay_store.layout.epoch_ends import RECOVERED_NAME
from relay_store.layout.locks import files_locked
from relay_store.layout.readers import READERS_NAME

_ASIDE = ".forgotten-"
# The index first: without it there is no relay log, whatever else is in the directory.
_FILES = (
    layout.INDEX_NAME,
    layout.START_NAME,
    RECOVERED_NAME,
    layout.OWNER_NAME,
    layout.LOWER_CASE_NAME,
    layout.ENGINE_NAME,
)


def forget_relay_log(root: Path) -> None:
    """Remove everything except the lock files. The caller must hold relay.lock.

    If it is interrupted, a producer either refuses the directory or finds it empty, but never finds a part of a
    relay log.

    Raises RelayError: TR302, TR307.
    """
    with files_locked(root), disk_errors("removing the relay log"):
        for name in layout.read_index(root):
            # A new sub-directory may get this name again, and must not contain old files.
            if (root / name).exists():
                (root / name).rename(root / f"{_ASIDE}{name}")
        for name in _FILES:
            (root / name).unlink(missing_ok=True)
        layout.sync_dir(root)
        shutil.rmtree(root / READERS_NAME, ignore_errors=True)
        for aside in root.glob(f"{_ASIDE}*"):
            shutil.rmtree(aside)
