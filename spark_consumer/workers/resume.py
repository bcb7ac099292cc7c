"""Finishing a slice that was left while some of its workers had applied their parts and others had not.

What is missing are the rows whose offsets no worker that is ahead has. They go into one transaction, with the
position, the audit row of the whole slice and the workers' rows. Settings may have changed since, so the tables are
planned as they are now, but for compaction: of a slice that was compacted each row's last state is there or missing,
and of another one each change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from schemas.errors import LogError, Where
from schemas.structure import TableStructure
from spark_consumer.apply import Applier
from spark_consumer.config import ConsumerConfig
from spark_consumer.log_reader import LogReader
from spark_consumer.plan import SlicePlan
from spark_consumer.planner import Planner
from spark_consumer.prepare import Prepared
from spark_consumer.slices import LoggedEpoch, Slice, follow
from spark_consumer.workers.bitmap import Bits, unpacked
from spark_consumer.workers.info import Ahead

_log = structlog.get_logger()


class RestReader(Protocol):
    """Prepares what is missing of a slice."""

    def rest(self, piece: Slice, plan: SlicePlan, applied: Sequence[Bits]) -> Prepared: ...


def finish_slice(config: ConsumerConfig, applier: Applier, reader: RestReader, log: LogReader) -> None:
    """Apply the rest of a slice that is applied in part, if there is one. Raises TailraceError."""
    if not (found := applier.ahead()):
        return
    first = found[0]
    piece = Slice(tuple(_epochs(first, applier, log)))
    structures = {
        version.fingerprint: TableStructure.from_json(version.structure)
        for version in log.structures(first.last_epoch)
    }
    planner = Planner(replace(config, compact=first.compact, workers=1), applier)
    prepared = reader.rest(
        piece, planner.plan(piece, structures), [unpacked(worker.applied) for worker in found]
    )
    _log.info("slice_resumed", first_epoch=first.first_epoch, last_epoch=first.last_epoch, parts=len(found))
    applier.apply(replace(prepared, slice_id=first.slice_id, reserved=first.parts))


def _epochs(ahead: Ahead, applier: Applier, log: LogReader) -> list[LoggedEpoch]:
    """The epochs of the slice, all of which the log must still hold."""
    position = applier.position
    found = []
    for logged in log.epochs(position.epochs_offset + 1):
        if logged.record.epoch > ahead.last_epoch:
            break
        found.append(logged)
    epochs = follow(position.epoch, found)
    if not epochs or (epochs[0].record.epoch, epochs[-1].record.epoch) != (
        ahead.first_epoch,
        ahead.last_epoch,
    ):
        raise LogError(
            "TR662",
            f"the slice of epochs {ahead.first_epoch} to {ahead.last_epoch} is applied in part, and position"
            f" ({position.epoch}) and log do not fit it",
            where=Where(epoch=ahead.first_epoch),
            hint="the position was moved, or the log was cut, since workers wrote that slice: load the tables anew",
        )
    return epochs
