"""Transaction groups: where each begins and ends, whether it was published before, and what is executed so far."""

from __future__ import annotations

import struct

from producer.decode.duplicate_filter import duplicate_filter
from producer.decode.transaction import Transaction
from schemas.binlog import framing
from schemas.binlog.groups import GroupScanner
from schemas.errors import DecodeError
from schemas.gtid.sets import GtidSet, GtidTracker, before_number

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


class Groups:
    """The groups of one log, of which at most one is open.

    Args:
        tracker: what is executed; kept up to date.
        stop_behind: the GTID set behind which to stop.

    Attributes:
        transaction: the open group, or what stands outside of groups.
        duplicates: of MariaDB, which of the sub-directory's transactions are in ``tracker`` already.
        stopped: whether ``stop_behind`` is executed.
    """

    def __init__(self, tracker: GtidTracker, stop_behind: GtidSet | None) -> None:
        self.tracker, self._stop_behind = tracker, stop_behind
        self.scanner = GroupScanner()
        self.transaction = Transaction(0)
        self.duplicates = duplicate_filter(tracker.snapshot())
        self.stopped = self._has_come_far_enough()

    def new_file(self, first: int, is_other_server: bool) -> None:
        """Stand outside of groups, at the start of a file. Args: ``first`` as of the next transaction."""
        self.scanner.reset()
        self.transaction = Transaction(first)
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
        self.transaction = Transaction(first, gtid, server_id, micros // 1000, True, pos, had)

    def begin(self, kind: int, event: bytes, has_checksum: bool, pos: int, first: int) -> None:
        """A GTID event opens a group; arguments as of ``begin_mysql``.

        Raises:
            DecodeError: TR408, it is not sure whether the group was published before.
        """
        scanner = self.scanner
        scanner.feed(kind, event, has_checksum)
        (server_id,) = _SERVER_ID(event)
        self.transaction = begun = Transaction(
            first,
            scanner.gtid() or None,
            server_id,
            framing.commit_ms(event),
            kind != framing.ANONYMOUS_GTID,
            pos,
        )
        # After a switch to another server its files may hold transactions that we have already.
        if kind == framing.MARIADB_GTID:
            assert isinstance(scanner.source, int)
            begun.is_passed_over = self.duplicates.is_duplicate(scanner.source, server_id, scanner.number)
            if event[31] & _PREPARED_XA and not begun.is_passed_over:
                begun.start_xa(pos)
        elif scanner.source is not None:
            begun.is_passed_over = self.tracker.contains(scanner.source, scanner.number)

    def end(self) -> Transaction:
        """The open group is whole; returns it. Its successor's ``first`` is the caller's to set.

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
        return ended

    def _has_come_far_enough(self) -> bool:
        wanted = self._stop_behind
        return wanted is not None and self.tracker.snapshot().contains(wanted)
