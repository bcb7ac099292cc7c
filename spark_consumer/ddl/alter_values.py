"""Finds ALTER TABLEs that fill existing rows with values that differ between servers."""

from __future__ import annotations

from itertools import pairwise

from schemas.ddl.alter_clauses import clauses_of
from schemas.ddl.cursor import Unparsable
from schemas.ddl.lexer import Flavor, LexError

#: functions with random values, and functions whose values depend on the session
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
# Without the functions of the current time, because a DDL has the session's time with it.
_VOLATILE = RANDOM | {
    *("LASTVAL", "SETVAL", "DATABASE", "SCHEMA", "FOUND_ROWS", "ROW_COUNT", "VERSION"),
    *("IS_FREE_LOCK", "IS_USED_LOCK", "GET_LOCK", "LOAD_FILE"),
}


def nondeterministic_values(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> str:
    """Return why an ALTER TABLE gives rows values that are not in the log; "" if it does not."""
    try:
        clauses = clauses_of(statement, flavor, sql_mode=sql_mode)
    except (Unparsable, LexError) as error:
        return f"it cannot be parsed: {error}"
    # If the table has a primary key, the rows are numbered in its order.
    primary = any(token.key == "PRIMARY" for clause in clauses for token in clause.definition)
    had_none = primary and not any(clause.object_kind == "PRIMARY KEY" for clause in clauses)
    for clause in clauses:
        if (clause.verb, clause.object_kind) != ("ADD", "COLUMN"):
            continue
        words = [token.key for token in clause.definition]
        if "DEFAULT" in words:
            if found := _VOLATILE.intersection(word for word, after in pairwise(words) if after == "("):
                return f"each row gets a value of {min(found)}()"
            if ("NEXT", "VALUE") in pairwise(words):
                return "each row gets a value of a sequence"
        if had_none and numbers(words):
            return (
                "the table had no primary key, so the order in which its rows are numbered is not in the log"
            )
    return ""


def numbers(words: list[str]) -> bool:
    """Whether a column definition has AUTO_INCREMENT or SERIAL; ``AUTO_INCREMENT = n`` is the table's counter."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "SERIAL" or (word == "AUTO_INCREMENT" and following != "=" and not following.isdecimal()):
            return True
    return False
