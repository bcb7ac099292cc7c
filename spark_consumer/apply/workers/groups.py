"""Groups of rows that conflict, directly or through others (union-find), and their distribution among workers."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from spark_consumer.apply.workers.conflict_keys import REFERS


@dataclass(frozen=True)
class Shares:
    """Who writes which row.

    Attributes:
        parts: for each worker the numbers of its rows, in their order; no part is empty.
        groups: how many groups there are.
        conflicts: how many rows joined another one's group.
    """

    parts: tuple[tuple[int, ...], ...]
    groups: int
    conflicts: int


def shared(claims: Sequence[Sequence[bytes]], sizes: Sequence[int], workers: int) -> Shares:
    """Share rows among workers so that rows with a claim in common are one worker's, and the sizes are even.

    Args:
        claims: of each row.
        sizes: how much work each row is.
    """
    roots = _roots(claims)
    groups: dict[int, list[int]] = {}
    for row, root in enumerate(roots):
        groups.setdefault(root, []).append(row)
    weights = {root: sum(sizes[row] for row in rows) for root, rows in groups.items()}
    # The largest first, each to who has least: never more than a third above the best there is.
    heap = [(0, number) for number in range(workers)]
    given: list[list[int]] = [[] for _ in range(workers)]
    for root in sorted(groups, key=lambda root: (-weights[root], root)):
        load, number = heap[0]
        heapq.heapreplace(heap, (load + weights[root], number))
        given[number] += groups[root]
    parts = tuple(tuple(sorted(rows)) for rows in given if rows)
    return Shares(parts, len(groups), len(claims) - len(groups))


def _roots(claims: Sequence[Sequence[bytes]]) -> list[int]:
    """For each row the first row of its group."""
    parents = list(range(len(claims)))

    def find(row: int) -> int:
        while parents[row] != row:
            parents[row] = row = parents[parents[row]]
        return row

    def unite(one: int, other: int) -> None:
        one, other = find(one), find(other)
        if one != other:
            parents[max(one, other)] = min(one, other)

    owners: dict[bytes, int] = {}
    children: list[tuple[int, bytes]] = []
    for row, its in enumerate(claims):
        for claim in its:
            if claim[2] & REFERS:
                children.append((row, claim))
            elif (owner := owners.setdefault(claim, row)) != row:
                unite(owner, row)
    for row, claim in children:
        parent = owners.get(claim[:2] + bytes((claim[2] & ~REFERS,)) + claim[3:])
        if parent is not None:
            unite(parent, row)
    return [find(row) for row in range(len(claims))]
