"""Makes downstream tables in the form in which the consumer reads them."""

from __future__ import annotations

from dataclasses import replace

from schemas.structure import TableStructure
from schemas.tables import QualifiedName
from spark_consumer.target.table import TargetColumn, TargetKeyPart, TargetTable, UniqueKey
from spark_consumer.target.type_capacity import parse_type, type_of


def column(name: str, kind: str = "int", *, null: bool = True, default: str | None = None) -> TargetColumn:
    """Return a column of a type such as ``varchar(60) utf8mb4``."""
    text, _, charset = kind.partition(" ") if "char" in kind or "text" in kind else (kind, "", "")
    return TargetColumn(name, parse_type(text, charset), null, null or default is not None, default=default)


def generated(name: str) -> TargetColumn:
    """Return a generated column."""
    return replace(column(name), generated=True, fills=True)


def unique(*names: str, name: str = "PRIMARY", nullable: bool = False) -> UniqueKey:
    """Return a unique key over whole columns."""
    return UniqueKey(name, tuple(TargetKeyPart(column, None, nullable) for column in names))


def as_it_is(structure: TableStructure, name: QualifiedName | None = None) -> TargetTable:
    """Return a table with the upstream's structure."""
    columns = tuple(
        TargetColumn(c.name, type_of(c), c.nullable, c.nullable, collation="utf8mb4_bin" if c.charset else "")
        for c in structure.columns
    )
    keys = (unique(*(part.lower() for part in structure.key)),) if structure.key else ()
    return TargetTable(name or (structure.db, structure.table), columns, keys)
