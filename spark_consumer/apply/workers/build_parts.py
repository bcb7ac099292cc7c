"""Shares a slice's rows among workers, so that conflicting rows go to the same worker."""

from __future__ import annotations

import heapq
import uuid
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import gcd

from schemas.access.server_url import ServerUrl
from schemas.tables import QualifiedName
from schemas.wire.rows import schema_name
from spark_consumer.apply.prepared import (
    PreparedParts,
    PreparedRows,
    TableStatements,
    WorkerPart,
    Writes,
    ordered_rows,
    row_counts_of,
    sort_results,
)
from spark_consumer.apply.workers.bitmap import packed
from spark_consumer.apply.workers.conflict_keys import REFERS, RENDERED, conflict_key
from spark_consumer.apply.workers.read_conflicts import with_conflict_keys
from spark_consumer.apply.workers.weights import Weigh, replace_by_weights, weights_from
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.conflicts import Causality
from spark_consumer.plan.counters import RowCounts
from spark_consumer.plan.plan import SlicePlan, TablePlan
from spark_consumer.plan.statements import Statement
from spark_consumer.rows.ordered import OrderedRow, statements
from spark_consumer.rows.render import TableRenderer
from spark_consumer.rows.results import (
    ChangeToShare,
    Deletes,
    InsertedRows,
    Inserts,
    Result,
    RowToShare,
    Share,
    Updates,
)
from spark_consumer.rows.slice_rows import SliceRows, verify

# The cost of a row in addition to its bytes.
_ROW_SIZE = 100


@dataclass
class _RenderedShare:
    """Rows that one worker writes, and their statements."""

    number: int
    partition: int
    offsets: Sequence[int]
    results: list[Deletes | Updates | Inserts | InsertedRows] = field(default_factory=list)

    @property
    def conflict_keys(self) -> tuple[bytes]:
        return (conflict_key(RENDERED, 0, b"%d" % self.number),)

    @property
    def rows(self) -> int:
        return sum(len(one.places) if isinstance(one, InsertedRows) else one.rows for one in self.results)

    @property
    def size(self) -> int:
        """The number of bytes to write."""
        size = self.rows * _ROW_SIZE
        for one in self.results:
            if isinstance(one, InsertedRows):
                size += sum(map(len, one.values))
            else:
                size += len(one.sql if isinstance(one, Deletes) else one.values or one.sql)
        return size


#: what is to be shared
_Row = RowToShare | ChangeToShare | _RenderedShare


def read_parts(
    rows: SliceRows,
    slice_: Slice,
    plan: SlicePlan,
    workers: int,
    target: ServerUrl,
    moving: set[QualifiedName],
) -> PreparedParts | PreparedRows:
    """Read, render, verify and share a slice whose plan says how its rows conflict.

    Args:
        target: says which texts are equal where only the server knows.
        moving: upstream tables whose keys UPDATEs change, whose rows are compared; others are added.

    Raises:
        TailraceError: its rows cannot be read, or these are not all of them.
    """
    # So many of each partition that each worker gets as many as the others.
    shares = workers // gcd(workers, len(slice_.ranges) or workers)
    while True:
        plan = _comparing(plan, moving)
        results = rows.results(slice_, partial(with_conflict_keys, plan, shares=shares), with_offsets=True)
        if not (others := _changing_keys(slice_, plan, results)):
            return build_parts(slice_, plan, results, workers, partial(weights_from, target))
        moving |= others


def _comparing(plan: SlicePlan, moving: Collection[QualifiedName]) -> SlicePlan:
    assert plan.causality is not None
    numbers = [number for number, table in enumerate(plan.tables) if table.upstream in moving]
    return replace(plan, causality=plan.causality.compared(numbers))


def _changing_keys(slice_: Slice, plan: SlicePlan, results: Sequence[Result]) -> set[QualifiedName]:
    """Return the tables in shares of which an UPDATE has changed a key: its halves are no UPDATEs in their rows."""
    assert plan.causality is not None
    logged, found = Counter[str](), Counter[int]()
    for table in slice_.touched:
        logged[table.fingerprint] += table.updates
    for one in results:
        if isinstance(one, Share):
            found.update(one.updates)
    return {
        table.upstream
        for number, (table, its) in enumerate(zip(plan.tables, plan.causality.tables, strict=True))
        if its.by_key and found[number] != logged[schema_name(table.header).hex()]
    }


def build_parts(
    slice_: Slice, plan: SlicePlan, results: Sequence[Result], workers: int, weigh: Weigh
) -> PreparedParts | PreparedRows:
    """The slice from the results of ``with_conflict_keys`` over all its rows.

    It has parts if more than one worker has something to do; otherwise it is as if there were one connection.

    Raises:
        TailraceError: these are not all its rows.
    """
    verify(slice_, results)
    causality = plan.causality
    assert causality is not None
    rendered = _rendered_shares(results)
    rows: list[_Row] = [one for one in results if isinstance(one, RowToShare | ChangeToShare)]
    rows += rendered
    conflict_keys = _resolved(rows, causality, weigh)
    shares = assign_to_workers(conflict_keys, [_ROW_SIZE + row.size for row in rows], workers)
    given = [[rows[row] for row in numbers] for numbers in shares.parts]
    parts = tuple(_part(number, slice_, plan, its) for number, its in enumerate(given, 1))
    in_order = _in_order(plan, rows)
    row_counts = row_counts_of(slice_, plan, results, in_order, [part.writes for part in parts])
    groups = shares.groups + sum(share.rows - 1 for share in rendered)
    row_counts += RowCounts(causality_groups=groups, conflicts=shares.conflicts)
    if len(parts) < 2:
        return PreparedRows(slice_, parts[0].writes if parts else Writes(), row_counts)
    row_counts += RowCounts(parts=len(parts))
    return PreparedParts(slice_, parts, uuid.uuid4().hex, row_counts)


def _resolved(rows: Sequence[_Row], causality: Causality, weigh: Weigh) -> list[Sequence[bytes]]:
    other = replace_by_weights([row.conflict_keys for row in rows], causality.spaces, weigh)
    if not other:
        return [row.conflict_keys for row in rows]
    return [[other.get(claim, claim) for claim in row.conflict_keys] for row in rows]


def _rendered_shares(results: Sequence[Result]) -> list[_RenderedShare]:
    """Return the shares in which something is written."""
    found: list[_RenderedShare] = []
    for one in results:
        if isinstance(one, Share):
            found.append(_RenderedShare(len(found), one.partition, one.offsets))
        elif isinstance(one, Deletes | Updates | Inserts | InsertedRows):
            found[-1].results.append(one)
    return [share for share in found if share.results]


def _in_order(plan: SlicePlan, rows: Sequence[_Row]) -> list[OrderedRow]:
    return ordered_rows(plan, (row.change for row in rows if isinstance(row, ChangeToShare)))


def _part(number: int, slice_: Slice, plan: SlicePlan, rows: Sequence[_Row]) -> WorkerPart:
    """What one worker writes."""
    deletes, updates, inserts = _merged(plan, rows)
    ordered = tuple(statements(_in_order(plan, rows), plan.limits))
    shares = (row.results for row in rows if isinstance(row, _RenderedShare))
    made = sort_results(slice_, plan, list(chain.from_iterable(shares))).writes
    writes = Writes((*deletes, *made.deletes), (*updates, *made.updates), (*inserts, *made.inserts), ordered)
    places: dict[int, list[int]] = {}
    for row in rows:
        places.setdefault(row.partition, []).extend(row.offsets)
    return WorkerPart(number, writes, packed(places))


def _merged(
    plan: SlicePlan, rows: Sequence[_Row]
) -> tuple[TableStatements, TableStatements, TableStatements]:
    gone: dict[int, list[bytes]] = {}
    changed: dict[int, list[tuple[bytes, bytes]]] = {}
    written: dict[int, list[bytes]] = {}
    for row in rows:
        if not isinstance(row, RowToShare):
            continue
        if row.gone is not None and row.written is not None and plan.tables[row.table].in_place:
            changed.setdefault(row.table, []).append((row.gone, row.written))
            continue
        if row.gone is not None:
            gone.setdefault(row.table, []).append(row.gone)
        if row.written is not None:
            written.setdefault(row.table, []).append(row.written)
    made: tuple[list[tuple[TablePlan, Statement]], ...] = ([], [], [])
    for index, table in enumerate(plan.tables):
        lists = gone.get(index, []), changed.get(index, []), written.get(index, [])
        if any(lists):
            for into, statements_ in zip(
                made, TableRenderer(index, table).merged(*lists, plan.limits), strict=True
            ):
                into += ((table, one) for one in statements_)
    deletes, updates, inserts = map(tuple, made)
    return deletes, updates, inserts


@dataclass(frozen=True)
class GroupAssignment:
    """Who writes which row.

    Attributes:
        parts: for each worker the numbers of its rows, in their order; no part is empty.
        groups: how many groups there are.
        conflicts: how many rows joined another one's group.
    """

    parts: tuple[tuple[int, ...], ...]
    groups: int
    conflicts: int


def assign_to_workers(
    conflict_keys: Sequence[Sequence[bytes]], sizes: Sequence[int], workers: int
) -> GroupAssignment:
    """Share rows among workers so that rows with a conflict key in common are one worker's, and the sizes are even.

    Args:
        conflict_keys: the conflict keys of each row.
        sizes: the cost of each row.
    """
    roots = _roots(conflict_keys)
    groups: dict[int, list[int]] = {}
    for row, root in enumerate(roots):
        groups.setdefault(root, []).append(row)
    weights = {root: sum(sizes[row] for row in rows) for root, rows in groups.items()}
    # Largest groups first, each to the least loaded worker (at most 4/3 of the optimum).
    heap = [(0, number) for number in range(workers)]
    given: list[list[int]] = [[] for _ in range(workers)]
    for root in sorted(groups, key=lambda root: (-weights[root], root)):
        load, number = heap[0]
        heapq.heapreplace(heap, (load + weights[root], number))
        given[number] += groups[root]
    parts = tuple(tuple(sorted(rows)) for rows in given if rows)
    return GroupAssignment(parts, len(groups), len(conflict_keys) - len(groups))


def _roots(conflict_keys: Sequence[Sequence[bytes]]) -> list[int]:
    """Return for each row the first row of its group."""
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
        for claim in its:
            if claim[2] & REFERS:
                children.append((row, claim))
            elif (owner := owners.setdefault(claim, row)) != row:
                unite(owner, row)
    for row, claim in children:
        parent = owners.get(claim[:2] + bytes((claim[2] & ~REFERS,)) + claim[3:])
        if parent is not None:
            unite(parent, row)
    return [find(row) for row in range(len(conflict_keys))]
