"""The relay files as `tailrace relay list` shows them, read from each file's head and tail."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from zlib_ng.zlib_ng import crc32

from relay_store.layout import directory as layout
from relay_store.layout.directory import disk_errors
from relay_store.layout.file_head import FileHead, read_head
from relay_store.layout.inventory import RelayFile, relay_files
from relay_store.layout.readers import Reader, read_readers
from schemas.binlog import framing
from schemas.binlog.framing import CRC32_RESIDUE, HEADER_SIZE
from schemas.binlog.groups import GroupScanner
from schemas.errors import RelayError, Where
from schemas.gtid.sets import GtidSet, MysqlGtidSet

_WINDOW = 64 << 10  # bytes of head and of tail read first
_HEAD = struct.Struct("<IB4xI")  # timestamp, type, size
_GTIDS = frozenset({framing.GTID, framing.GTID_TAGGED, framing.MARIADB_GTID})


@dataclass(frozen=True)
class CatalogEntry:
    """One relay file.

    Attributes:
        size: bytes.
        first_gtid, last_gtid: of its transactions; None without one.
        first_time, last_time: of its events, seconds since 1970.
        transactions: how many; None if the heads of this file and the next do not determine it.
        is_active: whether the mirror writes to it.
        needed_by: the registered readers that have not passed it.
        error: what is wrong with a damaged file, whose other fields are unknown; else empty.
    """

    subdir: str
    name: str
    size: int
    first_gtid: str | None
    last_gtid: str | None
    first_time: int | None
    last_time: int | None
    transactions: int | None
    is_active: bool
    needed_by: tuple[str, ...]
    error: str = ""


def list_relay_files(root: Path, awaited: Iterable[str] = ()) -> list[CatalogEntry]:
    """Read the files of a relay log, oldest first. Raises RelayError on errors that do not concern a single file.

    Args:
        awaited: names of expected readers; one that has not registered yet needs all files.
    """
    subdirs = [name for name in layout.read_index(root) if (root / name).is_dir()]
    readers = read_readers(root, awaited)
    files = relay_files(root, subdirs)
    meta = layout.read_meta(root / subdirs[-1]) if subdirs else None
    active = layout.find_upstream_position(root, subdirs[-1], meta.file, meta.pos) if meta else None
    heads = [_read_head_or_error(root, file) for file in files]
    found = []
    for number, (file, head) in enumerate(zip(files, heads, strict=True)):
        is_active = active is not None and (active.subdir, active.file) == (file.subdir, file.name)
        end = active.pos if active is not None and is_active else file.size
        has_next = number + 1 < len(files) and files[number + 1].subdir == file.subdir
        has_next = has_next and not layout.part_offset(files[number + 1].name)
        after = heads[number + 1] if has_next else None
        found.append(_entry(root, file, head, after, min(end, file.size), is_active, readers))
    return found


def _read_head_or_error(root: Path, file: RelayFile) -> FileHead | RelayError:
    try:
        return read_head(root / file.subdir / file.name)
    except RelayError as error:
        return error


def _entry(
    root: Path,
    file: RelayFile,
    head: FileHead | RelayError,
    after: FileHead | RelayError | None,
    end: int,
    is_active: bool,
    readers: Sequence[Reader],
) -> CatalogEntry:
    needed = tuple(r.name for r in readers if _has_not_passed(r, file))
    if isinstance(head, RelayError):
        nothing = (None, None, None, None, None)
        return CatalogEntry(file.subdir, file.name, file.size, *nothing, is_active, needed, head.message)
    path = root / file.subdir / file.name
    with disk_errors("reading the relay log", Where(file=str(file))):
        first = _first_gtid(path, head, end)
        last, last_time = (
            _last_gtid_and_time(path, head, end)
            if first is not None or not head.is_bare
            else (None, head.created)
        )
    count = None
    # A part starts with the GTIDs that the mirror had executed, including those of other servers' files.
    if isinstance(after, FileHead) and not layout.part_offset(file.name):
        count = _transactions_between(head.previous, after.previous)
    return CatalogEntry(
        file.subdir, file.name, file.size, first, last, head.created, last_time, count, is_active, needed
    )


def _has_not_passed(reader: Reader, file: RelayFile) -> bool:
    return reader.position.order[:-1] <= file.start.order[:-1]


def _transactions_between(before: GtidSet | None, after: GtidSet | None) -> int | None:
    """Count the transactions between two heads; None for MariaDB, whose numbers may have gaps."""
    if isinstance(before, MysqlGtidSet) and isinstance(after, MysqlGtidSet):
        return after.minus(before).count()
    return None


def _first_gtid(path: Path, head: FileHead, end: int) -> str | None:
    """Return the GTID of the first transaction, searching ever larger parts of the file."""
    size = _WINDOW
    while True:
        data = _read(path, head.end, min(head.end + size, end))
        for at, kind, _ in _events(data, 0):
            if kind in _GTIDS:
                return _gtid(data, at)
            if kind == framing.ANONYMOUS_GTID:
                return None
        if head.end + size >= end:
            return None
        size *= 16


def _last_gtid_and_time(path: Path, head: FileHead, end: int) -> tuple[str | None, int | None]:
    """Return the last transaction's GTID and the last event's time, searching ever larger tails."""
    size = _WINDOW
    while True:
        begin = max(head.end, end - size)
        data = _read(path, begin, end)
        first = 0 if begin == head.end else _first_event(data, head.has_checksum)
        gtid, time = None, None
        for at, kind, timestamp in _events(data, first):
            time = timestamp or time
            if kind in _GTIDS:
                gtid = _gtid(data, at)
        if gtid is not None or begin == head.end:
            return gtid, time
        size *= 16


def _first_event(data: bytes, has_checksum: bool) -> int:
    """Find the first complete event in the tail of a file: from it, consecutive events reach the end exactly."""
    unpack, length = _HEAD.unpack_from, len(data)
    for begin in range(length - HEADER_SIZE):
        _, _, size = unpack(data, begin)
        at = begin
        while HEADER_SIZE <= size <= length - at - HEADER_SIZE:
            at += size
            _, _, size = unpack(data, at)
        if at > begin and at + size == length:
            size = unpack(data, begin)[2]
            if not has_checksum or crc32(data[begin : begin + size]) == CRC32_RESIDUE:
                return begin
    return length


def _events(data: bytes, at: int) -> Iterator[tuple[int, int, int]]:
    """Yield offset, type and timestamp of the complete events in `data`, from offset `at`."""
    last = len(data) - HEADER_SIZE
    while at <= last:
        timestamp, kind, size = _HEAD.unpack_from(data, at)
        if size < HEADER_SIZE or at + size > len(data):
            return
        yield at, kind, timestamp
        at += size


def _gtid(data: bytes, at: int) -> str:
    scanner = GroupScanner()
    _, kind, size = _HEAD.unpack_from(data, at)
    scanner.feed(kind, data[at : at + size], True)
    return scanner.gtid()


def _read(path: Path, begin: int, end: int) -> bytes:
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(max(0, end - begin))
