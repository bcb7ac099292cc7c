"""Finds the tables that a DML statement's text may change, with only as much of the grammar as necessary."""

from __future__ import annotations

from typing import NamedTuple

from schemas.ddl.cursor import Cursor, TableName, Unparsable
from schemas.ddl.lexer import Flavor, LexError, TokenKind, dialect_of

_MODIFIERS = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE")
_AFTER_TABLES = ("SET", "WHERE", "ORDER", "LIMIT", "RETURNING", "USING")


class DmlStatement(NamedTuple):
    """A statement's verb, and all tables that it may change itself (its triggers may change others)."""

    verb: str
    tables: tuple[TableName, ...]


def read_dml(statement: str, default_db: str, flavor: Flavor, *, sql_mode: int = 0) -> DmlStatement | None:
    """Find the tables that a statement may change; None if its text does not determine them, or it is not DML.

    Args:
        default_db: the session's database.
    """
    cursor = Cursor(statement, dialect_of(flavor, sql_mode), default_db)
    try:
        if cursor.take("SET", "STATEMENT"):
            cursor.statement_variables()
        return _read(cursor)
    except (Unparsable, LexError):
        return None


def _read(cursor: Cursor) -> DmlStatement | None:
    verb = cursor.take_any("INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD")
    if verb == "LOAD":
        return _load(cursor)
    if not verb:
        return None
    while cursor.take_any(*_MODIFIERS):
        pass
    if verb in ("INSERT", "REPLACE"):
        cursor.take("INTO")
        return DmlStatement(verb, (cursor.table(),))
    if verb == "DELETE":
        while not cursor.take("FROM"):
            if cursor.next().kind is TokenKind.END:
                return None
    tables, following = _tables(cursor)
    if verb == "DELETE" and following == "USING":
        # The names before are aliases of these.
        tables, _ = _tables(cursor)
    return DmlStatement(verb, tuple(tables))


def _load(cursor: Cursor) -> DmlStatement | None:
    """Read ``LOAD DATA … INFILE 'file' [REPLACE | IGNORE] INTO TABLE name …``; the verb is its effect on rows."""
    if not cursor.take_any("DATA", "XML"):
        return None
    verb = "INSERT"
    for token in cursor.rest():
        if token.key == "REPLACE":
            verb = "REPLACE"
        elif token.key == "INTO" and cursor.take("TABLE"):
            return DmlStatement(verb, (cursor.table(),))
    return None


def _tables(cursor: Cursor) -> tuple[list[TableName], str]:
    """Read the tables of a list or join; also returns the word after it."""
    tables = [_table(cursor)]
    depth = 0
    for token in cursor.rest():
        if token.key == "(":
            depth += 1
        elif token.key == ")":
            depth -= 1
        elif depth == 0 and token.key in (",", "JOIN", "STRAIGHT_JOIN"):
            tables.append(_table(cursor))
        elif depth == 0 and token.key in _AFTER_TABLES and not (token.key == "USING" and cursor.at("(")):
            return tables, token.key
    return tables, ""


def _table(cursor: Cursor) -> TableName:
    name = cursor.table()
    if cursor.at("("):
        raise Unparsable("expected a table, found a function")
    return name


def verb_on(statement: str, db: str, table: str, flavor: Flavor) -> str | None:
    """Return a statement's verb if it changes the table itself; None if its text does not have the table.

    A trigger cannot change a table that its statement changes. So if the text has the table among those that it
    changes, the statement changed it, and no trigger.
    """
    found = read_dml(statement, db, flavor) if statement else None
    # Ignoring case, since the server may do so too.
    named = {(name.db.lower(), name.table.lower()) for name in found.tables} if found else set()
    return found.verb if found and (db.lower(), table.lower()) in named else None
