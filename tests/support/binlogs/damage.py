"""Copies and damages small relay logs of real servers."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from relay_store.layout import directory as layout
from schemas.binlog import framing
from tests.support.paths import GOLDEN

LOGS = {path.name: path for path in (GOLDEN / "relay_logs").iterdir()}


def copy_of(name: str, folder: Path) -> Path:
    """Copy a golden relay log."""
    return Path(shutil.copytree(LOGS[name], folder / "relay"))


def flip(files: Sequence[Path], bit: int) -> Path:
    """Flip one bit, counted over all files, and return its file."""
    for path in files:
        size = path.stat().st_size
        if bit < 8 * size:
            data = bytearray(path.read_bytes())
            data[bit >> 3] ^= 1 << (bit & 7)
            path.write_bytes(data)
            return path
        bit -= 8 * size
    raise IndexError(bit)


def events_of(root: Path) -> list[tuple[str, int, bytes]]:
    """Return file, position and bytes of every event."""
    found = []
    for subdir in layout.read_index(root):
        for file in layout.binlog_files(root / subdir):
            data, at = (root / subdir / file).read_bytes(), framing.FIRST_POSITION
            while at < len(data):
                size = framing.header(data, at).size
                found.append((f"{subdir}/{file}", at, data[at : at + size]))
                at += size
    return found
