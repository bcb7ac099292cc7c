"""`relay-log-recovery`: discards what is not published yet, so that it is fetched again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayMeta, RelayPosition, disk_errors
from relay_store.layout.locks import files_locked


def discard_behind(root: Path, here: RelayPosition, gtids: str) -> int:
    """Discard what is behind `here`, the end of a group; the caller holds the writer's lock.

    After a crash in between, the next start removes the rest, which is behind relay.meta.

    Args:
        gtids: the GTID set of what is kept, as text.

    Returns the number of bytes; 0 also if the relay log has not come so far. Raises RelayError.
    """
    subdirs = layout.read_index(root)
    folder = root / here.subdir
    if here.subdir not in subdirs or here.file not in layout.binlog_files(folder):
        return 0
    # By what is there, not by the index: after a crash in between they are in it no more.
    serial = layout.subdir_serial(here.subdir)
    later = [name for name in layout.subdirs_in(root) if layout.subdir_serial(name) > serial]
    discarded = 0
    with files_locked(root), disk_errors("discarding what is not published"):
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
