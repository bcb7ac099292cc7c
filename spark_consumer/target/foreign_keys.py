"""Reads the downstream's foreign keys, which connect rows of two tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.tables import QualifiedName
from spark_consumer.target.session import Session
from spark_consumer.target.table import ForeignKey, ForeignKeys


@dataclass
class ForeignKeyCatalog:
    """A cache of the downstream's foreign keys."""

    _tables: ForeignKeys = field(default_factory=dict)

    def forget(self) -> None:
        """Empty the cache. Call it after each DDL."""
        self._tables.clear()

    def load(self, session: Session, names: Iterable[QualifiedName]) -> ForeignKeys:
        """Return the foreign keys of these tables, by the tables' names."""
        wanted = dict.fromkeys(names)
        for name in wanted:
            if name not in self._tables:
                self._tables[name] = _read(session, name)
        return {name: self._tables[name] for name in wanted}


def _read(session: Session, name: QualifiedName) -> tuple[ForeignKey, ...]:
    rows = session.rows(
        "SELECT CONSTRAINT_NAME, COLUMN_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME,"
        " REFERENCED_COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND REFERENCED_TABLE_NAME IS NOT NULL"
        " ORDER BY CONSTRAINT_NAME, ORDINAL_POSITION",
        name,
    )
    found: dict[str, list[tuple[str, QualifiedName, str]]] = {}
    for constraint, column, db, table, referenced in rows:
        parent = (db.lower(), table.lower())
        found.setdefault(constraint, []).append((column.lower(), parent, referenced.lower()))
    return tuple(
        ForeignKey(tuple(c for c, _, _ in columns), columns[0][1], tuple(r for _, _, r in columns))
        for columns in found.values()
    )
