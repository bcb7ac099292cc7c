"""Advances relay.meta past the complete groups after it, for a recovery without an upstream.

When a producer is killed, relay.meta is older than the data that was synced and published. A writer truncates the
file to it and fetches the rest again. `tailrace recover` has no upstream, and keeps every complete group.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import structlog

from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayMeta, RelayPosition, disk_errors
from relay_store.layout.file_head import read_head
from relay_store.write.writer import lock_directory
from schemas.binlog import framing
from schemas.binlog.groups import GroupScanner
from schemas.errors import Where
from schemas.gtid.sets import Flavor

_log = structlog.get_logger()


def keep_whole_groups(root: Path, flavor: Flavor) -> None:
    """Advance relay.meta past each complete group of the last file, as long as checksums are right.

    Without checksums a torn event cannot be recognized, and relay.meta stays as it is.

    Raises RelayError: TR301 a producer runs; TR302, TR306 or TR307 like opening the relay log.
    """
    lock = lock_directory(root)
    try:
        subdirs = layout.read_index(root)
        folder = root / subdirs[-1] if subdirs else root
        meta = layout.read_meta(folder) if subdirs else None
        here = layout.find_upstream_position(root, subdirs[-1], meta.file, meta.pos) if meta else None
        if meta is None or here is None:
            return
        found = _extended(folder, here, meta, flavor)
        if found.pos > meta.pos:
            _log.info("relay_tail_kept", file=meta.file, position=found.pos, bytes=found.pos - meta.pos)
            layout.write_meta(folder, found)
    finally:
        os.close(lock)


def server_flavor(root: Path) -> Flavor:
    """Return the kind of server that wrote the newest relay file with an event. Raises RelayError."""
    for subdir in reversed(layout.read_index(root)):
        for name in reversed(layout.binlog_files(root / subdir)):
            if (head := read_head(root / subdir / name)).version:
                return head.flavor
    return "mysql"


def _extended(folder: Path, here: RelayPosition, meta: RelayMeta, flavor: Flavor) -> RelayMeta:
    gtids = layout.parse_stored_gtid_set(meta.gtid_set, flavor, folder / layout.META_NAME).tracker()
    scanner, boundary, taken = GroupScanner(), meta.pos, str(gtids)
    for event, end in _events_after(folder, here):
        kind, was_open = event[4], scanner.in_group
        if kind in framing.INSIDE_GROUP:
            continue
        if scanner.feed(kind, event, True):
            if was_open and scanner.source is not None:
                gtids.add(scanner.source, scanner.number, scanner.server_id)
            elif not was_open and (before := framing.previous_gtids(event, True)):
                gtids.merge(before)
            boundary, taken = end, str(gtids)
    return RelayMeta(meta.file, boundary, taken)


def _events_after(folder: Path, here: RelayPosition) -> Iterator[tuple[bytes, int]]:
    """Yield complete events from ``here`` on, with their end offsets upstream, across consecutive parts of the file."""
    file, start = here.file, here.pos
    later = [
        name
        for name in layout.binlog_files(folder)
        if layout.upstream_file(name) == layout.upstream_file(file)
        and layout.part_offset(name) > layout.part_offset(file)
    ]
    while True:
        end = start
        for event, end in _whole_events(folder / file, start):
            yield event, end + layout.part_offset(file)
        if not later or end < layout.file_size(folder / file):
            return
        reached, file = end + layout.part_offset(file), later.pop(0)
        start = reached - layout.part_offset(file)
        # A part with an incomplete head was just being created.
        if layout.file_size(folder / file) < start or read_head(folder / file).begin != start:
            return


def _whole_events(path: Path, start: int) -> Iterator[tuple[bytes, int]]:
    """Yield events from ``start`` on, with their end offsets, as long as their checksums are right."""
    with disk_errors("reading the relay log", Where(file=path.name, position=start)), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        first = _event(file, framing.FIRST_POSITION, size)
        if not first or framing.checksum_algorithm(first) != framing.CHECKSUM_CRC32:
            return
        end = start
        while (event := _event(file, end, size)) and framing.checksum_fits(event):
            end += len(event)
            yield event, end


def _event(file: BinaryIO, pos: int, limit: int) -> bytes:
    """Read the event at a position; nothing if it ends after ``limit``."""
    file.seek(pos)
    head = file.read(framing.HEADER_SIZE)
    if len(head) < framing.HEADER_SIZE:
        return b""
    size = framing.header(head).size
    if size < framing.HEADER_SIZE + framing.CHECKSUM_SIZE or pos + size > limit:
        return b""
    return head + file.read(size - framing.HEADER_SIZE)
