"""DDL of one of several tables that are merged into one: passed over where the merged table needs nothing of it.

The channel never alters a merged table: that is done once, by hand, and every shard's own statement is then passed
over. What is in the table decides, and what the log says of the shard's columns; nothing else is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from schemas.structure import TableStructure
from spark_consumer.ddl.alter_clauses import Clause
from spark_consumer.target.column_types import lacks, parse_type, type_of
from spark_consumer.target.tables import TargetTable

# Clauses that change no values and no columns of the shard.
_HARMLESS = frozenset(
    {("ADD", word) for word in ("INDEX", "KEY", "FULLTEXT", "SPATIAL")}
    | {(verb, word) for verb in ("DROP", "RENAME") for word in ("INDEX", "KEY")}
)
_OPTIONS = frozenset({"ALGORITHM", "LOCK", "COMMENT", "AUTO_INCREMENT", "ALTER", "FORCE"})


def needs(
    clauses: Sequence[Clause], target: TargetTable, versions: Sequence[TableStructure], *, strict: bool
) -> str:
    """What of a shard's ALTER TABLE the merged table still needs, or nobody can tell; "" if it is passed over.

    Args:
        versions: the structures that the shard's rows have had before, in order.
        strict: whether the upstream's session refused values that do not fit.
    """
    for clause in clauses:
        if reason := _need(clause, target, versions, strict):
            return f"{' '.join(word for word in clause.words if word)}: {reason}"
    return ""


def _need(clause: Clause, target: TargetTable, versions: Sequence[TableStructure], strict: bool) -> str:
    if not clause.verb:
        harmless = clause.words[:2] in _HARMLESS or (clause.words[:1] and clause.words[0] in _OPTIONS)
        return "" if harmless else "it cannot be told what this is to the rows of the other tables"
    there = target.column(clause.column)
    if clause.verb == "DROP":
        return "" if there is None or there.fills else f"{clause.column} is NOT NULL there, without a default"
    if there is None:
        return f"there is no column {clause.column} yet"
    if there.generated or not clause.plain:
        return f"it cannot be told whether {clause.column} has the same values there"
    new = parse_type(clause.type, clause.charset)
    if reason := lacks(there.type, new):
        return f"{clause.column} is {there.type.shown} there: {reason}"
    if clause.nullable and not there.nullable:
        return f"{clause.column} is NOT NULL there"
    return (
        _added(clause, there.default, versions)
        if clause.verb == "ADD"
        else _modified(clause, versions, strict)
    )


def _added(clause: Clause, default: str | None, versions: Sequence[TableStructure]) -> str:
    """A new column: its rows have the default, here as there."""
    name = clause.column.lower()
    if any(column.name.lower() == name for version in versions for column in version.columns):
        return f"the table had a column {clause.column} before, whose values are still there"
    if not clause.nullable and clause.default is None:
        return f"{clause.column} is NOT NULL without a default"
    if clause.default != _literal(default):
        return f"the default of {clause.column} is {_shown(_literal(default))} there"
    return ""


def _modified(clause: Clause, versions: Sequence[TableStructure], strict: bool) -> str:
    """A column with another type: no row may have got another value by it."""
    name = clause.column.lower()
    # All of them: a structure that comes back is not told again.
    befores = {column for version in versions for column in version.columns if column.name.lower() == name}
    if not befores:
        return f"the log has no row that shows what {clause.column} was before"
    for before in sorted(befores, key=lambda column: column.sql_type):
        if reason := lacks(parse_type(clause.type, clause.charset), type_of(before)):
            return f"values of {clause.column} may have changed: {reason}"
        if before.nullable and not clause.nullable:
            return f"NULLs of {clause.column} may have changed"
        if before.charset and not clause.charset and not strict:
            return f"values of {clause.column} may have changed with its charset"
    return ""


def _literal(default: str | None) -> str | None:
    """A default as text: MariaDB quotes it, MySQL does not."""
    if default is not None and len(default) > 1 and default[0] == default[-1] == "'":
        return default[1:-1].replace("''", "'")
    return default


def _shown(default: str | None) -> str:
    return "NULL" if default is None else default
