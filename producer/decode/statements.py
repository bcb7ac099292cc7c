"""QUERY events: what a statement does to the open epoch, to its transaction and to the tracked structures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

import structlog

from producer.decode.decode_rules import DecodeRules, Skipping
from producer.decode.open_group import DecodeState, OpenGroup, Savepoints
from producer.decode.row_decoder import SchemaName
from producer.epochs.open_epoch import OpenEpoch, StatedStructures
from producer.events.query_event import QueryEvent, epoch_ddl, in_lower_case, parse_query_event
from producer.structures.store import ReadPosition, Structures
from schemas.binlog import framing
from schemas.ddl.classify import classify
from schemas.ddl.dml import read_dml
from schemas.ddl.engine import takes_default_engine
from schemas.ddl.kinds import Category, ClassifiedStatement, family
from schemas.ddl.table_definition import TableDefinition
from schemas.errors import DecodeError
from schemas.gtid.sets import Flavor
from schemas.letter_case import lowered
from schemas.tables import TableFilter
from schemas.wire.avro_schema import fingerprint_of
from schemas.wire.epoch import SchemaChanged

log = structlog.get_logger()

_ROLLED_BACK = (
    "compare the tables concerned with the upstream's behind this transaction; copy them anew and start behind this "
    "position"
)
_TOO_MANY = (
    "a transaction of more rows than are held back was not committed, or rolled back to a savepoint: copy the tables "
    "concerned anew and start behind this position"
)


_ACCOUNTS = "accounts and privileges belong to each server; [ddl] accounts says otherwise"
# MariaDB's two-phase ALTER logs the statement twice; it takes effect with its COMMIT ALTER.
_START_ALTER, _ROLLBACK_ALTER = 2, 8

_BY_HAND = "run it on the downstream manually if it changes replicated tables, and start after this position"
#: what a statement does whose rows are not in the log, and what to do about it
_UNLOGGED = {
    Category.DML: (
        "changes rows by statement text, not by row events",
        "set binlog_format = ROW for every upstream session; to go on, let a [[skip]] rule pass over this one, and"
        " carry it out downstream by hand",
    ),
    Category.DDL: (
        "creates a table from a query without logging its rows",
        "set binlog_format = ROW for every upstream session, or create tables and fill them in two statements; to go"
        " on, let a [[skip]] rule with the table's name pass over this one, and copy the table to the downstream",
    ),
    Category.FILES: (
        "imports or exports a table's rows as a file, which the binlog does not contain",
        "to go on, let a [[skip]] rule with the table's name pass over this one; once the upstream's table has its"
        " rows, copy it to the downstream as it is then",
    ),
}


class DdlWaits(Exception):
    """A DDL, which has to be an epoch of its own: the open epoch is to be sealed, and the same event read again."""


class Statements:
    """Applies QUERY events to the open epoch, to its transaction and to the tracked structures.

    Args:
        skipping: what may be passed over.
        schema_changes: applies DDL.
        is_left_out: whether a DDL is left out.
    """

    def __init__(
        self,
        rules: DecodeRules,
        state: DecodeState,
        skipping: Skipping,
        schema_changes: SchemaChanges,
        is_left_out: Callable[[ClassifiedStatement], bool] = lambda statement: False,
    ) -> None:
        self._rules, self._state, self._is_left_out = rules, state, is_left_out
        self._skipping, self._schema_changes = skipping, schema_changes

    def process(self, event: bytes, checksum: int) -> bool:
        """Apply a QUERY event that frames nothing. Returns whether it was a DDL, which changes structures.

        Args:
            checksum: bytes of it, at the event's end.

        Raises:
            DdlWaits: something is in the open epoch. Nothing was changed.
            DecodeError: it cannot be replicated.
        """
        rules, state = self._rules, self._state
        logged = read_statement(event, checksum, rules.flavor, folds=rules.tables.folds)
        effect = effect_of(logged, accounts=rules.accounts)
        if effect is Effect.TRANSACTION:
            _roll_back(logged.statement.kind, logged.query.statement, state.epoch, state.groups.transaction)
        elif effect is Effect.DDL and is_replicated(logged.statement, rules.tables):
            self._apply_ddl(logged)
            return True
        elif effect is Effect.NOT_LOGGED:
            self._pass_over(logged)
        return False

    def _apply_ddl(self, logged: LoggedStatement) -> None:
        state, epoch = self._state, self._state.epoch
        if self._is_left_out(logged.statement):
            epoch.left_out.append(self._schema_changes.apply(logged, state.position))
            return
        if epoch.seq > state.groups.transaction.first or epoch.ddl is not None:
            raise DecodeError("TR404", f"{logged.statement.kind} behind row changes of the same transaction")
        if not epoch.empty:
            raise DdlWaits
        epoch.ddl = self._schema_changes.apply(logged, state.position)

    def _pass_over(self, logged: LoggedStatement) -> None:
        """A statement whose effect is not in the log: pass it over if the rules say so, else stop."""
        tables, state = self._rules.tables, self._state
        names = tables_not_logged(logged, self._rules.flavor, folds=tables.folds)
        if logged.moves_files and not any(tables.allows(*name) for name in names):
            return
        state.groups.transaction.skipped += self._skipping.passes_over(
            "statement", names, not_logged(logged), state.where
        )


def _roll_back(kind: str, text: str, epoch: OpenEpoch, group: OpenGroup) -> None:
    """A savepoint is remembered; what was rolled back did not happen.

    Rows of tables without transactions, which would stay, are never among them: servers log those in groups of
    their own. Source: MySQL sql/log_event.cc, Rows_log_event; MariaDB sql/log.cc, use_trans_cache.
    """
    if kind == "SAVEPOINT":
        group.savepoints = group.savepoints or Savepoints()
        group.savepoints.add(savepoint_name(text), epoch.seq)
    elif kind in ("ROLLBACK", "ROLLBACK TO") and epoch.seq > group.first:
        kept: int | None = group.first
        if kind == "ROLLBACK TO":
            savepoints = group.savepoints or Savepoints()
            kept = savepoints.find(savepoint_name(text))
        if kept is None or epoch.ddl is not None:
            raise DecodeError(
                "TR407", f"rows are rolled back, and it is not sure which: {text[:200]}", hint=_ROLLED_BACK
            )
        take_back(epoch, epoch.seq - kept)


def savepoint_name(text: str) -> str:
    """The name in the text of a SAVEPOINT or ROLLBACK TO, with ASCII letters in lower case.

    Args:
        text: the keywords and the name, which the session may have in backticks, double quotes, or bare.
    """
    name = text.split(None, 2)[2] if text[:8].upper() == "ROLLBACK" else text.split(None, 1)[1]
    quote = name[0]
    if quote in '`"':
        name = name[1:-1].replace(quote * 2, quote)
    return name.lower()


def take_back(epoch: OpenEpoch, rows: int) -> None:
    """The open epoch's last rows did not happen.

    Raises:
        DecodeError: TR415, they were handed out already.
    """
    if rows > len(epoch.records):
        raise DecodeError("TR415", "rows were rolled back after they had been published", hint=_TOO_MANY)
    epoch.drop_last(rows)


#: the storage engine that a table has upstream, of which its CREATE TABLE says none; None if nobody knows
EngineOf = Callable[[SchemaChanged], str | None]


def engine_unknown(change: SchemaChanged) -> str | None:
    """Return None: used when no upstream is available."""
    return None


class SchemaChanges:
    """Applies DDL to the tracked structures.

    Args:
        structures: the tracked ones; kept up to date.
        stated: what the log states so far; kept up to date.
        schema_name: what names a structure's schema on the wire.
    """

    def __init__(
        self,
        flavor: Flavor,
        structures: Structures,
        stated: StatedStructures,
        schema_name: SchemaName,
        engine_of: EngineOf,
    ) -> None:
        self._flavor, self._structures, self._stated = flavor, structures, stated
        self._schema_name, self._engine_of = schema_name, engine_of

    def apply(self, logged: LoggedStatement, here: ReadPosition) -> SchemaChanged:
        """Apply a DDL to the tracked structures. Returns its record, with the structures before and after.

        Raises:
            DecodeError, UpstreamError: a structure that it needs is not known.
        """
        change = self._with_engine(epoch_ddl(logged.query, logged.statement, self._flavor, logged.timestamp))
        tables = [replace(t, before=self._before(t.db, t.table)) for t in change.tables]
        self._structures.apply(change, logged.statement, here)
        tables = [
            replace(t, after=self._tracked(t.renamed_to_db or t.db, t.renamed_to or t.table)) for t in tables
        ]
        for table in tables:
            self._stated.forget(table.db, table.table)
            if table.renamed_to is not None:
                self._stated.forget(table.renamed_to_db or table.db, table.renamed_to)
        return replace(change, tables=tuple(tables))

    def define(self, created: SchemaChanged, table: TableDefinition) -> SchemaChanged:
        """A table is as its CREATE TABLE says, whatever is tracked. Returns the record, with the structure after it."""
        name = created.tables[0].db, created.tables[0].table
        self._structures.define(name, table)
        self._stated.forget(*name)
        return replace(created, tables=(replace(created.tables[0], after=self._tracked(*name)),))

    def _with_engine(self, change: SchemaChanged) -> SchemaChanged:
        """With the engine that a CREATE TABLE took by default: the binlog does not say which one that was."""
        mode = change.mode
        if change.kind != "CREATE TABLE" or not takes_default_engine(
            change.statement, self._flavor, sql_mode=mode
        ):
            return change
        engine = self._engine_of(change)
        if engine is None:
            log.warning("default_engine_unknown", statement=change.shown[:200])
            return change
        return replace(change, settings=(*change.settings, ("default_storage_engine", engine)))

    def _before(self, db: str, table: str) -> str | None:
        """The fingerprint of the structure that a table's last rows had, or that it has by its definition."""
        return self._stated.current(db, table) or self._tracked(db, table)

    def _tracked(self, db: str, table: str) -> str | None:
        """The fingerprint of the structure that a table's next rows will have, if the definition says so for sure."""
        structure = self._structures.after((db, table))
        # With a registry, the structure would have to be registered first to get its id.
        if structure is None or self._schema_name is not fingerprint_of:
            return None
        return fingerprint_of(structure).hex()


class Effect(Enum):
    """What a statement does to what is replicated."""

    NOTHING = "nothing"
    #: it sets a savepoint, or rolls rows back
    TRANSACTION = "transaction"
    DDL = "ddl"
    #: it changes rows that are not in the log, or its effect is unknown
    NOT_LOGGED = "not logged"


class LoggedStatement(NamedTuple):
    """A QUERY event, what its text says, and its header's time in seconds."""

    query: QueryEvent
    statement: ClassifiedStatement
    timestamp: int

    @property
    def moves_files(self) -> bool:
        """Whether it takes a table's rows away as a file, or brings them in as one."""
        return self.statement.category is Category.FILES


def read_statement(event: bytes, checksum: int, flavor: Flavor, *, folds: bool) -> LoggedStatement:
    """Read a QUERY event.

    Args:
        checksum: bytes of it, at the event's end.
        folds: whether the server has all names in lower case.

    Raises:
        DecodeError: as ``parse_query_event`` and ``in_lower_case``.
    """
    query = parse_query_event(event[framing.HEADER_SIZE : len(event) - checksum])
    if folds:
        query = in_lower_case(query, flavor)
    statement = classify(query.statement, query.default_db, flavor, sql_mode=query.sql_mode or 0)
    return LoggedStatement(query, statement, framing.header(event).timestamp)


def effect_of(logged: LoggedStatement, *, accounts: bool) -> Effect:
    """What a statement does.

    Args:
        accounts: whether statements on accounts, which may hold passwords, are published.

    Raises:
        DecodeError: TR416, it failed upstream after it had changed something.
    """
    query, statement = logged.query, logged.statement
    if statement.category is Category.TRANSACTION:
        return Effect.TRANSACTION
    if statement.category is Category.IGNORED:
        log.info("statement_not_replicated", kind=statement.kind, reason=statement.reason)
        return Effect.NOTHING
    if family(statement.kind) == "accounts" and not accounts:
        log.info("statement_not_replicated", kind=statement.kind, reason=_ACCOUNTS)
        return Effect.NOTHING
    if query.alter_flags in (_START_ALTER, _ROLLBACK_ALTER):
        # A ROLLBACK ALTER has the error that ended it: nothing was changed.
        log.info("alter_phase_skipped", flags=query.alter_flags)
        return Effect.NOTHING
    if query.error_code:
        raise DecodeError(
            "TR416",
            f"a statement failed upstream with error {query.error_code} after changing something: "
            f"{query.statement[:200]}",
            hint="find out what it did upstream, do the same on the downstream, and start after this position",
        )
    if statement.category is Category.OBJECT:
        return Effect.DDL
    is_whole = statement.category is Category.DDL and not statement.creates_with_select
    return Effect.DDL if is_whole else Effect.NOT_LOGGED


def is_replicated(statement: ClassifiedStatement, tables: TableFilter) -> bool:
    """Whether a DDL changes something that is replicated."""
    if statement.category is Category.OBJECT:
        return statement.program is None or tables.allows(*statement.program)
    if statement.database is not None:
        return tables.allows_database(statement.database)
    names = statement.table_names
    # If a statement names replicated and excluded tables, the channel applies only its part, or stops.
    return any(tables.allows(db, table) for db, table in names)


def tables_not_logged(logged: LoggedStatement, flavor: Flavor, *, folds: bool) -> list[tuple[str, str]]:
    """The tables that a statement changes without row events, as far as its text tells all of them; else none."""
    query, statement = logged.query, logged.statement
    if statement.category is Category.DML:
        dml = read_dml(query.statement, query.default_db, flavor, sql_mode=query.sql_mode or 0)
        named = dml.tables if dml else ()
    else:
        named = statement.tables
    tables = [(name.db, name.table) for name in named]
    return [(lowered(db), lowered(table)) for db, table in tables] if folds else tables


def not_logged(logged: LoggedStatement) -> DecodeError:
    """The error of a statement whose effect is not in the log."""
    statement = logged.statement
    what, hint = _UNLOGGED.get(statement.category, (f"is not understood: {statement.reason}", _BY_HAND))
    return DecodeError("TR409", f"a statement {what}: {logged.query.statement[:200]}", hint=hint)
