"""Applying a slice: one downstream transaction with the data, the position and the audit row.

The protocol, in order:

1. Has the slice parts, workers apply them (``apply.workers.apply_part``), each in a transaction of its own.
2. The next number of the ledger is set; BEGIN.
3. The channel's row is read FOR UPDATE: a foreign fencing token, a gap, or a slice already applied end here, and so
   does one that workers have applied in part, unless this is what finishes it.
4. A DDL runs on a connection of its own while the row stays locked, so no second consumer gets between. Before
   that, in a transaction of its own, the position gets what the DDL becomes and what its objects look like; after an
   interruption these and the ledger tell what is left of it (``spark_consumer.apply.ddl.settle``). What became several
   statements has a number for each, is written down for each, and the row is locked for each.
5. The tables are held as they are, and must be those that the plan was made for, and no trigger of theirs may write
   beside us (``side_writes.py``; of parts, and of events, that is looked at before 1). DELETEs of all tables, then
   INSERTs, then the tables that keep the upstream's order; each statement must change exactly the rows that the log
   says. Of a slice in parts nothing is left for this transaction. Then rows of tables without transactions, on a
   second connection (``nontransactional.py``).
6. The position moves, the audit row is written, workers and tables without transactions are level, COMMIT.
7. If the connection is lost, COMMIT included, a new one reads the position: it alone says what happened.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TypeVar

import pymysql
import structlog

from schemas.crashpoints import reached
from schemas.errors import DDL, DownstreamError, EventId
from spark_consumer.apply import ledger, nontransactional
from spark_consumer.apply.ddl.intent import Progress, TranslatedDdl
from spark_consumer.apply.ddl.run import DdlApplier, KnownTables, Versions
from spark_consumer.apply.ddl.settle import await_predecessor
from spark_consumer.apply.ledger import Ledger
from spark_consumer.apply.nontransactional import TableSteps
from spark_consumer.apply.patience import Patience
from spark_consumer.apply.prepared import BehindDdl, OneSlice, PreparedParts, PreparedRows
from spark_consumer.apply.side_writes import SideWrites
from spark_consumer.apply.tables import audit, error_log, marks, position_store
from spark_consumer.apply.tables.error_log import Directive
from spark_consumer.apply.workers import info
from spark_consumer.apply.workers.info import Ahead
from spark_consumer.apply.workers.part import Order
from spark_consumer.apply.workers.pool import WorkerPool, check_caught_up, run_all
from spark_consumer.apply.write import gave_up, refused, run_free, write
from spark_consumer.apply.writes import Writes
from spark_consumer.ddl import online_tables
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan import replacement
from spark_consumer.plan.counters import NO_STAGES, Stages
from spark_consumer.plan.refusal import DdlRefused, EventRefused, RowRefused, cut_values, ddl_event
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.server_errors import is_passing, message_of
from spark_consumer.target.session import Flavor, Session, Unreachable, closing, connect
from spark_consumer.target.tables import TableMoved, hold

_PLANS = 5
_T = TypeVar("_T")
_log = structlog.get_logger()


class Applier:
    """The channel's only writer. One thread uses it.

    Args:
        known: where the names of the upstream's tables come from; by default the epoch log.
        worker_pool: applies the parts of slices that have some.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        session: Session,
        position: Position,
        known: KnownTables | None = None,
        versions: Versions | None = None,
        worker_pool: WorkerPool | None = None,
    ) -> None:
        self._config = config
        self._channel = config.key
        self._session = session
        self._token = position.fencing_token
        self._ledger: Ledger = ledger.choose(session, position)
        log = LogReader(config)
        self._ddl = DdlApplier(
            config, self._ledger, known or log.tables, versions if known else log.structures
        )
        self._side_writes = SideWrites(config.key, config.rules)
        self._given_up = threading.Event()
        self._failed = error_log.read(session, config.key) is not None
        #: all that an operator has decided about events that were refused
        self.decided = error_log.decided(session, config.key)
        #: what of it is about events that are still to come, or to come again
        self.directives = {event: one for event, one in self.decided.items() if event[0] > position.epoch}
        self.position = position
        #: set before the first slice with parts
        self.worker_pool = worker_pool
        self._hidden = online_tables.from_json(position.online_tables).names
        self._unfinished = frozenset(marks.read(session, config.key))
        self._beside: Session | None = None

    @property
    def hidden(self) -> frozenset[tuple[str, str]]:
        """The upstream's tables that an online schema change made and this channel does not have, at its end."""
        return self._hidden

    @property
    def token(self) -> int:
        """The fencing token under which it writes."""
        return self._token

    @property
    def unfinished(self) -> frozenset[tuple[str, str]]:
        """The downstream's tables without transactions that are, or may be, ahead of the position."""
        return self._unfinished

    @property
    def session(self) -> Session:
        """The connection, for reading the downstream's structure between batches."""
        return self._session

    @property
    def flavor(self) -> Flavor:
        """Which server the downstream is."""
        return self._session.flavor

    def close(self) -> None:
        self._session.close()

    def give_up(self) -> None:
        """From another thread: leave what is in hand. Its transaction is rolled back, or is committed already."""
        self._given_up.set()
        self._session.cut()
        self._ddl.give_up()
        if self._beside is not None:
            self._beside.cut()

    def apply(self, prepared: OneSlice) -> tuple[int, Stages]:
        """Apply a slice exactly once; the number of statements run, and what became of its rows.

        Raises:
            DownstreamError, LogError: nothing is applied, but for some parts of ``PreparedParts``.
        """
        return self.with_retries(lambda: self._attempt(prepared))

    def apply_planned(self, prepared: OneSlice, again: Callable[[], OneSlice]) -> tuple[int, Stages]:
        """``apply``, with another plan if somebody has altered a table since the last one was made.

        Args:
            again: plans and prepares the slice anew.
        """
        for _ in range(_PLANS - 1):
            try:
                return self.apply(prepared)
            except TableMoved as moved:
                _log.info("downstream_table_altered", table=moved.where.table)
                prepared = again()
        return self.apply(prepared)

    def move_to(self, position: Position) -> None:
        """Move the position where that changes no row: what lies in between is applied, or nothing."""
        self.with_retries(lambda: self._move_to(position))

    def ahead(self) -> list[Ahead]:
        """The workers that are ahead of the position; those that were at work before write nothing any more."""
        return self.with_retries(self._ahead)

    def finish(self) -> None:
        """The run has ended by itself: what is applied now stays as it is until another one starts."""
        self.with_retries(lambda: position_store.set_consistent(self._session, self._channel, self._token))

    def with_retries(self, work: Callable[[], _T]) -> _T:
        """Do something on the connection, again on a new one as long as it may succeed then."""
        patience = Patience(self._config.retry_time, self._given_up)
        while True:
            try:
                return work()
            except (pymysql.MySQLError, OSError) as error:
                if not is_passing(error):
                    raise refused(error) from error
                self._renew(patience, error)
            except Unreachable as error:
                # A DDL's own connection was not let in.
                if not error.retryable:
                    raise
                self._renew(patience, error.__cause__ or error)

    def _renew(self, patience: Patience, reason: BaseException) -> None:
        """A new connection, once there is one."""
        self._session.close()
        while patience.again():
            _log.warning("downstream_retry", attempt=patience.attempts, reason=message_of(reason))
            try:
                self._session = connect(self._config.target)
                return
            except DownstreamError as error:
                if not error.retryable:
                    raise
                reason = error.__cause__ or error
        raise gave_up(reason) from reason

    def _attempt(self, prepared: OneSlice) -> tuple[int, Stages]:
        session, slice_ = self._session, prepared.slice_
        before = self._locked_position(slice_)
        if before is None:
            return 0, NO_STAGES if isinstance(prepared, BehindDdl) else prepared.stages
        self._side_writes.check_events(session, slice_.where)
        reserved = self._apply_parts(prepared, before)
        used, progress, instead = self._progress(session, slice_, before)
        translated, pending = progress.translated, progress.pending
        self._hidden = translated.tables.names
        for index in pending[:-1]:
            self._run_alone(slice_, before, progress, index)
        number = progress.number + reserved + len(pending) + 1
        last = pending[-1] if pending else progress.index
        with self._ddl.begun(session, self._token, slice_, before, progress, last) as run_ddl:
            count, stages = self._commit(prepared, before, number, used, translated, instead, run_ddl)
        reached("apply.after_commit")
        self._failed = False
        found = position_store.read(session, self._channel)
        self.position = position_store.check_token(found, self._token, self._channel)
        return count + len(pending), stages

    def _commit(
        self,
        prepared: OneSlice,
        before: Position,
        number: int,
        used: tuple[Directive, ...],
        translated: TranslatedDdl,
        instead: Sequence[str],
        run_ddl: Callable[[], None],
    ) -> tuple[int, Stages]:
        """The transaction with the data and the position; the number of statements, and what became of the rows."""
        session, slice_ = self._session, prepared.slice_
        self._ledger.begin_rows(session, number)
        try:
            session.execute("BEGIN")
            self._locked(slice_, prepared)
            run_ddl()
            for sql in instead:
                run_free(session, sql, slice_.where)
            made = prepared.prepare() if isinstance(prepared, BehindDdl) else prepared
            steps: tuple[TableSteps, ...] = ()
            if isinstance(made, PreparedRows):
                self._write(session, made, before)
                steps = made.nontransactional
                used += made.directives
            ahead = self._level(session, slice_, steps, before)
            before = replace(before, online_tables=translated.tables.to_json())
            self._move(slice_, before, number, made.statements, translated.left_out)
            if isinstance(made, PreparedParts) or made.rest_of is not None:
                info.mark_caught_up(session, self._channel)
            error_log.use(session, used)
            if self._failed:
                error_log.clear(session, self._channel)
            if counts := _counts(slice_, made, translated):
                audit.count(session, self._channel, counts)
            reached("apply.before_commit")
            session.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(pymysql.MySQLError, OSError):
                session.execute("ROLLBACK")
            raise
        finally:
            with contextlib.suppress(pymysql.MySQLError, OSError):
                self._ledger.end(session)
        self._unfinished = ahead
        return made.statements, made.stages

    def _write(self, session: Session, made: PreparedRows, before: Position) -> None:
        """Step 5, for rows that no worker has written."""
        where = made.slice_.where
        for name, table in made.tables.items():
            hold(session, name, table.definition)
        self._side_writes.check_tables(session, made.tables, where)
        write(session, made.writes, where)
        if any(one.steps for one in made.nontransactional):
            self._write_beside(made, before)

    def _write_beside(self, made: PreparedRows, before: Position) -> None:
        """Write to tables without transactions; the session holds the channel's row."""
        slice_ = made.slice_
        with closing(connect(self._config.target)) as own:
            self._beside = own
            await_predecessor(own, before)
            # Is the channel's row still ours? Once we have the lock, whoever takes it over waits for the lock.
            self._session.rows("SELECT 1")
            self._unfinished |= {one.name for one in made.nontransactional}
            nontransactional.write_steps(
                own, self._channel, made.nontransactional, slice_.behind(before), slice_.where
            )
        reached("nontransactional.after_all")

    def _level(
        self, session: Session, slice_: Slice, steps: Sequence[TableSteps], before: Position
    ) -> frozenset[tuple[str, str]]:
        """Those of these tables that are ahead of the slice's end as well."""
        if not (steps or self._unfinished):
            return frozenset()
        return nontransactional.advance_marks(session, self._channel, steps, slice_.behind(before))

    def _run_alone(self, slice_: Slice, before: Position, progress: Progress, index: int) -> None:
        """Run a statement that others of the same slice follow, with the channel's row locked."""
        session = self._session
        with self._ddl.begun(session, self._token, slice_, before, progress, index) as run_ddl:
            session.execute("BEGIN")
            try:
                self._locked(slice_)
                run_ddl()
            finally:
                with contextlib.suppress(pymysql.MySQLError, OSError):
                    session.execute("ROLLBACK")

    def _ahead(self) -> list[Ahead]:
        self._token = position_store.renew_token(self._session, self._channel, self._token)
        return info.ahead(self._session, self._channel)

    def _apply_parts(self, prepared: OneSlice, before: Position) -> int:
        """Step 1, if the slice has parts; how many numbers of the ledger these have, applied or not."""
        if isinstance(prepared, PreparedParts):
            for part in prepared.parts:
                self._side_writes.check_tables(self._session, part.writes.tables, prepared.slice_.where)
            self._run_parts(prepared, before)
            return len(prepared.parts)
        if isinstance(prepared, BehindDdl) or prepared.rest_of is None:
            return 0
        parts = prepared.rest_of.parts
        # Some of them never will be.
        self._ledger.skip(self._session, range(before.ledger_seq + 1, before.ledger_seq + parts + 1))
        return parts

    def _run_parts(self, prepared: PreparedParts, before: Position) -> None:
        """Have the workers apply their parts."""
        slice_ = prepared.slice_
        assert self.worker_pool is not None
        order = Order(
            self._config.target,
            self._channel,
            self._token,
            self._ledger,
            before,
            slice_.behind(before),
            slice_.where,
            prepared.slice_id,
            slice_.first.epoch,
            slice_.last.epoch,
            len(prepared.parts),
            self._config.compact,
            self._config.retry_time,
        )
        run_all(self._session, self.worker_pool, order, prepared.parts, lambda: self._renewed(order))
        reached("worker.after_parts")

    def _renewed(self, order: Order) -> Order:
        self._token = position_store.renew_token(self._session, self._channel, self._token)
        return replace(order, token=self._token)

    def _progress(
        self, session: Session, slice_: Slice, before: Position
    ) -> tuple[tuple[Directive, ...], Progress, Sequence[str]]:
        """What an operator has decided about the slice's DDL; the DDL to run; the statements to run behind it."""
        directive = None if slice_.ddl is None else self.directives.get(EventId(slice_.first.epoch, DDL))
        if directive is None or slice_.ddl is None:
            return (), self._ddl.progress(session, slice_, before), ()
        try:
            tables = self._ddl.translate(session, slice_, before).tables
        except DownstreamError:
            # It is why the operator had to decide.
            tables = online_tables.from_json(before.online_tables)
        directive.check(ddl_event(slice_))
        _log.warning("event_directed", which=str(ddl_event(slice_).id), statements=directive.statements)
        ddls, instead = replacement.parted(directive.statements, slice_.ddl, self.flavor)
        chosen = TranslatedDdl(ddls, tables, ("replaced" if directive.statements else "skipped",))
        return (directive,), self._ddl.progress(session, slice_, before, (directive.id, chosen)), instead

    def trial(self, prepared: PreparedRows) -> EventRefused | None:
        """Run a slice that is prepared row by row, and roll it back: the first row that is refused, if any is."""

        def work() -> EventRefused | None:
            session = self._session
            session.execute("BEGIN")
            try:
                write(session, Writes(ordered=prepared.writes.ordered), prepared.slice_.where)
            except DownstreamError as error:
                return self.named(error, prepared)
            finally:
                session.execute("ROLLBACK")
            return None

        return self.with_retries(work)

    @staticmethod
    def named(error: DownstreamError, prepared: OneSlice) -> EventRefused | None:
        """The error with the event that it is about; None if that is not known."""
        if isinstance(error, EventRefused):
            return error
        if prepared.slice_.ddl is not None and isinstance(error, DdlRefused):
            return EventRefused(
                error, ddl_event(prepared.slice_), None, cut_values(prepared.slice_.ddl.statement)
            )
        if not (isinstance(error, RowRefused) and isinstance(prepared, PreparedRows) and error.where.event):
            return None
        event = prepared.events.get(error.where.event)
        if event is None:
            return None
        return EventRefused(error, event, error.where.table, error.statement or "")

    def _move_to(self, position: Position) -> None:
        session = self._session
        session.execute("BEGIN")
        found = position_store.read(session, self._channel, lock=True)
        position_store.check_token(found, self._token, self._channel)
        position_store.move(session, self._channel, position)
        session.execute("COMMIT")
        self.position = position

    def _locked_position(self, slice_: Slice) -> Position | None:
        """The position before the slice; None if the slice is already applied."""
        found = position_store.read(self._session, self._channel)
        self.position = position_store.check_token(found, self._token, self._channel)
        if slice_.is_applied(self.position):
            _log.info("batch_already_applied", last_epoch=slice_.last.epoch, position=self.position.epoch)
            return None
        return self.position

    def _locked(self, slice_: Slice, prepared: OneSlice | None = None) -> None:
        """Step 3: hold the channel's row, and be sure that it stands just before this slice."""
        found = position_store.read(self._session, self._channel, lock=True)
        position = position_store.check_token(found, self._token, self._channel)
        slice_.check_next(position)
        match prepared:
            case PreparedParts():
                check_caught_up(self._session, self._channel, prepared.slice_id, len(prepared.parts))
            case PreparedRows(rest_of=Ahead() as one):
                check_caught_up(self._session, self._channel, one.slice_id)
            case _:
                check_caught_up(self._session, self._channel, None)

    def _move(
        self, slice_: Slice, before: Position, number: int, statements: int, left_out: Sequence[str] = ()
    ) -> None:
        after = replace(slice_.behind(before), ledger_seq=number, ddl_intent=None)
        again = before.repeat_until
        if again is not None and after.order >= again.order:
            after = replace(after, rewound_from=None)
        position_store.move(self._session, self._channel, after)
        records = slice_.audited(number)
        # A heartbeat moves the position; it is no batch to account for.
        if any(record.transactions or record.rows or record.ddl for record in records):
            # The number of an epoch is that of a batch which applied it whole, for the first time.
            other = -number if slice_.window or again else None
            audit.record(self._session, self._channel, records, statements, other, left_out)


def _counts(slice_: Slice, made: PreparedRows | PreparedParts, translated: TranslatedDdl) -> dict[str, int]:
    counts: dict[str, int] = {}
    if slice_.rows:
        counts = {"row_changes": slice_.rows, "statements": made.statements, **asdict(made.stages)}
    if skipped := slice_.skipped:
        counts = counts | {"skipped": skipped}
    if slice_.ddl is None:
        return counts
    left_out = not translated.statements
    return counts | {
        "ddl_applied": int(not left_out),
        "ddl_left_out": int(left_out),
        "ddl_ignored": int(left_out and "ignored" in translated.left_out),
        "ddl_passed_over": int(left_out and "passed over" in translated.left_out),
    }
