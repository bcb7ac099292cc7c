"""Checks that the GTID list at the start of each relay file matches the files before it."""

from __future__ import annotations

import struct

from schemas.binlog import framing
from schemas.binlog.groups import GroupScanner
from schemas.gtid.sets import Flavor, GtidSet, MariadbGtidTracker, MysqlGtidSet, MysqlGtidTracker, gtid_text

_LIST_ENTRY = struct.Struct("<IIQ")
# The list that the sets started from: none yet, a part's list of everything executed, a server's own list.
_NONE, _PART, _FILE = range(3)


class GtidChain:
    """The transactions of one sub-directory's files, in order.

    MySQL's PREVIOUS_GTIDS is the set of all earlier transactions. MariaDB's GTID_LIST has the last number written
    for each domain and server. With `gtid_strict_mode` off numbers may decrease, so the list is kept unchanged.

    The parts of a file made by the relay log start with everything that the mirror had executed, including
    transactions from other servers' files and from before the start position; on MariaDB they have only the last
    server of each domain.

    Args:
        known: the transactions executed before these files; None if unknown.
    """

    def __init__(self, known: GtidSet | None = None) -> None:
        self._known = known
        self._seed = _NONE
        self._mysql: MysqlGtidTracker | None = None
        self._mariadb: dict[tuple[int, int], int] | None = None
        self._highest = MariadbGtidTracker()
        self._open: GroupScanner | None = None
        self._file_ended = True

    @property
    def flavor(self) -> Flavor | None:
        """The kind of server; None before a GTID list was read."""
        if self._mariadb is not None:
            return "mariadb"
        return None if self._mysql is None else "mysql"

    def check_gtid_list(self, event: bytes, has_checksum: bool, is_part: bool) -> str:
        """Process a PREVIOUS_GTIDS or GTID_LIST event. Returns how it contradicts the files before it, or "".

        Args:
            is_part: whether the relay log itself wrote the event, in a part of a larger file.

        Raises ValueError when the event cannot be read.
        """
        listed = framing.previous_gtids(event, has_checksum)
        if is_part and self._seed != _NONE:
            return self._compare_part(listed)
        seed, self._seed = self._seed, _PART if is_part else _FILE
        lost = self._missing_at_end(listed)
        fault = self._check_server_list(event, has_checksum)
        return {_NONE: "", _PART: lost, _FILE: fault}[seed]

    def _check_server_list(self, event: bytes, has_checksum: bool) -> str:
        if event[4] == framing.MARIADB_GTID_LIST:
            return self._compare_mariadb(event)
        found = framing.previous_gtids(event, has_checksum)
        assert isinstance(found, MysqlGtidSet)
        fault = "" if self._mysql is None else self._compare_mysql(self._mysql.snapshot(), found)
        self._mysql = found.tracker()
        return fault

    def add_group(self, scanner: GroupScanner) -> None:
        """Add the complete group that the scanner has just passed."""
        source = scanner.source
        if isinstance(source, int):
            if self._mariadb is None:
                self._mariadb = {}
            self._mariadb[source, scanner.server_id] = scanner.number
            self._highest.add(source, scanner.number, scanner.server_id)
        elif source is not None:
            if self._mysql is None:
                self._mysql = MysqlGtidSet().tracker()
            self._mysql.add(source, scanner.number)

    def end_of_file(self, open_group: GroupScanner | None, ended: bool) -> None:
        """Note the end of a file.

        Args:
            open_group: the unfinished group at its end, if any.
            ended: whether its last event was ROTATE or STOP.
        """
        self._open, self._file_ended = open_group, ended

    def reset(self) -> None:
        """Discard the GTIDs of the files so far, which are damaged; the next file's list is accepted unchecked."""
        self._mysql = self._mariadb = self._open = None
        self._seed = _NONE
        self._highest = MariadbGtidTracker()

    def executed(self) -> GtidSet | None:
        """Return all transactions so far; None if no file had GTIDs."""
        if self._mariadb is not None:
            return self._highest.snapshot()
        return None if self._mysql is None else self._mysql.snapshot()

    def _compare_part(self, listed: GtidSet | None) -> str:
        executed = self.executed()
        if executed is None or listed is None or type(executed) is not type(listed):
            return ""
        if lacking := executed.minus(listed):
            return f"the GTID list of the part lacks {lacking}, which files before it contain"
        extra = listed.minus(executed)
        if extra and self._seed == _FILE:
            if self._known is None or type(self._known) is not type(extra):
                return ""
            extra = extra.minus(self._known)
        return f"the end of the file before the part is missing: {extra}" if extra else ""

    def _missing_at_end(self, listed: GtidSet | None) -> str:
        """Describe the transactions that a list has in addition to the files before it; "" if there are none."""
        executed = self.executed()
        if self._file_ended or executed is None or listed is None or type(executed) is not type(listed):
            return ""
        if self._open is not None and (last := self._open.gtid()):
            executed = executed.add(last)
        extra = listed.minus(executed)
        return f"the end of the file before it is missing: {extra}" if extra else ""

    def _compare_mysql(self, executed: MysqlGtidSet, listed: MysqlGtidSet) -> str:
        if lacking := executed.minus(listed):
            return f"the GTID list of the file lacks {lacking}, which files before it contain"
        extra = listed.minus(executed)
        if self._open is not None and isinstance(self._open.source, bytes) and extra:
            last = self._open
            # A server that crashed within a transaction may or may not have counted it.
            extra = extra.minus(MysqlGtidSet().add(last.gtid()))
        # `SET GLOBAL gtid_purged` adds to the set, and ends the file on the way.
        if extra and not self._file_ended:
            return f"the end of the file before it is missing: {extra}"
        return ""

    def _compare_mariadb(self, event: bytes) -> str:
        (count,) = struct.unpack_from("<I", event, framing.HEADER_SIZE)
        body = event[framing.HEADER_SIZE + 4 :][: 16 * (count & 0x0FFFFFFF)]
        if len(body) < 16 * (count & 0x0FFFFFFF):
            raise ValueError("GTID list is cut short")
        found = {(d, s): n for d, s, n in _LIST_ENTRY.iter_unpack(body)}
        before, self._mariadb = self._mariadb, dict(found)
        for (domain, server), number in found.items():
            self._highest.add(domain, number, server)
        if before is None:
            return ""
        if self._open is not None and isinstance(self._open.source, int):
            last = (self._open.source, self._open.server_id)
            if found.get(last) == self._open.number:
                before = {**before, last: self._open.number}
        for (domain, server), number in found.items():
            if before.get((domain, server), 0) != number:
                known = before.get((domain, server))
                has = "nothing" if known is None else gtid_text(domain, known, server)
                start = gtid_text(domain, number, server)
                return f"the file starts after {start}, but the files before it end with {has}"
        # A domain may be deleted from the list (FLUSH BINARY LOGS DELETE_DOMAIN_ID), but only as a whole.
        kept = {domain for domain, _ in found}
        for (domain, server), number in before.items():
            if domain in kept and (domain, server) not in found:
                lacking = gtid_text(domain, number, server)
                return f"the GTID list of the file lacks {lacking}, which files before it contain"
        return ""
