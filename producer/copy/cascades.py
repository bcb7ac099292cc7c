"""Foreign keys through which an upstream changes rows without a trace in its binlog, and what copies do about them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from schemas.ddl.cursor import Cursor, Unparsable
from schemas.ddl.lexer import dialect_of
from schemas.tables import QualifiedName, TableFilter
from schemas.wire.epoch import SchemaChanged

#: rules that change rows of the child together with those of the parent
CHANGING = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})


@dataclass(frozen=True)
class CascadingKey:
    """A foreign key that changes rows.

    Attributes:
        follows_updates: whether an UPDATE that leaves the parent's primary key as it is may change rows of the child.
    """

    child: QualifiedName
    parent: QualifiedName
    follows_updates: bool = False


@dataclass(frozen=True)
class Cascades:
    """What changes a table's rows, and which rows its own changes change; both also by way of other tables.

    Attributes:
        parents: the tables whose changes change its rows, without those of the circle.
        children: the tables whose rows its changes change, without those of the circle.
        circle: the tables that have to be read at one position, with this one among them: each changes rows of the
            others. A table alone if it changes its own rows, or if its parents' changes do not show whether rows of it
            change. Empty otherwise.
    """

    parents: frozenset[QualifiedName] = frozenset()
    children: frozenset[QualifiedName] = frozenset()
    circle: frozenset[QualifiedName] = frozenset()


#: of a table with which foreign keys do nothing, or whose server logs what they do
NO_CASCADES = Cascades()


def cascades_of(name: QualifiedName, keys: Collection[CascadingKey]) -> Cascades:
    """What foreign keys mean for a table.

    Args:
        keys: all of the server.
    """
    above: dict[QualifiedName, list[QualifiedName]] = {}
    below: dict[QualifiedName, list[QualifiedName]] = {}
    for key in keys:
        above.setdefault(key.child, []).append(key.parent)
        below.setdefault(key.parent, []).append(key.child)
    parents, children = _reached(name, above), _reached(name, below)
    circle = parents & children
    if any(key.follows_updates for key in keys if key.child == name or key.child in parents):
        circle |= {name}
    return Cascades(parents - circle, children - circle, circle)


def hidden_parents(cascades: Cascades, tables: TableFilter) -> list[QualifiedName]:
    """The tables whose changes change a table's rows, and which are not replicated: nothing carries these changes."""
    return [name for name in cascades.parents | cascades.circle if not tables.allows(*name)]


def _reached(
    name: QualifiedName, ways: Mapping[QualifiedName, Iterable[QualifiedName]]
) -> frozenset[QualifiedName]:
    """The tables that one reaches from a table; itself only if there is a way back."""
    found = set[QualifiedName]()
    pending = [name]
    while pending:
        new = set(ways.get(pending.pop(), ())) - found
        found |= new
        pending += new
    return frozenset(found)


def referred_tables(ddl: SchemaChanged) -> frozenset[QualifiedName]:
    """The tables to which a statement may add foreign keys that change rows."""
    if not ddl.tables or "REFERENCES" not in ddl.statement.upper():
        return frozenset()
    dialect = dialect_of(ddl.source_flavor, ddl.mode)
    # Without a database, the table is in that of the table with the foreign key.
    cursor = Cursor(ddl.statement, dialect, ddl.tables[0].db)
    found, changes = set[QualifiedName](), False
    for token in cursor.rest():
        changes = changes or token.key in ("CASCADE", "SET")
        if token.key == "REFERENCES":
            with suppress(Unparsable):
                found.add(cursor.table()[:2])
    return frozenset(found) if changes else frozenset()
