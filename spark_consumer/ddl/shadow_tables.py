"""Reads the CREATE and ALTERs of a table that a schema change tool fills with another table's rows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from schemas.ddl.alter_clauses import clauses_of
from schemas.ddl.cursor import TokenList, Unparsable
from schemas.ddl.lexer import Flavor, Lexer, TokenKind, dialect_of
from schemas.wire.epoch import SchemaChanged
from spark_consumer.ddl.alter_values import RANDOM, numbers

#: the comment in gh-ost's statements
_MARK = re.compile(r"/\*\s*gh-ost\s*\*/", re.IGNORECASE)
_SENTRY = "ghost-cut-over-sentry"
# Functions whose values for existing rows depend on the session or on chance: the tool's copy has other values.
_VOLATILE = RANDOM | {
    *("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP", "CURDATE", "CURRENT_DATE", "CURTIME"),
    *("CURRENT_TIME", "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP", "NEXT"),
}
# Words of ALTERs after which the real table would have other rows than the tool's copy: the tool copies columns by
# name, but an ALTER keeps the values of a renamed one; and with a partition its rows are dropped.
_OTHER_ROWS = frozenset(("CHANGE", "RENAME", "PARTITION", "PARTITIONING", "REORGANIZE", "IGNORE", "PERIOD"))


def made_by_ghost(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> bool:
    """Whether gh-ost wrote a statement: the statement or its table has gh-ost's comment."""
    tokens = TokenList(statement, dialect_of(flavor, sql_mode))
    sentry = any(token.kind is TokenKind.STRING and token.text[1:-1] == _SENTRY for token in tokens)
    return sentry or any(_MARK.fullmatch(statement, *gap) for gap in tokens.gaps)


def replaces(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> bool:
    """Whether a CREATE TABLE has OR REPLACE."""
    tokens = TokenList(statement, dialect_of(flavor, sql_mode))
    return 0 <= tokens.find("REPLACE") < tokens.find("TABLE")


def like_source(
    statement: str, default_db: str, flavor: Flavor, *, sql_mode: int = 0
) -> tuple[str, str] | None:
    """Return the source table of a CREATE TABLE … LIKE; None for other statements."""
    tokens = TokenList(statement, dialect_of(flavor, sql_mode))
    depth = 0
    for index, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        if token.key == "LIKE" and depth <= 1 and (depth == 0 or tokens.key(index - 1) == "("):
            source = tokens.table_at(index + 1, default_db)
            return None if source is None else (source.db, source.table or "")
        if (depth and token.key == ",") or token.key in ("SELECT", "AS"):
            return None
    return None


def body(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> str:
    """Return the part of a CREATE TABLE after the table's name in a form that can be compared.

    AUTO_INCREMENT and comments are left out, and each gap is one space.
    """
    tokens = TokenList(statement, dialect_of(flavor, sql_mode))
    at = tokens.find("(")
    if at < 0:
        return ""
    parts: list[str] = []
    end = tokens[at].start
    while at < len(tokens):
        if tokens.keys(at, 2) == ("AUTO_INCREMENT", "="):
            end, at = tokens[at + 2].end, at + 3
            continue
        token = tokens[at]
        parts += [" " if token.start > end else "", statement[token.start : token.end]]
        end, at = token.end, at + 1
    return "".join(parts)


def is_reproducible(alters: Sequence[SchemaChanged]) -> bool:
    """Whether a shadow table's ALTERs on the real table give the rows the same values as the tool's copy.

    The tool copies the columns that both tables have, by name. False if it is not sure.
    """
    added: set[str] = set()
    removed: set[str] = set()
    for ddl in alters:
        flavor, mode = ddl.source_flavor, ddl.mode
        words = [token.key for token in Lexer(ddl.statement, dialect_of(flavor, mode))]
        if _VOLATILE & set(words) or _OTHER_ROWS & set(words) or "START" in words or numbers(words):
            return False
        if ddl.kind != "ALTER TABLE":
            continue
        try:
            columns = [
                c for c in clauses_of(ddl.statement, flavor, sql_mode=mode) if c.object_kind == "COLUMN"
            ]
        except Unparsable:
            return False
        added |= {clause.name.lower() for clause in columns if clause.verb == "ADD"}
        removed |= {clause.name.lower() for clause in columns if clause.verb == "DROP"}
    return not added & removed
