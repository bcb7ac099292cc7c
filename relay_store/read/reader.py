"""Reads the relay log in large blocks of complete events, across files and sub-directories."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition, disk_errors
from relay_store.read.tail import RelayTail
from schemas.binlog.framing import (
    CHECKSUM_CRC32,
    CRC32_RESIDUE,
    EVENT_SIZE,
    FIRST_POSITION,
    HEADER_SIZE,
    MAGIC,
    SIZE_OFFSET,
    check_format,
    checksum_algorithm,
    checksum_fits,
    magic_fault,
    not_in_use,
)
from schemas.errors import RelayError, Where

_SIZE_AT = Struct("<9xI").unpack_from
BLOCK_SIZE = 2 << 20  # bytes per read
_MAX_FORMAT_DESCRIPTION = 4096  # bytes; it has a few hundred

_REFETCH = "restore the file from a copy, or move the relay directory away to fetch everything again"


class RelayBlock(NamedTuple):
    """Consecutive complete events of one file.

    An event at index i of `data` has the file position `pos + i`. The end positions in event headers have only
    32 bits and are sometimes 0, so do not use them. `data` is never empty.
    """

    subdir: str
    file: str
    pos: int
    data: bytes

    @property
    def end(self) -> RelayPosition:
        return RelayPosition(self.subdir, self.file, self.pos + len(self.data))


class RelayReader:
    """Follows the relay log from a position, which must be the start of an event.

    Args:
        root: the relay directory.
        start: the first position to read; None means the oldest file's first event.
        tail: the relay log's tail, if the writer is in this process: the reader never reads past it, and waits
            if its own position is after it (the writer truncated its file). None, for tools: read up to the
            last complete event of the files.

    The checksum of each event is verified, to detect corruption on the disk.

    Attributes:
        whole_events: compiled code that finds the end of whole and undamaged events from an offset on, and is told
            whether they have checksums; None without.

    Raises RelayError: TR303 a file of the sequence is missing, TR304 an impossible or damaged event.
    """

    def __init__(self, root: Path, start: RelayPosition | None = None, tail: RelayTail | None = None) -> None:
        self._root = root
        self._tail = tail
        self.whole_events: Callable[[bytes, int, bool], int] | None = None
        self._fd = -1
        self._has_checksum: bool | None = (
            None  # of the open file's events; unknown before its first event is read
        )
        self._subdir, self._file, self._pos = (start.subdir, start.file, start.pos) if start else ("", "", 4)

    @property
    def position(self) -> RelayPosition | None:
        """The start of the next block; None before the first file exists."""
        return RelayPosition(self._subdir, self._file, self._pos) if self._file else None

    def read_block(self, timeout: float = 0.0) -> RelayBlock | None:
        """Read the next block; None if there is none within `timeout` seconds. Raises RelayError."""
        if self._tail is None:
            return self._next(None)
        tail = self._tail.position
        block = self._next(tail) if tail else None
        if block is None and timeout > 0:
            changed = self._tail.wait_for_change(tail, timeout)
            block = self._next(changed) if changed and changed != tail else None
        return block

    def blocks_to(self, end: int) -> Iterator[RelayBlock]:
        """Read the blocks from the position to offset `end` of the same file. Raises RelayError."""
        if self._fd < 0:
            self._open()
        while self._pos < end:
            block = self._read(end)
            if block is None:
                raise RelayError(
                    "TR304", f"the relay file ends before {end}", where=self._where(), hint=_REFETCH
                )
            yield block

    def format_description(self) -> bytes:
        """Read the FORMAT_DESCRIPTION event of the current file, for readers that start in its middle."""
        if self._fd < 0:
            self._open()
        with self._reading():
            head = os.pread(self._fd, HEADER_SIZE, FIRST_POSITION)
            size = EVENT_SIZE.unpack_from(head, SIZE_OFFSET)[0] if len(head) == HEADER_SIZE else 0
            return os.pread(self._fd, min(size, _MAX_FORMAT_DESCRIPTION), FIRST_POSITION)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _next(self, tail: RelayPosition | None) -> RelayBlock | None:
        """Read the next block up to `tail`, in the next file if this one is finished."""
        if not self._file and not self._find_first():
            return None
        while True:
            if tail is not None and self._is_past(tail):
                return None
            if self._fd < 0:
                self._open()
            is_last = tail is not None and (self._subdir, self._file) == (tail.subdir, tail.file)
            limit = tail.pos if tail is not None and is_last else self._size()
            if self._pos < limit and (block := self._read(limit, must_be_whole=tail is not None)):
                return block
            if is_last or not self._advance_file(tail):
                return None

    def _is_past(self, tail: RelayPosition) -> bool:
        """Whether this reader's position is at the tail or after it."""
        return tail.order <= RelayPosition(self._subdir, self._file, self._pos).order

    def _read(self, limit: int, *, must_be_whole: bool = False) -> RelayBlock | None:
        known = self._has_checksum is not None or self._learn_checksum(limit)
        data = self._pread(min(BLOCK_SIZE, limit - self._pos)) if known else b""
        whole = self._whole_events(data) if data else 0
        if whole == 0 and (data := self._read_large(data, limit)):
            whole = self._whole_events(data)
        if whole == 0:
            if must_be_whole:
                raise RelayError(
                    "TR304", "a relay file ends within an event", where=self._where(), hint=_REFETCH
                )
            return None
        block = RelayBlock(self._subdir, self._file, self._pos, data if whole == len(data) else data[:whole])
        self._pos += whole
        return block

    def _learn_checksum(self, limit: int) -> bool:
        """Learn from the FORMAT_DESCRIPTION event, which always has a checksum, whether other events have one.

        Returns False if the event is not complete below `limit`. Raises RelayError TR304.
        """
        event = self.format_description()
        if len(event) < HEADER_SIZE or FIRST_POSITION + len(event) > limit:
            return False
        check_format(event, self._where())
        if not (checksum_fits(event) or checksum_fits(not_in_use(event))):
            raise self._damaged("the FORMAT_DESCRIPTION event")
        self._has_checksum = checksum_algorithm(event) == CHECKSUM_CRC32
        return True

    def _whole_events(self, data: bytes) -> int:
        """Return how many bytes of `data`, which starts with an event, are complete events. Raises RelayError."""
        size_at, has_checksum, least, residue = _SIZE_AT, self._has_checksum, HEADER_SIZE, CRC32_RESIDUE
        # The first event was already checked; its checksum excludes the in-use flag.
        at = len(self.format_description()) if self._pos == FIRST_POSITION else 0
        if self.whole_events is not None:
            at = self.whole_events(data, at, bool(has_checksum))
        end = len(data)
        last = end - HEADER_SIZE
        while at <= last:
            (size,) = size_at(data, at)
            event_end = at + size
            if event_end > end:
                break
            if size < least or (has_checksum and crc32(data[at:event_end]) != residue):
                raise self._damaged(f"the event at offset {at} of the block")
            at = event_end
        return at

    def _damaged(self, what: str) -> RelayError:
        what = f"the relay file is damaged: {what} has a wrong checksum or size"
        return RelayError("TR304", what, where=self._where(), hint=_REFETCH)

    def _read_large(self, head: bytes, limit: int) -> bytes:
        """Read an event larger than a block; nothing if the file does not contain all of it."""
        if len(head) < HEADER_SIZE:
            return b""
        size = EVENT_SIZE.unpack_from(head, SIZE_OFFSET)[0]
        return self._pread(size) if self._pos + size <= limit else b""

    def _pread(self, size: int) -> bytes:
        with self._reading():
            data = os.pread(self._fd, size, self._pos)
            # One pread returns at most 2 GB less a page, and events may be that large.
            while len(data) < size and (more := os.pread(self._fd, size - len(data), self._pos + len(data))):
                data += more
        return data

    def _size(self) -> int:
        with self._reading():
            return os.fstat(self._fd).st_size

    def _open(self) -> None:
        path = self._root / self._subdir / self._file
        with self._reading():
            try:
                self._fd = os.open(path, os.O_RDONLY)
            except FileNotFoundError as error:
                raise RelayError(
                    "TR303", "a relay file is missing", where=self._where(), hint=_REFETCH
                ) from error
            fcntl.flock(self._fd, fcntl.LOCK_SH)  # a purge skips files that are locked by a reader
            magic = os.pread(self._fd, len(MAGIC), 0)
        if fault := magic_fault(magic):
            raise RelayError("TR304", fault, where=self._where(), hint=_REFETCH)
        self._has_checksum = None

    def _find_first(self) -> bool:
        for subdir in layout.read_index(self._root):
            if files := layout.binlog_files(self._root / subdir):
                self._move(subdir, files[0])
                return True
        return False

    def _advance_file(self, tail: RelayPosition | None) -> bool:
        """Go to the file after the current one; False when there is none yet. Raises RelayError."""
        number, offset = layout.file_order(self._file)
        files = layout.binlog_files(self._root / self._subdir)
        later = [name for name in files if layout.file_order(name) > (number, offset)]
        if later:
            found, begin = layout.file_order(later[0])
            if (found != number or begin > offset + self._pos) and (found, begin) != (number + 1, 0):
                raise RelayError(
                    "TR303", f"the relay file between {self._file} and {later[0]} is missing", hint=_REFETCH
                )
            self._move(self._subdir, later[0])
            return True
        if tail is not None and tail.subdir == self._subdir:
            raise RelayError("TR303", f"the relay file after {self._file} is missing", hint=_REFETCH)
        serial = layout.subdir_serial(self._subdir)
        for subdir in layout.read_index(self._root):
            if layout.subdir_serial(subdir) <= serial:
                continue
            if not (self._root / subdir).is_dir():
                raise RelayError("TR303", f"the relay sub-directory {subdir} is missing", hint=_REFETCH)
            if files := layout.binlog_files(self._root / subdir):
                self._move(subdir, files[0])
                return True
        return False

    def _move(self, subdir: str, file: str) -> None:
        self.close()
        self._subdir, self._file, self._pos = subdir, file, FIRST_POSITION

    def _where(self) -> Where:
        return Where(file=f"{self._subdir}/{self._file}", position=self._pos)

    def _reading(self) -> AbstractContextManager[None]:
        return disk_errors("reading the relay log", self._where())


def blocks_between(root: Path, begin: RelayPosition, end: int) -> Iterator[RelayBlock]:
    """Read the events of one file from a position to offset ``end``, after its FORMAT_DESCRIPTION event.

    Raises:
        RelayError: TR303 the file no longer exists, TR304 it ends before ``end`` or is damaged.
    """
    reader = RelayReader(root, begin)
    try:
        head = reader.format_description()
        yield RelayBlock(begin.subdir, begin.file, FIRST_POSITION, head)
        yield from reader.blocks_to(end)
    finally:
        reader.close()
