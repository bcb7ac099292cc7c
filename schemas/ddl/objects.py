"""Reads CREATE, ALTER, DROP, RENAME and TRUNCATE: their kind, and the tables, databases and programs that they name.

The functions get a cursor after the statement's first word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from schemas.ddl.alter_clauses import alter_modifiers, clause_starts, new_table_name, partition_partner
from schemas.ddl.cursor import Cursor, TableName, Unparsable
from schemas.ddl.kinds import FAMILIES, IGNORED_REASONS, Category, ClassifiedStatement, account, ddl, ignored
from schemas.ddl.lexer import Token, TokenKind, dialect_of

# CREATE ---------------------------------------------------------------------------------------------


def create(cursor: Cursor) -> ClassifiedStatement:
    """Read CREATE of any object."""
    cursor.take("OR", "REPLACE")
    if cursor.take("TEMPORARY"):
        return _create_temporary(cursor)
    if cursor.take("TABLE"):
        return _create_table(cursor)
    if cursor.take_any("DATABASE", "SCHEMA"):
        return _database(cursor, "CREATE DATABASE", "NOT")
    _program_clauses(cursor)
    if index := _create_index(cursor):
        return index
    return _view_or_sequence(cursor, "CREATE") or _other_object(cursor, "CREATE")


def _create_temporary(cursor: Cursor) -> ClassifiedStatement:
    kind = "CREATE SEQUENCE" if cursor.take("SEQUENCE") else "CREATE TABLE"
    if kind == "CREATE TABLE":
        cursor.expect("TABLE")
    _if_exists(cursor, "NOT")
    return replace(ignored(kind, "TEMPORARY TABLE"), tables=(cursor.table(),), temporary=True)


def _create_table(cursor: Cursor) -> ClassifiedStatement:
    _if_exists(cursor, "NOT")
    table = cursor.table()
    tokens = list(_outer_tokens(cursor, with_openings=True))
    if cursor.flavor == "mysql" and _start_transaction_span(tokens) is not None:
        return replace(ddl("CREATE TABLE", (table,)), start_transaction=True)
    return replace(ddl("CREATE TABLE", (table,)), creates_with_select=_has_query(tokens))


def _has_query(tokens: list[Token]) -> bool:
    """Whether the new table gets its rows from a query; these keywords are reserved words or stand alone."""
    previous = ""
    for token in tokens:
        if token.key in ("SELECT", "VALUES", "TABLE") and previous != ".":
            return True
        previous = token.key
    return False


def _outer_tokens(cursor: Cursor, with_openings: bool = False) -> Iterator[Token]:
    """Yield the tokens outside of parentheses; ``with_openings``: also the first token after each opening one.

    Raises:
        Unparsable: parentheses do not match, or a second statement follows.
    """
    depth, previous = 0, ""
    for token in cursor.rest():
        if token.key == ")":
            depth -= 1
        if depth < 0:
            break
        if depth == 0 and token.key == ";":
            cursor.end()
            return
        if depth == 0 or (with_openings and previous == "("):
            yield token
        if token.key == "(":
            depth += 1
        previous = token.key
    if depth != 0:
        raise Unparsable("parentheses do not match")


def _start_transaction_span(tokens: list[Token]) -> tuple[int, int] | None:
    """Find START TRANSACTION, which the server writes between the columns and the table's options."""
    for start, word in pairwise(tokens):
        if start.key == "START" and word.key == "TRANSACTION":
            return start.start, word.end
    return None


def _create_index(cursor: Cursor) -> ClassifiedStatement | None:
    cursor.take_any("ONLINE", "OFFLINE")
    special = cursor.peek().key in ("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR")
    if special and cursor.peek(1).key == "INDEX":
        cursor.next()
    if not cursor.take("INDEX"):
        return None
    _if_exists(cursor, "NOT")
    cursor.name()
    if cursor.take_any("USING", "TYPE"):
        cursor.name()
    cursor.expect("ON")
    table = cursor.table()
    if not cursor.at("("):
        raise Unparsable("an index without columns")
    return ddl("CREATE INDEX", (table,))


def _program_clauses(cursor: Cursor) -> None:
    """Skip the clauses before VIEW, TRIGGER, PROCEDURE and similar words."""
    while True:
        if cursor.take("DEFINER"):
            cursor.expect("=")
            cursor.user()
        elif cursor.take("ALGORITHM"):
            cursor.expect("=")
            cursor.name()
        elif cursor.take("SQL", "SECURITY"):
            cursor.name()
        elif not cursor.take("AGGREGATE"):
            return


def _view_or_sequence(cursor: Cursor, verb: str) -> ClassifiedStatement | None:
    """Read ``VIEW``, MySQL's ``JSON DUALITY VIEW`` or MariaDB's ``SEQUENCE`` and its name; None for other objects."""
    if cursor.take("JSON"):
        cursor.take("RELATIONAL")
        cursor.expect("DUALITY", "VIEW")
        what = "JSON DUALITY VIEW"
    elif not (what := cursor.take_any("VIEW", "SEQUENCE")):
        return None
    _if_exists(cursor, "NOT" if verb == "CREATE" else "")
    return ddl(f"{verb} {what}", (cursor.table(),))


_TWO_WORDS = {
    "PACKAGE": ("BODY",),
    "UNDO": ("TABLESPACE",),
    "LOGFILE": ("GROUP",),
    "RESOURCE": ("GROUP",),
    "SPATIAL": ("REFERENCE", "SYSTEM"),
}


def _other_object(cursor: Cursor, verb: str) -> ClassifiedStatement:
    """Read the kind of another object, and its name if it is replicated."""
    what = cursor.next().key
    more = _TWO_WORDS.get(what, ())
    if more and cursor.take(*more):
        what = " ".join((what, *more))
    kind = f"{verb} {what}"
    if what == "FUNCTION" and _is_loadable(cursor, verb):
        return ignored(kind, "LOADABLE FUNCTION")
    if FAMILIES.get(what) == "accounts":
        return account(kind)
    if what in FAMILIES:
        _if_exists(cursor, "NOT" if verb == "CREATE" else "")
        name = cursor.table()
        return ClassifiedStatement(kind, Category.OBJECT, program=(name.db, name.table))
    if what not in IGNORED_REASONS or not what:
        raise Unparsable(f"{verb} of an unknown object {what!r}")
    return ignored(kind, what)


def _is_loadable(cursor: Cursor, verb: str) -> bool:
    """Whether a function is from a library file, without a database. DROP has the same syntax as for a stored one."""
    named = 3 if cursor.at("IF", "NOT") else 2 if cursor.at("IF") else 0
    if verb == "CREATE":
        return cursor.peek(named + 1).key == "RETURNS"
    return verb == "DROP" and not cursor.has_default_db and cursor.peek(named + 1).key != "."


def _if_exists(cursor: Cursor, negation: str = "") -> None:
    """Skip ``IF [NOT] EXISTS``; IF is a reserved word, so it is not a name."""
    if cursor.take("IF"):
        cursor.expect(*((negation,) if negation else ()), "EXISTS")


# databases ------------------------------------------------------------------------------------------


def _database(cursor: Cursor, kind: str, negation: str = "") -> ClassifiedStatement:
    _if_exists(cursor, negation)
    name = cursor.database()
    if kind == "DROP DATABASE":
        cursor.end()
    return ClassifiedStatement(kind, Category.DDL, database=name)


_DATABASE_OPTIONS = ("DEFAULT", "CHARACTER", "CHAR", "COLLATE", "READ")


def _alter_database(cursor: Cursor) -> ClassifiedStatement:
    """Read ALTER DATABASE. The name is optional; both servers' parsers treat CHARSET and ENCRYPTION as names here."""
    following = cursor.peek(1)
    comment = cursor.flavor == "mariadb" and cursor.at("COMMENT")
    if cursor.peek().key in _DATABASE_OPTIONS or (
        comment and (following.key == "=" or following.kind is TokenKind.STRING)
    ):
        name = cursor.default_db()
    else:
        name = cursor.database()
        if cursor.peek().kind not in (TokenKind.WORD, TokenKind.END):
            raise Unparsable(f"expected an option of ALTER DATABASE, found {cursor.peek().text!r}")
    return ClassifiedStatement("ALTER DATABASE", Category.DDL, database=name)


# ALTER ----------------------------------------------------------------------------------------------


def alter(cursor: Cursor) -> ClassifiedStatement:
    """Read ALTER of any object."""
    alter_modifiers(cursor)
    if cursor.take("TABLE"):
        return _alter_table(cursor)
    if cursor.take_any("DATABASE", "SCHEMA"):
        return _alter_database(cursor)
    _program_clauses(cursor)
    return _view_or_sequence(cursor, "ALTER") or _other_object(cursor, "ALTER")


def _alter_table(cursor: Cursor) -> ClassifiedStatement:
    _if_exists(cursor)
    table = cursor.table()
    cursor.lock_wait()
    others: list[TableName] = []
    for first in clause_starts(cursor):
        if first.key == "RENAME" and (new := new_table_name(cursor)):
            table = table._replace(renamed_to_db=new.db, renamed_to=new.table)
        elif first.key in ("DISCARD", "IMPORT") and cursor.peek().key in ("TABLESPACE", "PARTITION"):
            return ClassifiedStatement("ALTER TABLE", Category.FILES, (table,))
        elif other := partition_partner(cursor, first.key):
            others.append(other)
    return ddl("ALTER TABLE", (table, *others))


# DROP, RENAME, TRUNCATE -----------------------------------------------------------------------------


def drop(cursor: Cursor) -> ClassifiedStatement:
    """Read DROP of any object."""
    if cursor.take("TEMPORARY"):
        kind = "DROP SEQUENCE" if cursor.at("SEQUENCE") else "DROP TABLE"
        dropped = _drop_list(cursor, kind, "SEQUENCE", "TABLE", "TABLES")
        return replace(ignored(kind, "TEMPORARY TABLE"), tables=dropped.tables, temporary=True)
    if cursor.at("TABLE") or cursor.at("TABLES"):
        return _drop_list(cursor, "DROP TABLE", "TABLE", "TABLES")
    if cursor.at("VIEW") or cursor.at("SEQUENCE"):
        return _drop_list(cursor, f"DROP {cursor.peek().key}", "VIEW", "SEQUENCE")
    if cursor.take_any("DATABASE", "SCHEMA"):
        return _database(cursor, "DROP DATABASE")
    cursor.take_any("ONLINE", "OFFLINE")
    if cursor.take("INDEX"):
        _if_exists(cursor)
        cursor.name()
        cursor.expect("ON")
        return ddl("DROP INDEX", (cursor.table(),))
    if cursor.take("PREPARE"):
        raise Unparsable("DROP PREPARE is never logged")
    return _other_object(cursor, "DROP")


def _drop_list(cursor: Cursor, kind: str, *objects: str) -> ClassifiedStatement:
    if not cursor.take_any(*objects):
        raise Unparsable("DROP TEMPORARY of another object than a table")
    _if_exists(cursor)
    names = cursor.tables()
    cursor.lock_wait()
    cursor.take_any("RESTRICT", "CASCADE")
    cursor.end()
    return ddl(kind, names)


def rename(cursor: Cursor) -> ClassifiedStatement:
    """Read RENAME TABLE or RENAME USER."""
    if cursor.take("USER"):
        return account("RENAME USER")
    if not cursor.take_any("TABLE", "TABLES"):
        raise Unparsable(f"RENAME of an unknown object {cursor.peek().text!r}")
    _if_exists(cursor)
    pairs = [_rename_pair(cursor)]
    while cursor.take(","):
        pairs.append(_rename_pair(cursor))
    cursor.end()
    return ddl("RENAME TABLE", tuple(pairs))


def _rename_pair(cursor: Cursor) -> TableName:
    old = cursor.table()
    cursor.lock_wait()
    cursor.expect("TO")
    new = cursor.table()
    return TableName(old.db, old.table, new.db, new.table)


def truncate(cursor: Cursor) -> ClassifiedStatement:
    """Read TRUNCATE TABLE."""
    cursor.take("TABLE")
    table = cursor.table()
    cursor.lock_wait()
    cursor.end()
    return ddl("TRUNCATE TABLE", (table,))


def without_start_transaction(statement: str, *, sql_mode: int = 0) -> str:
    """Convert MySQL's ``CREATE TABLE … START TRANSACTION`` to a plain CREATE TABLE.

    With the clause the new table is uncommitted until COMMIT, which only a replica may execute
    (MySQL: "CREATE TABLE ... START TRANSACTION", error 3882 and following).
    """
    cursor = Cursor(statement, dialect_of("mysql", sql_mode), "")
    span = _start_transaction_span(list(_outer_tokens(cursor)))
    if span is None:
        return statement
    return statement[: span[0]].rstrip() + statement[span[1] :]
