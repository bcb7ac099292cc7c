"""A table's keys as the servers keep them: names for those without, columns of primary keys NOT NULL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schemas.ddl.column_types import DdlContext
from schemas.ddl.cursor import Unparsable
from schemas.ddl.table_definition import ColumnDefinition, KeyDefinition, KeyPart, TableDefinition


def with_keys(table: TableDefinition, keys: Sequence[KeyDefinition], session: DdlContext) -> TableDefinition:
    """Return the table with ``keys`` added, in the server's order.

    Raises:
        Unparsable: a key of a column that is not there.
    """
    late: tuple[str, ...] = ()
    for key in keys:
        key = replace(key, parts=tuple(_whole(table, part) for part in key.parts))
        columns = [table.column(part.name) for part in key.parts]
        if key.kind != "other" and any(c is not None and c.type == "geometry" for c in columns):
            # MariaDB makes a prefix of a POINT and a hash of the others.
            raise Unparsable("a unique key of a column of geometry")
        if key.kind == "primary":
            # MariaDB has looked by then at the keys in front, of which a column may have been NULL so far.
            late = table.nullable_keys() if session.flavor == "mariadb" else ()
            key = replace(key, name="PRIMARY", named=True)
            table = table.not_null(part.name for part in key.parts)
        elif not key.name:
            key = replace(key, name=_made_up(key, [known.name for known in table.keys], session))
        table = replace(table, keys=(*table.keys, key))
    return table.sorted(late)


def _whole(table: TableDefinition, part: KeyPart) -> KeyPart:
    """Return the key column without its prefix length if the prefix covers the whole column."""
    if not part.name:
        return part
    column = table.column(part.name)
    if column is None:
        raise Unparsable(f"a key of the column {part.name!r}, which the tracked structure does not have")
    return KeyPart(column.name, None if part.prefix and covers(part.prefix, column) else part.prefix)


def covers(prefix: int, column: ColumnDefinition) -> bool:
    """Whether a prefix is none: as long as the column's values can be, or of a type that has none.

    Source: MySQL sql/sql_table.cc, ``prepare_key``; ``Field::type_can_have_key_part``.
    """
    if column.type in ("char", "varchar", "binary", "varbinary"):
        return prefix >= (column.length or 0)
    return column.type not in ("text", "blob", "geometry")


def _made_up(key: KeyDefinition, names: list[str], session: DdlContext) -> str:
    """The name that the server gives: make_unique_key_name in sql/sql_table.cc."""
    first = key.parts[0].name or "functional_index"
    taken = {name.lower() for name in names}
    if first.lower() not in taken and first.upper() != "PRIMARY":
        return first
    return next(name for n in range(2, 10_000) if (name := f"{first}_{n}").lower() not in taken)
