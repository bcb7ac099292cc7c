"""Finds the starts and ends of transaction groups in a stream of binlog events, for the mirror and the publisher."""

from __future__ import annotations

import struct

from schemas.binlog import framing
from schemas.binlog.framing import Buffer
from schemas.gtid.sets import gtid_text

_MYSQL_GTID = struct.Struct("<B16sq")
_MARIADB_GTID = struct.Struct("<QIB")

OUTSIDE, OPENED, MANY, _ONE = range(4)

# A QUERY with one of these texts ends a group that BEGIN or a GTID opened. `ROLLBACK TO x` does not.
_ENDS = frozenset({b"COMMIT", b"ROLLBACK"})
_SINGLE_ENDERS = frozenset({framing.TRANSACTION_PAYLOAD, framing.INCIDENT, framing.MARIADB_QUERY_COMPRESSED})


class GroupScanner:
    """A state machine over events. When `feed` returns True, the stream is at a transaction boundary.

    `state` is 0 outside of groups. Between events, `source`, `number` and `server_id` are the GTID of the open or
    last group. `source` is a MySQL source key or a MariaDB domain, or None for an anonymous group.
    """

    __slots__ = ("number", "server_id", "source", "state")

    def __init__(self) -> None:
        self.state = OUTSIDE
        self.source: bytes | int | None = None
        self.number = 0
        self.server_id = 0

    @property
    def in_group(self) -> bool:
        return self.state != OUTSIDE

    def gtid(self) -> str:
        """Return the GTID of the open or last group as text; empty for an anonymous one."""
        return "" if self.source is None else gtid_text(self.source, self.number, self.server_id)

    def reset(self) -> None:
        """Discard an open group, as at the start of a file."""
        self.state = OUTSIDE
        self.source = None

    def open(self, source: bytes, number: int) -> None:
        """Start a group, at MySQL's GTID event of this transaction."""
        self.state, self.source, self.number = OPENED, source, number

    def close(self) -> None:
        """End the group, at an XID event."""
        self.state = OUTSIDE

    def feed(self, kind: int, event: Buffer, has_checksum: bool) -> bool:
        """Process the next event. Returns True if it ends at a transaction boundary.

        `event` is the complete event, `kind` its type. Types in `framing.INSIDE_GROUP` may be left out.
        """
        if kind == framing.XID or kind == framing.XA_PREPARE:
            self.state = OUTSIDE
        elif kind == framing.QUERY:
            return self.statement(framing.query_text(event, has_checksum))
        elif kind in (framing.GTID, framing.ANONYMOUS_GTID, framing.GTID_TAGGED, framing.MARIADB_GTID):
            self._open(kind, event)
        elif kind in _SINGLE_ENDERS and self.state in (OPENED, _ONE):
            self.state = OUTSIDE
        return self.state == OUTSIDE

    def _open(self, kind: int, event: Buffer) -> None:
        """Start a group at a GTID event. MariaDB's has a flag for a single statement; MySQL's does not."""
        self.state = OPENED
        if kind == framing.GTID:
            _, self.source, self.number = _MYSQL_GTID.unpack_from(event, framing.HEADER_SIZE)
            framing.check_number(self.number)
        elif kind == framing.MARIADB_GTID:
            self.number, self.source, flags = _MARIADB_GTID.unpack_from(event, framing.HEADER_SIZE)
            self.server_id = framing.header(event).server_id
            self.state = _ONE if flags & framing.MARIADB_FL_STANDALONE else MANY
        elif kind == framing.GTID_TAGGED:
            self.source, self.number, _ = framing.tagged_gtid(event)
        else:
            self.source = None

    def statement(self, text: bytes) -> bool:
        """Process a QUERY event with this statement, like ``feed``."""
        if self.state == MANY:
            if text in _ENDS or text.startswith((b"XA COMMIT", b"XA ROLLBACK")):
                self.state = OUTSIDE
        elif self.state != _ONE and (text == b"BEGIN" or text.startswith(b"XA START")):
            self.state = MANY
        else:
            self.state = OUTSIDE
        return self.state == OUTSIDE
