"""The clauses of an ALTER TABLE: which column each adds, changes or drops; everything else by its first words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.ddl.column_types import string_value
from schemas.ddl.cursor import Cursor, Unparsable
from schemas.ddl.lexer import Flavor, LexError, Token, TokenKind, dialect_of

_NO_COLUMN = frozenset(
    {"INDEX", "KEY", "UNIQUE", "PRIMARY", "CONSTRAINT", "FOREIGN", "CHECK", "FULLTEXT", "SPATIAL"}
)
_NO_COLUMN |= {"VECTOR", "PARTITION", "PERIOD", "SYSTEM", "IF", "("}
_BEHIND_TYPE = frozenset(
    {"NOT", "NULL", "DEFAULT", "COMMENT", "FIRST", "AFTER", "COLLATE", "CHARACTER", "CHARSET"}
)
_BEHIND_TYPE |= {
    "UNIQUE",
    "PRIMARY",
    "KEY",
    "AUTO_INCREMENT",
    "GENERATED",
    "AS",
    "INVISIBLE",
    "VISIBLE",
    "CHECK",
}
_BEHIND_TYPE |= {
    "REFERENCES",
    "ON",
    "STORAGE",
    "COLUMN_FORMAT",
    "SRID",
    "CONSTRAINT",
    "COMPRESSED",
    "WITH",
    "WITHOUT",
}


@dataclass(frozen=True)
class Clause:
    """One clause.

    Attributes:
        verb: ``ADD``, ``MODIFY`` or ``DROP`` of a column; ``""`` for anything else.
        words: its first words in capitals, for clauses of another kind.
        column: the column's name.
        type: its new type, with UNSIGNED and ZEROFILL, as servers show one; of ADD and MODIFY.
        charset: the one that it names, else "".
        nullable: without NOT NULL.
        default: a literal DEFAULT as text; None without one, or for NULL.
        plain: whether all that follows the type is understood and does not compute values.
    """

    verb: str
    words: tuple[str, ...]
    column: str = ""
    type: str = ""
    charset: str = ""
    nullable: bool = True
    default: str | None = None
    plain: bool = True


def clauses_of(statement: str, flavor: Flavor, *, sql_mode: int = 0) -> tuple[Clause, ...] | None:
    """The clauses of an ALTER TABLE of one table; None if it is something else or cannot be read."""
    dialect = dialect_of(flavor, sql_mode)
    cursor = Cursor(statement, dialect, "-")
    try:
        cursor.expect("ALTER")
        cursor.take("ONLINE")
        cursor.expect("TABLE")
        cursor.take("IF", "EXISTS")
        cursor.table()
        cursor.lock_wait()
        return tuple(_clause(tokens, dialect.backslash_escapes) for tokens in _split(list(cursor.rest())))
    except (Unparsable, LexError, IndexError):
        return None


def _split(tokens: list[Token]) -> Iterator[list[Token]]:
    """The tokens between commas outside of parentheses."""
    taken: list[Token] = []
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.key, 0)
        if depth == 0 and token.key in (",", ";"):
            yield taken
            taken = []
        else:
            taken.append(token)
    if taken:
        yield taken


def _clause(tokens: list[Token], escapes: bool) -> Clause:
    words = tuple(token.key for token in tokens[:3])
    if not tokens or words[0] not in ("ADD", "MODIFY", "CHANGE", "DROP"):
        return Clause("", words)
    verb, at = words[0], 1
    if tokens[at].key == "COLUMN":
        at += 1
    elif tokens[at].key in _NO_COLUMN:
        return Clause("", words)
    if tokens[at].key in ("IF", "("):
        return Clause("", words)
    name, at = _name(tokens[at]), at + 1
    if verb == "DROP":
        return Clause("DROP", words, name)
    if verb == "CHANGE":
        if _name(tokens[at]).lower() != name.lower():
            return Clause("", words)
        verb, at = "MODIFY", at + 1
    return _column(tokens[at:], escapes, verb, words, name)


def _name(token: Token) -> str:
    if token.kind not in (TokenKind.WORD, TokenKind.QUOTED) or not token.text:
        raise Unparsable(f"expected a name, found {token.text!r}")
    return token.text


def _column(tokens: list[Token], escapes: bool, verb: str, words: tuple[str, ...], name: str) -> Clause:
    count, depth = 0, 0
    while count < len(tokens) and (depth or tokens[count].key not in _BEHIND_TYPE):
        depth += {"(": 1, ")": -1}.get(tokens[count].key, 0)
        count += 1
    if not count:
        raise Unparsable("a column without a type")
    kind = " ".join(_as_shown(token, escapes) for token in tokens[:count])
    nullable, default, charset, plain = True, None, "", True
    rest, at = tokens[count:], 0
    while at < len(rest):
        key, following = rest[at].key, rest[at + 1] if at + 1 < len(rest) else None
        step = 2
        if key == "NOT" and following is not None and following.key == "NULL":
            nullable = False
        elif key in ("NULL", "FIRST", "INVISIBLE", "VISIBLE"):
            step = 1
        elif key == "DEFAULT" and following is not None:
            default, step, literal = _default(rest[at + 1 :])
            plain = plain and literal
            step += 1
        elif key in ("COMMENT", "AFTER", "COLLATE") and following is not None:
            charset = charset or (following.text.partition("_")[0] if key == "COLLATE" else "")
        elif key == "CHARSET" and following is not None:
            charset = following.text
        elif key == "CHARACTER" and at + 2 < len(rest):
            charset, step = rest[at + 2].text, 3
        else:
            plain = False
            step = 1
        at += step
    return Clause(verb, words, name, kind, charset.lower(), nullable, default, plain)


def _as_shown(token: Token, escapes: bool) -> str:
    if token.kind is not TokenKind.STRING:
        return token.text
    # A member; servers keep no spaces at its end.
    member = string_value(token, escapes).rstrip(" ")
    return "'" + member.replace("\\", "\\\\").replace("'", "''") + "'"


def _default(tokens: list[Token]) -> tuple[str | None, int, bool]:
    """A DEFAULT's text, how many tokens it takes, and whether it is a literal."""
    first = tokens[0]
    if first.key == "NULL":
        return None, 1, True
    if first.key in ("-", "+") and len(tokens) > 1:
        return first.text.replace("+", "") + tokens[1].text, 2, tokens[1].text[:1].isdigit()
    if first.kind is TokenKind.STRING:
        quote = first.text[:1]
        plain = "\\" not in first.text
        return first.text[1:-1].replace(quote * 2, quote) if quote in "'\"" else first.text, 1, plain
    return first.text, 1, first.text[:1].isdigit()
