"""Positions at which an epoch must end, because `tailrace recover` stopped a channel there.

recovered.toml   positions = ["<server-uuid>.000001/mysql-bin.000001:1234", …]
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition, UnreadableFile, disk_errors
from schemas.binlog.framing import FIRST_POSITION
from schemas.errors import RelayError

RECOVERED_NAME = "recovered.toml"


def read_epoch_ends(root: Path) -> frozenset[RelayPosition]:
    """Read all positions. A recovered channel could not apply an epoch that spans one. Raises RelayError."""
    path = root / RECOVERED_NAME
    with disk_errors(f"reading {path.name}"):
        try:
            text = path.read_text()
        except FileNotFoundError:
            return frozenset()
    try:
        return frozenset(_parse(item) for item in tomllib.loads(text)["positions"])
    except (RelayError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        hint = "restore the file, or delete it and run `tailrace recover` again for each channel"
        raise UnreadableFile("TR306", f"{path} cannot be read: {error}", hint=hint) from error


def add_epoch_end(root: Path, position: RelayPosition) -> None:
    """Add a position to recovered.toml. Raises RelayError."""
    ends = sorted(read_epoch_ends(root) | {position}, key=lambda end: end.order)
    lines = "".join(f'  "{end}",\n' for end in ends)
    with disk_errors(f"writing {RECOVERED_NAME}"):
        layout.write_atomically(root / RECOVERED_NAME, f"positions = [\n{lines}]\n")


def _parse(text: str) -> RelayPosition:
    name, _, pos = text.rpartition(":")
    subdir, _, file = name.rpartition("/")
    found = RelayPosition(subdir, file, int(pos))
    if found.order[-1] < FIRST_POSITION:
        raise ValueError(f"{text} lies before a file's first event")
    return found
