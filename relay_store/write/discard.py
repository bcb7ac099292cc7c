"""`relay-log-recovery`: discards the part that is not published yet, so that it is fetched again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayMeta, RelayPosition, disk_errors
from relay_store.layout.locks import files_locked


def discard_after(root: Path, here: RelayPosition, gtids: str) -> int:
    """Discard everything after `here`, the end of a group. The caller must hold relay.lock.

    If it is interrupted, the next start removes the rest, which is after relay.meta's position.

    Args:
        gtids: the GTID set of the remaining relay log, as text.

    Returns the number of bytes discarded; 0 if the relay log does not reach `here`. Raises RelayError.
    """
    subdirs = layout.read_index(root)
    folder = root / here.subdir
    if here.subdir not in subdirs or here.file not in layout.binlog_files(folder):
        return 0
    # From the directory, not from the index: after an interruption they are no longer in it.
    serial = layout.subdir_serial(here.subdir)
    later = [name for name in layout.subdirs_in(root) if layout.subdir_serial(name) > serial]
    discarded = 0
    with files_locked(root), disk_errors("discarding the unpublished part of the relay log"):
        size = (folder / here.file).stat().st_size
        if size < here.pos:
            return 0
        layout.write_index(root, [name for name in subdirs if name not in later])
        layout.write_meta(folder, RelayMeta(*here.upstream, gtids))
        for name in later:
            discarded += sum(entry.stat().st_size for entry in os.scandir(root / name))
            shutil.rmtree(root / name)
        for name in layout.binlog_files(folder):
            if layout.file_order(name) > layout.file_order(here.file):
                discarded += (folder / name).stat().st_size
                (folder / name).unlink()
        os.truncate(folder / here.file, here.pos)
    return discarded + size - here.pos
