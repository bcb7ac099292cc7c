"""Where a channel's changes go: the contract of every kind of target, and MySQL's implementation of it.

A sink holds the channel's position together with what it has written, and moves both in one step that either happens
or does not. Everything else follows: a slice may be offered any number of times, and takes effect once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol, TypeAlias

import structlog

from schemas.errors import DownstreamError
from schemas.structure import TableStructure
from spark_consumer.apply import Applier
from spark_consumer.config import ConsumerConfig
from spark_consumer.plan import SlicePlan
from spark_consumer.planner import Planner
from spark_consumer.position import Position
from spark_consumer.prepare import Prepared, RowReader, directed
from spark_consumer.refusal import DDL, DDL_CODES, ROW_CODES
from spark_consumer.slices import LoggedEpoch, Slice
from spark_consumer.stages import NO_STAGES, Stages

_log = structlog.get_logger()

#: reads and renders a slice's rows; it may run in any thread, beside the sink's ``apply`` of the slice before
Prepare: TypeAlias = Callable[[], Prepared]


class Sink(Protocol):
    """The channel's only writer. One thread uses it; what it raises is a TailraceError, with nothing half applied."""

    @property
    def position(self) -> Position:
        """Where the channel stands, as of the last commit."""

    def prepare(self, piece: Slice, structures: Mapping[str, TableStructure]) -> Prepare:
        """Plan a slice against the target as it is; ``structures`` are those of its rows, by fingerprint."""

    def apply(self, prepared: Prepared) -> tuple[int, Stages]:
        """Apply a slice and move the position, both or nothing; statements or files, and what the stages did.

        One that is applied already changes nothing. One that does not begin at the position is an error, and so is
        being no longer the channel's writer.
        """

    def move_to(self, position: Position) -> None:
        """Move the position where that changes no row."""

    def finish(self) -> None:
        """The run has ended by itself, not by an error."""

    def close(self) -> None:
        """Let go of the target."""


class MysqlSink:
    """A server: slices are downstream transactions."""

    def __init__(self, config: ConsumerConfig, applier: Applier, reader: RowReader) -> None:
        self._applier, self._reader = applier, reader
        self._planner = Planner(config, applier)
        self._structures: Mapping[str, TableStructure] = {}
        self._late: Prepared | None = None

    @property
    def position(self) -> Position:
        return self._applier.position

    def prepare(self, piece: Slice, structures: Mapping[str, TableStructure]) -> Prepare:
        self._structures = structures
        if len(piece.epochs) > 1 and any(self._is_directed(one) for one in piece.epochs):
            apart = Prepared(piece, apart=True)
            return lambda: apart
        if piece.ddl is not None and piece.rows:
            # CREATE TABLE … SELECT brings rows for a table that does not exist before.
            late = Prepared(piece, late=partial(self._after_ddl, piece))
            return lambda: late
        # The plan reads the downstream on the applier's connection, so it is made in the applier's thread.
        return partial(self._read, piece, self._plan(piece))

    def _is_directed(self, epoch: LoggedEpoch) -> bool:
        """Whether an operator has decided about a row of the epoch: then it is a transaction by itself."""
        return any(
            one.epoch == epoch.record.epoch and one.seq != DDL for one in self._applier.directives.values()
        )

    def _plan(self, piece: Slice, *, row_by_row: bool = False) -> SlicePlan:
        row_by_row |= self._is_directed(piece.epochs[0])
        return self._planner.plan(piece, self._structures, row_by_row=row_by_row)

    def _read(self, piece: Slice, plan: SlicePlan) -> Prepared:
        return directed(self._reader.prepare(piece, plan), self._applier.directives)

    def _after_ddl(self, piece: Slice) -> Prepared:
        self._planner.forget()
        self._late = self._read(piece, self._plan(piece))
        return self._late

    def _again(self, piece: Slice) -> Prepared:
        self._planner.forget()
        return self.prepare(piece, self._structures)()

    def apply(self, prepared: Prepared) -> tuple[int, Stages]:
        piece = prepared.piece
        if prepared.apart:
            return self._one_by_one(piece)
        try:
            count, prepared = self._applier.apply_planned(prepared, partial(self._again, piece))
        except DownstreamError as error:
            return self._narrowed(error, prepared)
        if piece.ddl is not None:
            self._planner.forget()
        return count, (self._late if prepared.late and self._late else prepared).stages

    def _one_by_one(self, piece: Slice) -> tuple[int, Stages]:
        """Apply a slice's epochs, each as a slice of its own."""
        total, stages = 0, NO_STAGES
        for logged in piece.epochs:
            count, of_epoch = self.apply(self.prepare(Slice((logged,)), self._structures)())
            total, stages = total + count, stages + of_epoch
        return total, stages

    def _narrowed(self, error: DownstreamError, prepared: Prepared) -> tuple[int, Stages]:
        """After a refusal: apply the epochs one by one, and name the row or DDL at which that ends.

        Raises:
            DownstreamError: with the event, unless each epoch by itself went through.
        """
        piece = prepared.piece
        # What several workers write side by side is finished as it was begun.
        if prepared.reserved or error.code not in ROW_CODES | DDL_CODES:
            raise error
        if len(piece.epochs) > 1:
            _log.info(
                "batch_refused", first_epoch=piece.first.epoch, last_epoch=piece.last.epoch, reason=str(error)
            )
            return self._one_by_one(piece)
        found = self._applier.named(error, prepared)
        if found is None and piece.rows and error.code in ROW_CODES:
            found = self._applier.trial(self._read(piece, self._plan(piece, row_by_row=True)))
        raise found or error from error

    def move_to(self, position: Position) -> None:
        self._applier.move_to(position)

    def finish(self) -> None:
        self._applier.finish()

    def close(self) -> None:
        self._applier.close()
