"""The mirror's inner loop: events in, checked, into the relay log; it owns no socket."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence

import structlog

from relay_store.layout import file_number
from relay_store.writer import RelayWriter
from schemas import binlog
from schemas.binlog import CRC32_RESIDUE, FIRST_POSITION, HEADER, HEARTBEATS, INSIDE_GROUP
from schemas.errors import RelayError, Where
from schemas.groups import GroupScanner
from schemas.gtid import GtidTracker

SYNC_BYTES = 8 << 20  # unsynced bytes at which a sync no longer waits for a pause
SYNC_SECONDS = 0.05
_LARGE_GROUP_BYTES = 32 << 20  # spread the disk's work within a group of gigabytes

_log = structlog.get_logger()


class Intake:
    """Takes events of one connection into the relay log.

    Args:
        relay: the writer, positioned at a transaction boundary.
        gtids: the set of what is in the relay log; grows with each whole group.
        stream_position: where the stream's first event lies in the file; less than the writer's position
            when the upstream had to be asked from further back, and then events are passed over.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        relay: RelayWriter,
        gtids: GtidTracker,
        stream_position: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        position = relay.position
        assert position is not None
        self._relay = relay
        self._gtids = gtids
        self._clock = clock
        self._file = position.file
        self._end = position.pos
        self._stream = stream_position
        self._scanner = GroupScanner()
        self._has_checksum = False
        self._chunks: list[bytes | memoryview] = []
        self._groups: list[tuple[bytes | int, int, int]] = []
        self._boundary: int | None = None
        self._unsynced = 0
        self._group_ended = False
        self._synced_at = clock()
        relay.track_gtids(lambda: str(gtids))

    @property
    def wants_sync(self) -> bool:
        """Whether whole groups are appended which no reader sees yet."""
        return self._group_ended

    def take(self, events: Sequence[memoryview]) -> int:
        """Append events and return how many bytes that were. Raises RelayError; what is before is kept."""
        start = self._unsynced
        try:
            self._check_and_collect(events)
        finally:
            self._append()
        return self._unsynced - start

    def sync_due(self, more_waits: Callable[[], bool]) -> bool:
        """Whether to sync now: `more_waits` says if the upstream has more to give at once."""
        if not self._group_ended:
            return self._unsynced >= _LARGE_GROUP_BYTES
        late = self._unsynced >= SYNC_BYTES or self._clock() - self._synced_at >= SYNC_SECONDS
        return late or not more_waits()

    def sync(self) -> None:
        self._relay.sync()
        self._unsynced, self._group_ended, self._synced_at = 0, False, self._clock()

    def _check_and_collect(self, events: Sequence[memoryview]) -> None:
        """Hot: a few hundred nanoseconds per event decide the mirror's speed."""
        unpack, crc32, collect = HEADER.unpack_from, zlib.crc32, self._chunks.append
        for event in events:
            timestamp, kind, _, size, end_position, flags = unpack(event)
            if kind in HEARTBEATS:
                continue
            if flags & binlog.FLAG_ARTIFICIAL or (kind == binlog.ROTATE and timestamp == 0):
                self._steer(kind, event)
                continue
            if kind == binlog.FORMAT_DESCRIPTION and not self._is_written_description(event, end_position):
                continue
            if self._stream < self._end:
                self._stream += size
                continue
            if size != len(event):
                raise self._corrupt(f"an event of {len(event)} bytes says it has {size}")
            if self._has_checksum and crc32(event) != CRC32_RESIDUE:
                raise self._corrupt(f"the checksum of an event of type {kind} is wrong")
            end = self._end + size
            if end_position and end_position != end & 0xFFFFFFFF:
                raise self._gap(end_position - size)
            collect(event)
            self._end = self._stream = end
            if kind not in INSIDE_GROUP:
                self._step_group(kind, event)

    def _step_group(self, kind: int, event: memoryview) -> None:
        scanner = self._scanner
        was_open = scanner.in_group
        if scanner.feed(kind, event, self._has_checksum):
            self._boundary = self._end
            if was_open and scanner.source is not None:
                self._groups.append((scanner.source, scanner.number, scanner.server_id))
            elif before := binlog.previous_gtids(event, self._has_checksum):
                self._gtids.merge(before)

    def _is_written_description(self, event: memoryview, end_position: int) -> bool:
        """Learn the checksum algorithm; the one that a dump in mid-file begins with is in no file."""
        self._has_checksum = binlog.checksum_algorithm(event) == binlog.CHECKSUM_CRC32
        return self._stream == FIRST_POSITION and end_position == FIRST_POSITION + len(event)

    def _steer(self, kind: int, event: memoryview) -> None:
        """An artificial event: ROTATE says which file the next events are of."""
        if kind != binlog.ROTATE:
            return
        name, _ = binlog.rotate_target(event)
        if name == self._file:
            return
        if file_number(name) != file_number(self._file) + 1:
            where = Where(file=self._file, position=self._end)
            hint = (
                "the upstream's binlog was reset or renamed: move the relay directory away to fetch it anew"
            )
            raise RelayError("TR305", f"the upstream goes on with {name}", where=where, hint=hint)
        self._append()
        if self._scanner.in_group:
            _log.warning("group_open_at_end_of_file", file=self._file, gtid=self._scanner.gtid())
        self._scanner.reset()
        self._relay.rotate(name)
        self._file, self._end, self._stream = name, FIRST_POSITION, FIRST_POSITION

    def _append(self) -> None:
        """Hand over what is collected; GTIDs count only once their bytes are written."""
        if self._chunks:
            before = self._unsynced
            self._relay.append(self._chunks, self._boundary)
            self._unsynced = before + sum(map(len, self._chunks))
        for source, number, server_id in self._groups:
            self._gtids.add(source, number, server_id)
        self._group_ended = self._group_ended or self._boundary is not None
        self._chunks.clear()
        self._groups.clear()
        self._boundary = None

    def _corrupt(self, what: str) -> RelayError:
        hint = "nothing of it was written; if it happens again at this place, the upstream's file is damaged"
        return RelayError("TR304", what, where=Where(self._scanner.gtid(), self._file, self._end), hint=hint)

    def _gap(self, begin: int) -> RelayError:
        what = f"the upstream sent the event at {begin}, expected was the one at {self._end}"
        hint = "nothing of it was written; encrypted MariaDB binlogs cannot be mirrored byte for byte"
        return RelayError("TR305", what, where=Where(self._scanner.gtid(), self._file, self._end), hint=hint)
