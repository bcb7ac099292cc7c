"""Whether an ALTER TABLE fills rows that are there with values that another server would not find again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from schemas.ddl.column_clauses import NOT_COLUMNS
from schemas.ddl.lexer import Flavor, Lexer, Token, TokenKind, dialect_of

#: words with which no column begins behind ADD or DROP; PERIOD, SYSTEM and VECTOR may be names
NO_COLUMNS = NOT_COLUMNS | {"PARTITION"}
#: functions whose values come from nowhere, or from a session
RANDOM = frozenset(
    {
        *(
            "UUID",
            "UUID_SHORT",
            "UUID_V4",
            "UUID_V7",
            "SYS_GUID",
            "RAND",
            "RANDOM_BYTES",
            "SYSDATE",
            "NEXTVAL",
        ),
        *("USER", "CURRENT_USER", "SESSION_USER", "SYSTEM_USER", "CONNECTION_ID", "LAST_INSERT_ID"),
    }
)
# The session's time is not among them: a DDL brings it along.
_VOLATILE = RANDOM | {
    *("LASTVAL", "SETVAL", "DATABASE", "SCHEMA", "FOUND_ROWS", "ROW_COUNT", "VERSION"),
    *("IS_FREE_LOCK", "IS_USED_LOCK", "GET_LOCK", "LOAD_FILE"),
}


def unsure_fill(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> str:
    """What about an ALTER TABLE gives its rows values that are not in the log; "" if nothing does."""
    tokens = [t for t in Lexer(statement, dialect_of(flavor, sql_mode)) if t.kind is not TokenKind.END]
    keys = [token.key for token in tokens]
    # Rows that have a primary key are numbered in its order.
    had_none = "PRIMARY" in keys and ("DROP", "PRIMARY") not in pairwise(keys)
    for spec in _added(tokens):
        called = {one.key for one, behind in pairwise(spec) if behind.key == "("}
        if "DEFAULT" in {token.key for token in spec}:
            if found := called & _VOLATILE:
                return f"each row gets a value of {min(found)}()"
            if ("NEXT", "VALUE") in pairwise(token.key for token in spec):
                return "each row gets a value of a sequence"
        if had_none and numbers([token.key for token in spec]):
            return "its rows are numbered in an order that only the upstream knows, for nothing was their key before"
    return ""


def numbers(words: list[str]) -> bool:
    """Whether a column gets numbers; AUTO_INCREMENT = n is the table's counter."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "SERIAL" or (word == "AUTO_INCREMENT" and following != "=" and not following.isdecimal()):
            return True
    return False


def _added(tokens: list[Token]) -> Iterator[list[Token]]:
    """What stands behind each ADD of columns, up to the comma behind it."""
    depth, spec = 0, list[Token]()
    for token in [*tokens, None]:
        if token is None or (token.key == "," and depth == 0):
            if spec and not _of_no_column(spec):
                yield spec
            spec = []
            continue
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        if spec or (token.key == "ADD" and token.kind is TokenKind.WORD):
            spec.append(token)


def _of_no_column(spec: list[Token]) -> bool:
    """Whether an ADD is of a key, a constraint or a partition."""
    return len(spec) > 1 and spec[1].kind is TokenKind.WORD and spec[1].key in NO_COLUMNS
