"""Reads the clauses of an ALTER TABLE: what each adds, changes, drops or renames, with its remaining tokens.

Source: alter_list_item in ``sql/sql_yacc.yy`` of both servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.ddl.classify import classify
from schemas.ddl.column_clauses import at_column
from schemas.ddl.cursor import Cursor, Unparsable
from schemas.ddl.lexer import Flavor, Token, TokenKind, dialect_of

_HEAD = ("ALTER", "ONLINE", "TABLE", "IF", "EXISTS")
_VERBS = ("ADD", "DROP", "MODIFY", "CHANGE", "RENAME", "ALTER")
# Their lists have commas, and no other clause follows them.
_PARTITIONS = frozenset({"PARTITION", "COALESCE", "REORGANIZE", "EXCHANGE", "TRUNCATE", "REMOVE", "ORDER"})
_PARTITION_UPKEEP = frozenset({"ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR"})
_DROPPED = (("INDEX",), ("KEY",), ("FOREIGN", "KEY"), ("CHECK",), ("CONSTRAINT",))
_OTHERS = ("INDEX", "KEY", "CHECK", "CONSTRAINT")
# Twice as many as in the longest ENUM; each needs about 250 bytes.
_MOST_TOKENS = 1 << 18


@dataclass(frozen=True)
class Clause:
    """A clause of an ALTER TABLE.

    Attributes:
        words: its first words and signs in capitals, "" for quoted names; for messages.
        verb: ``ADD``, ``DROP``, ``MODIFY``, ``CHANGE``, ``RENAME`` or ``ALTER``; "" for options of the table.
        what: ``COLUMN``, ``KEY`` (an index), ``TABLE``, or the words that the verb stands with; of ADD everything
            that is a key or a constraint is ``KEY``. ``PARTITION``: partitions, or ORDER BY, and the last clause.
        name: the old name of the column or key, or the name of a new one; "" if there is none.
        new_name: for CHANGE and RENAME.
        if_exists: whether it has IF EXISTS or IF NOT EXISTS.
        listed: whether it is in the parentheses of an ADD.
        definition: the tokens after the names; for ADD, MODIFY and CHANGE starting with the column's new name.
    """

    words: tuple[str, ...]
    verb: str = ""
    what: str = ""
    name: str = ""
    new_name: str = ""
    if_exists: bool = False
    listed: bool = False
    definition: tuple[Token, ...] = ()


def clauses_of(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> tuple[Clause, ...]:
    """Read the clauses of an ALTER TABLE; IGNORE and MariaDB's SET STATEMENT before it count as one clause.

    Raises:
        Unparsable, LexError: it is not an ALTER TABLE, or is not understood.
    """
    found = classify(statement, "-", flavor, sql_mode=sql_mode)
    if found.kind != "ALTER TABLE" or not found.references:
        raise Unparsable(f"not an ALTER TABLE: {found.kind}")
    cursor = Cursor(statement, dialect_of(flavor, sql_mode), "-")
    words: list[str] = []
    while cursor.peek().start < found.references[0].start:
        words.append(cursor.next().key)
    cursor.table()
    cursor.lock_wait()
    more = tuple(word for word in words if word not in _HEAD)
    return (*([Clause(more[:3])] if more else []), *alter_clauses(cursor))


def alter_clauses(cursor: Cursor) -> Iterator[Clause]:
    """Yield the clauses of an ALTER TABLE.

    Args:
        cursor: after the table's name.

    Raises:
        Unparsable: one is not understood.
    """
    while cursor.peek().kind is not TokenKind.END and not cursor.at(";"):
        words = tuple(cursor.peek(ahead).key for ahead in range(3))
        verb = cursor.take_any(*_VERBS)
        if _partitions(cursor, verb):
            yield Clause(words, what="PARTITION")
            return
        if verb == "ADD":
            yield from _added(cursor, words)
        else:
            yield _clause(cursor.over(_tokens(cursor)), verb, words)
        if not cursor.take(",") and cursor.at(")"):
            raise Unparsable("parentheses do not match")


def _partitions(cursor: Cursor, verb: str) -> bool:
    first, second = cursor.peek().key, cursor.peek(1).key
    if verb:
        return verb in ("ADD", "DROP") and first == "PARTITION"
    return first in _PARTITIONS or (first in _PARTITION_UPKEEP and second == "PARTITION")


def _tokens(cursor: Cursor) -> tuple[Token, ...]:
    """Read the rest of a clause: up to a comma, a closing parenthesis, or a clause that needs no comma before it."""
    taken: list[Token] = []
    depth = 0
    while (token := cursor.peek()).kind is not TokenKind.END:
        if depth == 0 and token.key in (",", ";", ")"):
            break
        if depth == 0 and _partitions_behind(cursor) and not (taken and taken[-1].key == "."):
            break
        taken.append(cursor.next())
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        if len(taken) > _MOST_TOKENS:
            raise Unparsable("a clause is longer than the longest ENUM")
    return tuple(taken)


def _partitions_behind(cursor: Cursor) -> bool:
    return cursor.at("PARTITION") or cursor.at("REMOVE", "PARTITIONING")


def _added(cursor: Cursor, words: tuple[str, ...]) -> Iterator[Clause]:
    if cursor.take("SYSTEM", "VERSIONING"):
        yield Clause(words, "ADD", "SYSTEM VERSIONING")
        return
    if not cursor.take("COLUMN") and not at_column(cursor):
        yield Clause(words, "ADD", "KEY", definition=_tokens(cursor))
        return
    if_exists = cursor.take("IF", "NOT", "EXISTS")
    listed = cursor.take("(")
    while True:
        part = _tokens(cursor)
        if listed and not at_column(cursor.over(part)):
            yield Clause(words, "ADD", "KEY", listed=True, definition=part)
        else:
            name = cursor.over(part).name()
            yield Clause(words, "ADD", "COLUMN", name, "", if_exists, listed, part)
        if not listed or not cursor.take(","):
            break
    if listed:
        cursor.expect(")")
        if rest := _tokens(cursor):
            raise Unparsable(f"{rest[0].text!r} after a list of columns")


def _clause(part: Cursor, verb: str, words: tuple[str, ...]) -> Clause:
    """Read a clause that starts with a verb; ``part`` is after the verb."""
    what, name, new_name, if_exists = "COLUMN", "", "", False
    if verb in ("MODIFY", "CHANGE"):
        part.take("COLUMN")
        if_exists = part.take("IF", "EXISTS")
        name = part.name() if verb == "CHANGE" else ""
        definition = tuple(part.rest())
        new_name = part.over(definition).name()
        return Clause(words, verb, what, name or new_name, new_name, if_exists, definition=definition)
    if verb == "DROP":
        what = _dropped(part)
        if_exists = part.take("IF", "EXISTS")
        if what == "PERIOD":
            part.expect("FOR")
        name = part.name() if what not in ("PRIMARY KEY", "SYSTEM VERSIONING") else ""
    elif verb == "RENAME":
        what = "COLUMN" if part.take("COLUMN") else "KEY" if part.take_any("INDEX", "KEY") else "TABLE"
        if what == "TABLE":
            part.take_any("TO", "AS", "=")
            new_name = part.table().table
        else:
            if_exists = part.take("IF", "EXISTS")
            name = part.name()
            part.expect("TO")
            new_name = part.name()
    elif verb == "ALTER":
        if part.peek(1).kind is not TokenKind.SIGN and part.peek().key in _OTHERS:
            what = "KEY"
        else:
            part.take("COLUMN")
            if_exists = part.take("IF", "EXISTS")
            name = part.name()
    else:
        what = ""
    return Clause(words, verb, what, name, new_name, if_exists, definition=tuple(part.rest()))


def _dropped(part: Cursor) -> str:
    if part.take("SYSTEM", "VERSIONING"):
        return "SYSTEM VERSIONING"
    if part.at("PERIOD", "FOR") or part.at("PERIOD", "IF", "EXISTS", "FOR"):
        part.next()
        return "PERIOD"
    if part.take("PRIMARY", "KEY"):
        return "PRIMARY KEY"
    found = next((words for words in _DROPPED if part.take(*words)), None)
    if found is None:
        part.take("COLUMN")
        return "COLUMN"
    return "KEY" if found in (("INDEX",), ("KEY",)) else " ".join(found)
