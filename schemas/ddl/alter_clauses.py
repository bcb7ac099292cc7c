"""Splits an ALTER TABLE into its clauses, and reads what each adds, changes, drops or renames.

``classify`` needs only the names of tables. It reads those, and skips everything else, known or not
(``clause_starts``). ``alter_clauses`` reads each clause, and refuses what it does not understand.

Source: alter_list_item in ``sql/sql_yacc.yy`` of both servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from schemas.ddl.column_clauses import at_column
from schemas.ddl.cursor import Cursor, TableName, Unparsable
from schemas.ddl.lexer import Flavor, Token, TokenKind, dialect_of

_VERBS = ("ADD", "DROP", "MODIFY", "CHANGE", "RENAME", "ALTER")
# Their lists have commas, and no other clause follows them.
_PARTITIONS = frozenset({"PARTITION", "COALESCE", "REORGANIZE", "EXCHANGE", "TRUNCATE", "REMOVE", "ORDER"})
_BEFORE_PARTITION = frozenset({"ADD", "DROP", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR"})
_DROPPED = (("INDEX",), ("KEY",), ("FOREIGN", "KEY"), ("CHECK",), ("CONSTRAINT",))
_OTHERS = ("INDEX", "KEY", "CHECK", "CONSTRAINT")
# Twice as many as in the longest ENUM; each needs about 250 bytes.
_MOST_TOKENS = 1 << 18


@dataclass(frozen=True)
class Clause:
    """A clause of an ALTER TABLE.

    Attributes:
        first_words: its first words and signs in capitals, "" for quoted names; for messages.
        verb: ``ADD``, ``DROP``, ``MODIFY``, ``CHANGE``, ``RENAME`` or ``ALTER``; "" for options of the table.
        object_kind: what the verb is applied to: ``COLUMN``, ``KEY`` (an index), ``TABLE``, or other words of the
            clause such as ``PRIMARY KEY``. With ADD every key and constraint is a ``KEY``. ``PARTITION`` means
            partitions or ORDER BY, which are the last clause. "" for options of the table.
        name: the old name of the column or key, or the name of a new one; "" if there is none.
        new_name: for CHANGE and RENAME.
        if_exists: whether it has IF EXISTS or IF NOT EXISTS.
        listed: whether it is in the parentheses of an ADD.
        definition: the tokens after the names; for ADD, MODIFY and CHANGE starting with the column's new name.
    """

    first_words: tuple[str, ...]
    verb: str = ""
    object_kind: str = ""
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
    cursor = Cursor(statement, dialect_of(flavor, sql_mode), "-")
    before: list[str] = []
    if cursor.take("SET", "STATEMENT"):
        cursor.statement_variables()
        before = ["SET", "STATEMENT"]
    cursor.expect("ALTER")
    before += [word for word in alter_modifiers(cursor) if word != "ONLINE"]
    cursor.expect("TABLE")
    cursor.take("IF", "EXISTS")
    cursor.table()
    cursor.lock_wait()
    return (*([Clause(tuple(before))] if before else []), *alter_clauses(cursor))


def alter_clauses(cursor: Cursor) -> Iterator[Clause]:
    """Yield the clauses of an ALTER TABLE.

    Args:
        cursor: after the table's name.

    Raises:
        Unparsable: one is not understood.
    """
    for first in clause_starts(cursor):
        if first.kind is TokenKind.SIGN:
            raise Unparsable(f"a clause that begins with {first.text!r}")
        verb = first.key if first.key in _VERBS else ""
        words = (first.key, cursor.peek().key, cursor.peek(1).key)
        if _partitions(first.key, cursor):
            yield Clause(words, object_kind="PARTITION")
            return
        if verb == "ADD":
            yield from _added(cursor, words)
        elif verb:
            yield _clause(cursor.over(_tokens(cursor)), verb, words)
        else:
            yield Clause(words, definition=(first, *_tokens(cursor)))


def alter_modifiers(cursor: Cursor) -> list[str]:
    """Read the words between ALTER and TABLE."""
    words = []
    while word := cursor.take_any("ONLINE", "OFFLINE", "IGNORE"):
        words.append(word)
    return words


def clause_starts(cursor: Cursor) -> Iterator[Token]:
    """Yield the first token of each clause of an ALTER TABLE. It has been read, unless it is a sign.

    What the caller does not read of a clause is skipped.

    Args:
        cursor: after the table's name.

    Raises:
        Unparsable: parentheses do not match, RENAME is inside of a clause, or a second statement follows.
    """
    while cursor.peek().kind is not TokenKind.END and not cursor.at(";"):
        yield cursor.peek() if cursor.peek().kind is TokenKind.SIGN else cursor.next()
        for _ in _rest(cursor):
            pass
        if not cursor.take(",") and cursor.at(")"):
            raise Unparsable("parentheses do not match")
    cursor.end()


def _rest(cursor: Cursor) -> Iterator[Token]:
    """Read the rest of a clause: up to a comma, a closing parenthesis, or a clause that needs no comma before it."""
    depth, previous = 0, ""
    while (token := cursor.peek()).kind is not TokenKind.END:
        if depth == 0 and token.key in (",", ";", ")"):
            return
        if depth == 0 and token.key in ("PARTITION", "REMOVE", "RENAME") and previous != ".":
            if token.key == "RENAME":
                # A reserved word, which the grammars allow only at the start of a clause.
                raise Unparsable("RENAME in the middle of a clause of ALTER TABLE")
            if token.key == "PARTITION" or cursor.peek(1).key == "PARTITIONING":
                return
        yield cursor.next()
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        previous = token.key
    if depth != 0:
        raise Unparsable("parentheses do not match")


def _tokens(cursor: Cursor) -> tuple[Token, ...]:
    taken = tuple(islice(_rest(cursor), _MOST_TOKENS + 1))
    if len(taken) > _MOST_TOKENS:
        raise Unparsable("a clause is longer than the longest ENUM")
    return taken


def _partitions(first: str, cursor: Cursor) -> bool:
    """Whether a clause concerns partitions. ``first``: its first word, after which the cursor is."""
    return first in _PARTITIONS or (first in _BEFORE_PARTITION and cursor.at("PARTITION"))


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
        if table := new_table_name(part):
            what, new_name = "TABLE", table.table
        else:
            what = "COLUMN" if part.take_any("COLUMN", "INDEX", "KEY") == "COLUMN" else "KEY"
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


def new_table_name(cursor: Cursor) -> TableName | None:
    """Read ``[TO | AS | =] name`` after RENAME; None if it renames a column or a key, of which nothing is read."""
    if cursor.peek().key in ("COLUMN", "INDEX", "KEY"):
        return None
    cursor.take_any("TO", "AS", "=")
    return cursor.table()


def partition_partner(cursor: Cursor, first: str) -> TableName | None:
    """Read the other table of EXCHANGE PARTITION, and of MariaDB's CONVERT PARTITION and CONVERT TABLE.

    Args:
        cursor: after the clause's first word.
        first: that word.
    """
    if first == "CONVERT" and cursor.take("TABLE"):
        return cursor.table()
    if first not in ("CONVERT", "EXCHANGE") or not cursor.take("PARTITION"):
        return None  # such as CONVERT TO CHARACTER SET
    cursor.name()
    cursor.expect("TO" if first == "CONVERT" else "WITH", "TABLE")
    return cursor.table()
