"""The hidden tables of a channel: tables of online schema change tools that only the upstream has.

They are part of the channel's position, as JSON, so they change in the same transaction as the position. A rewind never
goes back over a DDL, so they stay correct after it.
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
class HiddenTable:
    """A table of the upstream that the downstream does not have.

    Attributes:
        real: the table that a tool is changing, in the same database.
        shadow: whether it will replace the real table; otherwise the tool will drop it.
        statements: the shadow table's CREATE, then its ALTERs.
        rows: whether the upstream has written rows to it.
        dropped: whether the upstream has dropped the real table and the downstream keeps it until the swap.
        moved: the real table's temporary name.
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
        """The ALTERs of the shadow table."""
        return self.statements[1:]


@dataclass(frozen=True)
class OnlineTables:
    """All hidden tables of a channel."""

    tables: tuple[HiddenTable, ...] = ()

    def get(self, db: str, table: str) -> HiddenTable | None:
        """Return the hidden table with this name; None if there is none."""
        return next((hidden for hidden in self.tables if hidden.name == (db, table)), None)

    def shadows_of(self, db: str, real: str) -> list[HiddenTable]:
        """Return the shadow tables of a table's unfinished schema changes."""
        return [h for h in self.tables if h.shadow and (h.db, h.real) == (db, real)]

    @property
    def names(self) -> frozenset[QualifiedName]:
        return frozenset(hidden.name for hidden in self.tables)

    def with_table(self, hidden: HiddenTable) -> OnlineTables:
        """Return the tables with an entry, which replaces an entry of the same name."""
        return OnlineTables((*self.without(hidden.name).tables, hidden))

    def without(self, *names: QualifiedName) -> OnlineTables:
        """Return the tables without the entries of these names."""
        return OnlineTables(tuple(h for h in self.tables if h.name not in names))

    def touched(self, slice_: Slice) -> OnlineTables:
        """Return the tables after a slice, with those marked that got rows in it."""
        touched = {(table.db, table.table) for table in slice_.touched}
        if not touched & self.names:
            return self
        return OnlineTables(tuple(replace(h, rows=h.rows or h.name in touched) for h in self.tables))

    def to_json(self) -> str | None:
        """Return the JSON text for the position; None if there are no tables."""
        return json.dumps([asdict(hidden) for hidden in self.tables]) if self.tables else None


NO_TABLES = OnlineTables()


def from_json(text: str | None) -> OnlineTables:
    """Parse the text in a position."""
    return OnlineTables(tuple(_hidden(entry) for entry in json.loads(text or "[]")))


def _hidden(entry: dict[str, Any]) -> HiddenTable:
    statements = tuple(statement_of(fields) for fields in entry.pop("statements"))
    return HiddenTable(**entry, statements=statements)


def statement_of(fields: dict[str, Any]) -> SchemaChanged:
    """Build a statement from the fields that ``asdict`` and JSON have made of it."""
    tables: Iterable[dict[str, Any]] = fields.pop("tables")
    settings: Iterable[list[str]] = fields.pop("settings")
    return SchemaChanged(
        **fields,
        tables=tuple(TableChanged(**table) for table in tables),
        settings=tuple((name, value) for name, value in settings),
    )
