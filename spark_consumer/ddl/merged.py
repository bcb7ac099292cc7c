"""Skips a shard's ALTER TABLE if the merged table does not need it.

The channel never alters a table into which several upstream tables (shards) are merged: the operator alters it once, by
hand, and the channel then skips the same ALTER of each shard. It decides from the merged table as it is now and from
the shard's structures in the log. No other state is kept.
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

# Clauses that change neither values nor columns of the shard.
_HARMLESS = frozenset(
    {("ADD", word) for word in ("INDEX", "KEY", "FULLTEXT", "SPATIAL")}
    | {(verb, word) for verb in ("DROP", "RENAME") for word in ("INDEX", "KEY")}
)
_OPTIONS = frozenset({"ALGORITHM", "LOCK", "COMMENT", "AUTO_INCREMENT", "ALTER", "FORCE"})
# STRICT_TRANS_TABLES, STRICT_ALL_TABLES
_STRICT = 1 << 21 | 1 << 22
_AFTER_TYPE = frozenset(
    {
        *("NOT", "NULL", "DEFAULT", "COMMENT", "FIRST", "AFTER", "COLLATE", "CHARACTER", "CHARSET"),
        *("UNIQUE", "PRIMARY", "KEY", "AUTO_INCREMENT", "GENERATED", "AS", "INVISIBLE", "VISIBLE", "CHECK"),
        *("REFERENCES", "ON", "STORAGE", "COLUMN_FORMAT", "SRID", "CONSTRAINT", "COMPRESSED", "WITH"),
        "WITHOUT",
    }
)


@dataclass(frozen=True)
class _NewColumn:
    """A column's definition in ADD, MODIFY or CHANGE.

    Attributes:
        type: the type with UNSIGNED and ZEROFILL, in the servers' spelling.
        charset: the charset in the definition; "" without one.
        nullable: whether it is without NOT NULL.
        default: a literal DEFAULT as text; None without one, or for NULL.
        plain: whether all attributes after the type are known and none computes values.
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
    """Return why the merged table needs a shard's ALTER TABLE, or may need it; "" if it can be skipped.

    Args:
        clauses: the clauses of the ALTER TABLE.
        target: the merged table.
        versions: the earlier structures of the shard's rows, in order.
        sql_mode: the sql_mode of the upstream's session.
    """
    for clause in clauses:
        if reason := _need(clause, target, versions, sql_mode):
            return f"{' '.join(word for word in clause.first_words if word)}: {reason}"
    return ""


def _need(clause: Clause, target: TargetTable, versions: Sequence[TableStructure], sql_mode: int) -> str:
    if not _is_of_one_column(clause):
        harmless = clause.first_words[:2] in _HARMLESS or (
            clause.first_words[:1] and clause.first_words[0] in _OPTIONS
        )
        return "" if harmless else "its effect on the rows of the other tables is not known"
    name = clause.name
    there = target.column(name)
    if clause.verb == "DROP":
        return "" if there is None or there.fills else f"{name} is NOT NULL downstream, without a default"
    if there is None:
        return f"the downstream's table has no column {name} yet"
    new = _new_column(name, clause.definition[1:], escapes=not sql_mode & NO_BACKSLASH_ESCAPES)
    if there.generated or not new.plain:
        return f"it is not known whether {name} has the same values downstream"
    if reason := lacks(there.type, parse_type(new.type, new.charset)):
        return f"{name} is {there.type.shown} downstream: {reason}"
    if new.nullable and not there.nullable:
        return f"{name} is NOT NULL downstream"
    if clause.verb == "ADD":
        return _added(new, there.default, versions)
    return _modified(new, versions, strict=bool(sql_mode & _STRICT))


def _is_of_one_column(clause: Clause) -> bool:
    """Whether it always adds, changes or drops exactly one column, without renaming it."""
    renamed = clause.new_name and clause.new_name.lower() != clause.name.lower()
    known = clause.verb in ("ADD", "MODIFY", "CHANGE", "DROP") and clause.object_kind == "COLUMN"
    return known and not (renamed or clause.if_exists or clause.listed)


def _added(new: _NewColumn, default: str | None, versions: Sequence[TableStructure]) -> str:
    """Return why a new column may have other values downstream than the shard's default; "" if it cannot."""
    name = new.name.lower()
    if any(column.name.lower() == name for version in versions for column in version.columns):
        return f"the table had a column {new.name} before, and the downstream still has its values"
    if not new.nullable and new.default is None:
        return f"{new.name} is NOT NULL without a default"
    if new.default != _literal(default):
        return f"the default of {new.name} is {_shown(_literal(default))} downstream"
    return ""


def _modified(new: _NewColumn, versions: Sequence[TableStructure], *, strict: bool) -> str:
    """Return why a change of a column's type may have changed values of rows; "" if it cannot."""
    name = new.name.lower()
    # All versions, because the log does not repeat a structure that was in use before.
    befores = {column for version in versions for column in version.columns if column.name.lower() == name}
    if not befores:
        return f"the log has no row that shows the earlier type of {new.name}"
    for before in sorted(befores, key=lambda column: column.sql_type):
        if reason := lacks(parse_type(new.type, new.charset), type_of(before)):
            return f"values of {new.name} may have changed: {reason}"
        if before.nullable and not new.nullable:
            return f"NULLs of {new.name} may have changed"
        if before.charset and not new.charset and not strict:
            return f"values of {new.name} may have changed with its charset"
    return ""


def _literal(default: str | None) -> str | None:
    """Return a default without quotes: MariaDB quotes it, MySQL does not."""
    if default is not None and len(default) > 1 and default[0] == default[-1] == "'":
        return default[1:-1].replace("''", "'")
    return default


def _shown(default: str | None) -> str:
    return "NULL" if default is None else default


def _new_column(name: str, tokens: Sequence[Token], *, escapes: bool) -> _NewColumn:
    """Parse a column's definition; ``tokens`` are those after the column's name."""
    count, depth = 0, 0
    while count < len(tokens) and (depth or tokens[count].key not in _AFTER_TYPE):
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
    # A member of ENUM or SET; servers drop spaces at its end.
    member = string_value(token, escapes).rstrip(" ")
    return "'" + member.replace("\\", "\\\\").replace("'", "''") + "'"


def _default(tokens: Sequence[Token]) -> tuple[str | None, int, bool]:
    """Return a DEFAULT's text, the number of its tokens, and whether it is a literal."""
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
