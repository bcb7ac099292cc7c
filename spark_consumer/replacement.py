"""What may run instead of an event: statements whose effect is in one transaction with the position."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from schemas.ddl import Category, classify
from schemas.ddl_lexer import Flavor
from schemas.epoch import SchemaChanged, TableChanged
from schemas.errors import DownstreamError

_DML = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"})


def check(statements: tuple[str, ...], *, for_ddl: bool, flavor: Flavor) -> None:
    """Raise DownstreamError TR643 for what would commit by itself, or is not understood.

    Args:
        for_ddl: whether the event is a DDL; then DDL may come first.
    """
    dml_seen = False
    for statement in statements:
        kind, is_ddl = _kind(statement, flavor)
        if is_ddl and not for_ddl:
            raise _not_allowed(statement, f"{kind} commits by itself, and takes the rows before it along")
        if is_ddl and dml_seen:
            raise _not_allowed(
                statement, "DDL comes before INSERT, UPDATE and DELETE, which wait for the position"
            )
        if not is_ddl and kind not in _DML:
            raise _not_allowed(statement, f"{kind or 'this'} is none of INSERT, UPDATE, DELETE, REPLACE")
        dml_seen |= not is_ddl


def parted(statements: tuple[str, ...], ddl: SchemaChanged) -> tuple[list[SchemaChanged], list[str]]:
    """What runs instead of a DDL: DDL, as ``ddl`` is stated, and DML behind it."""
    changes: list[SchemaChanged] = []
    rows: list[str] = []
    flavor = cast(Flavor, ddl.source_flavor)
    for statement in statements:
        found = classify(statement, ddl.default_db, flavor)
        if found.category is Category.DDL:
            tables = tuple(TableChanged(*table) for table in found.tables)
            changes.append(replace(ddl, statement=statement, kind=found.kind, tables=tables))
        else:
            rows.append(statement)
    return changes, rows


def _kind(statement: str, flavor: Flavor) -> tuple[str, bool]:
    found = classify(statement, "", flavor)
    if found.category is Category.UNKNOWN and not found.kind:
        found = classify(statement, "unnamed", flavor)
    return found.kind, found.category is Category.DDL


def _not_allowed(statement: str, why: str) -> DownstreamError:
    return DownstreamError(
        "TR643",
        f"this cannot run instead of the event: {statement[:200]}: {why}",
        hint="one statement for each --sql, with names as schema.table; run everything else by hand, then"
        " `tailrace error skip`",
    )
