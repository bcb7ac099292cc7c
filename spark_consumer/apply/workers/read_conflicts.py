"""Renders the rows of a partition on the executors, each with its conflict keys and its Kafka offset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import compress

from zlib_ng.zlib_ng import crc32

from schemas.tables import QualifiedName
from schemas.wire.avro_schema import KEY_CHANGE, OP_AT
from schemas.wire.rows import HEADER_SIZE
from spark_consumer.apply.workers.bitmap import Bits, missing_rows
from spark_consumer.apply.workers.conflict_keys import (
    ConflictKeys,
    conflict_keys_of,
    key_change_key,
    whole_table_key,
)
from spark_consumer.plan.conflicts import Causality, TableCausality
from spark_consumer.plan.plan import ApplyMode, SlicePlan
from spark_consumer.rows.compact import compact
from spark_consumer.rows.render import TableRenderer, all_widened, not_written, render, tables_of, tally
from spark_consumer.rows.results import ChangeToShare, OrderedChange, Result, RowTally, RowToShare, Share
from spark_consumer.rows.slice_rows import RangeRows

_HAS_BEFORE, _UPDATE, _DELETE = b"ud", ord("u"), ord("d")


def unapplied_rows(plan: SlicePlan, applied: Sequence[Bits], rows: RangeRows) -> Iterator[Result]:
    """Yield the results for the rows of one partition that no worker has applied; all rows are counted."""
    yield tally(rows.values)
    left = _chosen(rows, missing_rows(rows.partition, rows.offsets, applied))
    if plan.compacted:
        left = _chosen(left, _that_stay(plan, left.keys, left.values))
    yield from (one for one in render(plan, left) if not isinstance(one, RowTally))


def _that_stay(plan: SlicePlan, keys: Sequence[bytes], values: Sequence[bytes]) -> list[bool]:
    """Which changes are of a row that the slice is to leave changed: compaction has keys for no others."""
    net = compact(keys, values, _safe_headers(tables_of(plan)))
    changed = dict(net.gone).keys() | dict(net.written)
    return [
        key in changed or value[:HEADER_SIZE] not in plan.compacted
        for key, value in zip(keys, all_widened(plan, values), strict=True)
    ]


def with_conflict_keys(plan: SlicePlan, rows: RangeRows, *, shares: int = 1) -> Iterator[Result]:
    """Yield the results for one partition's rows, for several workers.

    Rows that conflict only with those of their own key are rendered in this number of shares.
    """
    assert plan.causality is not None
    both = zip(plan.tables, plan.causality.tables, strict=True)
    by_key = {table.header for table, causality in both if causality.by_key}
    in_shares = [value[:HEADER_SIZE] in by_key for value in all_widened(plan, rows.values)]
    if any(in_shares):
        yield from _shares(plan, rows if all(in_shares) else _chosen(rows, in_shares), shares)
    if not all(in_shares):
        others = _chosen(rows, [not one for one in in_shares])
        yield tally(others.values)
        yield from _compared(plan, plan.causality, replace(others, values=all_widened(plan, others.values)))


def _shares(plan: SlicePlan, rows: RangeRows, shares: int) -> Iterator[Result]:
    """Yield each share, and then its results."""
    numbers = {table.header: number for number, table in enumerate(plan.tables)}
    of_share = [(crc32(key) >> 16) % shares for key in rows.keys] if shares > 1 else []
    for share in range(shares):
        its = _chosen(rows, [one == share for one in of_share]) if of_share else rows
        if its.keys:
            values = all_widened(plan, its.values)
            updates = Counter(value[:HEADER_SIZE] for value in values if value[OP_AT] == _UPDATE)
            yield Share(its.partition, its.offsets, {numbers[header]: n for header, n in updates.items()})
            yield from render(plan, its)


def _chosen(rows: RangeRows, which: Sequence[bool]) -> RangeRows:
    """Return some of the rows."""
    keys, values = list(compress(rows.keys, which)), list(compress(rows.values, which))
    return replace(rows, keys=keys, values=values, offsets=list(compress(rows.offsets, which)))


def _compared(plan: SlicePlan, causality: Causality, rows: RangeRows) -> Iterator[Result]:
    """Yield each row or change with its conflict keys."""
    tables = tables_of(plan)
    builders = {
        header: _TableResultBuilder(table, its, causality.updated)
        for (header, table), its in zip(tables.items(), causality.tables, strict=True)
        if table.plan.mode is not ApplyMode.SKIP
    }
    compacted = [tables[value[:HEADER_SIZE]].plan.mode is ApplyMode.COMPACT for value in rows.values]
    in_order = _chosen(rows, [not one for one in compacted])
    for key, value, offset in zip(in_order.keys, in_order.values, in_order.offsets, strict=True):
        header = value[:HEADER_SIZE]
        tables[header].check(key, value)
        if (change := tables[header].in_order(key, value)) is not None:
            yield builders[header].of_change(change, value, rows.partition, offset)
    yield from _compacted(tables, builders, _chosen(rows, compacted))


def _compacted(
    tables: dict[bytes, TableRenderer], builders: dict[bytes, _TableResultBuilder], rows: RangeRows
) -> Iterator[Result]:
    net = compact(rows.keys, rows.values, _safe_headers(tables))
    yield not_written(net, tables)
    gone, written = dict(net.gone), dict(net.written)
    changes: dict[bytes, tuple[list[int], list[bytes]]] = {}
    for key, value, offset in zip(rows.keys, rows.values, rows.offsets, strict=True):
        its = changes.setdefault(key, ([], []))
        its[0].append(offset)
        its[1].append(value)
    for key in gone | written:
        before, after = gone.get(key), written.get(key)
        header = (after or before or b"")[:HEADER_SIZE]
        yield builders[header].of_row(key, before, after, rows.partition, *changes[key])


def _safe_headers(tables: dict[bytes, TableRenderer]) -> frozenset[bytes]:
    return frozenset(header for header, table in tables.items() if table.plan.safe)


class _TableResultBuilder:
    """Builds the results for one table structure."""

    def __init__(
        self, table: TableRenderer, causality: TableCausality, updated: frozenset[QualifiedName]
    ) -> None:
        self._table, self._causality = table, causality
        structure = table.plan.structure
        # Finding out whether a row is half of an UPDATE costs as much as rendering it.
        self._moves = table.plan.upstream in updated
        self._before: ConflictKeys = conflict_keys_of(structure, causality, before=True)
        self._after: ConflictKeys = conflict_keys_of(structure, causality, before=False)

    def of_row(
        self,
        key: bytes,
        before: bytes | None,
        after: bytes | None,
        partition: int,
        offsets: Sequence[int],
        values: Sequence[bytes],
    ) -> RowToShare:
        """A compacted row: ``before`` is its first change if it must be removed, ``after`` its last one if written.

        It has the keys of what it had in between as well: should the rest of a slice be applied change by change
        (``finish_slice.py``), no row that is there already may be in the way.
        """
        return RowToShare(
            self._table.index,
            partition,
            tuple(offsets),
            self._conflict_keys(values),
            None if before is None else self._table.found_by(key, before),
            None if after is None else self._table.renderers.after(after),
        )

    def of_change(self, change: OrderedChange, value: bytes, partition: int, offset: int) -> ChangeToShare:
        """Return a change that is applied in order, with its conflict keys."""
        return ChangeToShare(change, partition, (offset,), self._conflict_keys([value]))

    def _conflict_keys(self, values: Sequence[bytes]) -> tuple[bytes, ...]:
        """The conflict keys of a row's changes, in log order: each change starts from the result of the previous one.

        Halves of a key-changing UPDATE are one event, which is there or missing as a whole.
        """
        if self._causality.whole is not None:
            return (whole_table_key(self._causality.whole),)
        conflict_keys: list[bytes] = []
        if values[0][OP_AT] in _HAS_BEFORE:
            conflict_keys += self._before(values[0])
        for value in values:
            if value[OP_AT] != _DELETE:
                conflict_keys += self._after(value)
            if self._moves and value[OP_AT] != _UPDATE:
                source = self._table.renderers.source(value)
                if source.flags & KEY_CHANGE:
                    conflict_keys.append(key_change_key(source.epoch, source.seq - (value[OP_AT] != _DELETE)))
        return tuple(dict.fromkeys(conflict_keys))
