"""Checks one relay file event by event: sizes, checksums, end positions, transaction groups, GTIDs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from zlib_ng.zlib_ng import crc32

from relay_store.check.gtid_chain import GtidChain
from schemas.binlog import framing
from schemas.binlog.framing import CRC32_RESIDUE, FIRST_POSITION, HEADER_SIZE, INSIDE_GROUP, MAGIC
from schemas.binlog.groups import GroupScanner

CHUNK_SIZE = 4 << 20  # bytes per read
_MAX_FAULTS = 20  # per file; a destroyed one has millions

_HEAD = struct.Struct("<4xB4xII")  # type, size, end position
_LISTS = frozenset({framing.PREVIOUS_GTIDS, framing.MARIADB_GTID_LIST})
_LAST = frozenset({framing.ROTATE, framing.STOP})
# The payload of these types is not needed, so a large one is not kept in memory.
_STREAMED = INSIDE_GROUP | {framing.TRANSACTION_PAYLOAD}


@dataclass(frozen=True)
class Fault:
    """One problem at a position of the file."""

    code: str
    pos: int
    what: str


class FileCheck:
    """One pass over a file up to a limit.

    Attributes:
        faults: in order of their positions.
        boundary: the end of the last complete group.
        events, unprotected: number of events, and how many of them have no checksum.
        has_end_event: whether the file ends with ROTATE or STOP, so that nothing can be missing after it.
        in_group: whether the pass ended within a transaction group.
        torn_at: start of an event that ends after `limit`; None if there is none.
    """

    def __init__(
        self, limit: int, chain: GtidChain, upstream_offset: int, progress: Callable[[int], None]
    ) -> None:
        self.faults: list[Fault] = []
        self.boundary = FIRST_POSITION
        self.events = self.unprotected = 0
        self.has_end_event = False
        self.torn_at: int | None = None
        self._limit, self._chain, self._offset, self._progress = limit, chain, upstream_offset, progress
        self._scanner = GroupScanner()
        self._has_checksum = False
        self._last_kind = 0

    @classmethod
    def of(
        cls,
        path: Path,
        limit: int,
        chain: GtidChain,
        upstream_offset: int = 0,
        progress: Callable[[int], None] = lambda size: None,
    ) -> FileCheck:
        """Check a file. Raises OSError.

        Args:
            limit: offset at which the pass ends; later bytes may still be being written.
            chain: the GTIDs of the sub-directory so far; those of this file are added to it.
            upstream_offset: upstream offset minus local offset, in bytes; 0 except in a later part of a larger file.
            progress: called with the number of bytes just checked.
        """
        check = cls(limit, chain, upstream_offset, progress)
        with path.open("rb", buffering=0) as file:
            is_readable = check._run(file)
        check.has_end_event = is_readable and check._last_kind in _LAST
        if is_readable:
            chain.end_of_file(check._scanner if check.in_group else None, check.has_end_event)
        else:
            chain.reset()
        return check

    @property
    def in_group(self) -> bool:
        return self._scanner.in_group

    def _run(self, file: BinaryIO) -> bool:
        """Check all events. Returns False if damage makes the rest unreadable."""
        if fault := framing.magic_fault(file.read(len(MAGIC))):
            return self._fault("TR304", 0, fault)
        pos, rest = FIRST_POSITION, b""
        while size := min(CHUNK_SIZE, self._limit - pos - len(rest)):
            chunk = file.read(size)
            if not chunk:
                break
            self._progress(len(chunk))
            data = rest + chunk
            used = self._walk(data, pos)
            if used < 0:
                return False
            pos, rest = pos + used, data[used:]
            if len(rest) >= HEADER_SIZE:
                if pos + _HEAD.unpack_from(rest)[1] > self._limit:
                    break
                used = self._check_large(file, rest, pos)
                if used < 0:
                    return False
                pos, rest = (pos + used, b"") if used else (pos, rest)
        if rest or pos < self._limit:
            self.torn_at = pos
        return True

    def _walk(self, data: bytes, base: int) -> int:
        """Check the complete events in `data` (a hot loop: a few hundred nanoseconds per event).

        Returns the number of bytes checked, or -1 if the file cannot be read further.
        """
        unpack, residue, inside = _HEAD.unpack_from, CRC32_RESIDUE, INSIDE_GROUP
        has_checksum = self._has_checksum
        shift, wrap = base + self._offset, 0xFFFFFFFF
        at, length, events = 0, len(data), 0
        last = length - HEADER_SIZE
        while at <= last:
            kind, size, end = unpack(data, at)
            event_end = at + size
            if event_end > length or size < HEADER_SIZE:
                if size < HEADER_SIZE:
                    self._fault("TR304", base + at, f"an event has the impossible size of {size} bytes")
                    return -1
                break
            if has_checksum:
                event = data[at:event_end]
                if crc32(event) != residue or (end and end != (shift + event_end) & wrap):
                    if not self._report_damage(data, at, base):
                        return -1
                elif kind not in inside:
                    self._step(kind, event, base + at)
                    has_checksum = self._has_checksum
            elif self._is_sound(data[at:event_end], base + at):
                if kind not in inside:
                    self._step(kind, data[at:event_end], base + at)
                has_checksum = self._has_checksum
            elif not self._report_damage(data, at, base):
                return -1
            events += 1
            at = event_end
        self.events += events
        return at

    def _is_sound(self, event: bytes, pos: int) -> bool:
        """Check the first event of a file, or an event without a checksum."""
        kind, size, end = _HEAD.unpack_from(event)
        if pos == FIRST_POSITION:  # a FORMAT_DESCRIPTION has a checksum whatever it declares for the others
            is_format = kind == framing.FORMAT_DESCRIPTION and framing.checksum_fits(event)
            if not is_format or framing.foreign_format(event):
                return False
        self.unprotected += pos != FIRST_POSITION
        # The relay log writes the head of a part itself, with local end positions.
        offset = 0 if pos == FIRST_POSITION or kind in _LISTS else self._offset
        return not end or end == (offset + pos + size) & 0xFFFFFFFF

    def _step(self, kind: int, event: bytes, pos: int) -> None:
        """Process an event that affects groups or GTIDs."""
        self._last_kind = kind
        scanner = self._scanner
        try:
            was_open = scanner.in_group
            if scanner.feed(kind, event, self._has_checksum):
                self.boundary = pos + len(event)
                if was_open:
                    self._chain.add_group(scanner)
                elif kind in _LISTS and (
                    fault := self._chain.check_gtid_list(event, self._has_checksum, self._offset > 0)
                ):
                    self._fault("TR335", pos, fault)
                elif kind == framing.FORMAT_DESCRIPTION:
                    self._has_checksum = framing.checksum_algorithm(event) == framing.CHECKSUM_CRC32
        except (struct.error, ValueError, IndexError) as error:
            self._fault("TR304", pos, f"an event of type {kind} cannot be read: {error}")

    def _report_damage(self, data: bytes, at: int, base: int) -> bool:
        """Record the fault of an event. Returns whether the events after it can still be found."""
        kind, size, end = _HEAD.unpack_from(data, at)
        pos, event_end = base + at, at + size
        event = data[at:event_end]
        if pos == FIRST_POSITION and (fault := framing.foreign_format(event)):
            return self._fault("TR310", pos, f"the file has an unsupported format: {fault}")
        if pos == FIRST_POSITION and kind != framing.FORMAT_DESCRIPTION:
            return self._fault(
                "TR304", pos, f"the file starts with an event of type {kind}, not FORMAT_DESCRIPTION"
            )
        is_parts_own = kind in _LISTS and self._offset > 0 and end == pos + size
        if is_parts_own and framing.checksum_fits(event):
            self._step(kind, event, pos)
            return True
        if not framing.checksum_fits(event) and (self._has_checksum or kind == framing.FORMAT_DESCRIPTION):
            self._fault("TR304", pos, f"the checksum of an event of type {kind} and {size:,} bytes is wrong")
            self._chain.reset()
            if kind == framing.FORMAT_DESCRIPTION:  # it describes the other events
                return False
        else:
            self._report_wrong_end(pos, size, end)
        if len(self.faults) >= _MAX_FAULTS:
            return False
        # The size may be wrong: continue only if a valid event follows.
        if event_end + HEADER_SIZE > len(data):
            return True
        _, size, _ = _HEAD.unpack_from(data, event_end)
        following = data[event_end : event_end + size]
        if size < HEADER_SIZE or base + event_end + size > self._limit:
            return False
        return len(following) < size or framing.checksum_fits(following)

    def _report_wrong_end(self, pos: int, size: int, end: int) -> None:
        expected = (self._offset + pos + size) & 0xFFFFFFFF
        what = f"an event header has the end position {end:,}, but the event ends at {expected:,} of the upstream file"
        self._fault("TR331", pos, what)

    def _check_large(self, file: BinaryIO, head: bytes, pos: int) -> int:
        """Check an event that is larger than a chunk; `head` is its first bytes.

        Returns its size, 0 if it is not larger than a chunk, or -1 if it is damaged.
        """
        kind, size, end = _HEAD.unpack_from(head)
        missing = size - len(head)
        if missing < CHUNK_SIZE or pos + size > self._limit:
            return 0
        if kind not in _STREAMED or not self._has_checksum:
            event = head + _read_all(file, missing)
            self._progress(missing)
            return size if len(event) == size and self._walk(event, pos) == size else -1
        check = crc32(head)
        while missing:
            chunk = file.read(min(CHUNK_SIZE, missing))
            if not chunk:
                break
            check, missing = crc32(chunk, check), missing - len(chunk)
            self._progress(len(chunk))
        self.events += 1
        if end and end != (self._offset + pos + size) & 0xFFFFFFFF:
            self._report_wrong_end(pos, size, end)
        if check != CRC32_RESIDUE:
            self._fault("TR304", pos, f"the checksum of an event of type {kind} and {size:,} bytes is wrong")
            self._chain.reset()
            return -1
        if kind == framing.TRANSACTION_PAYLOAD:
            self._step(kind, b"", pos + size)
        return int(size)

    def _fault(self, code: str, pos: int, what: str) -> bool:
        self.faults.append(Fault(code, pos, what))
        return False


def _read_all(file: BinaryIO, size: int) -> bytes:
    parts = []
    while size and (part := file.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
