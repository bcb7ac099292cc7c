"""Runs ON DELETE CASCADE for servers that do it incompletely.

MySQL since 9.6 runs foreign keys above InnoDB (``innodb_native_foreign_keys = OFF``, its default). A DELETE then leaves
child rows without an error if the cascade is three tables deep, or two tables deep and a table has two foreign keys to
one parent: after the first row with grandchildren it misses others on the levels above (seen on 9.7.4). In a table that
refers to itself the cascade stops after one level (error 6575). If such a server is the upstream, its log is applied as
it is. This module is for an upstream whose InnoDB cascaded completely and did not log it.

Before a parent row is deleted, its descendants are searched level by level, by the values that foreign keys refer to,
and deleted or set to NULL. The row's own DELETE then finds no children.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas.quote import quoted
from schemas.tables import QualifiedName
from spark_consumer.target.session import Session

#: SQL texts of the values of one reference
Values = tuple[str, ...]
_VALUES = 500
_EDGES = (
    "SELECT k.CONSTRAINT_SCHEMA, k.CONSTRAINT_NAME, k.TABLE_SCHEMA, k.TABLE_NAME, r.DELETE_RULE, k.COLUMN_NAME,"
    " k.REFERENCED_TABLE_SCHEMA, k.REFERENCED_TABLE_NAME, k.REFERENCED_COLUMN_NAME,"
    " CAST(c.DATA_TYPE AS CHAR), c.CHARACTER_SET_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS r"
    " JOIN information_schema.KEY_COLUMN_USAGE k ON k.CONSTRAINT_SCHEMA = r.CONSTRAINT_SCHEMA"
    " AND k.CONSTRAINT_NAME = r.CONSTRAINT_NAME AND k.TABLE_NAME = r.TABLE_NAME"
    " JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = k.REFERENCED_TABLE_SCHEMA"
    " AND c.TABLE_NAME = k.REFERENCED_TABLE_NAME AND c.COLUMN_NAME = k.REFERENCED_COLUMN_NAME"
    " WHERE r.DELETE_RULE IN ('CASCADE', 'SET NULL') ORDER BY 1, 2, k.ORDINAL_POSITION"
)


@dataclass(frozen=True)
class CascadeEdge:
    """A foreign key that acts on a DELETE.

    Attributes:
        literals: for each referenced column, an SQL expression that returns the column's value as an SQL literal.
        removes: whether it deletes the child rows; otherwise it sets their columns to NULL.
    """

    child: QualifiedName
    columns: tuple[str, ...]
    parent: QualifiedName
    literals: tuple[str, ...]
    removes: bool


@dataclass(frozen=True)
class Cascades:
    """The foreign keys of a server that act on a DELETE, by the parent's name in lower case."""

    edges: dict[QualifiedName, tuple[CascadeEdge, ...]]

    def has_effect(self, table: QualifiedName) -> bool:
        """Whether a DELETE in this table changes other rows too."""
        return _lower(table) in self.edges

    def run(self, session: Session, table: QualifiedName, match: str) -> None:
        """Delete, or set to NULL, the descendants of the rows that match a predicate."""
        found = self._found(session, table, match)

        def change(statement: str, edge: CascadeEdge) -> None:
            # The row's own DELETE must still find the row.
            others = f" AND NOT ({match})" if _lower(edge.child) == _lower(table) else ""
            for within in _within(edge, tuple(found[edge])):
                session.execute(f"{statement} WHERE {within}{others}")

        session.execute("SET SESSION foreign_key_checks = 0")
        for edge in found:
            if edge.removes:
                change(f"DELETE FROM {quoted(*edge.child)}", edge)
        # Columns that refer to the ones that become NULL follow them.
        session.execute("SET SESSION foreign_key_checks = 1")
        for edge in found:
            if not edge.removes:
                nulls = ", ".join(f"{quoted(column)} = NULL" for column in edge.columns)
                change(f"UPDATE {quoted(*edge.child)} SET {nulls}", edge)

    def _found(
        self, session: Session, table: QualifiedName, match: str
    ) -> dict[CascadeEdge, dict[Values, None]]:
        """Return for each foreign key the referenced values of the parent rows that are deleted."""
        found: dict[CascadeEdge, dict[Values, None]] = {}
        pending = [(table, match)]
        while pending:
            name, predicate = pending.pop()
            for edge in self.edges.get(_lower(name), ()):
                known = found.setdefault(edge, {})
                values = _referenced(session, name, edge, predicate)
                new = [one for one in values if one not in known]
                known |= dict.fromkeys(new)
                if edge.removes:
                    pending += [(edge.child, within) for within in _within(edge, new)]
        return found


def load(session: Session) -> Cascades:
    """Read the foreign keys whose cascades the server does not run completely; none if it runs them all."""
    native: Sequence[tuple[str, ...]] = ()
    if session.flavor == "mysql":
        native = session.rows("SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")
    on = not native or native[0][1] == "ON"
    return cascades_of([] if on else session.rows(_EDGES))


def cascades_of(rows: Sequence[tuple[str, ...]]) -> Cascades:
    """Build the cascades from rows of ``information_schema``, one for each column of a foreign key."""
    parts: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for row in rows:
        parts.setdefault(row[:4], []).append(row)
    edges: dict[QualifiedName, tuple[CascadeEdge, ...]] = {}
    for columns in parts.values():
        _, _, db, table, rule, _, parent_db, parent, *_ = columns[0]
        literals = tuple(_literal(name, kind, charset) for *_, name, kind, charset in columns)
        edge = CascadeEdge(
            (db, table), tuple(row[5] for row in columns), (parent_db, parent), literals, rule == "CASCADE"
        )
        edges[_lower(edge.parent)] = (*edges.get(_lower(edge.parent), ()), edge)
    return Cascades(edges)


def _literal(name: str, kind: str, charset: str | None) -> str:
    column = quoted(name)
    if kind in ("enum", "set"):
        # InnoDB compares their numbers, and two members may be equal under a collation.
        return f"CAST(CAST({column} AS SIGNED) AS CHAR)"
    if kind in ("date", "time", "datetime", "timestamp"):
        return f"CONCAT('_utf8mb4 X''', HEX(CONVERT({column} USING utf8mb4)), '''')"
    if charset:
        return f"CONCAT('_{charset} X''', HEX({column}), '''')"
    if kind in ("binary", "varbinary"):
        return f"CONCAT('X''', HEX({column}), '''')"
    if kind == "float":
        return f"CAST(CAST({column} AS DOUBLE) AS CHAR)"
    return f"CAST({column} + 0 AS CHAR)" if kind == "bit" else f"CAST({column} AS CHAR)"


def _referenced(session: Session, table: QualifiedName, edge: CascadeEdge, predicate: str) -> list[Values]:
    """Return the referenced values of the rows that match a predicate. NULL has no children and is left out."""
    query = f"SELECT DISTINCT {', '.join(edge.literals)} FROM {quoted(*table)} WHERE {predicate}"
    return [values for values in session.rows(query) if None not in values]


def _within(edge: CascadeEdge, values: Sequence[Values]) -> Iterator[str]:
    """Yield predicates that match the child rows with these values."""
    columns = [quoted(column) for column in edge.columns]
    for begin in range(0, len(values), _VALUES):
        some = values[begin : begin + _VALUES]
        if len(columns) == 1:
            yield f"{columns[0]} IN ({', '.join(value for (value,) in some)})"
        else:
            # Inside IN with tuples MySQL compares an ENUM with a number as text.
            each = (zip(columns, one, strict=True) for one in some)
            yield f"({' OR '.join(' AND '.join(f'{c} = {v}' for c, v in one) for one in each)})"


def _lower(name: QualifiedName) -> QualifiedName:
    return (name[0].lower(), name[1].lower())
