"""Finds the storage engines in CREATE TABLE and ALTER TABLE, and replaces them with InnoDB."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.ddl.cursor import TokenList
from schemas.ddl.lexer import Flavor, Lexer, Token, TokenKind, dialect_of

#: engines that InnoDB can replace: their tables contain and keep their own rows
REPLACEABLE = frozenset({"MYISAM", "ARIA", "MARIA", "MEMORY", "HEAP", "CSV", "ARCHIVE", "ISAM"})
INNODB = "InnoDB"


def takes_default_engine(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> bool:
    """Whether a CREATE TABLE uses the session's default engine, because it has neither an engine nor LIKE."""
    tokens = TokenList(statement, dialect_of(flavor, sql_mode))
    return not any(True for _ in _engines(tokens)) and not _is_like(tokens)


def has_foreign_key(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> bool:
    """Whether a statement may define a foreign key."""
    return any(token.key == "REFERENCES" for token in Lexer(statement, dialect_of(flavor, sql_mode)))


def with_innodb(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> str:
    """Replace each engine of ``REPLACEABLE`` in a CREATE TABLE or ALTER TABLE with InnoDB, also in its partitions."""
    tokens = TokenList(statement, dialect_of(flavor, sql_mode))
    for token in reversed([engine for engine in _engines(tokens) if _name(engine) in REPLACEABLE]):
        statement = f"{statement[: token.start]}{INNODB}{statement[token.end :]}"
    return statement


def _engines(tokens: TokenList) -> Iterator[Token]:
    """Yield the engines in the options of a table and its partitions."""
    depth, partitions = 0, False
    for index, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        if depth == 0 and token.key in ("AS", "SELECT"):
            return
        partitions = partitions or (depth == 0 and token.key == "PARTITION")
        if token.key != "ENGINE" or (depth and not partitions) or tokens.key(index - 1) == ".":
            continue
        at = index + 1 + (tokens.key(index + 1) == "=")
        if at < len(tokens) and tokens[at].kind in (TokenKind.WORD, TokenKind.QUOTED, TokenKind.STRING):
            yield tokens[at]


def _is_like(tokens: TokenList) -> bool:
    """Whether it is ``CREATE TABLE t LIKE u`` or ``CREATE TABLE t (LIKE u)``."""
    like = tokens.find("LIKE")
    before = tokens.keys(0, like)
    opened = before.count("(")
    return like >= 0 and "SELECT" not in before and (opened == 0 or (opened == 1 and before[-1] == "("))


def _name(token: Token) -> str:
    return token.text.strip("'\"").upper()
