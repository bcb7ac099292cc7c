"""Downstream tables, as the consumer would have read them."""

from __future__ import annotations

from dataclasses import replace

from schemas.structure import TableStructure
from schemas.tables import QualifiedName
from spark_consumer.target.table import TargetColumn, TargetKeyPart, TargetTable, UniqueKey
from spark_consumer.target.type_capacity import parse_type, type_of


def column(name: str, kind: str = "int", *, null: bool = True, default: str | None = None) -> TargetColumn:
    """A column by its type's text, such as ``varchar(60) utf8mb4``."""
    text, _, charset = kind.partition(" ") if "char" in kind or "text" in kind else (kind, "", "")
    return TargetColumn(name, parse_type(text, charset), null, null or default is not None, default=default)


def generated(name: str) -> TargetColumn:
    """A column that the server computes."""
    return replace(column(name), generated=True, fills=True)


def unique(*names: str, name: str = "PRIMARY", nullable: bool = False) -> UniqueKey:
    """A unique key over whole columns."""
    return UniqueKey(name, tuple(TargetKeyPart(column, None, nullable) for column in names))


def as_it_is(structure: TableStructure, name: QualifiedName | None = None) -> TargetTable:
    """The table as the upstream has it."""
    columns = tuple(
        TargetColumn(c.name, type_of(c), c.nullable, c.nullable, collation="utf8mb4_bin" if c.charset else "")
        for c in structure.columns
    )
    keys = (unique(*(part.lower() for part in structure.key)),) if structure.key else ()
    return TargetTable(name or (structure.db, structure.table), columns, keys)
