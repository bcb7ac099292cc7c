"""Runs the upstream's DDL on the downstream, exactly once."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pymysql
import structlog

from schemas.crashpoints import reached
from schemas.ddl.alter_clauses import clauses_of
from schemas.ddl.cursor import Unparsable
from schemas.ddl.kinds import family
from schemas.ddl.lexer import LexError
from schemas.ddl.objects import without_start_transaction
from schemas.errors import DownstreamError, Where
from schemas.quote import quoted
from schemas.tables import QualifiedName
from schemas.wire.epoch import SchemaChanged, StructureVersion
from schemas.wire.log_records import structure_of
from spark_consumer.apply.connection import Connection
from spark_consumer.apply.ddl import session as ddl_session
from spark_consumer.apply.ddl.copy_start import CopyStart
from spark_consumer.apply.ddl.intent import (
    DdlWork,
    Intent,
    LeftOut,
    PendingDdl,
    TranslatedDdl,
    intent_of,
    upstream_position_of,
)
from spark_consumer.apply.ddl.outcome import (
    await_predecessor,
    progress_of_interrupted,
    snapshot_before,
)
from spark_consumer.apply.ddl.snapshot import clear_half_made
from spark_consumer.apply.ledger import Ledger
from spark_consumer.apply.tables import position_store
from spark_consumer.apply.tables.error_log import Directive
from spark_consumer.ddl import online_tables
from spark_consumer.ddl.merged import needs
from spark_consumer.ddl.online import translate_online
from spark_consumer.ddl.translate import DdlRules, MergedDdl
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan import replacement
from spark_consumer.plan.refusal import DdlRefused, ddl_event
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.rules import Rules
from spark_consumer.target.server_errors import is_passing, message_of
from spark_consumer.target.session import Session, error_number
from spark_consumer.target.tables import read_table

#: no such table, no such database
_NO_TABLE = (1146, 1049)
_log = structlog.get_logger()


@dataclass(frozen=True)
class LoggedTables:
    """The upstream's tables in the log up to an epoch.

    Attributes:
        names: returns the tables that have had rows.
        versions: returns the structures of their rows; None in a recovery, which does not know all of them.
    """

    names: Callable[[int], set[QualifiedName]]
    versions: Callable[[int], Sequence[StructureVersion]] | None


class DdlApplier:
    """Runs the DDL of DDL epochs on connections of their own, under the ledger's numbers."""

    def __init__(
        self,
        config: ConsumerConfig,
        rules: Rules,
        connection: Connection,
        ledger: Ledger,
        logged: LoggedTables,
    ) -> None:
        self._channel, self._connection = config.key, connection
        self._ledger, self._logged = ledger, logged
        self._options, self._router = config.ddl, rules.router
        self._all_rules = rules
        self._rules = DdlRules(rules.tables, rules.events, rules.router, config.ddl)

    def work(
        self, session: Session, slice_: Slice, position: Position, directive: Directive | None
    ) -> DdlWork:
        """Return the work for the slice's DDL: all of it, the rest after an interruption, or an operator's decision.

        Args:
            directive: an operator's decision about it.

        Raises:
            DownstreamError: the rules cannot translate it safely; TR621, it is not known whether it ran.
        """
        if directive is None and slice_.first.copy is not None:
            return DdlWork(self._start_of_copy(session, slice_, position))
        if directive is None:
            return DdlWork(self._progress(session, slice_, position))
        assert slice_.ddl is not None
        if slice_.first.copy is not None:
            self._copy_start(slice_, position).check_decision(session)
        try:
            tables = self._translated(session, slice_, position).tables
        except DownstreamError:
            # Translating it may fail, which is why the operator had to decide.
            tables = online_tables.from_json(position.online_tables)
        event = ddl_event(slice_)
        directive.check(event)
        _log.warning("event_directed", which=str(event.id), statements=directive.statements)
        ddls, instead = replacement.split_replacement(directive.statements, slice_.ddl, session.flavor)
        chosen = TranslatedDdl(ddls, tables, (LeftOut.REPLACED if directive.statements else LeftOut.SKIPPED,))
        return DdlWork(self._progress(session, slice_, position, directive.id, chosen), instead, (directive,))

    def _progress(
        self,
        session: Session,
        slice_: Slice,
        position: Position,
        directive: int | None = None,
        chosen: TranslatedDdl | None = None,
    ) -> PendingDdl:
        """Return the statements to run: all, or those left after an interruption, whatever the rules are now.

        Args:
            directive: the id of an operator's decision; ``chosen`` has its statements.
        """
        assert slice_.ddl is not None
        intent = intent_of(position.ddl_intent, upstream_position_of(slice_.first))
        number = position.ledger_seq
        if intent is not None:
            if chosen is not None and intent.directive != directive:
                # Statements of the DDL, or of an earlier decision, have run before those of this decision.
                number = max(number, intent.number)
                return PendingDdl(
                    chosen, number, _statements_already_run(intent, chosen), directive=directive
                )
            found = self._settled(
                slice_, position, intent, chosen or TranslatedDdl((slice_.ddl,), online_tables.NO_TABLES)
            )
            if found.index > 0 or found.remaining is not None:
                return replace(found, translated=chosen or found.translated, directive=directive)
            number = found.number
        translated = chosen or self._translated(session, slice_, position)
        return PendingDdl(translated, number, directive=directive)

    def _start_of_copy(self, session: Session, slice_: Slice, position: Position) -> PendingDdl:
        """Return the statement that gives a copy its empty table.

        An interrupted attempt is not settled: the statement is chosen again by the table as it is.
        """
        number = position.ledger_seq
        intent = intent_of(position.ddl_intent, upstream_position_of(slice_.first))
        if intent is not None:
            number = intent.number
            with self._connection.another() as own:
                await_predecessor(own, position)
                if intent.before is not None and not self._ledger.is_executed(own, number):
                    number -= 1
                if intent.before is not None and intent.statement.kind == "CREATE TABLE":
                    for table in intent.statement.tables:
                        if not intent.before.get(table.db, table.table).kind:
                            clear_half_made(own, table.db, table.table)
        tables = online_tables.from_json(position.online_tables)
        made = self._copy_start(slice_, position).statement(session)
        if isinstance(made, LeftOut):
            return PendingDdl(TranslatedDdl((), tables, (made,)), number)
        emptied = (LeftOut.EMPTIED,) if made.kind == "TRUNCATE TABLE" else ()
        return PendingDdl(TranslatedDdl((made,), tables, emptied), number)

    def _copy_start(self, slice_: Slice, position: Position) -> CopyStart:
        epoch = slice_.first
        assert epoch.copy is not None
        assert epoch.ddl is not None
        rules = replace(self._all_rules, hidden=online_tables.from_json(position.online_tables).names)
        known = partial(self._logged.names, epoch.epoch)
        return CopyStart(epoch.copy, epoch.ddl, rules, self._rules, known, slice_.where)

    def _settled(self, slice_: Slice, position: Position, intent: Intent, texts: TranslatedDdl) -> PendingDdl:
        """Return what is left of an intent; ``texts`` has the texts that the intent does not store."""
        if intent.before is None:
            return PendingDdl(intent.translated, intent.number, intent.index)
        ddl = intent.statement
        if not ddl.statement and intent.index < len(texts.statements):
            ddl = texts.statements[intent.index]
        with self._connection.another() as own:
            found = progress_of_interrupted(own, self._ledger, intent, ddl, position, slice_.where)
            if found.index == intent.index and ddl.kind == "CREATE TABLE":
                for table in ddl.tables:
                    if not intent.before.get(table.db, table.table).kind:
                        clear_half_made(own, table.db, table.table)
            return found

    def _translated(self, session: Session, slice_: Slice, position: Position) -> TranslatedDdl:
        """Translate the slice's DDL by the current rules.

        Raises DownstreamError if they cannot translate it safely.
        """
        assert slice_.ddl is not None
        tables = online_tables.from_json(position.online_tables)
        taken = translate_online(
            tables, slice_.ddl, self._options, lambda *name: self._defined(session, *name)
        )
        each = [self._under_rules(session, slice_, one) for one in taken.statements]
        made = tuple(one for one in each if isinstance(one, SchemaChanged))
        reasons = [one for one in each if isinstance(one, LeftOut)] if each else [LeftOut.ONLINE]
        narrowed = sum(len(one.tables) for one in made) < sum(len(one.tables) for one in taken.statements)
        reasons += [LeftOut.IN_PART] if narrowed and made and not reasons else []
        return TranslatedDdl(made, taken.tables.touched(slice_), tuple(dict.fromkeys(reasons)))

    def _under_rules(self, session: Session, slice_: Slice, ddl: SchemaChanged) -> SchemaChanged | LeftOut:
        """Return a statement translated by the channel's rules, or the reason why it is left out."""
        try:
            made = self._rules.translate(
                ddl,
                lambda: self._logged.names(slice_.first.epoch),
                lambda *name: self._has_rows(session, *name),
            )
            ignored = self._options.of(family(ddl.kind)) == "ignore"
            return made or (LeftOut.IGNORED if ignored else LeftOut.FILTERED)
        except MergedDdl as merged:
            if reason := self._needed(session, ddl, slice_.first.epoch):
                raise DdlRefused(
                    "TR623",
                    f"{merged.message}; {reason}",
                    where=slice_.where,
                    hint=_merged_hint(merged.hint, ddl),
                ) from None
            _log.info("merged_ddl_passed_over", epoch=slice_.first.epoch, statement=ddl.shown[:200])
            return LeftOut.PASSED_OVER

    def _defined(self, session: Session, db: str, table: str) -> str | None:
        """Return the downstream's definition of an upstream table; None if it does not exist."""
        try:
            shown = session.rows(f"SHOW CREATE TABLE {quoted(*self._router.table(db, table))}")
        except pymysql.MySQLError as error:
            if error_number(error) in _NO_TABLE:
                return None
            raise
        return str(shown[0][1])

    def _has_rows(self, session: Session, db: str, table: str) -> bool:
        try:
            there = quoted(*self._router.table(db, table))
            return bool(session.rows(f"SELECT 1 FROM {there} LIMIT 1"))
        except pymysql.MySQLError as error:
            if error_number(error) in _NO_TABLE:
                return False
            raise

    def _needed(self, session: Session, ddl: SchemaChanged, epoch: int) -> str:
        """Return why a merged table needs a shard's DDL; "" if it does not need it."""
        mode = ddl.mode
        alone = len(ddl.tables) == 1 and ddl.tables[0].renamed_to is None
        if ddl.kind != "ALTER TABLE" or not alone or self._logged.versions is None:
            return "it cannot be checked whether the merged table needs it"
        try:
            clauses = clauses_of(ddl.statement, ddl.source_flavor, sql_mode=mode)
        except (Unparsable, LexError) as error:
            return f"it cannot be parsed: {error}"
        name = (ddl.tables[0].db, ddl.tables[0].table)
        target = read_table(session, self._router.table(*name))
        if target is None:
            return "the merged table does not exist"
        versions = [v for v in self._logged.versions(epoch) if (v.db, v.table) == name]
        return needs(clauses, target, [structure_of(v) for v in versions], sql_mode=mode)

    @contextlib.contextmanager
    def declared(
        self,
        session: Session,
        token: int,
        slice_: Slice,
        position: Position,
        progress: PendingDdl,
        index: int,
    ) -> Iterator[Callable[[], None]]:
        """Record a statement in the position. The block gets a function that runs it, once, while it holds the
        channel's row.

        Args:
            session: without an open transaction, before and after the block.
            index: the statement's index.
        """
        ddl = progress.statement(index)
        with self._connection.another() as own:
            await_predecessor(own, position)
            intent = progress.intent(upstream_position_of(slice_.first), index, snapshot_before(own, ddl))
            position_store.declare_ddl(session, self._channel, token, intent.to_json())
            attempt = _Attempt(own, self._ledger, ddl, intent.number, slice_.where)
            try:
                yield attempt.run
            except BaseException:
                with contextlib.suppress(pymysql.MySQLError, OSError):
                    self._record_outcome(session, token, position, intent, attempt.outcome)
                raise

    def _record_outcome(
        self, session: Session, token: int, position: Position, intent: Intent, outcome: StatementOutcome
    ) -> None:
        """After a failure, store what is known about the statement: once an operator has intervened, the tables no
        longer show it.
        """
        if outcome is StatementOutcome.UNKNOWN:
            return
        number = intent.number
        if outcome is StatementOutcome.NOT_RUN and not self._ledger.is_executed(session, number):
            number -= 1
        done = intent.index + (outcome is StatementOutcome.RUN)
        kept = replace(intent, index=done, number=number, before=None).to_json() if done else None
        used = position.ledger_seq if done else number
        position_store.note_ddl(session, self._channel, token, kept, used)


class StatementOutcome(enum.Enum):
    """The known outcome of a statement."""

    NOT_RUN = "not run: not sent, or refused"
    UNKNOWN = "sent, and the connection was lost"
    RUN = "run"


class _Attempt:
    """One attempt to run a statement, on a connection of its own."""

    def __init__(self, own: Session, ledger: Ledger, ddl: SchemaChanged, number: int, where: Where) -> None:
        self._own, self._ledger, self._ddl, self._number, self._where = own, ledger, ddl, number, where
        self.outcome = StatementOutcome.NOT_RUN

    def run(self) -> None:
        """Run it. Raises DownstreamError, pymysql.MySQLError, OSError."""
        ddl_session.apply_settings(self._own, self._ddl)
        self._ledger.set_number(self._own, self._number)
        reached("ddl.before")
        self.outcome = StatementOutcome.UNKNOWN
        try:
            self._own.execute(_text(self._ddl))
        except pymysql.MySQLError as error:
            if is_passing(error):
                raise
            self.outcome = StatementOutcome.NOT_RUN
            raise DdlRefused(
                "TR620",
                f"the downstream refused a DDL: {message_of(error)}; {self._ddl.shown[:300]}",
                where=self._where,
                hint=_hint(self._ddl),
            ) from error
        self.outcome = StatementOutcome.RUN
        # This releases the channel's lock, which rows of the same slice may need.
        self._own.close()
        reached("ddl.after")


def _text(ddl: SchemaChanged) -> str:
    if ddl.kind != "CREATE TABLE":
        return ddl.statement
    return without_start_transaction(ddl.statement, sql_mode=ddl.mode)


def _statements_already_run(intent: Intent, chosen: TranslatedDdl) -> int:
    """Return how many statements of a decision have already run."""
    ran = [one.statement for one in intent.translated.statements[: intent.index]]
    same = ran == [one.statement for one in chosen.statements[: intent.index]]
    return intent.index if same else 0


def _merged_hint(hint: str, ddl: SchemaChanged) -> str:
    if ddl.kind != "ALTER TABLE":
        return hint
    return f"alter the merged table by hand, once; the next start then skips this statement; or {hint}"


def _hint(ddl: SchemaChanged) -> str:
    usual = "fix the cause on the downstream and restart; everything before this statement is applied"
    setting = family(ddl.kind)
    return f'{usual}; or set [ddl] {setting} = "ignore"' if setting else usual
