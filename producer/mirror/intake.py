"""The mirror's inner loop: checks events and appends them to the relay log; it has no socket."""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable

import structlog
from zlib_ng.zlib_ng import crc32

from producer.settings import RelaySettings
from producer.upstream import packets
from relay_store.layout.directory import file_number
from relay_store.write.writer import RelayWriter
from schemas.binlog import framing
from schemas.binlog.compiled.calls import Packets
from schemas.binlog.framing import (
    CRC32_RESIDUE,
    FIRST_POSITION,
    HEADER_SIZE,
    HEARTBEATS,
    INSIDE_GROUP,
    MAX_PACKET,
)
from schemas.binlog.groups import GroupScanner
from schemas.compiled.code import CompiledCode
from schemas.errors import RelayError, UpstreamError, Where
from schemas.gtid.sets import Flavor, GtidTracker, MariadbGtidTracker

SYNC_BYTES = 8 << 20  # unsynced bytes at which a sync no longer waits for a pause
SYNC_SECONDS = 0.05
_LARGE_GROUP_BYTES = 32 << 20  # spread the disk's work within a group of gigabytes

_log = structlog.get_logger()


class Intake:
    """Takes events of one connection into the relay log.

    Args:
        relay: the writer, positioned at a transaction boundary.
        gtids: the set of what is in the relay log; grows with each whole group.
        stream_position: where the stream's first event lies in the file; less than the writer's position if
            the dump had to start earlier; those events are skipped.
        settings: the size at which a relay file goes on in another part, and how many groups may wait for a sync.
        clock: seconds, monotonic.
        code: takes what needs no look of its own, once it is loaded.
    """

    def __init__(
        self,
        relay: RelayWriter,
        gtids: GtidTracker,
        stream_position: int,
        settings: RelaySettings,
        clock: Callable[[], float] = time.monotonic,
        code: CompiledCode | None = None,
    ) -> None:
        position = relay.position
        assert position is not None
        self._code = code
        self._packets: Packets | None = None
        self._relay = relay
        self._gtids = gtids
        self._clock = clock
        self._file, self._end = position.upstream
        self._bytes_to_skip = self._end - stream_position
        self._max_file_size = settings.max_file_size or sys.maxsize
        self._source_type = int if isinstance(gtids, MariadbGtidTracker) else bytes
        self._scanner = GroupScanner()
        self._has_checksum = False
        self._chunks: list[bytes] = []
        self._uncounted = 0  # events that are in a chunk with another one
        # Of groups with successive numbers: source, first and last number, server id.
        self._groups: list[tuple[bytes | int, int, int, int]] = []
        self._boundary: int | None = None
        self.bytes = 0  # appended in this connection's time
        self.events = 0
        self._sync_groups = settings.sync_relay_log or sys.maxsize
        self._is_lazy = not settings.sync_relay_log
        self._unsynced = self._unsynced_groups = 0
        self._group_ended = False
        self._synced_at = clock()
        self.heartbeats = 0

    def begin(self) -> None:
        """Let the writer ask for the set, and begin a relay file if the last one is full. Raises RelayError."""
        self._relay.track_gtids(lambda: str(self._gtids))
        self._end_part()

    @property
    def wants_sync(self) -> bool:
        """Whether whole groups are appended which no reader sees yet, or may have to be put on disk soon."""
        return self._group_ended or (self._is_lazy and self._unsynced_groups > 0)

    @property
    def is_shown(self) -> bool:
        """Whether readers see all that was received, and no group is open."""
        return not (self._scanner.in_group or self._bytes_to_skip or self.wants_sync)

    def take(self, data: bytes) -> tuple[int, int]:
        """Append the events in the whole packets at the front of `data`.

        Returns how many bytes that took, and how many are needed at least for the next event.
        Raises RelayError and UpstreamError (what is before the wrong event is kept), and ServerSaid.
        Of an event that no server writes: UpstreamError TR209.
        """
        try:
            if used := self._take_small(data):
                return used, packets.UNKNOWN
            event, used, need = packets.slow_packet(data)
            if event:
                _, kind, _, _, end_position, flags = framing.HEADER.unpack_from(event)
                self._take_one(kind, flags, end_position, event)
            return used, need
        except UpstreamError as error:
            raise error.but(where=self._where()) from error
        except (ValueError, IndexError, struct.error) as error:
            raise self._impossible(error) from error
        finally:
            self._append()

    def sync_due(self, more_waits: Callable[[], bool]) -> bool:
        """Whether to sync now: `more_waits` says if the upstream has more to give at once."""
        if not self._group_ended:
            return self._unsynced >= _LARGE_GROUP_BYTES
        late = self._unsynced >= SYNC_BYTES or self._clock() - self._synced_at >= SYNC_SECONDS
        return late or not more_waits()

    def sync(self) -> None:
        """Make complete groups visible to readers, after an fsync unless that is left to the operating system."""
        if self._is_lazy and not self._relay.tail.sync_wanted:
            if self._group_ended:
                self._relay.show()
        else:
            self._relay.sync()
            self._unsynced_groups = 0
        self._unsynced, self._group_ended, self._synced_at = 0, False, self._clock()

    def _take_small(self, data: bytes) -> int:
        """Take the events at the front of `data`, up to a packet that is not whole or not an ordinary event."""
        take = self._compiled()
        if take is None:
            return self._take_each(data, 0, once=False)
        at, behind = -1, 0
        while at < behind:
            at = behind
            if not self._bytes_to_skip:
                behind = self._take_many(take, data, behind)
            behind = self._take_each(data, behind, once=True)
        return behind

    def _compiled(self) -> Packets | None:
        """What takes many events at once; None as long as it is not loaded."""
        if self._packets is None and self._code is not None and self._code.library is not None:
            flavor: Flavor = "mariadb" if self._source_type is int else "mysql"
            self._packets = Packets(self._code.library, flavor)
        return self._packets

    def _take_many(self, take: Packets, data: bytes, at: int) -> int:
        """Take events that need no look of their own."""
        most = self._sync_groups - self._unsynced_groups, self._part_begin + self._max_file_size
        found = take(data, at, self._end, self._scanner, self._has_checksum, most)
        if found.events:
            self._chunks.append(found.data)
            self._uncounted += found.events - 1
            self._groups += found.groups
            self._end = found.position
        if found.boundary is not None:
            self._boundary = found.boundary
            self._unsynced_groups += found.ended
            if found.boundary == self._end:
                self._behind_group()
        return found.behind

    def _take_each(self, data: bytes, at: int, *, once: bool) -> int:
        """Hot: without compiled code a few hundred nanoseconds per event decide the mirror's speed.

        What cannot begin or end a group is checked and collected right here, everything else in
        `_take_one`.

        Args:
            once: whether to take only one.
        """
        unpack, collect = packets.HEADS.unpack_from, self._chunks.append
        plain = frozenset() if self._bytes_to_skip else INSIDE_GROUP
        has_checksum, end, least = self._has_checksum, self._end, HEADER_SIZE
        stop, last = len(data), len(data) - packets.HEADS.size
        while at <= last:
            head, status, kind, size, end_position, flags = unpack(data, at)
            after = at + 5 + size
            # A full packet goes on in another one, be it empty.
            if status or not least < head & MAX_PACKET == size + 1 < MAX_PACKET or after > stop:
                break
            event = data[at + 5 : after]
            at = after
            if kind in plain:
                if has_checksum and crc32(event) != CRC32_RESIDUE:
                    raise self._corrupt(kind)
                end += size
                if end_position and end_position != end & 0xFFFFFFFF:
                    raise self._gap(end_position - size)
                collect(event)
                self._end = end
            else:
                self._take_one(kind, flags, end_position, event)
                has_checksum, end = self._has_checksum, self._end
            if once:
                break
        return at

    def _take_one(self, kind: int, flags: int, end_position: int, event: bytes) -> None:
        """Any event, by the same checks as above."""
        if self._is_made_up(kind, flags, end_position, event):
            return
        if self._bytes_to_skip:
            self._bytes_to_skip -= len(event)
            return
        if self._has_checksum and crc32(event) != CRC32_RESIDUE:
            raise self._corrupt(kind)
        end = self._end + len(event)
        if end_position and end_position != end & 0xFFFFFFFF:
            raise self._gap(end_position - len(event))
        self._chunks.append(event)
        self._end = end
        if kind not in INSIDE_GROUP:
            try:
                self._step_group(kind, event)
            except (ValueError, IndexError, struct.error):
                self._chunks.pop()
                self._end -= len(event)
                raise

    def _step_group(self, kind: int, event: bytes) -> None:
        scanner = self._scanner
        was_open = scanner.in_group
        if scanner.feed(kind, event, self._has_checksum):
            if was_open:
                if scanner.source is not None:
                    if not isinstance(scanner.source, self._source_type):
                        raise ValueError("a GTID of the other kind of server")
                    number = scanner.number
                    self._groups.append((scanner.source, number, number, scanner.server_id))
            elif before := framing.previous_gtids(event, self._has_checksum):
                self._gtids.merge(before)
            self._boundary = self._end
            if was_open:
                self._unsynced_groups += 1
                self._behind_group()

    def _behind_group(self) -> None:
        """A group has ended: sync and begin another part, if that is due."""
        if self._unsynced_groups >= self._sync_groups:
            self._append()
            self.sync()
        if self._end - self._part_begin >= self._max_file_size:
            self._append()
            self._end_part()

    def _end_part(self) -> None:
        """Go on in another part if this one is large enough; between two groups only."""
        relay = self._relay
        if relay.file_size >= self._max_file_size and relay.begin_part(self._gtids.snapshot()):
            _log.info("relay_part_begun", position=str(relay.position))
        self._part_begin = self._end - relay.file_size

    def _is_made_up(self, kind: int, flags: int, end_position: int, event: bytes) -> bool:
        """Whether the dump thread generated the event (it is in no file); its content is processed here."""
        if kind == framing.FORMAT_DESCRIPTION:
            framing.check_format(event, Where(file=self._file, position=FIRST_POSITION))
            self._has_checksum = framing.checksum_algorithm(event) == framing.CHECKSUM_CRC32
            # A dump from mid-file begins with a copy of the file's own one, without a position.
            at_start = self._end - self._bytes_to_skip == FIRST_POSITION
            return not at_start or end_position != FIRST_POSITION + len(event)
        if kind == framing.ROTATE and (flags & framing.FLAG_ARTIFICIAL or event[:4] == bytes(4)):
            self._change_file(event)
            return True
        self.heartbeats += kind in HEARTBEATS
        return kind in HEARTBEATS or bool(flags & framing.FLAG_ARTIFICIAL)

    def _change_file(self, event: bytes) -> None:
        """Process an artificial ROTATE, which names the file of the next events."""
        name, _ = framing.rotate_target(event)
        if name == self._file:
            return
        if self._bytes_to_skip:
            raise self._gap(self._end - self._bytes_to_skip)  # the upstream's file is shorter than ours
        if file_number(name) != file_number(self._file) + 1:
            where = Where(file=self._file, position=self._end)
            hint = (
                "the upstream's binlog was reset or renamed: move the relay directory away to fetch it again"
            )
            raise RelayError(
                "TR305", f"the upstream continues with the unexpected file {name}", where=where, hint=hint
            )
        self._append()
        if self._scanner.in_group:
            _log.warning("group_open_at_end_of_file", file=self._file, gtid=self._scanner.gtid())
        self._scanner.reset()
        self._relay.rotate(name)
        self._file, self._end, self._part_begin = name, FIRST_POSITION, 0

    def _append(self) -> None:
        """Hand over what is collected; GTIDs count only once their bytes are written."""
        if self._chunks:
            self._relay.append(self._chunks, self._boundary)
            size = sum(map(len, self._chunks))
            self._unsynced += size
            self.bytes += size
            self.events += len(self._chunks) + self._uncounted
        try:
            for run in self._groups:
                self._gtids.add_run(*run)
        except ValueError as error:
            raise self._impossible(error) from error
        self._group_ended = self._group_ended or self._boundary is not None
        self._chunks.clear()
        self._groups.clear()
        self._uncounted = 0
        self._boundary = None

    def _where(self) -> Where:
        return Where(self._scanner.gtid(), self._file, self._end)

    def _impossible(self, error: Exception) -> UpstreamError:
        what = f"the upstream sent an event that no server writes: {error or type(error).__name__}"
        hint = "nothing of it was written; on a line that is not encrypted anybody may have put it there"
        return UpstreamError("TR209", what, where=self._where(), hint=hint)

    def _corrupt(self, kind: int) -> RelayError:
        what = f"the checksum of an event of type {kind} is wrong"
        hint = (
            "nothing of it was written; if it happens again at this position, the upstream's file is damaged"
        )
        return RelayError("TR304", what, where=self._where(), hint=hint)

    def _gap(self, begin: int) -> RelayError:
        what = f"the upstream sent the event at {begin}, expected was the one at {self._end}"
        hint = "nothing of it was written; encrypted MariaDB binlogs cannot be mirrored byte for byte"
        return RelayError("TR305", what, where=self._where(), hint=hint)
