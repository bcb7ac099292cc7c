"""Classifies the text of a QUERY event: its kind, and the tables it creates, changes, drops or renames.

Only as much of a statement is read as is necessary, and nothing is guessed: a statement that does not match the
servers' grammar (MySQL and MariaDB: ``sql/sql_yacc.yy``) is UNKNOWN and must stop the channel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from schemas.ddl import objects
from schemas.ddl.cursor import Cursor, Unparsable
from schemas.ddl.kinds import FAMILIES, Category, ClassifiedStatement, account, ignored
from schemas.ddl.lexer import Flavor, LexError, TokenKind, dialect_of

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


def _first_words(cursor: Cursor) -> str:
    words = (cursor.peek().key, cursor.peek(1).key)
    return " ".join(w for w in words if w.isalpha())


def _statement(cursor: Cursor) -> ClassifiedStatement:
    while cursor.take("("):
        pass
    token = cursor.next()
    if token.kind is TokenKind.END:
        return ignored("", "")
    handler = _HANDLERS.get(token.key)
    if handler is None:
        raise Unparsable(f"no statement starts with {token.text[:100]!r}")
    if len(cursor.statement) > _LONGEST and token.key not in _DML_WORDS:
        raise Unparsable(f"a statement of {len(cursor.statement)} characters is too long")
    return handler(cursor)


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


# statements that are not replicated -----------------------------------------------------------------

_DML_WORDS = ("INSERT", "REPLACE", "UPDATE", "DELETE", "CALL", "DO", "SELECT", "WITH", "VALUES", "TABLE")


def _dml(kind: str) -> Callable[[Cursor], ClassifiedStatement]:
    statement = ClassifiedStatement(kind, Category.DML)
    return lambda cursor: statement


def _load(cursor: Cursor) -> ClassifiedStatement:
    if cursor.take("INDEX"):
        return ignored("LOAD INDEX", "LOAD INDEX")
    what = cursor.take_any("DATA", "XML")
    if not what:
        raise Unparsable(f"LOAD of an unknown object {cursor.peek().text!r}")
    return ClassifiedStatement(f"LOAD {what}", Category.DML)


def _always_ignored(kind: str) -> Callable[[Cursor], ClassifiedStatement]:
    statement = ignored(kind, kind)
    return lambda cursor: statement


def _maintenance(verb: str) -> Callable[[Cursor], ClassifiedStatement]:
    def handler(cursor: Cursor) -> ClassifiedStatement:
        cursor.take_any("NO_WRITE_TO_BINLOG", "LOCAL")
        if cursor.take_any("TABLE", "TABLES"):
            return ignored(f"{verb} TABLE", f"{verb} TABLE")
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
    return ignored("CACHE INDEX", "CACHE INDEX")


def _set(cursor: Cursor) -> ClassifiedStatement:
    if cursor.flavor == "mariadb" and cursor.take("STATEMENT"):
        cursor.statement_variables()
        return _statement(cursor)
    for words in (("PASSWORD",), ("DEFAULT", "ROLE"), ("ROLE",), ("RESOURCE", "GROUP")):
        if cursor.take(*words):
            kind = " ".join(("SET", *words))
            return account(kind) if kind in FAMILIES else ignored(kind, " ".join(words))
    raise Unparsable("SET of a variable is never logged as a statement")


_HANDLERS: dict[str, Callable[[Cursor], ClassifiedStatement]] = {
    "BEGIN": _begin,
    "START": _start,
    "COMMIT": _commit,
    "ROLLBACK": _rollback,
    "SAVEPOINT": _savepoint,
    "RELEASE": _release,
    "XA": _xa,
    "CREATE": objects.create,
    "ALTER": objects.alter,
    "DROP": objects.drop,
    "RENAME": objects.rename,
    "TRUNCATE": objects.truncate,
    "LOAD": _load,
    "CACHE": _cache,
    "SET": _set,
    **{word: _dml(word) for word in _DML_WORDS},
    **{word: _always_ignored(word) for word in ("FLUSH", "INSTALL", "UNINSTALL")},
    "GRANT": lambda cursor: account("GRANT"),
    "REVOKE": lambda cursor: account("REVOKE"),
    **{word: _maintenance(word) for word in ("ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM")},
}
