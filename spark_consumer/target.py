"""What the downstream's tables look like: columns that can be written, and foreign keys that cascade."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_consumer.session import Session

Name = tuple[str, str]
_CASCADING = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})


@dataclass(frozen=True)
class TargetTable:
    """One downstream table.

    Attributes:
        writable: names, in lower case, of the columns that take values.
        generated: names, in lower case, of those that the server computes itself.
        collations: of its text columns, by their names in lower case.
        in_family: whether it hangs, over any number of foreign keys, together with one that cascades.
    """

    name: Name
    writable: frozenset[str]
    generated: frozenset[str]
    in_family: bool = False
    collations: tuple[tuple[str, str], ...] = ()


@dataclass
class TargetCatalog:
    """The downstream's tables as last read; DDL makes it forget."""

    _tables: dict[Name, TargetTable | None] = field(default_factory=dict)
    _families: frozenset[Name] | None = None

    def forget(self) -> None:
        """After a DDL: read everything again."""
        self._tables.clear()
        self._families = None

    def load(self, session: Session, names: Iterable[Name]) -> dict[Name, TargetTable | None]:
        """The tables by name, None for one that is not there; only what is not known yet is read."""
        wanted = list(dict.fromkeys(names))
        if missing := [name for name in wanted if name not in self._tables]:
            if self._families is None:
                self._families = families(_foreign_keys(session))
            for name in missing:
                self._tables[name] = _read(session, name, self._families)
        return {name: self._tables[name] for name in wanted}


def _read(session: Session, name: Name, in_family: frozenset[Name]) -> TargetTable | None:
    rows = session.rows(
        "SELECT COLUMN_NAME, EXTRA, COLLATION_NAME FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        name,
    )
    if not rows:
        return None
    # MySQL says DEFAULT_GENERATED of an expression default, which takes values.
    generated = {column.lower() for column, extra, _ in rows if _is_generated(extra.upper())}
    every = {column.lower() for column, _, _ in rows}
    key = (name[0].lower(), name[1].lower())
    collations = tuple((column.lower(), collation) for column, _, collation in rows if collation)
    return TargetTable(name, frozenset(every - generated), frozenset(generated), key in in_family, collations)


def _is_generated(extra: str) -> bool:
    return any(word in extra for word in ("VIRTUAL GENERATED", "STORED GENERATED", "PERSISTENT"))


def _foreign_keys(session: Session) -> list[tuple[Name, Name, bool]]:
    rows = session.rows(
        "SELECT DISTINCT r.CONSTRAINT_SCHEMA, r.TABLE_NAME, r.UNIQUE_CONSTRAINT_SCHEMA,"
        " r.REFERENCED_TABLE_NAME, r.DELETE_RULE, r.UPDATE_RULE"
        " FROM information_schema.REFERENTIAL_CONSTRAINTS r"
    )
    return [
        (
            (str(db).lower(), str(table).lower()),
            (str(parent_db).lower(), str(parent).lower()),
            on_delete in _CASCADING or on_update in _CASCADING,
        )
        for db, table, parent_db, parent, on_delete, on_update in rows
    ]


def families(keys: Iterable[tuple[Name, Name, bool]]) -> frozenset[Name]:
    """All tables connected with a cascading foreign key: (child, parent, cascades) in, names out."""
    neighbours: dict[Name, set[Name]] = {}
    pending: list[Name] = []
    for child, parent, cascades in keys:
        neighbours.setdefault(child, set()).add(parent)
        neighbours.setdefault(parent, set()).add(child)
        if cascades:
            pending += [child, parent]
    found: set[Name] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += neighbours[name] - found
    return frozenset(found)
