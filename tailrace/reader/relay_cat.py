"""Selects and reads events of the relay log for ``tailrace relay cat``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition
from relay_store.layout.file_head import read_head
from relay_store.read.reader import RelayReader
from schemas.binlog import framing
from schemas.binlog.framing import FIRST_POSITION
from schemas.errors import RelayError
from schemas.gtid.sets import Flavor, GtidSet, parse_gtid_set
from tailrace.reader.event_content import ContentReader

# Events that do not belong to a transaction.
_OUTSIDE = frozenset(
    {
        framing.FORMAT_DESCRIPTION,
        framing.PREVIOUS_GTIDS,
        framing.MARIADB_GTID_LIST,
        framing.MARIADB_BINLOG_CHECKPOINT,
        framing.MARIADB_START_ENCRYPTION,
        framing.ROTATE,
        framing.STOP,
    }
)


@dataclass(frozen=True)
class EventSelection:
    """Which events to show; the options have the same meaning as mysqlbinlog's.

    Attributes:
        subdir, file: the only ones to read; None for all. A file without a sub-directory is the newest of its name.
        start_position, stop_position: start at the first event at or after the one in the first file, and stop at
            the first event at or after the other in the last file.
        start_time, stop_time: start and stop at the first event of this time or later, in seconds since 1970.
        include_gtids, exclude_gtids: GTID sets as text: show only transactions in the first and not in the second.
    """

    subdir: str | None = None
    file: str | None = None
    start_position: int = FIRST_POSITION
    stop_position: int | None = None
    start_time: int | None = None
    stop_time: int | None = None
    include_gtids: str | None = None
    exclude_gtids: str | None = None


def events(root: Path, wanted: EventSelection) -> Iterator[dict[str, Any]]:
    """Yield the selected events as plain fields: position, time, server, type, size and content.

    Raises:
        RelayError: TR303, there is no such file; other codes, a file cannot be read.
        ValueError: a GTID set is invalid.
    """
    files = _files(root, wanted)
    if not files:
        return
    flavor = read_head(root / files[0][0] / files[0][1]).flavor
    yield from _RelayLogWalk(root, wanted, files, flavor).run()


def _files(root: Path, wanted: EventSelection) -> list[tuple[str, str]]:
    subdirs = [name for name in layout.read_index(root) if (root / name).is_dir()]
    found = [(subdir, file) for subdir in subdirs for file in layout.binlog_files(root / subdir)]
    if wanted.subdir is not None:
        found = [(sub, file) for sub, file in found if sub == wanted.subdir]
    if wanted.file is not None:
        found = [(sub, file) for sub, file in found if file == wanted.file][-1:]
    if not found and (wanted.subdir or wanted.file):
        name = "/".join(filter(None, (wanted.subdir, wanted.file)))
        raise RelayError(
            "TR303", f"the relay log has no {name}", hint="`tailrace relay list` shows its files"
        )
    return found


class _RelayLogWalk:
    """One pass over consecutive files."""

    def __init__(
        self, root: Path, wanted: EventSelection, files: list[tuple[str, str]], flavor: Flavor
    ) -> None:
        self._root, self._wanted = root, wanted
        self._first, self._last = files[0], files[-1]
        self._content = ContentReader()
        self._started = wanted.start_time is None
        self._include = _set(wanted.include_gtids, flavor)
        self._exclude = _set(wanted.exclude_gtids, flavor)

    def run(self) -> Iterator[dict[str, Any]]:
        reader = RelayReader(self._root, RelayPosition(*self._first, FIRST_POSITION))
        try:
            while block := reader.read_block():
                name, at = (block.subdir, block.file), 0
                while at < len(block.data):
                    size = framing.header(block.data, at).size
                    event = block.data[at : at + size]
                    if self._is_past_end(name, block.pos + at, event):
                        return
                    self._content.feed(event)
                    if self._is_wanted(name, block.pos + at, event):
                        yield _where(block.subdir, block.file, block.pos + at) | self._content.fields(event)
                    at += size
                if name == self._last and block.end.pos >= self._size(name):
                    return
        finally:
            reader.close()

    def _size(self, name: tuple[str, str]) -> int:
        return (self._root / name[0] / name[1]).stat().st_size

    def _is_past_end(self, name: tuple[str, str], pos: int, event: bytes) -> bool:
        wanted = self._wanted
        if name == self._last and wanted.stop_position is not None and pos >= wanted.stop_position:
            return True
        if _order(name) > _order(self._last):
            return True
        return wanted.stop_time is not None and framing.header(event).timestamp >= wanted.stop_time

    def _is_wanted(self, name: tuple[str, str], pos: int, event: bytes) -> bool:
        wanted = self._wanted
        if not self._started:
            assert wanted.start_time is not None
            self._started = framing.header(event).timestamp >= wanted.start_time
        if not self._started or (name == self._first and pos < wanted.start_position):
            return False
        if self._include is None and self._exclude is None:
            return True
        return self._has_wanted_gtid(event)

    def _has_wanted_gtid(self, event: bytes) -> bool:
        """Return whether an event belongs to a selected transaction."""
        scanner = self._content.scanner
        gtid = scanner.gtid()
        if not gtid or (not scanner.in_group and event[4] in _OUTSIDE):
            return False
        if self._include is not None and not self._include.contains(gtid):
            return False
        return self._exclude is None or not self._exclude.contains(gtid)


def _order(name: tuple[str, str]) -> tuple[int, ...]:
    return RelayPosition(*name, FIRST_POSITION).order


def _where(subdir: str, file: str, pos: int) -> dict[str, Any]:
    """Return an event's position, and in a part of a larger file also its position upstream."""
    fields: dict[str, Any] = {"sub_dir": subdir, "file": file, "position": pos}
    if layout.part_offset(file):
        name, position = RelayPosition(subdir, file, pos).upstream
        fields |= {"upstream_file": name, "upstream_position": position}
    return fields


def _set(text: str | None, flavor: Flavor) -> GtidSet | None:
    return None if text is None else parse_gtid_set(text, flavor)
