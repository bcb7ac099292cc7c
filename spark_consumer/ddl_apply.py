"""Running an upstream's DDL on the downstream, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pymysql
import structlog

from schemas.crashpoints import reached
from schemas.ddl import family, without_start_transaction
from schemas.ddl_clauses import clauses_of
from schemas.ddl_lexer import Flavor
from schemas.epoch import SchemaChanged, StructureVersion
from schemas.errors import DownstreamError, Where
from schemas.structure import TableStructure
from spark_consumer import ddl_intent, ddl_plan, ddl_session, online_tables
from spark_consumer import position as positions
from spark_consumer.config import ConsumerConfig
from spark_consumer.ddl_outcome import unfinished
from spark_consumer.ddl_plan import Carried
from spark_consumer.ddl_rules import DdlRules, MergedDdl, database_of
from spark_consumer.ledger import Ledger
from spark_consumer.merge import qualified
from spark_consumer.merged_ddl import needs
from spark_consumer.online_ddl import take
from spark_consumer.online_tables import OnlineTables
from spark_consumer.position import Position
from spark_consumer.rules import Rules
from spark_consumer.server_errors import is_passing, message_of
from spark_consumer.session import Session, closing, connect, error_number
from spark_consumer.slices import Slice
from spark_consumer.target import read_table

#: the upstream's tables that have had rows up to an epoch
KnownTables = Callable[[int], set[tuple[str, str]]]
#: the structures that their rows have had up to an epoch
Versions = Callable[[int], Sequence[StructureVersion]]
# Bits of sql_mode: STRICT_TRANS_TABLES, STRICT_ALL_TABLES.
_STRICT = 1 << 21 | 1 << 22
#: no such table, no such database
_NO_TABLE = (1146, 1049)
_log = structlog.get_logger()


class NumberUsedUp(Exception):
    """A number of the ledger stands for what failed; the slice is to be applied with the numbers behind it."""


class DdlApplier:
    """Runs the DDL of DDL epochs on connections of their own, under the ledger's numbers."""

    def __init__(
        self, config: ConsumerConfig, ledger: Ledger, known: KnownTables, versions: Versions | None
    ) -> None:
        self._config = config
        self._known = known
        self._versions = versions
        self._ledger = ledger
        self._own: Session | None = None
        rules = Rules.of(config)
        self._options, self._router = config.ddl, rules.router
        self._rules = DdlRules(rules.tables, rules.events, rules.router, config.ddl)

    def carried(self, session: Session, piece: Slice, position: Position) -> Carried:
        """The statements that this channel makes of the slice's DDL, none if it does not carry it; those that it has
        begun with, if a crash came in between, whatever the rules are now.

        The same DDL at the same position under the same rules always gives the same statements: each has its own
        number in the ledger, by its place among them. Raises DownstreamError where it would have to carry half of
        it, or guess.
        """
        tables = online_tables.from_json(position.online_tables)
        if piece.ddl is None:
            return Carried((), tables.touched(piece))
        begun = self._ledger.proves and self._ledger.happened(session, position.ledger_seq + 1)
        if begun and (plan := ddl_plan.of(position.ddl_intent, ddl_intent.place_of(piece.first))):
            return plan
        try:
            made = self._made(session, piece, piece.ddl, tables)
        except DownstreamError:
            if not begun:
                raise
            made = Carried((), tables.touched(piece))
        # One statement, which has run; of another one it must not be said, and the number is used.
        return made if len(made.statements) == 1 or not begun else replace(made, statements=(), ran=1)

    def _made(self, session: Session, piece: Slice, ddl: SchemaChanged, tables: OnlineTables) -> Carried:
        """What the rules as they are make of a DDL."""
        taken = take(tables, ddl, self._options, lambda *name: self._defined(session, *name))
        each = [self._of_channel(session, piece, one) for one in taken.statements]
        made = tuple(one for one in each if isinstance(one, SchemaChanged))
        reasons = [one for one in each if isinstance(one, str)] if each else ["online"]
        narrowed = sum(len(one.tables) for one in made) < sum(len(one.tables) for one in taken.statements)
        reasons += ["in part"] if narrowed and made and not reasons else []
        return Carried(made, taken.tables.touched(piece), tuple(dict.fromkeys(reasons)))

    def _of_channel(self, session: Session, piece: Slice, ddl: SchemaChanged) -> SchemaChanged | str:
        """A statement under the channel's rules, or why it is left out."""
        try:
            made = self._rules.carried(
                ddl, lambda: self._known(piece.first.epoch), lambda *name: self._has_rows(session, *name)
            )
            ignored = self._options.of(family(ddl.kind)) == "ignore"
            return made or ("ignored" if ignored else "filtered")
        except MergedDdl as merged:
            if reason := self._needed(session, ddl, piece.first.epoch):
                raise DownstreamError(
                    "TR623",
                    f"{merged.what}; {reason}",
                    where=piece.where,
                    hint=_merged_hint(merged.hint, ddl),
                ) from None
            _log.info("merged_ddl_passed_over", epoch=piece.first.epoch, statement=ddl.shown[:200])
            return "passed over"

    def _defined(self, session: Session, db: str, table: str) -> str | None:
        """The downstream's definition of an upstream's table."""
        try:
            shown = session.rows(f"SHOW CREATE TABLE {qualified(*self._router.table(db, table)).decode()}")
        except pymysql.MySQLError as error:
            if error_number(error) in _NO_TABLE:
                return None
            raise
        return str(shown[0][1])

    def _has_rows(self, session: Session, db: str, table: str) -> bool:
        try:
            there = qualified(*self._router.table(db, table)).decode()
            return bool(session.rows(f"SELECT 1 FROM {there} LIMIT 1"))
        except pymysql.MySQLError as error:
            if error_number(error) in _NO_TABLE:
                return False
            raise

    def _needed(self, session: Session, ddl: SchemaChanged, epoch: int) -> str:
        """What a merged table needs of a shard's DDL; "" if it has it all."""
        clauses = None
        if ddl.kind == "ALTER TABLE" and len(ddl.tables) == 1 and ddl.tables[0].renamed_to is None:
            clauses = clauses_of(ddl.statement, cast(Flavor, ddl.source_flavor), sql_mode=ddl.sql_mode or 0)
        if clauses is None or self._versions is None:
            return "it is not looked into"
        name = (ddl.tables[0].db, ddl.tables[0].table)
        target = read_table(session, self._router.table(*name))
        if target is None:
            return "the merged table is not there"
        versions = [v for v in self._versions(epoch) if (v.db, v.table) == name]
        strict = bool((ddl.sql_mode or 0) & _STRICT)
        return needs(
            clauses, target, [TableStructure.from_json(v.structure) for v in versions], strict=strict
        )

    def keep(self, session: Session, token: int, position: Position, piece: Slice, carried: Carried) -> None:
        """With a proving ledger: write down what several statements the DDL becomes, before the first one runs."""
        text = ddl_plan.to_json(ddl_intent.place_of(piece.first), carried)
        if not self._ledger.proves or len(carried.statements) < 2 or position.ddl_intent == text:
            return
        self._declared(session, token, text)

    def _declared(self, session: Session, token: int, text: str) -> Position:
        """Write into the position what is about to happen; the position as it was."""
        channel = self._config.key
        session.execute("BEGIN")
        found = positions.check_token(positions.read(session, channel, lock=True), token, channel)
        session.run(
            "UPDATE tailrace.relay_log_info SET ddl_intent = %s WHERE prefix = %s AND Channel_name = %s",
            (text, *channel),
        )
        session.execute("COMMIT")
        return found

    def declare(
        self, session: Session, token: int, position: Position, piece: Slice, ddl: SchemaChanged, index: int
    ) -> Position:
        """Without a proving ledger: write down what is about to happen, unless that was done before."""
        if self._ledger.proves or ddl_intent.speaks_of(position.ddl_intent, piece.first, ddl, index):
            return position
        intent = ddl_intent.declare(session, piece.first, ddl, database_of(ddl), index)
        return replace(self._declared(session, token, intent.to_json()), ddl_intent=None)

    def run(
        self, session: Session, piece: Slice, ddl: SchemaChanged, before: Position, number: int, index: int
    ) -> None:
        """Run one of the slice's statements under ``number`` unless an earlier attempt did.

        ``session`` holds the channel's row; ``before`` carries the intent of an earlier attempt, if any;
        ``index`` is the statement's place among the slice's.
        """
        with closing(connect(self._config.target)) as own:
            self._own = own
            _await_predecessor(own, before)
            if self._happened(session, piece, ddl, before, number, index):
                if lacking := self._lacking(session, ddl, number):
                    self._refused_half(session, piece, number, index, lacking)
                _log.info("ddl_already_applied", epoch=piece.first.epoch, statement=ddl.shown[:200])
                return
            ddl_session.prepare(own, ddl)
            self._ledger.begin(own, number)
            reached("ddl.before")
            try:
                self._execute(own, ddl, piece.where)
            except DownstreamError:
                if self._ledger.proves and self._ledger.happened(session, number) and index == 0:
                    # It will not do for another attempt, nor for what an operator has run instead.
                    self._use_up(session, number)
                raise
            reached("ddl.after")

    def _lacking(self, session: Session, ddl: SchemaChanged, number: int) -> str:
        """What a statement whose number is used has not done; only the last one that ran can be such."""
        if (
            not self._ledger.proves
            or session.flavor != "mariadb"
            or self._ledger.happened(session, number + 1)
        ):
            return ""
        return unfinished(session, ddl)

    def _refused_half(self, session: Session, piece: Slice, number: int, index: int, lacking: str) -> None:
        """A number that is used, and a statement that is not done: its consumer died before it could tell."""
        if index:
            raise DownstreamError(
                "TR630",
                f"a statement of a DDL that became several was refused halfway: {lacking}",
                where=piece.where,
                hint="make that so by hand, and start again: then the statement counts as done",
            )
        _log.warning("ddl_done_by_half", epoch=piece.first.epoch, lacking=lacking)
        self._use_up(session, number)
        raise NumberUsedUp

    def _use_up(self, session: Session, number: int) -> None:
        session.run(
            "UPDATE tailrace.relay_log_info SET ledger_seq = %s WHERE prefix = %s AND Channel_name = %s",
            (number, *self._config.key),
        )
        session.execute("COMMIT")

    def give_up(self) -> None:
        """From another thread: stop waiting for a DDL. The server may carry it out all the same."""
        if self._own is not None:
            self._own.cut()

    def _happened(
        self, session: Session, piece: Slice, ddl: SchemaChanged, before: Position, number: int, index: int
    ) -> bool:
        if self._ledger.proves:
            return self._ledger.happened(session, number)
        if before.ddl_intent is None:
            return False
        return ddl_intent.happened(session, before.ddl_intent, piece.first, ddl, database_of(ddl), index)

    def _execute(self, own: Session, ddl: SchemaChanged, where: Where) -> None:
        statement = ddl.statement
        if ddl.kind == "CREATE TABLE":
            statement = without_start_transaction(statement, sql_mode=ddl.sql_mode or 0)
        try:
            own.execute(statement)
        except pymysql.MySQLError as error:
            if is_passing(error):
                raise
            raise DownstreamError(
                "TR620",
                f"the downstream refused a DDL: {message_of(error)}; {ddl.shown[:300]}",
                where=where,
                hint=_hint(ddl),
            ) from error


def _await_predecessor(own: Session, position: Position) -> None:
    """Wait for the end of a DDL whose consumer has gone: the server carries it out all the same.

    Each DDL holds a lock of the channel's, which the server releases with the connection.
    """
    lock = f"tailrace.{position.ledger_uuid}"
    while own.value("SELECT GET_LOCK(%s, 2)", (lock,)) != 1:
        _log.warning("ddl_of_predecessor_runs", hint="it began before this consumer, and is waited for")


def _merged_hint(hint: str, ddl: SchemaChanged) -> str:
    if ddl.kind != "ALTER TABLE":
        return hint
    return f"alter the merged table once by hand: what it has already is passed over at the next start; or {hint}"


def _hint(ddl: SchemaChanged) -> str:
    usual = "make the statement possible there, then start again; everything before it is applied"
    setting = family(ddl.kind)
    return f'{usual}; or set [ddl] {setting} = "ignore"' if setting else usual
