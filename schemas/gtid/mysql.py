"""MySQL's GTID sets: intervals of transaction numbers per source UUID and tag."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from operator import lt

from schemas.gtid.base import (
    GNO_END,
    MAX_INTERVALS,
    GtidSet,
    SourceKey,
    checked_source,
    source_key,
    uuid_text,
)

# Half-open boundaries, flat and strictly ascending: (1, 6, 7, 8) is 1-5 and 7.
Bounds = tuple[int, ...]

_TAGGED_FORMAT = 1


def _normal(intervals: Iterable[tuple[int, int]]) -> Bounds:
    """Convert half-open intervals in any order, possibly overlapping, to bounds."""
    flat: list[int] = []
    for start, end in sorted(intervals):
        if flat and start <= flat[-1]:
            flat[-1] = max(flat[-1], end)
        elif start < end:
            flat += (start, end)
    return tuple(flat)


def _pairs(bounds: Bounds) -> Iterable[tuple[int, int]]:
    return zip(bounds[::2], bounds[1::2], strict=True)


def _difference(left: Bounds, right: Bounds) -> Bounds:
    """Return the numbers that are in `left` and not in `right`."""
    out: list[int] = []
    cuts = list(_pairs(right))
    at = 0
    for start, end in _pairs(left):
        while at < len(cuts) and cuts[at][1] <= start:
            at += 1
        scan = at
        while scan < len(cuts) and cuts[scan][0] < end:
            if cuts[scan][0] > start:
                out += (start, cuts[scan][0])
            start = max(start, cuts[scan][1])
            scan += 1
        if start < end:
            out += (start, end)
    return tuple(out)


def _interval(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    if not first.strip().isdecimal() or (dash and not last.strip().isdecimal()):
        raise ValueError(f"not an interval of transaction numbers: {text!r}")
    start = int(first)
    end = int(last) if dash else start
    if not 1 <= start < GNO_END or end >= GNO_END:
        raise ValueError(f"transaction number out of range: {text!r}")
    return start, end + 1


def _refuse_more(intervals: int) -> None:
    if intervals > MAX_INTERVALS:
        raise ValueError(f"a GTID set of {intervals} intervals; the limit is {MAX_INTERVALS}")


def _ascend(bounds: Bounds) -> bool:
    """Whether half-open intervals are in order, do not touch, and have numbers that servers use."""
    ordered = all(map(lt, bounds, bounds[1:]))
    return not bounds or (ordered and bounds[0] >= 1 and bounds[-1] <= GNO_END)


class MysqlGtidSet:
    """Intervals per source; the text is like `@@gtid_executed`, in one line and sorted."""

    __slots__ = ("_sources",)

    def __init__(self, sources: Mapping[SourceKey, Bounds] | None = None) -> None:
        self._sources: dict[SourceKey, Bounds] = {k: v for k, v in sorted((sources or {}).items()) if v}

    @classmethod
    def parse(cls, text: str) -> MysqlGtidSet:
        """Parse `uuid:1-5:7:tag:1-3,uuid:…`. Raises ValueError with the wrong part."""
        found: dict[SourceKey, list[tuple[int, int]]] = {}
        _refuse_more(text.count(":"))
        for part in filter(None, (p.strip() for p in text.split(","))):
            uuid, *fields = (field.strip() for field in part.split(":"))
            key = source_key(uuid)
            if not fields:
                raise ValueError(f"no transaction numbers after the UUID: {part!r}")
            for field in fields:
                if field and not field[0].isdecimal():
                    key = source_key(uuid, field)
                else:
                    found.setdefault(key, []).append(_interval(field))
        return cls({key: _normal(intervals) for key, intervals in found.items()})

    @property
    def sources(self) -> Mapping[SourceKey, Bounds]:
        return self._sources

    def union(self, other: MysqlGtidSet) -> MysqlGtidSet:
        merged = dict(self._sources)
        for key, bounds in _mysql(other)._sources.items():
            mine = merged.get(key)
            merged[key] = _normal([*_pairs(mine), *_pairs(bounds)]) if mine else bounds
        return MysqlGtidSet(merged)

    def minus(self, other: MysqlGtidSet) -> MysqlGtidSet:
        """Return the transactions of this set that are not in the other. Raises ValueError for a MariaDB set."""
        other_sources = _mysql(other)._sources
        return MysqlGtidSet({k: _difference(v, other_sources.get(k, ())) for k, v in self._sources.items()})

    def contains(self, other: MysqlGtidSet | str) -> bool:
        if isinstance(other, str):
            other = MysqlGtidSet.parse(other)
        return not _mysql(other).minus(self)

    def add(self, gtid: str) -> MysqlGtidSet:
        return self.union(MysqlGtidSet.parse(gtid))

    def count(self) -> int:
        """Return the number of transactions in the set."""
        return sum(end - start for bounds in self._sources.values() for start, end in _pairs(bounds))

    def tracker(self) -> MysqlGtidTracker:
        return MysqlGtidTracker(self)

    def encode(self) -> bytes:
        """The server's binary form, as in COM_BINLOG_DUMP_GTID and PREVIOUS_GTIDS.

        With tags it is the form of MySQL 8.4 and later, which older servers do not read.
        """
        tagged = any(len(key) > 16 for key in self._sources)
        count = len(self._sources)
        head = count if not tagged else _TAGGED_FORMAT | count << 8 | _TAGGED_FORMAT << 56
        out = [struct.pack("<Q", head)]
        for key, bounds in self._sources.items():
            # A tag is at most 32 long, so its variable-length size always fits one byte.
            out.append(key[:16] + (bytes([len(key[16:]) << 1]) + key[16:] if tagged else b""))
            out.append(struct.pack(f"<Q{len(bounds)}q", len(bounds) // 2, *bounds))
        return b"".join(out)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> MysqlGtidSet:
        """Read the server's binary form. Raises ValueError on a form that is not known."""
        try:
            return cls._decode(bytes(data))
        except (struct.error, IndexError) as error:
            raise ValueError(f"binary GTID set is cut short: {error}") from error

    @classmethod
    def _decode(cls, data: bytes) -> MysqlGtidSet:
        head = struct.unpack_from("<Q", data)[0]
        form = head >> 56
        if form not in (0, _TAGGED_FORMAT):
            raise ValueError(f"unknown form {form} of a binary GTID set")
        count = (head >> 8) & 0xFFFFFFFFFFFF if form else head
        at, found = 8, dict[SourceKey, Bounds]()
        _refuse_more(len(data) // 16)
        for _ in range(count):
            uuid, tag, at = data[at : at + 16], b"", at + 16
            if form:
                size, at = data[at] >> 1, at + 1
                tag, at = data[at : at + size], at + size
            key = checked_source(uuid, tag)
            intervals = struct.unpack_from("<Q", data, at)[0]
            bounds = struct.unpack_from(f"<{2 * intervals}q", data, at + 8)
            if key in found or not _ascend(bounds):
                raise ValueError(f"the intervals of {uuid_text(key)} are not in order")
            found[key] = bounds
            at += 8 + 16 * intervals
        return cls(found)

    def __str__(self) -> str:
        parts: list[str] = []
        previous = b""
        for key, bounds in self._sources.items():
            ranges = ":".join(str(s) if e == s + 1 else f"{s}-{e - 1}" for s, e in _pairs(bounds))
            tag = f"{key[16:].decode()}:" if len(key) > 16 else ""
            if key[:16] == previous:
                parts[-1] += f":{tag}{ranges}"
            else:
                parts.append(f"{uuid_text(key)}:{tag}{ranges}")
            previous = key[:16]
        return ",".join(parts)

    def __repr__(self) -> str:
        return f"MysqlGtidSet({str(self)!r})"

    def __bool__(self) -> bool:
        return bool(self._sources)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MysqlGtidSet) and self._sources == other._sources

    def __hash__(self) -> int:
        return hash(tuple(self._sources.items()))


def _mysql(other: object) -> MysqlGtidSet:
    if not isinstance(other, MysqlGtidSet):
        raise ValueError("a MariaDB GTID set among MySQL's GTIDs")
    return other


class MysqlGtidTracker:
    """A MySQL GTID set that grows; the next number of a source costs one comparison."""

    __slots__ = ("_sources",)

    def __init__(self, start: MysqlGtidSet | None = None) -> None:
        self._sources: dict[SourceKey, list[int]] = (
            {k: list(v) for k, v in start.sources.items()} if start else {}
        )

    def add(self, source: SourceKey | int, number: int, server_id: int = 0) -> None:
        """Add the transaction `number` of a source key; `server_id` is only for MariaDB."""
        bounds = self._sources.get(source)  # type: ignore[arg-type]
        if bounds is None:
            if not isinstance(source, bytes):
                raise ValueError("a MariaDB GTID among MySQL's")
            self._sources[source] = [number, number + 1]
        elif bounds[-1] == number:
            bounds[-1] = number + 1
        else:
            self._insert(bounds, number)

    def add_run(self, source: SourceKey | int, first: int, last: int, server_id: int = 0) -> None:
        """Add transactions with successive numbers."""
        for number in range(first, last + 1):
            self.add(source, number, server_id)
            bounds = self._sources[source]  # type: ignore[index]
            if bounds[-1] == number + 1:
                bounds[-1] = last + 1
                return

    @staticmethod
    def _insert(bounds: list[int], number: int) -> None:
        """Add a number out of order, as replicas with parallel workers commit."""
        at = bisect_right(bounds, number)
        if at % 2:  # inside an interval
            return
        before = at > 0 and bounds[at - 1] == number
        after = at < len(bounds) and bounds[at] == number + 1
        if before and after:
            del bounds[at - 1 : at + 1]
        elif before:
            bounds[at - 1] = number + 1
        elif after:
            bounds[at] = number
        else:
            _refuse_more(len(bounds) // 2)
            bounds[at:at] = (number, number + 1)

    def merge(self, other: GtidSet) -> None:
        if not isinstance(other, MysqlGtidSet):
            raise ValueError("a MariaDB GTID set among MySQL's GTIDs")
        whole = self.snapshot().union(other)
        self._sources = {k: list(v) for k, v in whole.sources.items()}

    def contains(self, source: SourceKey | int, number: int) -> bool:
        bounds = self._sources.get(source)  # type: ignore[arg-type]
        return bounds is not None and bisect_right(bounds, number) % 2 == 1

    def overlaps(self, source: SourceKey | int, first: int, last: int) -> bool:
        """Whether any of the transactions from the first to the last number is in the set."""
        bounds = self._sources.get(source)  # type: ignore[arg-type]
        if bounds is None:
            return False
        at = bisect_right(bounds, first)
        return at % 2 == 1 or (at < len(bounds) and bounds[at] <= last)

    def snapshot(self) -> MysqlGtidSet:
        return MysqlGtidSet({k: tuple(v) for k, v in self._sources.items()})

    def __str__(self) -> str:
        return str(self.snapshot())
