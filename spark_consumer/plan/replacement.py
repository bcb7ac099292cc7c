"""Checks the statements that an operator gives for an event: they must be able to run in the position's transaction.

A rewind runs them again on tables that already have their result and later changes. The result is the same if each
statement sets or removes the rows that it names: UPDATE to constants, DELETE, and REPLACE of whole rows, into which an
INSERT is changed. A statement that adds to a value, or to a table without a key, would do so twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schemas.ddl.classify import classify
from schemas.ddl.cursor import Cursor, TableName, Unparsable
from schemas.ddl.kinds import Category
from schemas.ddl.lexer import NO_BACKSLASH_ESCAPES, Flavor, LexError, TokenKind, dialect_of
from schemas.errors import DownstreamError
from schemas.wire.epoch import SchemaChanged, TableChanged

_DML = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"})


def check(statements: tuple[str, ...], *, for_ddl: bool, flavor: Flavor) -> None:
    """Raise DownstreamError TR643 for a statement that commits implicitly or cannot be parsed.

    Args:
        for_ddl: whether the event is a DDL; then the first statements may be DDL.
    """
    dml_seen = False
    for statement in statements:
        kind, is_ddl = _kind(statement, flavor)
        if is_ddl and not for_ddl:
            raise _not_allowed(statement, f"{kind} commits implicitly, together with the rows before it")
        if is_ddl and dml_seen:
            raise _not_allowed(
                statement, "DDL must come before INSERT, UPDATE and DELETE, which run with the position"
            )
        if not is_ddl and kind not in _DML:
            raise _not_allowed(
                statement, f"{kind or 'this'} is not allowed; use INSERT, UPDATE, DELETE or REPLACE"
            )
        dml_seen |= not is_ddl


def split_replacement(
    statements: tuple[str, ...], ddl: SchemaChanged, flavor: Flavor
) -> tuple[list[SchemaChanged], list[str]]:
    """Split the statements that replace a DDL into DDL, in the form of ``ddl``, and the DML after it.

    Args:
        flavor: the downstream's flavor.
    """
    changes: list[SchemaChanged] = []
    rows: list[str] = []
    check(statements, for_ddl=True, flavor=flavor)
    for statement in statements:
        found = classify(statement, ddl.default_db, flavor)
        if found.category is Category.DDL:
            tables = tuple(TableChanged(*table) for table in found.tables)
            changes.append(replace(ddl, statement=statement, kind=found.kind, tables=tables))
        else:
            rows.append(statement)
    return changes, rows


@dataclass(frozen=True)
class RepeatableStatement:
    """A statement that may run again.

    Attributes:
        sql: the statement in the form for a repetition.
        rows: the constants of each row, if it writes whole rows; otherwise None.
        columns: the columns of the constants; empty if the statement does not name them.
    """

    sql: str
    table: TableName
    rows: tuple[tuple[str, ...], ...] | None = None
    columns: tuple[str, ...] = ()

    def given(self, columns: Sequence[str]) -> set[str]:
        """Return the columns, in lower case, that are not NULL in any row.

        Args:
            columns: the table's columns.
        """
        names = [name.lower() for name in self.columns or columns]
        rows = self.rows or ()
        if any(len(row) != len(names) for row in rows):
            return set()
        return {name for place, name in enumerate(names) if all(row[place] != "NULL" for row in rows)}


def read_repeatable(statement: str, flavor: Flavor) -> RepeatableStatement | None:
    """Return a row's replacement in the form for a repetition; None if its result could differ from the first time."""
    cursor = Cursor(statement, dialect_of(flavor, NO_BACKSLASH_ESCAPES), "")
    try:
        first = cursor.peek()
        verb = cursor.take_any("UPDATE", "DELETE", "INSERT", "REPLACE")
        if verb == "UPDATE":
            found = RepeatableStatement(statement, cursor.table())
            cursor.expect("SET")
            _assignments(cursor)
            _condition(cursor)
        elif verb == "DELETE":
            cursor.expect("FROM")
            found = RepeatableStatement(statement, cursor.table())
            _condition(cursor)
        else:
            cursor.take("INTO")
            table = cursor.table()
            columns = _names(cursor) if cursor.at("(") else ()
            cursor.expect("VALUES")
            sql = f"{statement[: first.start]}REPLACE{statement[first.end :]}"
            found = RepeatableStatement(sql, table, _rows(cursor), columns)
        cursor.end()
    except (Unparsable, LexError, ValueError):
        return None
    return found


def _assignments(cursor: Cursor) -> None:
    while True:
        cursor.name()
        if cursor.take("."):
            cursor.name()
        cursor.expect("=")
        _literal(cursor)
        if not cursor.take(","):
            return


def _names(cursor: Cursor) -> tuple[str, ...]:
    cursor.expect("(")
    names = [cursor.name()]
    while cursor.take(","):
        names.append(cursor.name())
    cursor.expect(")")
    return tuple(names)


def _rows(cursor: Cursor) -> tuple[tuple[str, ...], ...]:
    """Step over lists of constants; return their first words."""
    rows: list[tuple[str, ...]] = []
    while not rows or cursor.take(","):
        cursor.expect("(")
        row = [_literal(cursor)]
        while cursor.take(","):
            row.append(_literal(cursor))
        cursor.expect(")")
        rows.append(tuple(row))
    return tuple(rows)


def _literal(cursor: Cursor) -> str:
    """Step over a constant; return its first word in capitals."""
    cursor.take_any("-", "+")
    first = cursor.next()
    if first.kind is TokenKind.STRING:
        return ""
    if first.kind is not TokenKind.WORD:
        raise Unparsable("not a constant")
    after = cursor.peek()
    if after.kind is TokenKind.STRING and after.start == first.end:
        cursor.next()  # X'00', _latin1'a'
    elif first.text[0].isdigit():
        if cursor.take("."):
            cursor.next()
    elif first.key not in ("NULL", "TRUE", "FALSE"):
        raise Unparsable("not a constant")
    return first.key


_COMPARISONS = frozenset(["=", "<", ">", "!", "(", ")", ",", ".", "+", "-", "*"])
_OPERATORS = frozenset(("AND", "OR", "XOR", "NOT", "IN", "IS", "NULL", "BETWEEN", "LIKE", "TRUE", "FALSE"))
# Words for values that depend on the session or the time, and for clauses that depend on the order of rows.
_VOLATILE = frozenset(
    {
        *("CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_USER", "CURRENT_ROLE", "LOCALTIME"),
        *("LOCALTIMESTAMP", "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP", "SYSDATE", "ORDER", "LIMIT", "SELECT"),
        *("RETURNING", "EXISTS", "ANY", "SOME", "ALL", "CASE", "INTERVAL", "DEFAULT", "MATCH"),
    }
)


def _condition(cursor: Cursor) -> None:
    """Step over WHERE and a condition of columns and constants."""
    cursor.expect("WHERE")
    previous = "("
    while (token := cursor.peek()).kind is not TokenKind.END and token.key != ";":
        cursor.next()
        if token.kind is TokenKind.SIGN and token.key not in _COMPARISONS:
            raise Unparsable(f"{token.text!r} in a condition")
        if token.key in _VOLATILE or (token.key == "(" and previous not in (*_OPERATORS, *_COMPARISONS)):
            raise Unparsable("a function in a condition")
        previous = token.key


def _kind(statement: str, flavor: Flavor) -> tuple[str, bool]:
    found = classify(statement, "", flavor)
    if found.category is Category.UNKNOWN and not found.kind:
        found = classify(statement, "unnamed", flavor)
    return found.kind, found.category is Category.DDL


def _not_allowed(statement: str, why: str) -> DownstreamError:
    return DownstreamError(
        "TR643",
        f"this cannot replace the event: {statement[:200]}: {why}",
        hint="one statement for each --sql, with names as schema.table; run everything else by hand, then"
        " `tailrace error skip`",
    )
