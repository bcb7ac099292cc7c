"""Where decoding stands: the relay file and event, the transaction group, what is executed, and the open epoch."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from producer.decode.duplicate_filter import DuplicateFilter, duplicate_filter
from producer.epochs.open_epoch import OpenEpoch
from producer.structures.store import ReadPosition
from relay_store.layout.directory import RelayPosition, part_offset, upstream_file
from schemas.binlog import framing
from schemas.binlog.groups import GroupScanner
from schemas.errors import DecodeError, Where
from schemas.gtid.base import SourceKey
from schemas.gtid.sets import GtidSet, GtidTracker, before_number, gtid_text
from schemas.varint import encode_bytes

GTID_EVENTS = frozenset({framing.GTID, framing.GTID_TAGGED, framing.ANONYMOUS_GTID, framing.MARIADB_GTID})
_SERVER_ID = struct.Struct("<5xI").unpack_from
# Of MySQL's usual GTID event: server id, source, number, and in the upper 56 bits the time of its commit.
_GTID_EVENT, USUAL_GTID_SIZE = struct.Struct("<5xI11x16sq16xQ").unpack_from, 70
# Of the flags in MariaDB's GTID event: the group ends in XA_PREPARE.
_PREPARED_XA = 0x40

_MIXED_ENGINES = (
    "which of its rows stayed depends on their tables' engines; copy the tables concerned anew and start behind "
    "this position"
)


@dataclass(frozen=True, slots=True)
class EventFile:
    """The relay file whose events are read.

    Attributes:
        subdir: of the relay log.
        name: within ``subdir``.
        source_name: the upstream's name of it, as Avro bytes.
        offset: of a part of the upstream's file, what the upstream's positions are more than its own.
        checksum: bytes behind each event.
    """

    subdir: str
    name: str
    source_name: bytes
    offset: int
    checksum: int

    @classmethod
    def of(cls, subdir: str, name: str, format_description: bytes = b"") -> EventFile:
        """A file; without its FORMAT_DESCRIPTION event, which is its first, nothing but that event can be read."""
        checksum = 0
        if format_description and framing.checksum_algorithm(format_description) == framing.CHECKSUM_CRC32:
            checksum = framing.CHECKSUM_SIZE
        return cls(subdir, name, encode_bytes(upstream_file(name).encode()), part_offset(name), checksum)


#: where nothing was read yet
NO_FILE = EventFile("", "", b"", 0, 0)


@dataclass(slots=True)
class DecodeState:
    """Where decoding stands in a relay log. The walk over events keeps it up to date.

    Attributes:
        epoch: the open one.
        file: the relay file that is read.
        event_pos: where the event that is read is in that file; of events inside another one, where that one is.
    """

    epoch: OpenEpoch
    groups: Groups
    file: EventFile = NO_FILE
    event_pos: int = 0

    @property
    def in_group(self) -> bool:
        """Whether it stands within a transaction group."""
        return self.groups.scanner.in_group

    @property
    def group_start(self) -> RelayPosition:
        """Where the open group begins; there is one."""
        begin = self.groups.transaction.begin
        assert begin is not None
        return RelayPosition(self.file.subdir, self.file.name, begin)

    @property
    def position(self) -> ReadPosition:
        """Of the event that is read."""
        return ReadPosition(
            RelayPosition(self.file.subdir, self.file.name, self.event_pos), self.groups.tracker
        )

    @property
    def where(self) -> Where:
        """The same, for an error."""
        return Where(gtid=self.groups.transaction.gtid, file=self.file.name, position=self.event_pos)

    def end_group(self, size: int) -> None:
        """The open group is whole after the event that is read, which has this size. Raises as ``Groups.end``."""
        epoch = self.epoch
        ended = self.groups.end(epoch.seq)
        if ended.is_xa or not ended.is_passed_over:
            begin = self.event_pos if ended.begin is None else ended.begin
            epoch.add_group(ended.gtid, ended.commit_ms, self.event_pos + size - begin)
            if ended.skipped:
                epoch.skipped.update(ended.skipped)


class WholeGroups(NamedTuple):
    """Groups that are whole in a block and follow one another, of one source and with successive numbers.

    Attributes:
        end: where the last one ends.
        source: as of ``GroupScanner``.
        first, last: their numbers.
        first_commit_ms, last_commit_ms: when these were committed, ms since 1970.
    """

    end: int
    source: SourceKey | int
    server_id: int
    first: int
    first_commit_ms: int
    last: int
    last_commit_ms: int

    @property
    def transactions(self) -> int:
        """How many they are."""
        return self.last - self.first + 1

    @property
    def begins(self) -> tuple[str, int]:
        """The first one's GTID as text, and when it was committed."""
        return gtid_text(self.source, self.first, self.server_id), self.first_commit_ms

    @property
    def ends(self) -> tuple[str, int]:
        """The last one's GTID as text, and when it was committed."""
        return gtid_text(self.source, self.last, self.server_id), self.last_commit_ms


class Groups:
    """The groups of one log, of which at most one is open.

    Args:
        tracker: what is executed; kept up to date.
        stop_behind: the GTID set behind which to stop.

    Attributes:
        transaction: the open group, or the events between groups.
        duplicates: of MariaDB, which of the sub-directory's transactions are in ``tracker`` already.
        stopped: whether ``stop_behind`` is executed.
    """

    def __init__(self, tracker: GtidTracker, stop_behind: GtidSet | None) -> None:
        self.tracker, self._stop_behind = tracker, stop_behind
        self.scanner = GroupScanner()
        self.transaction = OpenGroup(0)
        self.duplicates = duplicate_filter(tracker.snapshot())
        self.stopped = self._has_come_far_enough()

    def resume(self, duplicates: DuplicateFilter) -> None:
        """Begin within a file. Args: ``duplicates`` as of there."""
        self.duplicates = duplicates

    def new_file(self, first: int, is_other_server: bool) -> None:
        """Start a file, outside any group. ``first``: number of the next record."""
        self.scanner.reset()
        self.transaction = OpenGroup(first)
        if is_other_server:
            self.duplicates = duplicate_filter(self.tracker.snapshot())

    def begin_mysql(self, data: bytes, i: int, pos: int, first: int) -> None:
        """MySQL's usual GTID event at ``data[i]`` opens a group: what ``begin`` does, with a fourth of its calls.

        Args:
            pos: where the event is in its file.
            first: the number that the group's first record will have.
        """
        server_id, source, number, committed = _GTID_EVENT(data, i)
        micros = committed >> 8 if committed < 1 << 63 else framing.original_micros(data, i)
        if number < 1:
            framing.check_number(number)
        self.scanner.open(source, number)
        had = self.tracker.contains(source, number)
        gtid = f"{before_number(source)}{number}"
        # first, gtid, server_id, commit_ms, has_gtid, begin, is_passed_over
        self.transaction = OpenGroup(first, gtid, server_id, micros // 1000, True, pos, had)

    def begin(self, kind: int, event: bytes, has_checksum: bool, pos: int, first: int) -> None:
        """A GTID event opens a group; arguments as of ``begin_mysql``.

        Raises:
            DecodeError: TR408, it is not sure whether the group was published before.
        """
        scanner = self.scanner
        scanner.feed(kind, event, has_checksum)
        (server_id,) = _SERVER_ID(event)
        self.transaction = begun = OpenGroup(
            first,
            scanner.gtid() or None,
            server_id,
            commit_ms=framing.commit_ms(event),
            has_gtid=kind != framing.ANONYMOUS_GTID,
            begin=pos,
        )
        # After switching servers, the new files may contain transactions that were already processed.
        if kind == framing.MARIADB_GTID:
            assert isinstance(scanner.source, int)
            begun.is_passed_over = self.duplicates.is_duplicate(scanner.source, server_id, scanner.number)
            if event[31] & _PREPARED_XA and not begun.is_passed_over:
                begun.start_xa(pos)
        elif scanner.source is not None:
            begun.is_passed_over = self.tracker.contains(scanner.source, scanner.number)

    def add_whole(self, groups: WholeGroups) -> bool:
        """Add whole groups; False: one may have been published before, which ``begin`` finds out."""
        source, first, server_id = groups.source, groups.first, groups.server_id
        if isinstance(source, int):
            if self.duplicates.may_be_duplicate(source, first):
                return False
            self.duplicates.is_duplicate(source, server_id, first)
        elif self.tracker.overlaps(source, first, groups.last):
            return False
        self.tracker.add_run(source, first, groups.last, server_id)
        return True

    def end(self, first: int) -> OpenGroup:
        """The open group is whole; returns it. Args: ``first`` as of the next one.

        Raises:
            DecodeError: TR407, it is an XA transaction that was never prepared.
        """
        ended, scanner = self.transaction, self.scanner
        if ended.awaits_prepare:
            raise DecodeError(
                "TR407",
                "an XA transaction ended without XA PREPARE: it mixes engines and was rolled back",
                hint=_MIXED_ENGINES,
            )
        if ended.has_gtid and scanner.source is not None:
            self.tracker.add(scanner.source, scanner.number, scanner.server_id)
        if self._stop_behind is not None:
            self.stopped = self._has_come_far_enough()
        self.transaction = OpenGroup(first)
        return ended

    def _has_come_far_enough(self) -> bool:
        wanted = self._stop_behind
        return wanted is not None and self.tracker.snapshot().contains(wanted)


@dataclass(slots=True)
class OpenGroup:
    """One transaction group, or what stands outside of them.

    Attributes:
        first: the number that its first record has, or would have, in the open epoch.
        gtid: None without one.
        server_id: of the server that it was made on.
        commit_ms: when it was committed there, ms since 1970.
        has_gtid: whether its GTID counts as executed behind it.
        begin: where its first event is in its file; None if it has no event yet.
        is_passed_over: whether its rows are ignored: it was published before, or it is an XA transaction, whose rows
            follow when it commits.
        is_xa: whether it prepares an XA transaction.
        awaits_prepare: whether its XA PREPARE is still to come.
        statement: the text of the statement whose rows follow, if the upstream logs it.
        savepoints: those that are set; None before the first.
        skipped: events that a rule passed over, by schema, table and kind.
    """

    first: int
    gtid: str | None = None
    server_id: int = 0
    commit_ms: int = 0
    has_gtid: bool = False
    begin: int | None = None
    is_passed_over: bool = False
    is_xa: bool = False
    awaits_prepare: bool = False
    statement: bytes = b""
    savepoints: Savepoints | None = None
    skipped: tuple[tuple[str, str, str], ...] = ()

    def start_xa(self, pos: int) -> None:
        """It is an XA transaction, from the event at ``pos`` on: its rows are read when it commits."""
        self.is_xa = self.awaits_prepare = self.is_passed_over = True
        if self.begin is None:
            self.begin = pos


@dataclass
class Savepoints:
    """Those of one transaction.

    Servers compare these names without accents too, so of others than ASCII two may be the same one.
    """

    _records: dict[str, int] = field(default_factory=dict)
    _sure: bool = True

    def add(self, name: str, records: int) -> None:
        """A savepoint after so many records of the epoch; one of the same name is gone."""
        self._records[name] = records
        self._sure = self._sure and name.isascii()

    def find(self, name: str) -> int | None:
        """The number of records that a savepoint was set after; None if that is not sure."""
        return self._records.get(name) if self._sure and name.isascii() else None
