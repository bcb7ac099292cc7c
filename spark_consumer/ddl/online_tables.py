"""The tables of online schema change tools that only the upstream has, as a channel's position keeps them.

It is part of the position, as JSON, so it moves in the transaction of what it speaks of. A rewind never goes back
over a DDL, so it stays true there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from schemas.tables import QualifiedName
from schemas.wire.epoch import SchemaChanged, TableChanged
from spark_consumer.epochs.slices import Slice


@dataclass(frozen=True)
class Hidden:
    """A table of the upstream that the downstream does not have.

    Attributes:
        real: the table that a tool is about to change, in the same database.
        shadow: the real table's next form; otherwise something that the tool throws away.
        statements: what made the shadow table: its CREATE, then its ALTERs.
        rows: whether the upstream has written rows to it.
        dropped: the upstream has no real table any more, and the downstream's waits for the shadow table's name.
        moved: the name that the real table has meanwhile.
    """

    db: str
    table: str
    real: str
    shadow: bool
    statements: tuple[SchemaChanged, ...] = ()
    rows: bool = False
    dropped: bool = False
    moved: str | None = None

    @property
    def name(self) -> QualifiedName:
        return self.db, self.table

    @property
    def alters(self) -> tuple[SchemaChanged, ...]:
        """What was done to the shadow table after it was made."""
        return self.statements[1:]


@dataclass(frozen=True)
class OnlineTables:
    """All hidden tables of a channel."""

    tables: tuple[Hidden, ...] = ()

    def get(self, db: str, table: str) -> Hidden | None:
        """The hidden table of this name."""
        return next((hidden for hidden in self.tables if hidden.name == (db, table)), None)

    def shadows_of(self, db: str, real: str) -> list[Hidden]:
        """The open migrations of a table."""
        return [h for h in self.tables if h.shadow and (h.db, h.real) == (db, real)]

    @property
    def names(self) -> frozenset[QualifiedName]:
        return frozenset(hidden.name for hidden in self.tables)

    def having(self, hidden: Hidden) -> OnlineTables:
        """With an entry, in place of what had its name."""
        return OnlineTables((*self.without(hidden.name).tables, hidden))

    def without(self, *names: QualifiedName) -> OnlineTables:
        """Less the entries of these names."""
        return OnlineTables(tuple(h for h in self.tables if h.name not in names))

    def touched(self, slice_: Slice) -> OnlineTables:
        """After a slice: which of them have rows upstream."""
        touched = {(t.db, t.table) for logged in slice_.epochs for t in logged.record.tables}
        if not touched & self.names:
            return self
        return OnlineTables(tuple(replace(h, rows=h.rows or h.name in touched) for h in self.tables))

    def to_json(self) -> str | None:
        """For the position; None if there are none."""
        return json.dumps([asdict(hidden) for hidden in self.tables]) if self.tables else None


NO_TABLES = OnlineTables()


def from_json(text: str | None) -> OnlineTables:
    """What a position holds."""
    return OnlineTables(tuple(_hidden(entry) for entry in json.loads(text or "[]")))


def _hidden(entry: dict[str, Any]) -> Hidden:
    statements = tuple(statement_of(fields) for fields in entry.pop("statements"))
    return Hidden(**entry, statements=statements)


def statement_of(fields: dict[str, Any]) -> SchemaChanged:
    """A statement out of its fields, as ``asdict`` and JSON have left them."""
    tables: Iterable[dict[str, Any]] = fields.pop("tables")
    settings: Iterable[list[str]] = fields.pop("settings")
    return SchemaChanged(
        **fields,
        tables=tuple(TableChanged(**table) for table in tables),
        settings=tuple((name, value) for name, value in settings),
    )
