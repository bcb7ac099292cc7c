"""Which transactions of a MariaDB log were published before, from another file that holds them.

A relay log begins with whole files, and each server's files hold what others had as well. A GTID set of MariaDB's has
one number for each domain, so a number below it may be one of those, or a new one: with `gtid_strict_mode` off, as it
is by default, numbers go back, where two servers write into one domain or a session sets them. What tells is the
position: after the transaction that the set names, all of its domain is new, as it is for MariaDB's own replicas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct

from relay_store.layout.directory import RelayPosition, part_offset, subdir_serial
from relay_store.read.reader import RelayBlock
from schemas.binlog import framing
from schemas.binlog.groups import GroupScanner
from schemas.errors import DecodeError
from schemas.gtid.sets import GtidSet, MariadbGtid, MariadbGtidSet, gtid_text

_LISTED, _COUNT = Struct("<IIQ"), 0x0FFFFFFF
_HINT = (
    "set gtid_strict_mode = ON upstream, that numbers no longer go back; compare the tables concerned, and begin a new"
    " log behind this position"
)


class DuplicateFilter:
    """One sub-directory's.

    Args:
        had: what was executed where reading begins.
        elsewhere: whether that came from another server's files, whose order may be another one.
        whole: whether all that these files have before this position is looked at, or was.
    """

    def __init__(self, had: Mapping[int, MariadbGtid], *, elsewhere: bool, whole: bool) -> None:
        self._had = dict(had)
        self._elsewhere, self._whole = elsewhere, whole
        self._passed: set[int] = set()

    def listed(self, event: bytes) -> None:
        """A GTID_LIST event: what the server had logged last for each domain and server before this file."""
        at = framing.HEADER_SIZE + 4
        count = int.from_bytes(event[framing.HEADER_SIZE : at], "little") & _COUNT
        for domain, server, number in _LISTED.iter_unpack(event[at : at + _LISTED.size * count]):
            last = self._had.get(domain)
            if last is not None and last.server_id == server and number >= last.sequence:
                self._pass(domain)

    def seen(self, domain: int, server: int, number: int) -> None:
        """A transaction that lies before the position where reading begins."""
        if self._had.get(domain) == (server, number):
            self._pass(domain)

    def may_be_duplicate(self, domain: int, number: int) -> bool:
        """Whether ``is_duplicate`` would have to look closer at this transaction."""
        last = self._had.get(domain)
        return last is not None and number <= last.sequence

    def is_duplicate(self, domain: int, server: int, number: int) -> bool:
        """Whether the transaction that begins here was published before.

        Raises:
            DecodeError: TR408, it cannot be determined.
        """
        last = self._had.get(domain)
        if last is None:
            return False
        if number > last.sequence:
            self._pass(domain)
            return False
        if domain in self._passed or not self._whole:
            raise DecodeError(
                "TR408",
                f"{gtid_text(domain, number, server)} comes behind {gtid_text(domain, last.sequence, last.server_id)}, "
                "and it is not sure whether it was published before",
                hint=_HINT,
            )
        self.seen(domain, server, number)
        return True

    def _pass(self, domain: int) -> None:
        if self._elsewhere:
            self._passed.add(domain)
        else:
            del self._had[domain]


def duplicate_filter(
    executed: GtidSet,
    here: RelayPosition | None = None,
    *,
    is_first_file: bool = False,
    earlier: Iterable[RelayBlock] = (),
) -> DuplicateFilter:
    """That from a position on, behind which ``executed`` was published.

    Args:
        here: where reading begins; None: with a sub-directory's first file, of another server.
        is_first_file: whether that file is its sub-directory's first.
        earlier: what the file has before the position; taken only if it is needed.
    """
    had = executed.domains if isinstance(executed, MariadbGtidSet) else {}
    if here is None:
        return DuplicateFilter(had, elsewhere=True, whole=True)
    # Within a run of duplicates no epoch ends, so one that begins before this file is met from a file's begin.
    whole = here.pos == framing.FIRST_POSITION or is_first_file
    found = DuplicateFilter(had, elsewhere=subdir_serial(here.subdir) > 1, whole=whole)
    if here.pos > framing.FIRST_POSITION and had:
        for block in earlier:
            _look_at(found, block)
    return found


def _look_at(found: DuplicateFilter, block: RelayBlock) -> None:
    """What lies before the position where reading begins."""
    scanner = GroupScanner()
    i, data = 0, block.data
    while i < len(data):
        size = int.from_bytes(data[i + 9 : i + 13], "little")
        if data[i + 4] == framing.MARIADB_GTID:
            scanner.feed(framing.MARIADB_GTID, data[i : i + size], False)
            assert isinstance(scanner.source, int)
            found.seen(scanner.source, scanner.server_id, scanner.number)
        elif data[i + 4] == framing.MARIADB_GTID_LIST and not part_offset(block.file):
            found.listed(data[i : i + size])
        i += size
