"""Small changes to a DDL's text: fewer names, IF EXISTS, disabled events. The rest of the text stays unchanged."""

from __future__ import annotations

from collections.abc import Collection

from schemas.ddl.classify import classify
from schemas.ddl.cursor import TokenList
from schemas.ddl.kinds import ClassifiedStatement
from schemas.ddl.lexer import Flavor, Token, dialect_of
from schemas.quote import quoted

#: the kinds whose lists of tables can be shortened
LISTS = ("DROP TABLE", "DROP VIEW", "DROP SEQUENCE", "RENAME TABLE")


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
    gaps = TokenList(statement, dialect_of(flavor, sql_mode)).gaps
    if any(first <= start and end <= last for start, end in gaps if _is_executable(statement, start)):
        raise NotEditable("it has executable comments in its list of names")
    parts = [statement[start:end] for index, (start, end) in enumerate(items) if index in kept]
    return statement[:first] + ", ".join(parts) + statement[last:]


def _items(found: ClassifiedStatement) -> list[tuple[int, int]]:
    """Return start and end of each item in the text: a name, or ``old TO new``."""
    references = found.references
    if found.kind != "RENAME TABLE":
        return [(r.start, r.end) for r in references]
    return [(old.start, new.end) for old, new in zip(references[::2], references[1::2], strict=True)]


def _is_executable(statement: str, gap: int) -> bool:
    """Whether a gap is an executable comment, or a mark of one."""
    return statement.startswith(("/*!", "/*M!", "*/"), gap)


def with_if_exists(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> str:
    """Return ``DROP …`` as ``DROP … IF EXISTS``."""
    tokens = TokenList(statement, dialect_of(flavor, sql_mode))
    what = tokens.find(*_DROPPED)
    if what < 0:
        raise NotEditable("the kind of object that it drops is not known")
    what += tokens.keys(what, 2) == ("PACKAGE", "BODY")
    if tokens.key(what + 1) == "IF":
        return statement
    return f"{statement[: tokens[what].end]} IF EXISTS{statement[tokens[what].end :]}"


_DROPPED = frozenset(
    ("TABLE", "TABLES", "VIEW", "SEQUENCE", "PROCEDURE", "FUNCTION", "EVENT", "PACKAGE", "LIBRARY")
)


def as_replacing(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> str:
    """Return MariaDB's ``CREATE SEQUENCE`` as ``CREATE OR REPLACE SEQUENCE``."""
    tokens = TokenList(statement, dialect_of(flavor, sql_mode))
    verb = tokens.find("CREATE")
    if tokens.keys(verb + 1, 2) == ("OR", "REPLACE"):
        return statement
    name = _created(tokens, tokens.find("SEQUENCE", start=verb))
    return f"{statement[: tokens[verb].start]}CREATE OR REPLACE SEQUENCE {statement[name.start :]}"


def _created(tokens: TokenList, what: int) -> Token:
    """Return the first token of the name after a kind of object and perhaps IF NOT EXISTS."""
    if what < 0:
        raise NotEditable("the kind of object that it creates was not found")
    return tokens[what + (4 if tokens.keys(what + 1, 3) == ("IF", "NOT", "EXISTS") else 1)]


def as_alter_database(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> str:
    """Return ``CREATE DATABASE name options`` as the ALTER DATABASE that sets the same options, for MariaDB.

    Without a character set the database gets the session's ``collation_server``, as a new database does; DEFAULT would
    mean the global one.

    Raises:
        NotEditable: an executable comment starts before the options and ends in them.
    """
    tokens = TokenList(statement, dialect_of(flavor, sql_mode))
    name = _created(tokens, tokens.find("DATABASE", "SCHEMA"))
    gaps = [statement[start:end] for start, end in tokens.gaps if start >= name.end]
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
    tokens = TokenList(statement, dialect_of(flavor, sql_mode))
    verb = tokens.find("ALTER")
    if verb < 0 or tokens.key(verb + 1) == "DEFINER":
        return statement
    account = f"{quoted(user)}@{quoted(host)}"
    return f"{statement[: tokens[verb].end]} DEFINER={account}{statement[tokens[verb].end :]}"


def with_event_disabled(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> str:
    """Add DISABLE ON SLAVE to CREATE EVENT or ALTER EVENT, so that the event does not run on the downstream.

    Raises:
        NotEditable: there is an executable comment before the event's body.
    """
    tokens = TokenList(statement, dialect_of(flavor, sql_mode))
    end = _head_end(tokens)
    limit = tokens[end].start if end < len(tokens) else len(statement)
    if any(start < limit and _is_executable(statement, start) for start, _ in tokens.gaps):
        raise NotEditable("the event has executable comments")
    status = _status(tokens, end)
    if status is None:
        at = tokens[end - 1].end
        return f"{statement[:at]} DISABLE ON SLAVE{statement[at:]}"
    return f"{statement[: status[0]]}DISABLE ON SLAVE{statement[status[1] :]}"


def _head_end(tokens: TokenList) -> int:
    """Return the index of COMMENT or DO; the event's status can only be before it."""
    depth, event = 0, tokens.find("EVENT")
    for index, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        past_name = 0 <= event < index - 1 and tokens.key(index - 1) not in _BEFORE_NAME
        if depth == 0 and past_name and token.key in ("COMMENT", "DO"):
            return index
    return len(tokens)


def _status(tokens: TokenList, end: int) -> tuple[int, int] | None:
    """Return start and end of ENABLE, DISABLE or DISABLE ON … in the text: the last such words that are not a name."""
    for index in range(end - 1, 1, -1):
        if tokens.key(index) in ("ENABLE", "DISABLE") and tokens.key(index - 1) not in _BEFORE_NAME:
            long = index + 2 < end and tokens.keys(index + 1, 2) in (("ON", "SLAVE"), ("ON", "REPLICA"))
            return tokens[index].start, tokens[index + 2 if long else index].end
    return None


# After these the event's name follows, which may be any word.
_BEFORE_NAME = (".", "EXISTS", "TO", "EVENT")
