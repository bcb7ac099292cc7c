"""Proves rows equal, or different, while both servers are written to. Decision 35 has the proof.

Nothing here knows a server. ``Sides`` gives what the proof needs: reads of both sides, how long to wait, and which rows
the log has changed between two positions of the channel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
#: the chunk of a table, and the reader of one side in one snapshot
C = TypeVar("C", contravariant=True)
P = TypeVar("P")
E = TypeVar("E")

#: the exact bytes of a row's key columns; rows with the same bytes are one unit
Key = tuple[bytes, ...]
Row = tuple[bytes | None, ...]
#: by bucket: number of rows and sums of their digests
Sums = Mapping[int, tuple[int, int, int]]
Digests = Mapping[Key, tuple[bytes, ...]]
Rows = Mapping[Key, tuple[Row, ...]]

#: how often a row that moves is looked at before it is left pending
ROUNDS = 8
#: keys that are settled together
BATCH = 500


class Reader(Protocol[C]):
    """Reads one side in one snapshot."""

    def sums(self, chunk: C) -> Sums: ...

    def digests(self, chunk: C, buckets: Collection[int]) -> Digests: ...

    def rows(self, keys: Collection[Key]) -> Rows: ...


class Sides(Protocol[C, P, E]):
    """One table on both servers, and the log between them. ``P`` is a channel's position, ``E`` an upstream's end."""

    def position(self) -> P:
        """Return the channel's position."""

    def downstream(self, read: Callable[[Reader[C]], T]) -> tuple[T, P]:
        """Read the downstream, and the channel's position in the same snapshot."""

    def upstream(self, read: Callable[[Reader[C]], T], behind: P) -> tuple[T, E]:
        """Read the upstream with everything up to ``behind``; return an end behind which nothing was read."""

    def wait_until_passed(self, end: E) -> bool:
        """Wait until the channel's position is at or behind an end; return False if that takes too long."""

    def passed(self, position: P, end: E) -> bool:
        """Return whether a position is at or behind an end."""

    def touched(self, rows: Rows, after: P, until: P) -> Collection[Key]:
        """Return those keys that the log may have changed after a position.

        The range ends at or behind everything that a read of the downstream at ``until`` may have shown.

        Args:
            rows: what both sides have for each key.
        """


@dataclass(frozen=True)
class Settled:
    """What is known of the keys that were in question; all others are equal.

    Attributes:
        different: upstream's and downstream's rows by key; proved.
        pending: keys that moved in each round.
        is_behind: whether they are pending because the channel is too slow.
    """

    different: Mapping[Key, tuple[tuple[Row, ...], tuple[Row, ...]]] = field(default_factory=dict)
    pending: frozenset[Key] = frozenset()
    is_behind: bool = False


def chunk_suspects(sides: Sides[C, P, E], chunk: C) -> tuple[int, set[Key]]:
    """Return how many rows the upstream has in a chunk, and the keys whose rows are not proved equal.

    The downstream is read first, so that the upstream's state is at or behind the downstream's.
    """
    below, position = sides.downstream(lambda reader: reader.sums(chunk))
    above, _ = sides.upstream(lambda reader: reader.sums(chunk), position)
    rows = sum(count for count, _, _ in above.values())
    buckets = {n for n in above.keys() | below.keys() if above.get(n) != below.get(n)}
    if not buckets:
        return rows, set()
    there, position = sides.downstream(lambda reader: reader.digests(chunk, buckets))
    here, _ = sides.upstream(lambda reader: reader.digests(chunk, buckets), position)
    return rows, {key for key in here.keys() | there.keys() if here.get(key) != there.get(key)}


@dataclass(frozen=True)
class UpstreamLook(Generic[P, E]):
    """The first half of a round: rows of the upstream.

    Attributes:
        keys: the keys in question.
        after: the channel's position before the read.
        rows: the upstream's rows.
        end: an end behind which nothing was read.
    """

    keys: frozenset[Key]
    after: P
    rows: Rows
    end: E


def look_upstream(sides: Sides[C, P, E], keys: Iterable[Key]) -> UpstreamLook[P, E]:
    """Begin a round. Several tables' rounds may begin before the first one is decided: then they wait together."""
    wanted = frozenset(keys)
    after = sides.position()
    above, end = sides.upstream(lambda reader: reader.rows(wanted), after)
    return UpstreamLook(wanted, after, above, end)


def decide(sides: Sides[C, P, E], look: UpstreamLook[P, E]) -> Settled:
    """End a round: what differs is different, or pending if the row has moved or the channel has not come so far.

    A difference counts only if the log has no change of the row between the position before the upstream was read
    and the end of what the downstream showed. Then the row had one value upstream all that time, and the downstream,
    which had passed the upstream's read by then, must have it.
    """
    if not sides.wait_until_passed(look.end):
        return Settled(pending=look.keys, is_behind=True)
    below, until = sides.downstream(lambda reader: reader.rows(look.keys))
    if not sides.passed(until, look.end):
        return Settled(pending=look.keys)  # the channel was rewound meanwhile
    above = look.rows
    pairs = {key: (above.get(key, ()), below.get(key, ())) for key in look.keys}
    differ = {key: (here, there) for key, (here, there) in pairs.items() if here != there}
    rows = {key: here + there for key, (here, there) in differ.items()}
    moved = differ.keys() & sides.touched(rows, look.after, until) if differ else set()
    return Settled({key: differ[key] for key in differ.keys() - moved}, frozenset(moved))


def settle(sides: Sides[C, P, E], keys: Iterable[Key], rounds: int = ROUNDS) -> Settled:
    """Look at rows again until each is proved equal or different, or has moved in each of ``rounds`` rounds."""
    found = Settled(pending=frozenset(keys))
    for _ in range(rounds):
        if not found.pending or found.is_behind:
            break
        last = decide(sides, look_upstream(sides, found.pending))
        found = replace(last, different={**found.different, **last.different})
    return replace(found, is_behind=False)
