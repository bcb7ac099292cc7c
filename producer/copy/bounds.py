"""The bounds of chunks: a row's key as SQL literals, and the SELECT of the rows above it in the order of the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

from schemas.codegen import compile_function
from schemas.quote import quoted
from schemas.sql.literals import image_lines, literal_names
from schemas.structure import Column, TableStructure, WrittenColumn
from schemas.types.enum_set import ENUM, SET
from schemas.wire.rows import key_prefix


def bound_of(structure: TableStructure) -> Callable[[bytes], tuple[str, ...]]:
    """A function that reads the SQL literals of the key columns from a Kafka key; none of a table without a key."""
    columns = tuple(map(_numbered, structure.key_columns))
    lines = ["v = k", f"p = {len(key_prefix(structure))}", *image_lines(columns, "s")]
    literals = "".join(f"s{number}.decode(), " for number in range(len(columns)))
    return compile_function(
        "bound",
        "k",
        [*lines, f"return ({literals})"],
        literal_names(columns),
        f"<bound of {structure.name}>",
    )


def _numbered(column: Column) -> Column:
    """ENUM and SET are in the order of their numbers, and compared by them."""
    if column.code not in (ENUM, SET):
        return column
    values = {field.name: getattr(column, field.name) for field in fields(Column)}
    return WrittenColumn(**values, numbers=tuple(range(1, len(column.members) + 1)))


def chunk_query(
    structure: TableStructure,
    expressions: str,
    lower: Sequence[str],
    limit: int,
    *,
    is_versioned: bool = False,
) -> str:
    """The SELECT of a chunk.

    Args:
        expressions: what to select of each row.
        lower: SQL literals of the key columns; empty: from the first row on.
        limit: rows at most.
        is_versioned: whether the table is system-versioned; its history is selected too.
    """
    key = [quoted(name) for name in structure.key]
    where = f" WHERE {_above(key, lower)}" if lower else ""
    whole = table_query(structure, expressions, is_versioned=is_versioned)
    return f"{whole}{where} ORDER BY {', '.join(key)} LIMIT {limit}"


def last_row_query(structure: TableStructure, lower: Sequence[str], *, is_versioned: bool) -> str:
    """The SELECT of whether the last row of a table is above a bound: no row if the table has none.

    It has no range, for a killed SELECT with a range and LIMIT may answer with no rows instead of an error.
    """
    key = [quoted(name) for name in structure.key]
    whole = table_query(structure, _above(key, lower) if lower else "1", is_versioned=is_versioned)
    return f"{whole} ORDER BY {' DESC, '.join(key)} DESC LIMIT 1"


def table_query(structure: TableStructure, expressions: str, *, is_versioned: bool) -> str:
    """The SELECT of all rows of a table; arguments as of ``chunk_query``."""
    history = " FOR SYSTEM_TIME ALL" if is_versioned else ""
    # A writer that waits for the reader's lock of a MyISAM table must not make this SELECT wait behind it.
    return f"SELECT HIGH_PRIORITY {expressions} FROM {quoted(structure.db, structure.table)}{history}"


def _above(key: Sequence[str], lower: Sequence[str]) -> str:
    """The condition that a row's key is above a bound. Servers find no index range for a comparison of row values."""
    condition = f"{key[-1]} > {lower[-1]}"
    for column, literal in reversed(list(zip(key[:-1], lower[:-1], strict=True))):
        condition = f"{column} >= {literal} AND ({column} > {literal} OR ({condition}))"
    return condition
