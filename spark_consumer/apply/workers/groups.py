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


def shared(conflict_keys: Sequence[Sequence[bytes]], sizes: Sequence[int], workers: int) -> Shares:
    """Share rows among workers so that rows with a conflict key in common are one worker's, and the sizes are even.

    Args:
        conflict_keys: of each row.
        sizes: how much work each row is.
    """
    roots = _roots(conflict_keys)
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
    return Shares(parts, len(groups), len(conflict_keys) - len(groups))


def _roots(conflict_keys: Sequence[Sequence[bytes]]) -> list[int]:
    """For each row the first row of its group."""
    parents = list(range(len(conflict_keys)))

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
    for row, its in enumerate(conflict_keys):
        for conflict_key in its:
            if conflict_key[2] & REFERS:
                children.append((row, conflict_key))
            elif (owner := owners.setdefault(conflict_key, row)) != row:
                unite(owner, row)
    for row, conflict_key in children:
        parent = owners.get(conflict_key[:2] + bytes((conflict_key[2] & ~REFERS,)) + conflict_key[3:])
        if parent is not None:
            unite(parent, row)
    return [find(row) for row in range(len(conflict_keys))]
