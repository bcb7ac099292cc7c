"""The files of a relay log with their ages, and the number of bytes after a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition, disk_errors
from schemas.binlog.framing import FIRST_POSITION


@dataclass(frozen=True)
class RelayFile:
    """One file of the relay log.

    Attributes:
        size: bytes.
        updated: when it was last written to, seconds since 1970.
    """

    subdir: str
    name: str
    size: int
    updated: float

    @property
    def start(self) -> RelayPosition:
        """The first event of the file; orders files by age."""
        return RelayPosition(self.subdir, self.name, FIRST_POSITION)

    def __str__(self) -> str:
        return f"{self.subdir}/{self.name}"


def relay_files(root: Path, subdirs: Sequence[str]) -> list[RelayFile]:
    """List the files in the sub-directories of the index, oldest first. Raises RelayError."""
    found = []
    with disk_errors("listing the relay log"):
        for subdir in subdirs:
            for name in layout.binlog_files(root / subdir):
                try:
                    status = (root / subdir / name).stat()
                except FileNotFoundError:  # purged just now
                    continue
                found.append(RelayFile(subdir, name, status.st_size, status.st_mtime))
    return found


def bytes_after(files: Sequence[RelayFile], position: RelayPosition) -> int:
    """Return the number of bytes of `files` after a position."""
    total = 0
    for file in files:
        if (file.subdir, file.name) == (position.subdir, position.file):
            total += max(0, file.size - position.pos)
        elif file.start.order > position.order:
            total += file.size
    return total
