"""From the conflict keys of a slice's rows to the parts of its workers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from spark_consumer.apply.prepare import Prepared, check, ordered_rows, stages_of
from spark_consumer.apply.workers.bitmap import packed, unpack_offsets
from spark_consumer.apply.workers.conflict_keys import unpack
from spark_consumer.apply.workers.groups import shared
from spark_consumer.apply.workers.part import WorkerPart
from spark_consumer.apply.workers.read_conflicts import CLAIM, NET, offsets_and_keys
from spark_consumer.apply.workers.weights import Weigh, resolved
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.causality import Causality
from spark_consumer.plan.counters import Stages
from spark_consumer.plan.plan import SlicePlan, TablePlan
from spark_consumer.plan.statements import Statement, merged_deletes, merged_inserts
from spark_consumer.rows.chunked_results import Result
from spark_consumer.rows.ordered import OrderedRow, statements
from spark_consumer.rows.render import ORDERED, TableRows

# What a row costs beside its bytes.
_ROW_SIZE = 100
_Tables = list[tuple[TablePlan, Statement]]


@dataclass(frozen=True)
class _Row:
    """One row of a slice: what is done with it, its conflict keys, and where its changes stand."""

    result: Result
    partition: int
    offsets: bytes
    conflict_keys: Sequence[bytes]

    @property
    def size(self) -> int:
        return _ROW_SIZE + len(self.result[7] or b"") + len(self.result[9] or b"")


def shared_out(
    piece: Slice, plan: SlicePlan, results: Sequence[Result], workers: int, weigh: Weigh
) -> Prepared:
    """The slice from the results of ``read_conflict_keys`` over all its rows.

    It has parts if more than one worker has something to do; otherwise it is as if there were one connection.

    Raises:
        TailraceError: these are not all its rows.
    """
    check(piece, plan, results)
    causality = plan.causality
    assert causality is not None
    rows = list(_rows(results))
    conflict_keys = _resolved(rows, causality, weigh)
    shares = shared(conflict_keys, [row.size for row in rows], workers)
    if len(shares.parts) < 2:
        made = _in_one(piece, plan, results, rows)
    else:
        parts = [
            _part(number, plan, [rows[row] for row in numbers])
            for number, numbers in enumerate(shares.parts, 1)
        ]
        made = Prepared(piece, parts=tuple(parts), slice_id=uuid.uuid4().hex, reserved=len(parts))
        in_order = [row for _, row in _in_order(plan, rows)]
        made = replace(made, stages=stages_of(piece, plan, results, in_order, parts))
    told = Stages(causality_groups=shares.groups, conflicts=shares.conflicts, parts=len(made.parts))
    return replace(made, stages=made.stages + told)


def _rows(results: Sequence[Result]) -> Iterator[_Row]:
    conflict_key: Result | None = None
    for result in results:
        if result[0] == CLAIM:
            conflict_key = result
        elif result[0] == NET or (result[0] == ORDERED and conflict_key is not None):
            said = conflict_key or result
            offsets, conflict_keys = offsets_and_keys(said[8] or b"")
            yield _Row(result, said[3], offsets, unpack(conflict_keys))
            conflict_key = None


def _resolved(rows: Sequence[_Row], causality: Causality, weigh: Weigh) -> list[Sequence[bytes]]:
    other = resolved([row.conflict_keys for row in rows], causality.spaces, weigh)
    if not other:
        return [row.conflict_keys for row in rows]
    return [[other.get(conflict_key, conflict_key) for conflict_key in row.conflict_keys] for row in rows]


def _in_one(piece: Slice, plan: SlicePlan, results: Sequence[Result], rows: Sequence[_Row]) -> Prepared:
    part = _part(1, plan, rows)
    made = Prepared(piece, list(part.deletes), list(part.inserts), list(part.ordered))
    in_order = [row for _, row in _in_order(plan, rows)]
    return replace(made, stages=stages_of(piece, plan, results, in_order, [part]))


def _in_order(plan: SlicePlan, rows: Sequence[_Row]) -> Iterator[tuple[_Row, OrderedRow]]:
    chosen = [row for row in rows if row.result[0] == ORDERED]
    return zip(chosen, ordered_rows(plan, [row.result for row in chosen]), strict=True)


def _part(number: int, plan: SlicePlan, rows: Sequence[_Row]) -> WorkerPart:
    """What one worker writes."""
    deletes, inserts = _merged(plan, rows)
    ordered = tuple(statements((row for _, row in _in_order(plan, rows)), plan.limits))
    places: dict[int, list[int]] = {}
    for row in rows:
        places.setdefault(row.partition, []).extend(unpack_offsets(row.offsets))
    written = [statement.rows for _, statement in (*deletes, *inserts)] + [one.rows for one in ordered]
    return WorkerPart(number, tuple(deletes), tuple(inserts), ordered, sum(written), packed(places))


def _merged(plan: SlicePlan, rows: Sequence[_Row]) -> tuple[_Tables, _Tables]:
    gone: dict[int, list[bytes]] = {}
    written: dict[int, list[bytes]] = {}
    for row in rows:
        kind, table, *_ = row.result
        if kind == NET:
            key, values = row.result[7], row.result[9]
            if key is not None:
                gone.setdefault(table, []).append(key)
            if values is not None:
                written.setdefault(table, []).append(values)
    deletes: _Tables = []
    inserts: _Tables = []
    for index, table_plan in enumerate(plan.tables):
        if index not in gone and index not in written:
            continue
        render = TableRows(index, table_plan)
        for statement in merged_deletes(
            table_plan.target, render.find_columns, gone.get(index, ()), plan.limits
        ):
            deletes.append((table_plan, statement))
        for statement in merged_inserts(
            table_plan.target, render.renderers.columns, written.get(index, ()), plan.limits
        ):
            inserts.append((table_plan, statement))
    return deletes, inserts
