"""Finishes a slice of which only some workers have applied their parts.

What is missing are the rows whose offsets no worker that is ahead has. They go into one transaction, with the
position, the audit row of the whole slice and the workers' rows. Settings may have changed since, so the tables are
planned as they are now, but for compaction: of a slice that was compacted each row's last state is there or missing,
and of another one each change.

A refused event is found as in ``refused_event``: the changes are tried one by one, in the upstream's order. They cannot
collide with rows that are applied already, because a row carries the keys of all values that it had in the slice. So
what an operator decides about an event of the rest is done with the rest, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog

from schemas.errors import LogError, Where
from schemas.structure import TableStructure
from schemas.wire.log_records import structure_of
from spark_consumer.apply.applier import Applier
from spark_consumer.apply.planner import Planner
from spark_consumer.apply.prepared import PreparedRows, apply_directives, assemble_slice
from spark_consumer.apply.refused_event import first_refused, named
from spark_consumer.apply.tables.worker_info import UnfinishedPart
from spark_consumer.apply.workers.bitmap import unpacked
from spark_consumer.apply.workers.pool import applied_in_part
from spark_consumer.apply.workers.read_conflicts import unapplied_rows
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.slices import LoggedEpoch, Slice, contiguous_after
from spark_consumer.plan.counters import Applied
from spark_consumer.plan.refusal import RowRefused
from spark_consumer.rows.slice_rows import SliceRows
from spark_consumer.rules.config import ConsumerConfig

_log = structlog.get_logger()


@dataclass(frozen=True)
class UnappliedRows:
    """What is missing of a slice that is applied in part.

    Attributes:
        structures: those of its rows, by fingerprint.
        workers: those that are ahead with it.
    """

    config: ConsumerConfig
    applier: Applier
    rows: SliceRows
    slice_: Slice
    structures: Mapping[str, TableStructure]
    workers: Sequence[UnfinishedPart]

    def apply(self) -> Applied:
        """Apply it, and move the position behind the slice. Raises TailraceError."""
        first, slice_, decided = self.workers[0], self.slice_, self.applier.directives
        _log.info(
            "slice_resumed",
            first_epoch=first.first_epoch,
            last_epoch=first.last_epoch,
            parts=len(self.workers),
        )
        replan = partial(self._prepared, row_by_row=any(slice_.holds(event.epoch) for event in decided))
        prepared = replan()
        try:
            return self.applier.apply_planned(prepared, replan)
        except RowRefused as error:
            found = named(error, prepared)
            shown = found or first_refused(self.applier.connection, self._prepared(row_by_row=True)) or error
            raise shown.but(applied=applied_in_part(first.parts)) from error

    def _prepared(self, *, row_by_row: bool) -> PreparedRows:
        first = self.workers[0]
        # Also if the setting is another one by now: what a worker wrote in order is finished in order.
        as_begun = replace(self.config, compact=first.compact, consistency="worker", worker_count=1)
        planner = Planner(as_begun)
        plan = self.applier.connection.with_retries(
            lambda: planner.plan(self.slice_, self.structures, self.applier.downstream, row_by_row=row_by_row)
        )
        applied = [unpacked(worker.applied) for worker in self.workers]
        results = self.rows.results(self.slice_, partial(unapplied_rows, plan, applied), with_offsets=True)
        made = assemble_slice(self.slice_, plan, results)
        if row_by_row:
            made = apply_directives(made, self.applier.directives, self.applier.session.flavor)
        return replace(made, rest_of=first)


def finish_slice(config: ConsumerConfig, applier: Applier, rows: SliceRows, log: LogReader) -> None:
    """Apply the rest of a slice that is applied in part, if there is one. Raises TailraceError."""
    if not (found := applier.ahead()):
        return
    slice_ = Slice(tuple(_epochs(found[0], applier, log)))
    structures = {
        version.fingerprint: structure_of(version)
        for version in log.structures(found[0].last_epoch)
        if version.fingerprint in slice_.fingerprints
    }
    UnappliedRows(config, applier, rows, slice_, structures, found).apply()


def _epochs(ahead: UnfinishedPart, applier: Applier, log: LogReader) -> list[LoggedEpoch]:
    """The epochs of the slice, all of which the log must still hold."""
    position = applier.position
    found = []
    for logged in log.epochs(position.epochs_offset + 1):
        if logged.record.epoch > ahead.last_epoch:
            break
        found.append(logged)
    epochs = contiguous_after(position, found)
    if not epochs or (epochs[0].record.epoch, epochs[-1].record.epoch) != (
        ahead.first_epoch,
        ahead.last_epoch,
    ):
        raise LogError(
            "TR662",
            f"the slice of epochs {ahead.first_epoch} to {ahead.last_epoch} is applied in part, and position"
            f" ({position.epoch}) and log do not fit it",
            where=Where(epoch=ahead.first_epoch),
            hint="the position was moved or the log truncated after workers wrote that slice: reload the tables",
        )
    return epochs
