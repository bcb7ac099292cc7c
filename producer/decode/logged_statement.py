"""What a statement in the binlog means for the log: nothing, the end of some rows, a DDL, or a stop."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import structlog

from producer.events.query_event import QueryEvent, in_lower_case, parse_query_event
from schemas.binlog import framing
from schemas.ddl.classify import Category, ClassifiedStatement, classify, family
from schemas.ddl.dml import read_dml
from schemas.errors import DecodeError
from schemas.gtid.sets import Flavor
from schemas.letter_case import lowered
from schemas.tables import TableFilter

log = structlog.get_logger()

_ACCOUNTS = "accounts and privileges belong to each server; [ddl] accounts says otherwise"
# MariaDB's two-phase ALTER logs the statement twice; it takes effect with its COMMIT ALTER.
_START_ALTER, _ROLLBACK_ALTER = 2, 8

_BY_HAND = (
    "carry it out downstream by hand, as far as it changes what is replicated, and start behind this position"
)
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
        "takes a table's rows away as a file, or brings them in as one, and the log does not hold them",
        "to go on, let a [[skip]] rule with the table's name pass over this one; once the upstream's table has its"
        " rows, copy it to the downstream as it is then",
    ),
}


class Effect(Enum):
    """What a statement does to what is replicated."""

    NOTHING = "nothing"
    #: it sets a savepoint, or rolls rows back
    TRANSACTION = "transaction"
    DDL = "ddl"
    #: it changes rows that are not in the log, or nobody knows what it does
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


def effect_of(found: LoggedStatement, *, accounts: bool) -> Effect:
    """What a statement does.

    Args:
        accounts: whether statements on accounts, which may hold passwords, are published.

    Raises:
        DecodeError: TR416, it failed upstream after it had changed something.
    """
    query, statement = found.query, found.statement
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
            hint="see what it did upstream, do the same downstream by hand, and start behind this position",
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
    names = [(t.db, t.table) for t in statement.tables]
    names += [(t.renamed_to_db or t.db, t.renamed_to) for t in statement.tables if t.renamed_to]
    # Of a statement on both replicated and excluded tables the channel takes its part, or stops.
    return any(tables.allows(db, table) for db, table in names)


def tables_not_logged(found: LoggedStatement, flavor: Flavor, *, folds: bool) -> list[tuple[str, str]]:
    """The tables that a statement changes without row events, as far as its text tells all of them; else none."""
    query, statement = found.query, found.statement
    if statement.category is Category.DML:
        dml = read_dml(query.statement, query.default_db, flavor, sql_mode=query.sql_mode or 0)
        named = dml.tables if dml else ()
    else:
        named = statement.tables
    tables = [(name.db, name.table) for name in named]
    return [(lowered(db), lowered(table)) for db, table in tables] if folds else tables


def not_logged(found: LoggedStatement) -> DecodeError:
    """The error of a statement whose effect is not in the log."""
    statement = found.statement
    what, hint = _UNLOGGED.get(statement.category, (f"is not understood: {statement.reason}", _BY_HAND))
    return DecodeError("TR409", f"a statement {what}: {found.query.statement[:200]}", hint=hint)
