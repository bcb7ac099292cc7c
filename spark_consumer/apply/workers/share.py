"""From the conflict keys of a slice's rows to the parts of its workers."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from spark_consumer.apply.prepare import ordered_rows, stages_of
from spark_consumer.apply.prepared import PreparedParts, PreparedRows
from spark_consumer.apply.workers.bitmap import packed
from spark_consumer.apply.workers.groups import shared
from spark_consumer.apply.workers.part import WorkerPart
from spark_consumer.apply.workers.weights import Weigh, resolved
from spark_consumer.apply.writes import TableStatements, Writes
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.conflicts import Causality
from spark_consumer.plan.counters import Stages
from spark_consumer.plan.plan import SlicePlan
from spark_consumer.plan.statements import merged_deletes, merged_inserts
from spark_consumer.rows.ordered import OrderedRow, statements
from spark_consumer.rows.reader import verify
from spark_consumer.rows.render import TableRows
from spark_consumer.rows.results import ChangeToShare, Result, RowToShare

# What a row costs beside its bytes.
_ROW_SIZE = 100
#: what is to be shared
_Row = RowToShare | ChangeToShare


def shared_out(
    slice_: Slice, plan: SlicePlan, results: Sequence[Result], workers: int, weigh: Weigh
) -> PreparedParts | PreparedRows:
    """The slice from the results of ``read_conflict_keys`` over all its rows.

    It has parts if more than one worker has something to do; otherwise it is as if there were one connection.

    Raises:
        TailraceError: these are not all its rows.
    """
    verify(slice_, results)
    causality = plan.causality
    assert causality is not None
    rows = [one for one in results if isinstance(one, RowToShare | ChangeToShare)]
    conflict_keys = _resolved(rows, causality, weigh)
    shares = shared(conflict_keys, [_ROW_SIZE + row.size for row in rows], workers)
    given = [[rows[row] for row in numbers] for numbers in shares.parts]
    parts = tuple(_part(number, plan, its) for number, its in enumerate(given, 1))
    in_order = _in_order(plan, rows)
    stages = stages_of(slice_, plan, results, in_order, [part.writes for part in parts])
    stages += Stages(causality_groups=shares.groups, conflicts=shares.conflicts)
    if len(parts) < 2:
        return PreparedRows(slice_, parts[0].writes if parts else Writes(), stages)
    stages += Stages(parts=len(parts))
    return PreparedParts(slice_, parts, uuid.uuid4().hex, stages)


def _resolved(rows: Sequence[_Row], causality: Causality, weigh: Weigh) -> list[Sequence[bytes]]:
    other = resolved([row.conflict_keys for row in rows], causality.spaces, weigh)
    if not other:
        return [row.conflict_keys for row in rows]
    return [[other.get(claim, claim) for claim in row.conflict_keys] for row in rows]


def _in_order(plan: SlicePlan, rows: Sequence[_Row]) -> list[OrderedRow]:
    return ordered_rows(plan, (row.change for row in rows if isinstance(row, ChangeToShare)))


def _part(number: int, plan: SlicePlan, rows: Sequence[_Row]) -> WorkerPart:
    """What one worker writes."""
    deletes, inserts = _merged(plan, rows)
    ordered = tuple(statements(_in_order(plan, rows), plan.limits))
    places: dict[int, list[int]] = {}
    for row in rows:
        places.setdefault(row.partition, []).extend(row.offsets)
    return WorkerPart(number, Writes(deletes, inserts, ordered), packed(places))


def _merged(plan: SlicePlan, rows: Sequence[_Row]) -> tuple[TableStatements, TableStatements]:
    gone: dict[int, list[bytes]] = {}
    written: dict[int, list[bytes]] = {}
    for row in rows:
        if isinstance(row, RowToShare):
            if row.gone is not None:
                gone.setdefault(row.table, []).append(row.gone)
            if row.written is not None:
                written.setdefault(row.table, []).append(row.written)
    deletes: TableStatements = ()
    inserts: TableStatements = ()
    for index, table in enumerate(plan.tables):
        if index not in gone and index not in written:
            continue
        render, target, limits = TableRows(index, table), table.target, plan.limits
        removing = merged_deletes(target, render.find_columns, gone.get(index, ()), limits)
        writing = merged_inserts(target, render.renderers.columns, written.get(index, ()), limits)
        deletes += tuple((table, one) for one in removing)
        inserts += tuple((table, one) for one in writing)
    return deletes, inserts
