"""Applies a slice in one downstream transaction with the data, the position and the audit row.

The protocol, in order:

0. Read the position. A slice that is already applied ends here. Check that no event of the downstream changes
   replicated rows.
1. If the slice has parts, workers apply them, each in its own transaction
   (``spark_consumer.apply.workers.apply_part``). Executors write rows of copies (``copied.py``).
2. Set the next number of the ledger; BEGIN.
3. Read the channel's row FOR UPDATE. It is an error if another consumer has taken over, if the slice does not start at
   the position, or if workers have applied a part of another slice.
4. Run the slice's DDL on a connection of its own. The channel's row stays locked, so no second consumer can interfere.
   Before that, the position gets the DDL's statements and a snapshot of their objects, in a transaction of its own;
   after an interruption these and the ledger show what is left to do (``spark_consumer.apply.ddl.outcome``). If a DDL
   becomes several statements, each has its own number, intent and lock.
5. Lock tables against DDL and check that they are those of the plan, and that none of their triggers changes
   replicated rows (``side_writes.py``; for parts, before step 1). Then run their DELETEs, INSERTs and changes in place.
   So it goes on with the next hundred tables, and last with the statements of tables in the upstream's order. Each
   must change exactly the rows in the log. A large transaction comes in runs of its rows, and all this is done for each
   of them. A slice in parts has no rows left here. Then write the rows of tables without transactions on a second
   connection (``nontransactional.py``); these tables were locked first.
6. Move the position, with the marks of tables without transactions and the rows of the workers; write the audit row;
   COMMIT.
7. If the connection is lost, also during COMMIT, a new one reads the position, which shows what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

import pymysql
import structlog

from schemas.crashpoints import reached
from schemas.errors import DDL, EventId, TailraceError, Where
from schemas.tables import QualifiedName
from spark_consumer.apply import copied, executor_sessions, nontransactional
from spark_consumer.apply.connection import Connection
from spark_consumer.apply.ddl.intent import DdlWork, PendingDdl
from spark_consumer.apply.ddl.outcome import await_predecessor
from spark_consumer.apply.ddl.run import DdlApplier
from spark_consumer.apply.ledger import Ledger, choose_ledger, numbered_transaction
from spark_consumer.apply.planner import Downstream
from spark_consumer.apply.prepared import (
    AfterDdl,
    PreparedCopy,
    PreparedParts,
    PreparedRows,
    PreparedRuns,
    SingleSlice,
    Transaction,
)
from spark_consumer.apply.refused_event import named
from spark_consumer.apply.side_writes import SideWrites
from spark_consumer.apply.tables import audit, error_log, nontransactional_info, position_store, worker_info
from spark_consumer.apply.tables.error_log import Directive
from spark_consumer.apply.tables.worker_info import UnfinishedPart
from spark_consumer.apply.workers.pool import PartContext, WorkerPool, check_caught_up, run_all
from spark_consumer.apply.write import run_operators_statement, write
from spark_consumer.ddl import online_tables
from spark_consumer.ddl.online_tables import OnlineTables
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.counters import NOTHING_COUNTED, Applied
from spark_consumer.plan.plan import TablePlan
from spark_consumer.plan.refusal import RowRefused
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session, transaction
from spark_consumer.target.tables import TOGETHER, TableAltered, lock_tables

_PLANS = 5
_log = structlog.get_logger()


@dataclass(frozen=True)
class ChannelState:
    """The state of a channel on the downstream when it is taken over.

    Attributes:
        decided: all operator decisions about refused events.
        has_error: whether its last run ended with an error.
        unfinished: the downstream's tables without transactions that are or may be ahead of the position.
    """

    position: Position
    ledger: Ledger
    decided: Mapping[EventId, Directive]
    has_error: bool
    unfinished: frozenset[QualifiedName]

    @property
    def directives(self) -> dict[EventId, Directive]:
        """The decisions about events that are not applied yet, or that are applied again."""
        return {event: one for event, one in self.decided.items() if event.epoch > self.position.epoch}


def read_state(session: Session, channel: ChannelKey, position: Position) -> ChannelState:
    """Read the state of a channel from the downstream. Raises pymysql.MySQLError, OSError."""
    return ChannelState(
        position,
        choose_ledger(session, position),
        error_log.decided(session, channel),
        error_log.read(session, channel) is not None,
        frozenset(nontransactional_info.read(session, channel)),
    )


class Applier:
    """The channel's only writer. One thread uses it.

    Args:
        worker_pool: applies the parts of slices; None with one connection.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        connection: Connection,
        state: ChannelState,
        ddl: DdlApplier,
        side_writes: SideWrites,
        worker_pool: WorkerPool | None = None,
    ) -> None:
        self._config, self._channel = config, config.key
        self.connection = connection
        self._ledger, self._ddl, self._side_writes = state.ledger, ddl, side_writes
        self._worker_pool = worker_pool
        self.position = state.position
        #: the fencing token under which it writes
        self.token = state.position.fencing_token
        self._decided = state.decided
        self.directives = state.directives
        self._has_error, self._unfinished = state.has_error, state.unfinished
        self._hidden = online_tables.from_json(state.position.online_tables).names

    @property
    def session(self) -> Session:
        return self.connection.session

    @property
    def downstream(self) -> Downstream:
        """The state of the downstream for the next plan."""
        return Downstream(self.session, self.position, self._decided, self._hidden, self._unfinished)

    def apply(self, prepared: SingleSlice) -> Applied:
        """Apply a slice exactly once.

        Raises:
            DownstreamError, LogError: nothing is applied, except possibly some parts of ``PreparedParts``, and rows
                of copies; its ``applied`` says so.
        """
        try:
            return self.connection.with_retries(lambda: self._apply_once(prepared))
        except TailraceError as error:
            if isinstance(prepared, PreparedCopy):
                raise error.but(applied=copied.APPLIED) from error.__cause__
            raise

    def apply_planned(self, prepared: SingleSlice, replan: Callable[[], SingleSlice]) -> Applied:
        """Run ``apply``, and plan again if a table was altered in the meantime.

        Args:
            replan: plans and prepares the slice again.
        """
        for _ in range(_PLANS - 1):
            try:
                return self.apply(prepared)
            except TableAltered as moved:
                _log.info("downstream_table_altered", table=moved.where.table)
                prepared = replan()
        return self.apply(prepared)

    def _apply_once(self, prepared: SingleSlice) -> Applied:
        slice_ = prepared.slice_
        before = self._position_before(slice_)
        if before is None:
            return Applied(0, NOTHING_COUNTED if isinstance(prepared, AfterDdl) else prepared.row_counts)
        self._side_writes.check_events(self.session, slice_.where)
        ready = self._write_copied(prepared) if isinstance(prepared, PreparedCopy) else prepared
        applied = self._apply_rows(ready, before) if slice_.ddl is None else self._apply_ddl(ready, before)
        reached("apply.after_commit")
        self._has_error = False
        self.position = self._read_position()
        return applied

    def _position_before(self, slice_: Slice) -> Position | None:
        """Step 0: read the position without a lock; return None if the slice is already applied."""
        self.position = self._read_position()
        if slice_.is_applied(self.position):
            _log.info("batch_already_applied", last_epoch=slice_.last.epoch, position=self.position.epoch)
            return None
        return self.position

    def _apply_rows(self, prepared: Transaction, before: Position) -> Applied:
        numbers = self._apply_parts(prepared, before)
        tables = online_tables.from_json(before.online_tables).touched(prepared.slice_)
        self._hidden = tables.names
        # The slice's own number follows those of its parts.
        return self._commit(prepared, before, before.ledger_seq + numbers + 1, tables)

    def _apply_ddl(self, prepared: Transaction, before: Position) -> Applied:
        """Run step 4, and apply the rows of the DDL's transaction."""
        slice_ = prepared.slice_
        directive = self.directives.get(EventId(slice_.first.epoch, DDL))
        work = self._ddl.work(self.session, slice_, before, directive)
        progress, pending = work.progress, work.progress.pending
        self._hidden = progress.translated.tables.names
        for index in pending[:-1]:
            self._run_alone(slice_, before, progress, index)
        last = (
            self._ddl.declared(self.session, self.token, slice_, before, progress, pending[-1])
            if pending
            else nullcontext(lambda: None)
        )
        # The slice's own number follows those of its DDL's statements.
        number = progress.number + len(pending) + 1
        with last as run_ddl:
            applied = self._commit(prepared, before, number, progress.translated.tables, work, run_ddl)
        return applied + Applied(len(pending))

    def _run_alone(self, slice_: Slice, before: Position, progress: PendingDdl, index: int) -> None:
        """Run a DDL statement that is not the slice's last, with the channel's row locked."""
        session = self.session
        with self._ddl.declared(session, self.token, slice_, before, progress, index) as run_ddl:
            session.execute("BEGIN")
            try:
                self._lock_position(slice_)
                run_ddl()
            finally:
                with suppress(pymysql.MySQLError, OSError):
                    session.execute("ROLLBACK")

    def _commit(
        self,
        prepared: Transaction,
        before: Position,
        number: int,
        tables: OnlineTables,
        ddl: DdlWork | None = None,
        run_ddl: Callable[[], None] = lambda: None,
    ) -> Applied:
        """The transaction with the data and the position: steps 2 to 6.

        Args:
            number: the ledger's number of the transaction.
            tables: the hidden tables of online schema changes after the slice.
        """
        session, slice_ = self.session, prepared.slice_
        with numbered_transaction(session, self._ledger, number):
            self._lock_position(slice_, prepared)
            run_ddl()
            for sql in ddl.instead if ddl else ():
                run_operators_statement(session, sql, slice_.where)
            made = prepared.read() if isinstance(prepared, AfterDdl) else prepared
            if isinstance(made, PreparedRuns):
                made = self._write_runs(made, before)
            elif isinstance(made, PreparedRows):
                self._write(made, before)
            unfinished = self._advance_marks(made, before)
            self._move(made, replace(before, online_tables=tables.to_json()), number, ddl)
            reached("apply.before_commit")
            session.execute("COMMIT")
        self._unfinished = unfinished
        return Applied(made.statements, made.row_counts)

    def _lock_position(self, slice_: Slice, prepared: Transaction | None = None) -> None:
        """Step 3: lock the channel's row, and check that the slice starts at the position."""
        session = self.session
        slice_.check_next(self._read_position(lock=True))
        match prepared:
            case PreparedParts():
                check_caught_up(session, self._channel, prepared.slice_id, len(prepared.parts))
            case PreparedRows(rest_of=UnfinishedPart() as one):
                check_caught_up(session, self._channel, one.slice_id)
            case _:
                check_caught_up(session, self._channel, None)

    def _write(self, made: PreparedRows, before: Position) -> None:
        """Step 5, for rows that no worker has written."""
        where = made.slice_.where
        self._hold(made.beside.tables, where)
        for part in made.writes.divided(TOGETHER):
            # The server still has their tables open when it writes to them.
            self._hold(part.tables, where)
            write(self.session, part, where)
            reached("apply.after_tables")
        if any(one.steps for one in made.nontransactional):
            self._write_beside(made, before)

    def _hold(self, tables: Mapping[QualifiedName, TablePlan], where: Where) -> None:
        lock_tables(self.session, {name: table.definition for name, table in tables.items()})
        self._side_writes.check_tables(self.session, tables, where)

    def _write_runs(self, prepared: PreparedRuns, before: Position) -> PreparedRows:
        """Write a large transaction run by run; return what is left to do."""
        slice_, counts = prepared.slice_, prepared.row_counts
        rows = statements = 0
        directives: list[Directive] = []
        with prepared.reading() as runs:
            for run in runs:
                try:
                    self._write(run, before)
                except RowRefused as error:
                    raise named(error, run) or error from error
                reached("apply.after_run")
                rows += run.slice_.rows
                statements += run.statements
                counts += run.row_counts
                directives += run.directives
                _log.info("run_written", epoch=slice_.first.epoch, rows=rows, of=slice_.rows)
        changes = slice_.rows - counts.filtered - counts.expression_filtered - counts.compacted
        counts = replace(counts, merged=min(changes, counts.merged))
        return PreparedRows(slice_, row_counts=counts, written=statements, directives=tuple(directives))

    def _write_beside(self, made: PreparedRows, before: Position) -> None:
        """Write to non-transactional tables while the session holds the channel's row."""
        slice_, steps = made.slice_, made.nontransactional
        with self.connection.another() as other:
            await_predecessor(other, before)
            # Check that we still own the channel's row; with the lock held, another consumer has to wait.
            self.session.rows("SELECT 1")
            self._unfinished |= {one.name for one in steps}
            nontransactional.write_steps(
                other, self._channel, steps, slice_.position_after(before), slice_.where
            )
        reached("nontransactional.after_all")

    def _advance_marks(
        self, made: PreparedRows | PreparedParts, before: Position
    ) -> frozenset[QualifiedName]:
        """Move the marks of tables without transactions to the slice's end. Returns those that are ahead of it."""
        steps = made.nontransactional if isinstance(made, PreparedRows) else ()
        if not (steps or self._unfinished):
            return frozenset()
        return nontransactional.advance_marks(
            self.session, self._channel, steps, made.slice_.position_after(before)
        )

    def _move(
        self, made: PreparedRows | PreparedParts, before: Position, number: int, ddl: DdlWork | None
    ) -> None:
        """Step 6: move the position, and write the workers' rows, the audit row and the counters."""
        session, slice_, translated = self.session, made.slice_, ddl and ddl.progress.translated
        after = replace(slice_.position_after(before), ledger_seq=number, ddl_intent=None)
        repeated = before.repeat_until
        if repeated is not None and after.order >= repeated.order:
            after = replace(after, rewound_from=None)
        position_store.move(session, self._channel, after)
        records = slice_.audit_epochs(number)
        # A heartbeat only moves the position and gets no audit row.
        if any(record.transactions or record.rows or record.ddl for record in records):
            # The epoch's number is used only if the batch applies the complete epoch for the first time.
            other = -number if slice_.window or repeated else None
            left_out = translated.left_out if translated else ()
            audit.record(session, self._channel, records, made.statements, other, left_out)
        if isinstance(made, PreparedParts) or made.rest_of is not None:
            worker_info.mark_caught_up(session, self._channel)
        if ddl is not None:
            error_log.use(session, ddl.used)
        if isinstance(made, PreparedRows):
            error_log.use(session, made.directives)
        if self._has_error:
            error_log.clear(session, self._channel)
        if counts := made.counts | (translated.counts if translated else {}):
            audit.count(session, self._channel, counts)

    def _apply_parts(self, prepared: Transaction, before: Position) -> int:
        """Run step 1 if the slice has parts; return how many numbers of the ledger the parts have."""
        if isinstance(prepared, PreparedParts):
            for part in prepared.parts:
                self._side_writes.check_tables(self.session, part.writes.tables, prepared.slice_.where)
            self._run_parts(prepared, before)
            return len(prepared.parts)
        if not isinstance(prepared, PreparedRows) or prepared.rest_of is None:
            return 0
        parts = prepared.rest_of.parts
        # Some numbers are never used.
        self._ledger.skip(self.session, range(before.ledger_seq + 1, before.ledger_seq + parts + 1))
        return parts

    def _run_parts(self, prepared: PreparedParts, before: Position) -> None:
        """Run the workers, and wait until all parts are applied."""
        assert self._worker_pool is not None
        context = PartContext.of(self._config, self.token, self._ledger, before, prepared)
        run_all(self.session, self._worker_pool, context, prepared.parts, lambda: self._renewed(context))
        reached("worker.after_parts")

    def _write_copied(self, prepared: PreparedCopy) -> PreparedRows:
        """Write rows of copies."""
        self._side_writes.check_tables(self.session, prepared.tables, prepared.slice_.where)
        written = copied.write_slice(self._config, self.token, prepared)
        reached("copied.after_rows")
        return written

    def _read_position(self, *, lock: bool = False) -> Position:
        """Read the position; its token is the run's, also if the answer to its renewal was lost."""
        found = position_store.read(self.session, self._channel, lock=lock)
        position = position_store.check_run(found, self.token, self._channel)
        self.token = position.fencing_token
        return position

    def _renewed(self, context: PartContext) -> PartContext:
        self._renew_token()
        return replace(context, token=self.token)

    def _renew_token(self) -> None:
        self.token = position_store.renew_token(self.session, self._channel, self.token)

    def ahead(self) -> list[UnfinishedPart]:
        """Return the workers that are ahead of the position, after fencing workers of earlier attempts."""

        def work() -> list[UnfinishedPart]:
            self._renew_token()
            return worker_info.ahead(self.session, self._channel)

        return self.connection.with_retries(work)

    def move_to(self, position: Position) -> None:
        """Move the position without changing rows."""

        def work() -> None:
            session = self.session
            with transaction(session):
                self._read_position(lock=True)
                position_store.move(session, self._channel, position)
            self.position = position

        self.connection.with_retries(work)

    def finish(self) -> None:
        """Mark the run as ended normally."""
        self.connection.with_retries(
            lambda: position_store.set_consistent(self.session, self._channel, self.token)
        )

    def abort(self) -> None:
        """End all waiting and break the open connections. Another thread calls this."""
        self.connection.abort()
        executor_sessions.abort(self._config.target, self._config.key)

    def close(self) -> None:
        self.connection.close()
        executor_sessions.close(self._config.target, self._config.key)
