"""What the text of a CREATE or ALTER says of a table that a schema change tool fills with another table's rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from schemas.ddl.lexer import Flavor, Lexer, Token, TokenKind, dialect_of
from spark_consumer.ddl.fill import NO_COLUMNS, RANDOM, numbers

#: gh-ost's own tables; its statements carry its name in a comment
_MARK = re.compile(r"/\*\s*gh-ost\s*\*/", re.IGNORECASE)
_SENTRY = "ghost-cut-over-sentry"
# Values for rows that are there come from the session or from nowhere: the tool's rows have others than ours.
_FILLED = RANDOM | {
    *("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP", "CURDATE", "CURRENT_DATE", "CURTIME"),
    *("CURRENT_TIME", "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP", "NEXT"),
}
# A tool copies columns by their names, ALTER knows what has become of them; and partitions take rows with them.
_RENAMED = frozenset(("CHANGE", "RENAME", "PARTITION", "PARTITIONING", "REORGANIZE", "IGNORE", "PERIOD"))


def made_by_ghost(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> bool:
    """Whether gh-ost wrote it: by a comment of the statement, or by that of the table."""
    lexer = Lexer(statement, dialect_of(flavor, sql_mode))
    sentry = any(token.kind is TokenKind.STRING and token.text[1:-1] == _SENTRY for token in lexer)
    return sentry or any(_MARK.fullmatch(statement, *gap) for gap in lexer.gaps)


def replaces(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> bool:
    """Whether a CREATE TABLE is one with OR REPLACE."""
    head = takewhile(lambda token: token.key != "TABLE", Lexer(statement, dialect_of(flavor, sql_mode)))
    return any(token.key == "REPLACE" for token in head)


def liked(statement: str, default_db: str, flavor: Flavor, *, sql_mode: int = 0) -> tuple[str, str] | None:
    """The table whose structure a CREATE TABLE … LIKE takes over; None for other statements."""
    tokens = list(Lexer(statement, dialect_of(flavor, sql_mode)))
    depth = 0
    for index, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        if token.key == "LIKE" and depth <= 1 and (depth == 0 or tokens[index - 1].key == "("):
            return _name(tokens[index + 1 :], default_db)
        if (depth and token.key == ",") or token.key in ("SELECT", "AS"):
            return None
    return None


def _name(tokens: list[Token], default_db: str) -> tuple[str, str] | None:
    kinds = (TokenKind.WORD, TokenKind.QUOTED)
    if not tokens or tokens[0].kind not in kinds:
        return None
    if len(tokens) > 2 and tokens[1].key == ".":
        return tokens[0].text, tokens[2].text
    return default_db, tokens[0].text


def body(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> str:
    """A full CREATE TABLE behind the table's name, to be compared with another: without counter and comments, one space
    where there are some.
    """
    tokens = list(Lexer(statement, dialect_of(flavor, sql_mode)))
    keys = [token.key for token in tokens]
    parts: list[str] = []
    at = keys.index("(") if "(" in keys else len(tokens)
    end = tokens[at].start if at < len(tokens) else 0
    while at < len(tokens):
        if keys[at : at + 2] == ["AUTO_INCREMENT", "="]:
            end, at = tokens[at + 2].end, at + 3
            continue
        token = tokens[at]
        parts += [" " if token.start > end else "", statement[token.start : token.end]]
        end, at = token.end, at + 1
    return "".join(parts)


def reproducible(alters: list[str], flavor: Flavor, *, sql_mode: int = 0) -> bool:
    """Whether these ALTERs of a shadow table, run on the real one, give its rows the values that the tool gives them.

    The tool copies the columns that both tables have, by name. In doubt: no.
    """
    added: set[str] = set()
    removed: set[str] = set()
    for text in alters:
        tokens = list(Lexer(text, dialect_of(flavor, sql_mode)))
        words = [token.key for token in tokens]
        if _FILLED & set(words) or _RENAMED & set(words) or "START" in words or numbers(words):
            return False
        for first, name in _columns(tokens):
            (added if first == "ADD" else removed).add(name.lower())
    return not added & removed


def _columns(tokens: list[Token]) -> Iterator[tuple[str, str]]:
    """ADD or DROP with each column that it names."""
    depth, previous, verb = 0, "", ""
    for index, token in enumerate(tokens):
        if depth == 0 and token.key in ("ADD", "DROP") and previous != ".":
            verb = token.key
            found = _column(tokens[index + 1 :])
            if found:
                yield verb, found
        elif depth == 1 and previous == "," and verb == "ADD" and token.kind is not TokenKind.SIGN:
            # ADD (a INT, b INT); parts of keys, too, and naming too many does no harm.
            yield verb, token.text
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        previous = token.key


def _column(tokens: list[Token]) -> str:
    keys = [token.key for token in tokens[:6]]
    at = 0
    if keys[:1] == ["COLUMN"]:
        at = 1
    elif keys and keys[0] in NO_COLUMNS:
        return ""
    if keys[at : at + 1] == ["IF"]:
        at += 3 if "NOT" in keys[at : at + 2] else 2
    if keys[at : at + 1] == ["("]:
        at += 1
    return tokens[at].text if at < len(tokens) else ""
