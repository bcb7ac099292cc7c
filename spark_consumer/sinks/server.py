"""The sink for a server: a slice is one downstream transaction, or one for each worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pymysql
import structlog

from schemas.errors import DDL, DownstreamError, TailraceError
from schemas.structure import TableStructure
from schemas.tables import QualifiedName
from spark_consumer.apply.applier import Applier, ChannelState, read_state
from spark_consumer.apply.planner import Planner
from spark_consumer.apply.prepared import (
    AfterDdl,
    Divided,
    Prepared,
    PreparedCopy,
    PreparedParts,
    PreparedRows,
    PreparedRuns,
    SingleSlice,
    apply_directives,
    assemble_slice,
)
from spark_consumer.apply.refused_event import first_refused, named
from spark_consumer.apply.tables import audit, channel_pauses, channel_tables, error_log, position_store
from spark_consumer.apply.workers.build_parts import read_parts
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import LoggedEpoch, Slice, cut
from spark_consumer.epochs.start import channel_start, check_began, check_log
from spark_consumer.plan.counters import Applied
from spark_consumer.plan.plan import SlicePlan
from spark_consumer.plan.refusal import DdlRefused, RowRefused
from spark_consumer.rows.render import render
from spark_consumer.rows.results import OnlyInOrder
from spark_consumer.rows.slice_rows import SliceRows
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.sinks.finish_slice import UnappliedRows, finish_slice
from spark_consumer.target.session import Session, closing, connect, unreachable

# Workers' parts are in memory as a whole, so a larger transaction has one writer.
_MOST_RUNS_OF_PARTS = 5
_log = structlog.get_logger()


class _DividedNow(Exception):
    """A table was altered, and the slice has to be divided by its new plan."""

    def __init__(self, made: Divided) -> None:
        super().__init__()
        self.made = made


class ServerSink:
    """A server: slices are downstream transactions.

    Args:
        rows: where rows are read from, for a caller without ``resume``, since no slice can be applied in part.
    """

    def __init__(
        self, config: ConsumerConfig, applier: Applier, log: LogReader, rows: SliceRows | None = None
    ) -> None:
        self._config, self._applier, self._log = config, applier, log
        self._rows = rows
        self._planner = Planner(config)
        self._structures: Mapping[str, TableStructure] = {}
        self._moving: set[QualifiedName] = set()
        self._decided_epochs = {event.epoch for event in applier.directives if event.seq != DDL}

    @property
    def position(self) -> Position:
        return self._applier.position

    def resume(self, rows: SliceRows) -> None:
        self._rows = rows
        finish_slice(self._config, self._applier, rows, self._log)

    def plan(self, slice_: Slice, structures: Mapping[str, TableStructure]) -> Callable[[], Prepared]:
        self._structures = structures
        if len(slice_.epochs) > 1 and any(self._has_decision(one) for one in slice_.epochs):
            return lambda: Divided(slice_, slice_.each_epoch)
        if slice_.ddl is not None and slice_.rows:
            return lambda: AfterDdl(slice_, partial(self._read_after_ddl, slice_))
        if self._rows is not None:
            self._rows.expect(slice_)
        # The plan reads the downstream on the applier's connection, so it is made in the applier's thread.
        plan = self._plan(slice_)
        if slice_.is_copied and not plan.copied:
            # Only executors write a larger slice than others without having all of it in memory.
            parts = list(cut(slice_.epochs, self._config.max_batch_rows, self._config.max_batch_bytes))
            if len(parts) > 1:
                return lambda: Divided(slice_, parts)
        return partial(self._read, slice_, plan)

    def _has_decision(self, epoch: LoggedEpoch) -> bool:
        """Whether an operator has decided about a row of the epoch: then it is a transaction by itself."""
        return epoch.record.epoch in self._decided_epochs

    def _plan(self, slice_: Slice, *, row_by_row: bool = False) -> SlicePlan:
        row_by_row |= self._has_decision(slice_.epochs[0])
        return self._applier.connection.with_retries(
            lambda: self._planner.plan(
                slice_, self._structures, self._applier.downstream, row_by_row=row_by_row
            )
        )

    def _read(
        self, slice_: Slice, plan: SlicePlan
    ) -> PreparedRows | PreparedRuns | PreparedCopy | PreparedParts:
        assert self._rows is not None
        if plan.copied:
            return PreparedCopy(slice_, plan, self._rows)
        if plan.causality is not None and len(slice_.runs) <= _MOST_RUNS_OF_PARTS:
            config = self._config
            return read_parts(self._rows, slice_, plan, config.workers, config.target, self._moving)
        if slice_.runs and all(table.transactional for table in plan.tables):
            return PreparedRuns(slice_, plan, lambda run: self._read_rows(run, plan))
        return self._read_rows(slice_, plan)

    def _read_rows(self, slice_: Slice, plan: SlicePlan) -> PreparedRows:
        assert self._rows is not None
        results = self._rows.results(slice_, partial(render, plan))
        if only := [one for one in results if isinstance(one, OnlyInOrder)]:
            names = {plan.tables[one.table].target_name for one in only}
            plan = plan.in_order(self._compact_less(names, ", ".join(sorted({one.reason for one in only}))))
            results = self._rows.results(slice_, partial(render, plan))
        made = assemble_slice(slice_, plan, results)
        applier = self._applier
        is_repeat = applier.position.repeats(slice_.order)
        return apply_directives(made, applier.directives, applier.session.flavor, is_repeat=is_repeat)

    def _compact_less(self, tables: set[QualifiedName], reason: str) -> set[QualifiedName]:
        """For a while apply the changes of these tables as the downstream accepts them anyway."""
        _log.info("compacted_less", tables=[".".join(name) for name in sorted(tables)], reason=reason)
        self._planner.compact_less(tables)
        return tables

    def _in_one(self, slice_: Slice, *, row_by_row: bool = False) -> PreparedRows | PreparedRuns:
        """Plan and read a slice that is applied in one transaction."""
        made = self._read(slice_, self._plan(slice_, row_by_row=row_by_row))
        assert isinstance(made, PreparedRows | PreparedRuns)
        return made

    def _read_after_ddl(self, slice_: Slice) -> PreparedRows | PreparedRuns:
        self._planner.forget()
        return self._in_one(slice_)

    def _replan(self, slice_: Slice) -> SingleSlice:
        self._planner.forget()
        made = self.plan(slice_, self._structures)()
        if isinstance(made, Divided):
            raise _DividedNow(made)
        return made

    def apply(self, prepared: Prepared) -> Applied:
        slice_ = prepared.slice_
        if isinstance(prepared, Divided):
            return self._one_by_one(prepared.parts)
        try:
            applied = self._applier.apply_planned(prepared, partial(self._replan, slice_))
        except _DividedNow as again:
            return self.apply(again.made)
        except DownstreamError as error:
            return self._apply_after_refusal(error, prepared)
        if slice_.ddl is not None:
            self._planner.forget()
        return applied

    def _one_by_one(self, parts: Sequence[Slice]) -> Applied:
        applied = Applied(0)
        for part in parts:
            applied += self.apply(self.plan(part, self._structures)())
        return applied

    def _apply_after_refusal(self, error: DownstreamError, prepared: SingleSlice) -> Applied:
        """After a refusal: apply the epochs one by one and identify the refused row or DDL.

        Raises:
            DownstreamError: with the event, unless each epoch by itself went through.
        """
        slice_ = prepared.slice_
        if not isinstance(error, RowRefused | DdlRefused):
            raise error
        if isinstance(prepared, PreparedRows | PreparedRuns) and (doubtful := prepared.doubtful):
            # One of several equal rows was to go, or what was removed is not what was written, or the downstream does
            # not accept the placeholders. In order, or with whole rows, this is known.
            self._compact_less(doubtful, str(error))
            return self.apply(self.plan(slice_, self._structures)())
        if isinstance(prepared, PreparedParts) and (ahead := self._applier.ahead()):
            # What several workers write side by side is finished as it was begun.
            assert self._rows is not None
            rest = UnappliedRows(self._config, self._applier, self._rows, slice_, self._structures, ahead)
            return rest.apply()
        if len(slice_.epochs) > 1:
            _log.info(
                "batch_refused",
                first_epoch=slice_.first.epoch,
                last_epoch=slice_.last.epoch,
                reason=str(error),
            )
            return self._one_by_one(slice_.each_epoch)
        found = named(error, prepared)
        if found is None and slice_.rows and isinstance(error, RowRefused):
            found = first_refused(self._applier.connection, self._in_one(slice_, row_by_row=True))
        # The row was found in a transaction of its own, which does not know what the slice has left.
        raise found.but(applied=error.applied) if found else error from error

    def paused_since(self) -> str | None:
        applier, key = self._applier, self._config.key
        return applier.connection.with_retries(lambda: channel_pauses.since(applier.session, key))

    def move_to(self, position: Position) -> None:
        self._applier.move_to(position)

    def abort(self) -> None:
        self._applier.abort()

    def record_end(self, error: TailraceError | None = None) -> None:
        if error is None:
            self._applier.finish()
            return
        # The connection may be what is gone.
        try:
            with closing(connect(self._config.target)) as session:
                error_log.record(session, self._config.key, self._applier.token, error)
        except (TailraceError, pymysql.MySQLError, OSError) as why:
            _log.warning("error_not_written_down", reason=str(why))

    def close(self) -> None:
        self._applier.close()


#: makes the sink of a channel that was taken over, on this connection
MakeServerSink = Callable[[ConsumerConfig, Session, ChannelState], ServerSink]


def open_server(config: ConsumerConfig, log: LogReader, make_sink: MakeServerSink) -> ServerSink:
    """Connect, and become the channel's only writer. Raises TailraceError."""
    session = connect(config.target)
    try:
        channel_tables.install(session)
        _ensure_position(config, session, log)
        position = position_store.take_over(session, config.key)
        position_store.write_scope(session, config.key, config.scope.to_json())
        position_store.create_workers(session, config.key, config.workers)
        return make_sink(config, session, read_state(session, config.key, position))
    except BaseException as error:
        session.close()
        if isinstance(error, pymysql.MySQLError | OSError):
            raise unreachable(config.target, error) from error
        raise


def _ensure_position(config: ConsumerConfig, session: Session, log: LogReader) -> None:
    """Ensure that the channel has a position in this log, before taking it over."""
    found, last = position_store.read(session, config.key), log.last_epoch()
    if found is not None:
        check_log(config.key, found, last)
        check_began(config, position_store.began_at(session, config.key))
        return
    if audit.exists(session, config.key):
        # Not even with --from: a service may name it at each of its starts.
        raise position_store.position_missing(config.key)
    begin = channel_start(config, log)
    position_store.create(session, config.key, begin, last.record if last else None)
    _log.info("channel_created", channel=config.channel, start=config.start, begin=str(begin.log_position))
