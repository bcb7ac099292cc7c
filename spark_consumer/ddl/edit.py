"""Small changes to a DDL's text: fewer names, IF EXISTS, disabled events. The rest of the text stays unchanged."""

from __future__ import annotations

from collections.abc import Collection

from schemas.ddl.classify import ClassifiedStatement, classify
from schemas.ddl.lexer import Dialect, Flavor, Lexer, Token, dialect_of
from schemas.quote import quoted

#: the kinds whose lists of tables can be shortened
LISTS = ("DROP TABLE", "DROP VIEW", "DROP SEQUENCE", "RENAME TABLE")
_MIDDLE = "it has executable comments in its list of names"


class NotEditable(ValueError):
    """The text cannot be changed safely. The message is the reason."""


def keep_items(
    statement: str, default_db: str, flavor: Flavor, kept: Collection[int], *, sql_mode: int = 0
) -> str:
    """Reduce a DROP or RENAME of several tables to some of them.

    Args:
        statement, default_db, flavor, sql_mode: see ``classify``.
        kept: indexes of the tables to keep, at least one.

    Raises:
        NotEditable: the statement is of another kind, or has executable comments in its list.
    """
    found = classify(statement, default_db, flavor, sql_mode=sql_mode)
    if found.kind not in LISTS:
        raise NotEditable(f"{found.kind} has no list that can be shortened")
    if len(kept) == len(found.tables):
        return statement
    items = _items(found)
    first, last = items[0][0], items[-1][1]
    for start, end in _gaps(statement, dialect_of(flavor, sql_mode)):
        if first <= start and end <= last and statement[start:end].startswith(("/*!", "/*M!", "*/")):
            raise NotEditable(_MIDDLE)
    parts = [statement[start:end] for index, (start, end) in enumerate(items) if index in kept]
    return statement[:first] + ", ".join(parts) + statement[last:]


def _items(found: ClassifiedStatement) -> list[tuple[int, int]]:
    """Return start and end of each item in the text: a name, or ``old TO new``."""
    references = found.references
    if found.kind != "RENAME TABLE":
        return [(r.start, r.end) for r in references]
    return [(old.start, new.end) for old, new in zip(references[::2], references[1::2], strict=True)]


def _gaps(statement: str, dialect: Dialect) -> list[tuple[int, int]]:
    lexer = Lexer(statement, dialect)
    for _ in lexer:
        pass
    return lexer.gaps


def with_if_exists(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> str:
    """Return ``DROP …`` as ``DROP … IF EXISTS``."""
    tokens = list(Lexer(statement, dialect_of(flavor, sql_mode)))
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else None
        if token.key not in _DROPPED or (following is not None and following.key == "BODY"):
            continue
        if following is not None and following.key == "IF":
            return statement
        return f"{statement[: token.end]} IF EXISTS{statement[token.end :]}"
    raise NotEditable("the kind of object that it drops is not known")


_DROPPED = frozenset(
    ("TABLE", "TABLES", "VIEW", "SEQUENCE", "PROCEDURE", "FUNCTION", "EVENT", "PACKAGE", "BODY", "LIBRARY")
)


def as_replacing(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> str:
    """Return MariaDB's ``CREATE SEQUENCE`` as ``CREATE OR REPLACE SEQUENCE``."""
    tokens = list(Lexer(statement, dialect_of(flavor, sql_mode)))
    words = [token.key for token in tokens]
    at = words.index("CREATE")
    if words[at + 1 : at + 3] == ["OR", "REPLACE"]:
        return statement
    what = words.index("SEQUENCE", at)
    optional = words[what + 1 : what + 4] == ["IF", "NOT", "EXISTS"]
    name = tokens[what + 4 if optional else what + 1]
    return f"{statement[: tokens[at].start]}CREATE OR REPLACE SEQUENCE {statement[name.start :]}"


def as_alter_database(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> str:
    """Return ``CREATE DATABASE name options`` as the ALTER DATABASE that sets the same options, for MariaDB.

    Without a character set the database gets the session's ``collation_server``, as a new database does; DEFAULT would
    mean the global one.

    Raises:
        NotEditable: an executable comment starts before the options and ends in them.
    """
    lexer = Lexer(statement, dialect_of(flavor, sql_mode))
    tokens = list(lexer)
    words = [token.key for token in tokens]
    at = next(index for index, word in enumerate(words) if word in ("DATABASE", "SCHEMA")) + 1
    name = tokens[at + 3 if words[at : at + 3] == ["IF", "NOT", "EXISTS"] else at]
    gaps = [statement[start:end] for start, end in lexer.gaps if start >= name.end]
    if gaps.count("*/") != sum(text.startswith(("/*!", "/*M!")) for text in gaps):
        raise NotEditable("the database's name is in an executable comment")
    head, options = f"ALTER DATABASE {statement[name.start : name.end]}", statement[name.end :]
    if any(token.key in _CHARSET for token in tokens if token.start > name.start):
        return head + options
    return f"EXECUTE IMMEDIATE CONCAT({_text(head)}, ' COLLATE ', @@collation_server, {_text(options)})"


def _text(text: str) -> str:
    """Return a literal that has the same value under each sql_mode."""
    return f"_utf8mb4 X'{text.encode().hex()}'"


_CHARSET = frozenset(("CHARACTER", "CHARSET", "CHAR", "COLLATE"))


def with_definer(statement: str, flavor: Flavor, user: str, host: str, *, sql_mode: int = 0) -> str:
    """Add a DEFINER to ``ALTER EVENT``: without one the session's account becomes the definer."""
    tokens = list(Lexer(statement, dialect_of(flavor, sql_mode)))
    words = [token.key for token in tokens]
    at = words.index("ALTER") if "ALTER" in words else -1
    if at < 0 or "DEFINER" in words[at : at + 2]:
        return statement
    account = f"{quoted(user)}@{quoted(host)}"
    return f"{statement[: tokens[at].end]} DEFINER={account}{statement[tokens[at].end :]}"


def with_event_disabled(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> str:
    """Add DISABLE ON SLAVE to CREATE EVENT or ALTER EVENT, so that the event does not run on the downstream.

    Raises:
        NotEditable: there is an executable comment before the event's body.
    """
    lexer = Lexer(statement, dialect_of(flavor, sql_mode))
    tokens = list(lexer)
    end = _head_end(tokens)
    limit = tokens[end].start if end < len(tokens) else len(statement)
    for start, stop in lexer.gaps:
        if start < limit and statement[start:stop].startswith(("/*!", "/*M!", "*/")):
            raise NotEditable("the event has executable comments")
    status = _status(tokens[:end])
    if status is None:
        at = tokens[end - 1].end
        return f"{statement[:at]} DISABLE ON SLAVE{statement[at:]}"
    return f"{statement[: status[0]]}DISABLE ON SLAVE{statement[status[1] :]}"


def _head_end(tokens: list[Token]) -> int:
    """Return the index of COMMENT or DO; the event's status can only be before it."""
    depth, seen_event = 0, 0
    for index, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        if token.key == "EVENT" and not seen_event:
            seen_event = index
        named = index > seen_event + 1 and tokens[index - 1].key not in (".", "EXISTS", "TO", "EVENT")
        if depth == 0 and seen_event and named and token.key in ("COMMENT", "DO"):
            return index
    return len(tokens)


def _status(tokens: list[Token]) -> tuple[int, int] | None:
    """Return start and end of ENABLE, DISABLE or DISABLE ON … in the text: the last such words that are not a name."""
    for index in range(len(tokens) - 1, 1, -1):
        token = tokens[index]
        if token.key in ("ENABLE", "DISABLE") and tokens[index - 1].key not in (".", "EVENT", "EXISTS", "TO"):
            following = [t.key for t in tokens[index + 1 : index + 3]]
            long = len(following) == 2 and following[0] == "ON" and following[1] in ("SLAVE", "REPLICA")
            return token.start, tokens[index + 2].end if long else token.end
    return None
