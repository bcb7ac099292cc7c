"""The common interface of MySQL's and MariaDB's GTID sets, and the text of single GTIDs."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, Protocol, TypeVar

Flavor = Literal["mysql", "mariadb"]

# The key of a source in a MySQL set: the UUID's 16 bytes, then the tag's ASCII bytes (often none).
SourceKey = bytes

_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
#: one more than the last number that a MySQL server gives a transaction
GNO_END = (1 << 63) - 1
#: intervals or domains of one set; a thousand times as many as servers with parallel workers have
MAX_INTERVALS = 1_000_000

_Self = TypeVar("_Self", bound="GtidSet")


class GtidSet(Protocol):
    """The interface of a GTID set of both flavors. Sets are immutable."""

    def union(self: _Self, other: _Self) -> _Self: ...

    def minus(self: _Self, other: _Self) -> _Self:
        """Return the transactions of this set that are not in the other."""

    def contains(self: _Self, other: _Self | str) -> bool:
        """Whether every transaction of `other` (a set, or the text of a GTID or set) is in this one."""

    def add(self: _Self, gtid: str) -> _Self:
        """Return this set with one more GTID."""

    def tracker(self) -> GtidTracker:
        """Return a mutable accumulator that starts with this set."""

    def __bool__(self) -> bool: ...


class GtidTracker(Protocol):
    """A GTID set that grows by one GTID at a time, cheaply enough for a hot loop."""

    def add(self, source: SourceKey | int, number: int, server_id: int = 0) -> None:
        """Add a transaction: a MySQL source key, or a MariaDB domain, and its number."""

    def add_run(self, source: SourceKey | int, first: int, last: int, server_id: int = 0) -> None:
        """Add transactions with successive numbers."""

    def merge(self, other: GtidSet) -> None: ...

    def contains(self, source: SourceKey | int, number: int) -> bool: ...

    def overlaps(self, source: SourceKey | int, first: int, last: int) -> bool:
        """Whether any of the transactions from the first to the last number is in the set."""

    def snapshot(self) -> GtidSet: ...


def source_key(uuid: str, tag: str = "") -> SourceKey:
    """Build the key of a source from its UUID text and tag. Raises ValueError."""
    if not _UUID.fullmatch(uuid.lower()):
        raise ValueError(f"not a server UUID: {uuid!r}")
    if tag and not _TAG.fullmatch(tag.lower()):
        raise ValueError(f"not a GTID tag: {tag!r}")
    return bytes.fromhex(uuid.replace("-", "")) + tag.lower().encode()


def checked_source(uuid: bytes, tag: bytes) -> SourceKey:
    """Build the key of a source from the bytes in an event. Raises ValueError."""
    if len(uuid) != 16 or (tag and not _TAG.fullmatch(tag.decode())):
        raise ValueError(f"not a source in a binary GTID set: {uuid.hex()}, tag {tag[:32]!r}")
    return uuid + tag


@lru_cache(maxsize=1024)
def uuid_text(key: SourceKey) -> str:
    """Return the UUID of a source key as text."""
    digits = key[:16].hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def gtid_text(source: SourceKey | int, number: int, server_id: int = 0) -> str:
    """Format one GTID: `uuid:number`, `uuid:tag:number` or `domain-server-sequence`."""
    return f"{source}-{server_id}-{number}" if isinstance(source, int) else f"{before_number(source)}{number}"


@lru_cache(maxsize=1024)
def before_number(source: SourceKey) -> str:
    """Return the text before the number in a MySQL GTID."""
    tag = source[16:].decode()
    return f"{uuid_text(source)}:{tag}:" if tag else f"{uuid_text(source)}:"
