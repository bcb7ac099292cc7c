"""MariaDB's GTID sets: the last sequence number of each domain includes all numbers before it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple, cast

from schemas.gtid.base import MAX_INTERVALS, GtidSet, SourceKey


class MariadbGtid(NamedTuple):
    """The last transaction of a domain."""

    server_id: int
    sequence: int


class MariadbGtidSet:
    """The last sequence number of each domain; the text is like `gtid_slave_pos`, ordered by domain."""

    __slots__ = ("_domains",)

    def __init__(self, domains: Mapping[int, MariadbGtid] | None = None) -> None:
        self._domains: dict[int, MariadbGtid] = dict(sorted((domains or {}).items()))

    @classmethod
    def parse(cls, text: str) -> MariadbGtidSet:
        """Parse `domain-server-sequence,…`. Raises ValueError with the wrong part."""
        tracker = MariadbGtidTracker()
        for part in filter(None, (p.strip() for p in text.split(","))):
            fields = part.split("-")
            if len(fields) != 3 or not all(field.isdecimal() for field in fields):
                raise ValueError(f"not a MariaDB GTID: {part!r}")
            domain, server_id, sequence = map(int, fields)
            if domain >= 2**32 or server_id >= 2**32 or sequence >= 2**64:
                raise ValueError(f"MariaDB GTID out of range: {part!r}")
            tracker.add(domain, sequence, server_id)
        return tracker.snapshot()

    @classmethod
    def decode_list(cls, body: bytes | memoryview) -> MariadbGtidSet:
        """Read the body of a GTID_LIST event (without header and checksum)."""
        try:
            count = struct.unpack_from("<I", body)[0] & 0x0FFFFFFF  # the upper four bits are flags
            tracker = MariadbGtidTracker()
            for at in range(4, 4 + 16 * count, 16):
                domain, server_id, sequence = struct.unpack_from("<IIQ", body, at)
                tracker.add(domain, sequence, server_id)
        except struct.error as error:
            raise ValueError(f"GTID list is cut short: {error}") from error
        return tracker.snapshot()

    def encode_list(self) -> bytes:
        """Encode the body of a GTID_LIST event."""
        gtids = [struct.pack("<IIQ", d, g.server_id, g.sequence) for d, g in self._domains.items()]
        return struct.pack("<I", len(gtids)) + b"".join(gtids)

    @property
    def domains(self) -> Mapping[int, MariadbGtid]:
        return self._domains

    def union(self, other: MariadbGtidSet) -> MariadbGtidSet:
        tracker = self.tracker()
        tracker.merge(other)
        return tracker.snapshot()

    def minus(self, other: MariadbGtidSet) -> MariadbGtidSet:
        """Return the domains in which this set has more than the other. Raises ValueError for a MySQL set."""
        other_domains = _mariadb(other)._domains
        return MariadbGtidSet(
            {
                d: g
                for d, g in self._domains.items()
                if d not in other_domains or other_domains[d].sequence < g.sequence
            }
        )

    def contains(self, other: MariadbGtidSet | str) -> bool:
        if isinstance(other, str):
            other = MariadbGtidSet.parse(other)
        return not _mariadb(other).minus(self)

    def add(self, gtid: str) -> MariadbGtidSet:
        return self.union(MariadbGtidSet.parse(gtid))

    def tracker(self) -> MariadbGtidTracker:
        return MariadbGtidTracker(self)

    def __str__(self) -> str:
        return ",".join(f"{d}-{g.server_id}-{g.sequence}" for d, g in self._domains.items())

    def __repr__(self) -> str:
        return f"MariadbGtidSet({str(self)!r})"

    def __bool__(self) -> bool:
        return bool(self._domains)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MariadbGtidSet) and self._domains == other._domains

    def __hash__(self) -> int:
        return hash(tuple(self._domains.items()))


def _mariadb(other: object) -> MariadbGtidSet:
    if not isinstance(other, MariadbGtidSet):
        raise ValueError("a MySQL GTID set among MariaDB's GTIDs")
    return other


class MariadbGtidTracker:
    """A MariaDB GTID set that grows. The number of a domain never decreases."""

    __slots__ = ("_domains",)

    def __init__(self, start: MariadbGtidSet | None = None) -> None:
        self._domains: dict[int, MariadbGtid] = dict(start.domains) if start else {}

    def add(self, source: SourceKey | int, number: int, server_id: int = 0) -> None:
        """Add sequence `number` of the domain `source`, written by `server_id`."""
        last = self._domains.get(source)  # type: ignore[arg-type]
        if last is None:
            if not isinstance(source, int):
                raise ValueError("a MySQL GTID among MariaDB's")
            if len(self._domains) >= MAX_INTERVALS:
                raise ValueError(f"a GTID set of more than {MAX_INTERVALS} domains")
        if last is None or number >= last.sequence:
            self._domains[cast("int", source)] = MariadbGtid(server_id, number)

    def add_run(self, source: SourceKey | int, first: int, last: int, server_id: int = 0) -> None:
        """Add transactions with successive numbers."""
        del first
        self.add(source, last, server_id)

    def merge(self, other: GtidSet) -> None:
        if not isinstance(other, MariadbGtidSet):
            raise ValueError("a MySQL GTID set among MariaDB's GTIDs")
        for domain, gtid in other.domains.items():
            self.add(domain, gtid.sequence, gtid.server_id)

    def contains(self, source: SourceKey | int, number: int) -> bool:
        last = self._domains.get(cast("int", source))
        return last is not None and last.sequence >= number

    def overlaps(self, source: SourceKey | int, first: int, last: int) -> bool:
        """Whether any of the transactions from the first to the last number is in the set."""
        del last
        return self.contains(source, first)

    def snapshot(self) -> MariadbGtidSet:
        return MariadbGtidSet(self._domains)

    def __str__(self) -> str:
        return str(self.snapshot())
