"""Reads and pairs two servers' tables, and builds the expressions that select their rows exactly."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Literal

from pymysql.connections import Connection

from schemas.quote import quoted
from spark_consumer.rules.route import Router
from tailrace.servers import rows

_NUMBERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double", "year"}
#: types whose values are told by their fractions' digits too: `1.5` and `1.50` are one value
_WITH_DIGITS: tuple[Set[str], ...] = (
    {"decimal", "tinyint", "smallint", "mediumint", "int", "bigint"},
    {"time"},
    {"date", "datetime", "timestamp"},
)
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}


@dataclass(frozen=True)
class ComparedColumn:
    """One column: its name, ``information_schema``'s data type, and its character set if it has one.

    Attributes:
        members: the whole type of an ENUM or SET column, else ``""``.
        compared: what is compared of an ENUM's or SET's number besides the text: nothing, the number, or whether it
            is zero.
        digits: how many a number's or a time's fraction has.
        padding: what follows the value's text so that it has as many as that of the other side.
    """

    name: str
    data_type: str
    charset: str
    nullable: bool
    members: str = ""
    compared: Literal["nothing", "number", "zero"] = "nothing"
    digits: int = 0
    padding: str = ""

    @property
    def quoted(self) -> str:
        return quoted(self.name)

    @property
    def selected(self) -> str:
        """The expression that selects the exact value: servers show a FLOAT with six digits only.

        Two members of an ENUM may have the same text, and index 0 may have the text of a member.
        """
        if self.compared != "nothing":
            number = f"CAST({self.quoted} AS SIGNED)"
            shown = number if self.compared == "number" else f"SIGN({number})"
            return f"CONCAT({shown}, ' ', CONVERT({self.quoted} USING utf8mb4))"
        return f"CAST({self.quoted} AS DOUBLE)" if self.data_type in {"float", "double"} else self.quoted

    @property
    def ordered(self) -> str:
        """The expression to order and compare by: an ENUM is ordered by number, but compared with text by text."""
        return f"CAST({self.quoted} AS SIGNED)" if self.data_type in {"enum", "set"} else self.selected

    def literal(self, value: bytes) -> str:
        """Return a value of ``ordered`` as an SQL literal that compares like the column itself."""
        if self.data_type in _NUMBERS or self.data_type in {"enum", "set"}:
            return value.decode()
        if self.data_type == "bit":
            return str(int.from_bytes(value, "big"))
        if self.data_type in _BYTES or not value:
            return f"X'{value.hex()}'"
        # The introducer keeps the bytes in the column's character set; the column's collation wins over it.
        return f"_{self.charset or 'ascii'} X'{value.hex()}'"


@dataclass(frozen=True)
class ComparedTable:
    """One table of one server; ``key`` is the primary key or the first NOT NULL unique key."""

    db: str
    name: str
    columns: tuple[ComparedColumn, ...]
    key: tuple[ComparedColumn, ...]
    average_row_bytes: int

    @property
    def quoted(self) -> str:
        return quoted(self.db, self.name)


def align_enum_comparison(tables: Sequence[ComparedTable]) -> list[ComparedTable]:
    """Return the tables with ``compared`` set on ENUM and SET columns: numbers are compared if all members are equal.

    If the members differ, an ENUM's number still distinguishes an invalid value from the member ``''``.
    """
    lists = [{c.name: (c.data_type, c.members) for c in table.columns if c.members} for table in tables]

    def with_comparison(column: ComparedColumn) -> ComparedColumn:
        found = {each.get(column.name, ("", "")) for each in lists}
        if not column.members or ("", "") in found:
            return column
        if len(found) == 1:
            return replace(column, compared="number")
        return replace(column, compared="zero") if {kind for kind, _ in found} == {"enum"} else column

    return [replace(table, columns=tuple(map(with_comparison, table.columns))) for table in tables]


def align_digits(tables: Sequence[ComparedTable]) -> list[ComparedTable]:
    """Return the tables, whose columns have the same order, with ``padding`` set on columns and keys."""
    aligned = zip(*map(_padded, zip(*(table.columns for table in tables), strict=True)), strict=True)
    return [_with_columns(table, columns) for table, columns in zip(tables, aligned, strict=True)]


def _padded(columns: Sequence[ComparedColumn]) -> Sequence[ComparedColumn]:
    kinds = {column.data_type for column in columns}
    if not any(kinds <= alike for alike in _WITH_DIGITS):
        return columns
    most = max(column.digits for column in columns)
    found = []
    for column in columns:
        midnight = " 00:00:00" if column.data_type == "date" and kinds != {"date"} else ""
        point = "." if most > column.digits == 0 else ""
        found.append(replace(column, padding=f"{midnight}{point}{'0' * (most - column.digits)}"))
    return found


def _with_columns(table: ComparedTable, columns: tuple[ComparedColumn, ...]) -> ComparedTable:
    paddings = {column.name.lower(): column.padding for column in columns}
    key = tuple(replace(column, padding=paddings.get(column.name.lower(), "")) for column in table.key)
    return replace(table, columns=columns, key=key)


def read_catalog(
    connection: Connection[Any], replicated: Callable[[str, str], bool]
) -> dict[str, ComparedTable]:
    """Return the replicated tables, by ``db.table``."""
    found = {}
    sizes = _table_sizes(connection)
    columns = _columns(connection)
    keys = _keys(connection, columns)
    for (db, name), size in sizes.items():
        if replicated(db, name) and (db, name) in columns:
            found[f"{db}.{name}"] = ComparedTable(db, name, columns[db, name], keys.get((db, name), ()), size)
    return found


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


_USER_SCHEMAS = "table_schema NOT IN ('mysql','sys','information_schema','performance_schema')"


def _table_sizes(connection: Connection[Any]) -> dict[tuple[str, str], int]:
    sql = (
        "SELECT table_schema, table_name, avg_row_length FROM information_schema.tables"
        f" WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND {_USER_SCHEMAS}"
    )
    return {(_text(db), _text(name)): int(size or 0) for db, name, size in rows(connection, sql)}


def _columns(connection: Connection[Any]) -> dict[tuple[str, str], tuple[ComparedColumn, ...]]:
    sql = (
        "SELECT table_schema, table_name, column_name, data_type, character_set_name, is_nullable, column_type,"
        " IF(data_type = 'decimal', numeric_scale, datetime_precision)"
        f" FROM information_schema.columns WHERE {_USER_SCHEMAS} ORDER BY table_schema, table_name, ordinal_position"
    )
    found: dict[tuple[str, str], list[ComparedColumn]] = {}
    for row in rows(connection, sql):
        db, table, name, data_type, charset, nullable, kind, digits = map(_text, row)
        members = kind if data_type.lower() in ("enum", "set") else ""
        found.setdefault((db, table), []).append(
            ComparedColumn(
                name, data_type.lower(), charset, nullable == "YES", members, digits=int(digits or 0)
            )
        )
    return {table: tuple(columns) for table, columns in found.items()}


def _keys(
    connection: Connection[Any], columns: dict[tuple[str, str], tuple[ComparedColumn, ...]]
) -> dict[tuple[str, str], tuple[ComparedColumn, ...]]:
    sql = (
        "SELECT table_schema, table_name, index_name, column_name FROM information_schema.statistics"
        f" WHERE non_unique = 0 AND {_USER_SCHEMAS} ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index"
    )
    indexes: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows(connection, sql):
        db, table, index, column = map(_text, row)
        indexes.setdefault((db, table), {}).setdefault(index, []).append(column)
    keys: dict[tuple[str, str], tuple[ComparedColumn, ...]] = {}
    for table_name, candidates in indexes.items():
        by_name = {c.name: c for c in columns.get(table_name, ())}
        for names in candidates.values():
            # A functional part has no column name; a nullable part does not identify a row.
            parts = [by_name.get(name) for name in names]
            if all(part is not None and not part.nullable for part in parts):
                keys[table_name] = tuple(part for part in parts if part is not None)
                break
    return keys


def create_statement(connection: Connection[Any], table: ComparedTable) -> str:
    """Return SHOW CREATE TABLE without the AUTO_INCREMENT counter.

    The counter includes ids that were rolled back or overwritten, which are not in the log.
    """
    [row] = rows(connection, f"SHOW CREATE TABLE {table.quoted}")
    # A table comment may contain the same words; it follows the counter, in quotes.
    return re.sub(r"(?m)^(\)[^'\n]*?) AUTO_INCREMENT=\d+", r"\1", _text(row[1]))


def structure_lines(source: str, target: str) -> list[str]:
    """Return the lines in which two structures differ, as a diff without context."""
    diff = difflib.unified_diff(
        source.splitlines(), target.splitlines(), "upstream", "downstream", lineterm="", n=0
    )
    return [line for line in diff if not line.startswith("@@")]


def plain_structure(table: ComparedTable) -> str:
    """Return the part of a structure that both flavors show alike: the columns' names in order, and the key."""
    return "\n".join([*column_names(table), "KEY " + ",".join(column.name for column in table.key)])


def column_names(table: ComparedTable) -> list[str]:
    return [column.name for column in table.columns]


@dataclass(frozen=True)
class Pairing:
    """Which tables are replicated, by their names upstream, and what they are called downstream."""

    replicated: Callable[[str, str], bool]
    router: Router

    def pairs(
        self, source_tables: Mapping[str, ComparedTable], target_tables: Mapping[str, ComparedTable]
    ) -> Iterator[tuple[list[str], str]]:
        """Yield each target table with its source tables (none, one or several), by ``db.table``, in order."""
        sources: dict[str, list[str]] = {}
        for name in sorted(source_tables):
            table = source_tables[name]
            if self.replicated(table.db, table.name):
                target = ".".join(self.router.table(table.db, table.name))
                sources.setdefault(target, []).append(name)
        # A replicated table that only the target has, and that no route renames, is extra.
        extra = {
            name
            for name, table in target_tables.items()
            if name not in sources
            and self.replicated(table.db, table.name)
            and self.router.table(table.db, table.name) == (table.db, table.name)
        }
        for target in sorted(sources.keys() | extra):
            yield sources.get(target, []), target
