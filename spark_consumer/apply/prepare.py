"""From a slice's results to statements: what the executors have rendered, put in order on the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from schemas.errors import EventId, LogError
from spark_consumer.apply.nontransactional import steps_of
from spark_consumer.apply.prepared import PreparedRows
from spark_consumer.apply.repeatable import repetition
from spark_consumer.apply.tables.error_log import Directive
from spark_consumer.apply.writes import TableStatements, Writes
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.counters import Stages
from spark_consumer.plan.plan import SlicePlan
from spark_consumer.plan.refusal import Event, cut_values
from spark_consumer.plan.statements import Statement
from spark_consumer.rows.ordered import OrderedRow, OrderedStatement, statements
from spark_consumer.rows.reader import verify
from spark_consumer.rows.results import Deletes, Inserts, NotWritten, OrderedChange, Result, TracedRow
from spark_consumer.target.session import Flavor

_log = structlog.get_logger()


def assembled(slice_: Slice, plan: SlicePlan, results: Sequence[Result]) -> PreparedRows:
    """The slice from the results of ``render`` over all its rows. Raises LogError if these are not its rows."""
    verify(slice_, results)
    return sorted_out(slice_, plan, results)


def sorted_out(slice_: Slice, plan: SlicePlan, results: Sequence[Result]) -> PreparedRows:
    """The statements among the results of all partitions, in the order in which they are applied."""

    def merged(kind: type[Deletes | Inserts]) -> TableStatements:
        found = (one for one in results if isinstance(one, kind))
        return tuple((plan.tables[one.table], Statement(one.sql, one.rows)) for one in found)

    in_order = ordered_rows(plan, (one for one in results if isinstance(one, OrderedChange)))
    traced = {EventId(one.epoch, one.seq): one for one in results if isinstance(one, TracedRow)}
    events = {event: row_event(slice_, one) for event, one in traced.items()}
    beside = {
        event: (table, events[event])
        for event, one in traced.items()
        if not (table := plan.tables[one.table]).transactional
    }
    steps = steps_of((row for row in in_order if not row.table.transactional), beside)
    ordered = tuple(statements((row for row in in_order if row.table.transactional), plan.limits))
    writes = Writes(merged(Deletes), merged(Inserts), ordered)
    own = [*ordered, *(step.statement for one in steps for step in one.steps)]
    stages = stages_of(slice_, plan, results, in_order, [replace(writes, ordered=tuple(own))])
    return PreparedRows(slice_, writes, stages, steps, events)


def row_event(slice_: Slice, row: TracedRow) -> Event:
    """The event of a row of a slice."""
    end = next((one.record for one in slice_.epochs if one.record.epoch == row.epoch), slice_.last)
    relay = f"{end.relay_dir}/{end.relay_file}:{end.relay_pos}"
    shown = cut_values((row.shown or b"").decode(errors="replace"))
    return Event(row.epoch, row.seq, row.gtid, row.digest, shown, row.file, row.pos, relay)


def stages_of(
    slice_: Slice,
    plan: SlicePlan,
    results: Sequence[Result],
    in_order: Sequence[OrderedRow],
    made: Sequence[Writes],
) -> Stages:
    """What became of a slice's rows."""
    planned = Stages.of_plan(slice_, plan)
    not_written = [one for one in results if isinstance(one, NotWritten)]
    # Halves of a key change come from two executors, and only here it is known whether both are left out.
    left_out = sum(one.left_out for one in not_written) + len(in_order)
    left_out -= sum(one.changes for writes in made for one in writes.ordered)
    compacted = sum(one.compacted for one in not_written)
    # A change may write two rows, to delete one and to insert it anew.
    changes = slice_.rows - planned.filtered - left_out - compacted
    together = min(changes, sum(writes.rows for writes in made) - sum(writes.statements for writes in made))
    return planned + Stages(expression_filtered=left_out, compacted=compacted, merged=together)


def directed(
    prepared: PreparedRows,
    directives: Mapping[EventId, Directive],
    flavor: Flavor,
    *,
    again: bool = False,
) -> PreparedRows:
    """A slice, prepared row by row, as an operator wants it.

    Args:
        flavor: of the downstream.
        again: whether the slice is applied for a second time.

    Raises:
        EventRefused: a directive for something else.
        DownstreamError: TR578, what ran in an event's place cannot run again.
    """
    first, behind = prepared.slice_.window or (0, 1 << 62)
    of_slice = [
        one for one in directives.values() if prepared.slice_.holds(one.epoch) and first <= one.seq < behind
    ]
    if not of_slice:
        return prepared
    for one in of_slice:
        if (event := prepared.events.get(one.event)) is None:
            raise LogError(
                "TR642",
                f"a directive of `tailrace error` names event {one.event}, and there is no such event",
                where=prepared.slice_.where,
                hint="another log has taken the place of the one it was made for",
            )
        one.check(event)
    statements: list[OrderedStatement] = []
    for made in prepared.writes.ordered:
        chosen = directives.get(made.event)
        statements += [made] if chosen is None else _instead(made, chosen, flavor, again=again)
    beside = []
    for table in prepared.nontransactional:
        left = [step for step in table.steps if step.statement.event not in directives]
        beside.append(replace(table, steps=left))
        for step in table.steps:
            # What is left out was not made; what runs in its place is in the transaction of the position.
            chosen = directives.get(step.statement.event)
            statements += [] if chosen is None else _instead(step.statement, chosen, flavor, again=again)
    writes = replace(prepared.writes, ordered=tuple(statements))
    return replace(prepared, writes=writes, nontransactional=tuple(beside), directives=tuple(of_slice))


def _instead(
    made: OrderedStatement, chosen: Directive, flavor: Flavor, *, again: bool
) -> list[OrderedStatement]:
    instead = chosen.statements
    if chosen.used and again:
        instead = tuple(repetition(chosen, sql, flavor).sql for sql in instead)
    _log.warning("event_directed", which=str(chosen.event), statements=instead)
    plain = replace(made, otherwise=(), removes=None, clears=None, free=True)
    return [replace(plain, sql=sql.encode()) for sql in instead]


def ordered_rows(plan: SlicePlan, changes: Iterable[OrderedChange]) -> list[OrderedRow]:
    """The changes with what the plan says of their tables."""
    return [OrderedRow(plan.tables[one.table], *one[1:]) for one in changes]
