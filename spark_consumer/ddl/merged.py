"""DDL on one of several tables that are merged into one: passed over if the merged table does not need it.

The channel never alters a merged table: that is done once, by hand, and every shard's own statement is then passed
over. What is in the table decides, and what the log says of the shard's columns; nothing else is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.ddl.alter_clauses import Clause
from schemas.ddl.column_types import string_value
from schemas.ddl.lexer import NO_BACKSLASH_ESCAPES, Token, TokenKind
from schemas.structure import TableStructure
from spark_consumer.target.table import TargetTable
from spark_consumer.target.type_capacity import lacks, parse_type, type_of

# Clauses that change no values and no columns of the shard.
_HARMLESS = frozenset(
    {("ADD", word) for word in ("INDEX", "KEY", "FULLTEXT", "SPATIAL")}
    | {(verb, word) for verb in ("DROP", "RENAME") for word in ("INDEX", "KEY")}
)
_OPTIONS = frozenset({"ALGORITHM", "LOCK", "COMMENT", "AUTO_INCREMENT", "ALTER", "FORCE"})
# STRICT_TRANS_TABLES, STRICT_ALL_TABLES
_STRICT = 1 << 21 | 1 << 22
_BEHIND_TYPE = frozenset(
    {
        *("NOT", "NULL", "DEFAULT", "COMMENT", "FIRST", "AFTER", "COLLATE", "CHARACTER", "CHARSET"),
        *("UNIQUE", "PRIMARY", "KEY", "AUTO_INCREMENT", "GENERATED", "AS", "INVISIBLE", "VISIBLE", "CHECK"),
        *("REFERENCES", "ON", "STORAGE", "COLUMN_FORMAT", "SRID", "CONSTRAINT", "COMPRESSED", "WITH"),
        "WITHOUT",
    }
)


@dataclass(frozen=True)
class _NewColumn:
    """What ADD, MODIFY or CHANGE makes of a column.

    Attributes:
        type: with UNSIGNED and ZEROFILL, as servers show one.
        charset: the one that the definition names, else "".
        nullable: without NOT NULL.
        default: a literal DEFAULT as text; None without one, or for NULL.
        plain: whether all that follows the type is understood and does not compute values.
    """

    name: str
    type: str
    charset: str
    nullable: bool
    default: str | None
    plain: bool


def needs(
    clauses: Sequence[Clause], target: TargetTable, versions: Sequence[TableStructure], *, sql_mode: int
) -> str:
    """What of a shard's ALTER TABLE the merged table still needs, or nobody can tell; "" if it is passed over.

    Args:
        versions: the structures that the shard's rows have had before, in order.
        sql_mode: of the upstream's session.
    """
    for clause in clauses:
        if reason := _need(clause, target, versions, sql_mode):
            return f"{' '.join(word for word in clause.words if word)}: {reason}"
    return ""


def _need(clause: Clause, target: TargetTable, versions: Sequence[TableStructure], sql_mode: int) -> str:
    if not _is_of_one_column(clause):
        harmless = clause.words[:2] in _HARMLESS or (clause.words[:1] and clause.words[0] in _OPTIONS)
        return "" if harmless else "it cannot be told what this is to the rows of the other tables"
    name = clause.name
    there = target.column(name)
    if clause.verb == "DROP":
        return "" if there is None or there.fills else f"{name} is NOT NULL there, without a default"
    if there is None:
        return f"there is no column {name} yet"
    new = _new_column(name, clause.definition[1:], escapes=not sql_mode & NO_BACKSLASH_ESCAPES)
    if there.generated or not new.plain:
        return f"it cannot be told whether {name} has the same values there"
    if reason := lacks(there.type, parse_type(new.type, new.charset)):
        return f"{name} is {there.type.shown} there: {reason}"
    if new.nullable and not there.nullable:
        return f"{name} is NOT NULL there"
    if clause.verb == "ADD":
        return _added(new, there.default, versions)
    return _modified(new, versions, strict=bool(sql_mode & _STRICT))


def _is_of_one_column(clause: Clause) -> bool:
    """Whether it adds, changes or drops one column for sure, and leaves its name as it is."""
    renamed = clause.new_name and clause.new_name.lower() != clause.name.lower()
    known = clause.verb in ("ADD", "MODIFY", "CHANGE", "DROP") and clause.what == "COLUMN"
    return known and not (renamed or clause.if_exists or clause.listed)


def _added(new: _NewColumn, default: str | None, versions: Sequence[TableStructure]) -> str:
    """A new column: its rows have the default, here as there."""
    name = new.name.lower()
    if any(column.name.lower() == name for version in versions for column in version.columns):
        return f"the table had a column {new.name} before, whose values are still there"
    if not new.nullable and new.default is None:
        return f"{new.name} is NOT NULL without a default"
    if new.default != _literal(default):
        return f"the default of {new.name} is {_shown(_literal(default))} there"
    return ""


def _modified(new: _NewColumn, versions: Sequence[TableStructure], *, strict: bool) -> str:
    """A column with another type: no row may have got another value by it."""
    name = new.name.lower()
    # All of them: a structure that comes back is not told again.
    befores = {column for version in versions for column in version.columns if column.name.lower() == name}
    if not befores:
        return f"the log has no row that shows what {new.name} was before"
    for before in sorted(befores, key=lambda column: column.sql_type):
        if reason := lacks(parse_type(new.type, new.charset), type_of(before)):
            return f"values of {new.name} may have changed: {reason}"
        if before.nullable and not new.nullable:
            return f"NULLs of {new.name} may have changed"
        if before.charset and not new.charset and not strict:
            return f"values of {new.name} may have changed with its charset"
    return ""


def _literal(default: str | None) -> str | None:
    """A default as text: MariaDB quotes it, MySQL does not."""
    if default is not None and len(default) > 1 and default[0] == default[-1] == "'":
        return default[1:-1].replace("''", "'")
    return default


def _shown(default: str | None) -> str:
    return "NULL" if default is None else default


def _new_column(name: str, tokens: Sequence[Token], *, escapes: bool) -> _NewColumn:
    """Args: tokens: of the definition behind the column's name."""
    count, depth = 0, 0
    while count < len(tokens) and (depth or tokens[count].key not in _BEHIND_TYPE):
        depth += {"(": 1, ")": -1}.get(tokens[count].key, 0)
        count += 1
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
    return _NewColumn(name, kind, charset.lower(), nullable, default, plain)


def _as_shown(token: Token, escapes: bool) -> str:
    if token.kind is not TokenKind.STRING:
        return token.text
    # A member; servers keep no spaces at its end.
    member = string_value(token, escapes).rstrip(" ")
    return "'" + member.replace("\\", "\\\\").replace("'", "''") + "'"


def _default(tokens: Sequence[Token]) -> tuple[str | None, int, bool]:
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
