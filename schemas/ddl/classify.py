"""Classifies the text of a QUERY event: its kind, and the tables it creates, changes, drops or renames.

Only as much of a statement is read as is necessary, and nothing is guessed: a statement that does not match the
servers' grammar (MySQL and MariaDB: ``sql/sql_yacc.yy``) is UNKNOWN and must stop the channel.

Categories:

- TRANSACTION: BEGIN, COMMIT, ROLLBACK, savepoints, which frame row events.
- XA: the frame of an XA transaction; its rows follow PREPARE, its outcome is logged later.
- DDL: replicated: tables, indexes, databases, views, MariaDB's sequences.
- OBJECT: stored programs and accounts: published, and replicated according to a channel's ``[ddl]``.
- IGNORED: not replicated, by rule; ``reason`` has the reason, ``IGNORED_REASONS`` lists all.
- DML: data changed by the text of a statement instead of row events; the publisher must stop.
- FILES: rows imported or removed as a file, which is not in the binlog; the publisher must stop.
- UNKNOWN: anything else; the publisher must stop. ``reason`` describes what was not understood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from schemas.ddl.alter_clauses import alter_modifiers, clause_starts, new_table_name, partition_partner
from schemas.ddl.cursor import Cursor, Reference, TableName, Unparsable
from schemas.ddl.lexer import Flavor, LexError, Token, TokenKind, dialect_of

__all__ = [
    "FAMILIES",
    "IGNORED_REASONS",
    "Category",
    "ClassifiedStatement",
    "TableName",
    "classify",
    "family",
    "without_start_transaction",
]


class Category(Enum):
    """How the replicator handles a statement; see the module's docstring."""

    TRANSACTION = "transaction"
    XA = "xa"
    DDL = "ddl"
    OBJECT = "object"
    IGNORED = "ignored"
    DML = "dml"
    FILES = "files"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ClassifiedStatement:
    """A classified statement.

    Attributes:
        kind: canonical words such as ``ALTER TABLE``, ``DROP DATABASE``, ``XA PREPARE``, ``GRANT``.
        tables: the tables and views concerned, in the statement's order; only for DDL and FILES.
        database: the database of CREATE, ALTER or DROP DATABASE.
        program: database and name of the routine, trigger, event or package.
        temporary: CREATE or DROP of a TEMPORARY table; its category is IGNORED.
        creates_with_select: CREATE TABLE with a query as text, without row events: the session logs in statement
            format, and the publisher must stop as for DML.
        start_transaction: MySQL's ``CREATE TABLE … START TRANSACTION``: the rows of CREATE … SELECT follow.
        xid: for XA statements, the logged text of the identifier.
        one_phase: ``XA COMMIT … ONE PHASE``.
        reason: why it is IGNORED or UNKNOWN, one sentence.
        references: the positions of the tables and the database above in the text, in the text's order.
    """

    kind: str
    category: Category
    tables: tuple[TableName, ...] = ()
    database: str | None = None
    program: tuple[str, str] | None = None
    temporary: bool = False
    creates_with_select: bool = False
    start_transaction: bool = False
    xid: str | None = None
    one_phase: bool = False
    reason: str = ""
    references: tuple[Reference, ...] = ()


_UPKEEP = "maintenance changes no rows"
_SERVER = "server objects belong to each server"
_STORAGE = "the locations of files belong to each server"
_TEMPORARY = "the rows of temporary tables are not in the binlog, so the tables are not needed"
_NOTHING = "only comments, which no server executes"

#: the object or first words of statements that are not replicated, and the reason
IGNORED_REASONS: dict[str, str] = {
    **dict.fromkeys(("ANALYZE TABLE", "OPTIMIZE TABLE", "REPAIR TABLE", "CHECK TABLE"), _UPKEEP),
    **dict.fromkeys(("CHECKSUM TABLE", "FLUSH", "CACHE INDEX", "LOAD INDEX"), _UPKEEP),
    **dict.fromkeys(("SERVER", "INSTANCE", "RESOURCE GROUP", "SPATIAL REFERENCE SYSTEM"), _SERVER),
    **dict.fromkeys(("INSTALL", "UNINSTALL", "LOADABLE FUNCTION"), _SERVER),
    **dict.fromkeys(("TABLESPACE", "UNDO TABLESPACE", "LOGFILE GROUP"), _STORAGE),
    "TEMPORARY TABLE": _TEMPORARY,
    "": _NOTHING,
}

#: the family of each kind of object, which is the name of the setting in ``[ddl]``
FAMILIES: dict[str, str] = {
    **dict.fromkeys(("PROCEDURE", "FUNCTION", "PACKAGE", "PACKAGE BODY", "LIBRARY"), "routines"),
    "TRIGGER": "triggers",
    "EVENT": "events",
    **dict.fromkeys(("GRANT", "REVOKE", "USER", "ROLE"), "accounts"),
    **dict.fromkeys(("SET PASSWORD", "SET DEFAULT ROLE", "SET ROLE"), "accounts"),
    **dict.fromkeys(("VIEW", "JSON DUALITY VIEW"), "views"),
}


def family(kind: str) -> str:
    """Return the family of a statement's kind, ``""`` for tables, indexes, databases, sequences."""
    return FAMILIES.get(kind) or FAMILIES.get(kind.partition(" ")[2], "")


# The maximum number of characters of a statement, except for DML, which is not read completely.
_LONGEST = 16 << 20

_FRAMES = {
    text: ClassifiedStatement(text, Category.TRANSACTION)
    for text in ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT")
}
_FRAMES["ROLLBACK TO"] = ClassifiedStatement("ROLLBACK TO", Category.TRANSACTION)
_FRAMES["RELEASE SAVEPOINT"] = ClassifiedStatement("RELEASE SAVEPOINT", Category.TRANSACTION)
_SAVEPOINT = _FRAMES["SAVEPOINT"]


def classify(statement: str, default_db: str, flavor: Flavor, *, sql_mode: int = 0) -> ClassifiedStatement:
    """Classify a QUERY event's text.

    Args:
        statement: the text.
        default_db: the session's database, ``""`` for none.
        flavor: of the server that logged it.
        sql_mode: the session's bit set; only ANSI_QUOTES and NO_BACKSLASH_ESCAPES matter.
    """
    frame = _FRAMES.get(statement)
    if frame is not None:
        return frame
    if statement.startswith("SAVEPOINT `"):  # both servers log savepoints in this form
        return _SAVEPOINT
    cursor = Cursor(statement, dialect_of(flavor, sql_mode), default_db)
    kind = ""
    try:
        kind = _first_words(cursor)
        found = _statement(cursor)
        return replace(found, references=tuple(cursor.references)) if cursor.references else found
    except (Unparsable, LexError) as error:
        return ClassifiedStatement(kind, Category.UNKNOWN, reason=str(error))
    except RecursionError:
        return ClassifiedStatement(kind, Category.UNKNOWN, reason="too many nested statements")


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


def _first_words(cursor: Cursor) -> str:
    words = (cursor.peek().key, cursor.peek(1).key)
    return " ".join(w for w in words if w.isalpha())


def _statement(cursor: Cursor) -> ClassifiedStatement:
    while cursor.take("("):
        pass
    token = cursor.next()
    if token.kind is TokenKind.END:
        return _ignored("", "")
    handler = _HANDLERS.get(token.key)
    if handler is None:
        raise Unparsable(f"no statement starts with {token.text[:100]!r}")
    if len(cursor.statement) > _LONGEST and token.key not in _DML_WORDS:
        raise Unparsable(f"a statement of {len(cursor.statement)} characters is too long")
    return handler(cursor)


def _ignored(kind: str, why: str) -> ClassifiedStatement:
    return ClassifiedStatement(kind, Category.IGNORED, reason=IGNORED_REASONS[why])


def _ddl(kind: str, tables: tuple[TableName, ...] = ()) -> ClassifiedStatement:
    return ClassifiedStatement(kind, Category.DDL, tables)


# transactions ---------------------------------------------------------------------------------------


def _begin(cursor: Cursor) -> ClassifiedStatement:
    cursor.take("WORK")
    cursor.end()
    return _FRAMES["BEGIN"]


def _start(cursor: Cursor) -> ClassifiedStatement:
    if not cursor.take("TRANSACTION"):
        raise Unparsable("START is only logged for a transaction")
    return _FRAMES["BEGIN"]


def _commit(cursor: Cursor) -> ClassifiedStatement:
    cursor.take("WORK")
    _completion(cursor)
    return _FRAMES["COMMIT"]


def _rollback(cursor: Cursor) -> ClassifiedStatement:
    cursor.take("WORK")
    if not cursor.take("TO"):
        _completion(cursor)
        return _FRAMES["ROLLBACK"]
    if cursor.at("SAVEPOINT") and cursor.peek(1).kind is not TokenKind.END:
        cursor.next()
    cursor.name()
    cursor.end()
    return _FRAMES["ROLLBACK TO"]


def _completion(cursor: Cursor) -> None:
    if cursor.take("AND"):
        cursor.take("NO")
        cursor.expect("CHAIN")
    if cursor.at("NO", "RELEASE"):
        cursor.next()
    cursor.take("RELEASE")
    cursor.end()


def _savepoint(cursor: Cursor) -> ClassifiedStatement:
    cursor.name()
    cursor.end()
    return _SAVEPOINT


def _release(cursor: Cursor) -> ClassifiedStatement:
    cursor.expect("SAVEPOINT")
    cursor.name()
    cursor.end()
    return _FRAMES["RELEASE SAVEPOINT"]


def _xa(cursor: Cursor) -> ClassifiedStatement:
    verb = cursor.take_any("START", "BEGIN", "END", "PREPARE", "COMMIT", "ROLLBACK")
    if not verb:
        raise Unparsable(f"XA {cursor.peek().text!r} is never logged")
    first = cursor.peek().start
    last, one_phase = first, False
    for token in cursor.rest():
        if token.key in ("ONE", "SUSPEND", "JOIN", "RESUME"):
            one_phase = token.key == "ONE"
            break
        last = token.end
    xid = cursor.statement[first:last] if last > first else None
    if xid is None:
        raise Unparsable(f"XA {verb} without an identifier")
    kind = "XA START" if verb == "BEGIN" else f"XA {verb}"
    return ClassifiedStatement(kind, Category.XA, xid=xid, one_phase=one_phase)


# CREATE ---------------------------------------------------------------------------------------------


def _create(cursor: Cursor) -> ClassifiedStatement:
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
    _if(cursor, "NOT")
    return replace(_ignored(kind, "TEMPORARY TABLE"), tables=(cursor.table(),), temporary=True)


def _create_table(cursor: Cursor) -> ClassifiedStatement:
    _if(cursor, "NOT")
    table = cursor.table()
    tokens = list(_outer_tokens(cursor, with_openings=True))
    if cursor.flavor == "mysql" and _start_transaction_span(tokens) is not None:
        return replace(_ddl("CREATE TABLE", (table,)), start_transaction=True)
    return replace(_ddl("CREATE TABLE", (table,)), creates_with_select=_has_query(tokens))


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
    _if(cursor, "NOT")
    cursor.name()
    if cursor.take_any("USING", "TYPE"):
        cursor.name()
    cursor.expect("ON")
    table = cursor.table()
    if not cursor.at("("):
        raise Unparsable("an index without columns")
    return _ddl("CREATE INDEX", (table,))


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
    _if(cursor, "NOT" if verb == "CREATE" else "")
    return _ddl(f"{verb} {what}", (cursor.table(),))


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
        return _ignored(kind, "LOADABLE FUNCTION")
    if FAMILIES.get(what) == "accounts":
        return _account(kind)
    if what in FAMILIES:
        _if(cursor, "NOT" if verb == "CREATE" else "")
        name = cursor.table()
        return ClassifiedStatement(kind, Category.OBJECT, program=(name.db, name.table))
    if what not in IGNORED_REASONS or not what:
        raise Unparsable(f"{verb} of an unknown object {what!r}")
    return _ignored(kind, what)


def _is_loadable(cursor: Cursor, verb: str) -> bool:
    """Whether a function is from a library file, without a database. DROP has the same syntax as for a stored one."""
    named = 3 if cursor.at("IF", "NOT") else 2 if cursor.at("IF") else 0
    if verb == "CREATE":
        return cursor.peek(named + 1).key == "RETURNS"
    return verb == "DROP" and not cursor.has_default_db and cursor.peek(named + 1).key != "."


def _account(kind: str) -> ClassifiedStatement:
    return ClassifiedStatement(kind, Category.OBJECT)


def _if(cursor: Cursor, negation: str = "") -> None:
    """Skip ``IF [NOT] EXISTS``; IF is a reserved word, so it is not a name."""
    if cursor.take("IF"):
        cursor.expect(*((negation,) if negation else ()), "EXISTS")


# databases ------------------------------------------------------------------------------------------


def _database(cursor: Cursor, kind: str, negation: str = "") -> ClassifiedStatement:
    _if(cursor, negation)
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


def _alter(cursor: Cursor) -> ClassifiedStatement:
    alter_modifiers(cursor)
    if cursor.take("TABLE"):
        return _alter_table(cursor)
    if cursor.take_any("DATABASE", "SCHEMA"):
        return _alter_database(cursor)
    _program_clauses(cursor)
    return _view_or_sequence(cursor, "ALTER") or _other_object(cursor, "ALTER")


def _alter_table(cursor: Cursor) -> ClassifiedStatement:
    _if(cursor)
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
    return _ddl("ALTER TABLE", (table, *others))


# DROP, RENAME, TRUNCATE -----------------------------------------------------------------------------


def _drop(cursor: Cursor) -> ClassifiedStatement:
    if cursor.take("TEMPORARY"):
        kind = "DROP SEQUENCE" if cursor.at("SEQUENCE") else "DROP TABLE"
        dropped = _drop_list(cursor, kind, "SEQUENCE", "TABLE", "TABLES")
        return replace(_ignored(kind, "TEMPORARY TABLE"), tables=dropped.tables, temporary=True)
    if cursor.at("TABLE") or cursor.at("TABLES"):
        return _drop_list(cursor, "DROP TABLE", "TABLE", "TABLES")
    if cursor.at("VIEW") or cursor.at("SEQUENCE"):
        return _drop_list(cursor, f"DROP {cursor.peek().key}", "VIEW", "SEQUENCE")
    if cursor.take_any("DATABASE", "SCHEMA"):
        return _database(cursor, "DROP DATABASE")
    cursor.take_any("ONLINE", "OFFLINE")
    if cursor.take("INDEX"):
        _if(cursor)
        cursor.name()
        cursor.expect("ON")
        return _ddl("DROP INDEX", (cursor.table(),))
    if cursor.take("PREPARE"):
        raise Unparsable("DROP PREPARE is never logged")
    return _other_object(cursor, "DROP")


def _drop_list(cursor: Cursor, kind: str, *objects: str) -> ClassifiedStatement:
    if not cursor.take_any(*objects):
        raise Unparsable("DROP TEMPORARY of another object than a table")
    _if(cursor)
    names = cursor.tables()
    cursor.lock_wait()
    cursor.take_any("RESTRICT", "CASCADE")
    cursor.end()
    return _ddl(kind, names)


def _rename(cursor: Cursor) -> ClassifiedStatement:
    if cursor.take("USER"):
        return _account("RENAME USER")
    if not cursor.take_any("TABLE", "TABLES"):
        raise Unparsable(f"RENAME of an unknown object {cursor.peek().text!r}")
    _if(cursor)
    pairs = [_rename_pair(cursor)]
    while cursor.take(","):
        pairs.append(_rename_pair(cursor))
    cursor.end()
    return _ddl("RENAME TABLE", tuple(pairs))


def _rename_pair(cursor: Cursor) -> TableName:
    old = cursor.table()
    cursor.lock_wait()
    cursor.expect("TO")
    new = cursor.table()
    return TableName(old.db, old.table, new.db, new.table)


def _truncate(cursor: Cursor) -> ClassifiedStatement:
    cursor.take("TABLE")
    table = cursor.table()
    cursor.lock_wait()
    cursor.end()
    return _ddl("TRUNCATE TABLE", (table,))


# statements that are not replicated -----------------------------------------------------------------

_DML_WORDS = ("INSERT", "REPLACE", "UPDATE", "DELETE", "CALL", "DO", "SELECT", "WITH", "VALUES", "TABLE")


def _dml(kind: str) -> Callable[[Cursor], ClassifiedStatement]:
    statement = ClassifiedStatement(kind, Category.DML)
    return lambda cursor: statement


def _load(cursor: Cursor) -> ClassifiedStatement:
    if cursor.take("INDEX"):
        return _ignored("LOAD INDEX", "LOAD INDEX")
    what = cursor.take_any("DATA", "XML")
    if not what:
        raise Unparsable(f"LOAD of an unknown object {cursor.peek().text!r}")
    return ClassifiedStatement(f"LOAD {what}", Category.DML)


def _always_ignored(kind: str) -> Callable[[Cursor], ClassifiedStatement]:
    statement = _ignored(kind, kind)
    return lambda cursor: statement


def _upkeep(verb: str) -> Callable[[Cursor], ClassifiedStatement]:
    def handler(cursor: Cursor) -> ClassifiedStatement:
        cursor.take_any("NO_WRITE_TO_BINLOG", "LOCAL")
        if cursor.take_any("TABLE", "TABLES"):
            return _ignored(f"{verb} TABLE", f"{verb} TABLE")
        # MariaDB's ANALYZE [FORMAT=JSON] UPDATE runs the UPDATE.
        if cursor.take("FORMAT", "="):
            cursor.name()
        inner = _statement(cursor)
        if inner.category is Category.DML:
            return inner
        raise Unparsable(f"{verb} of an unknown object")

    return handler


def _cache(cursor: Cursor) -> ClassifiedStatement:
    cursor.expect("INDEX")
    return _ignored("CACHE INDEX", "CACHE INDEX")


def _set(cursor: Cursor) -> ClassifiedStatement:
    if cursor.flavor == "mariadb" and cursor.take("STATEMENT"):
        cursor.statement_variables()
        return _statement(cursor)
    for words in (("PASSWORD",), ("DEFAULT", "ROLE"), ("ROLE",), ("RESOURCE", "GROUP")):
        if cursor.take(*words):
            kind = " ".join(("SET", *words))
            return _account(kind) if kind in FAMILIES else _ignored(kind, " ".join(words))
    raise Unparsable("SET of a variable is never logged as a statement")


_HANDLERS: dict[str, Callable[[Cursor], ClassifiedStatement]] = {
    "BEGIN": _begin,
    "START": _start,
    "COMMIT": _commit,
    "ROLLBACK": _rollback,
    "SAVEPOINT": _savepoint,
    "RELEASE": _release,
    "XA": _xa,
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "LOAD": _load,
    "CACHE": _cache,
    "SET": _set,
    **{word: _dml(word) for word in _DML_WORDS},
    **{word: _always_ignored(word) for word in ("FLUSH", "INSTALL", "UNINSTALL")},
    "GRANT": lambda cursor: _account("GRANT"),
    "REVOKE": lambda cursor: _account("REVOKE"),
    **{word: _upkeep(word) for word in ("ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM")},
}
