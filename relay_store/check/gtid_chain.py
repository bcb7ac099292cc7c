"""Checks that each relay file begins with the GTIDs that the files before it hold."""

from __future__ import annotations

import struct

from schemas.binlog import framing
from schemas.binlog.groups import GroupScanner
from schemas.gtid.sets import Flavor, GtidSet, MariadbGtidTracker, MysqlGtidSet, MysqlGtidTracker, gtid_text

_LIST_ENTRY = struct.Struct("<IIQ")
# What the sets so far began with: nothing yet, a part's list of all that was executed, a server's own list.
_NONE, _PART, _FILE = range(3)


class GtidChain:
    """The transactions of one sub-directory's files, in order.

    MySQL's PREVIOUS_GTIDS is the set of all before. MariaDB's GTID_LIST has, for each domain and server, the
    number written last; with `gtid_strict_mode` off numbers may go back, so that is kept as it is.

    The relay log's own parts of a file begin with all that the mirror had executed: what other servers' files
    and the start brought included, and only a domain's last server on MariaDB.

    Args:
        known: what was executed before these files; None if that cannot be known.
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
        """None before a file has named its GTIDs."""
        if self._mariadb is not None:
            return "mariadb"
        return None if self._mysql is None else "mysql"

    def before(self, event: bytes, has_checksum: bool, is_part: bool) -> str:
        """Take a PREVIOUS_GTIDS or GTID_LIST event in; what contradicts the files before, else "".

        Args:
            is_part: whether the event is the relay log's own, in a part of a larger file.

        Raises ValueError when the event cannot be read.
        """
        theirs = framing.previous_gtids(event, has_checksum)
        if is_part and self._seed != _NONE:
            return self._compare_part(theirs)
        seed, self._seed = self._seed, _PART if is_part else _FILE
        lost = self._lost(theirs)
        said = self._before(event, has_checksum)
        return {_NONE: "", _PART: lost, _FILE: said}[seed]

    def _before(self, event: bytes, has_checksum: bool) -> str:
        if event[4] == framing.MARIADB_GTID_LIST:
            return self._before_mariadb(event)
        found = framing.previous_gtids(event, has_checksum)
        assert isinstance(found, MysqlGtidSet)
        said = "" if self._mysql is None else self._compare_mysql(self._mysql.snapshot(), found)
        self._mysql = found.tracker()
        return said

    def add(self, scanner: GroupScanner) -> None:
        """Add the whole group that the scanner has just passed."""
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
        """The file ends, perhaps within a group; `ended` if its last event says that nothing follows."""
        self._open, self._file_ended = open_group, ended

    def forget(self) -> None:
        """The files so far cannot be trusted: the next one is believed."""
        self._mysql = self._mariadb = self._open = None
        self._seed = _NONE
        self._highest = MariadbGtidTracker()

    def executed(self) -> GtidSet | None:
        """All transactions so far, None if no file has said anything of GTIDs."""
        if self._mariadb is not None:
            return self._highest.snapshot()
        return None if self._mysql is None else self._mysql.snapshot()

    def _compare_part(self, theirs: GtidSet | None) -> str:
        ours = self.executed()
        if ours is None or theirs is None or type(ours) is not type(theirs):
            return ""
        if lacking := ours.minus(theirs):
            return f"the part begins without {lacking}, which is before it"
        extra = theirs.minus(ours)
        if extra and self._seed == _FILE:
            if self._known is None or type(self._known) is not type(extra):
                return ""
            extra = extra.minus(self._known)
        return f"what is before the part lacks its end: {extra}" if extra else ""

    def _lost(self, theirs: GtidSet | None) -> str:
        """What a list has more than was there, where the files before began with all that was executed."""
        ours = self.executed()
        if self._file_ended or ours is None or theirs is None or type(ours) is not type(theirs):
            return ""
        if self._open is not None and (last := self._open.gtid()):
            ours = ours.add(last)
        extra = theirs.minus(ours)
        return f"the file before it lacks its end: {extra}" if extra else ""

    def _compare_mysql(self, ours: MysqlGtidSet, theirs: MysqlGtidSet) -> str:
        if lacking := ours.minus(theirs):
            return f"the file begins without {lacking}, which the files before it hold"
        extra = theirs.minus(ours)
        if self._open is not None and isinstance(self._open.source, bytes) and extra:
            last = self._open
            # A server that died within a transaction may have counted it, or not.
            extra = extra.minus(MysqlGtidSet().add(last.gtid()))
        # `SET GLOBAL gtid_purged` adds to the set, and ends the file on the way.
        if extra and not self._file_ended:
            return f"the file before it lacks its end: {extra}"
        return ""

    def _before_mariadb(self, event: bytes) -> str:
        (count,) = struct.unpack_from("<I", event, framing.HEADER_SIZE)
        body = event[framing.HEADER_SIZE + 4 :][: 16 * (count & 0x0FFFFFFF)]
        if len(body) < 16 * (count & 0x0FFFFFFF):
            raise ValueError("GTID list is cut short")
        found = {(d, s): n for d, s, n in _LIST_ENTRY.iter_unpack(body)}
        ours, self._mariadb = self._mariadb, dict(found)
        for (domain, server), number in found.items():
            self._highest.add(domain, number, server)
        if ours is None:
            return ""
        if self._open is not None and isinstance(self._open.source, int):
            last = (self._open.source, self._open.server_id)
            if found.get(last) == self._open.number:
                ours = {**ours, last: self._open.number}
        for (domain, server), number in found.items():
            if ours.get((domain, server), 0) != number:
                known = ours.get((domain, server))
                has = "nothing" if known is None else gtid_text(domain, known, server)
                return f"the file begins behind {gtid_text(domain, number, server)}, the files before it end with {has}"
        # A domain may be deleted from the list (FLUSH BINARY LOGS DELETE_DOMAIN_ID), but only as a whole.
        kept = {domain for domain, _ in found}
        for (domain, server), number in ours.items():
            if domain in kept and (domain, server) not in found:
                return f"the file begins without {gtid_text(domain, number, server)}, which the files before it hold"
        return ""
