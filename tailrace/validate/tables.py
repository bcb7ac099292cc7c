"""Pairs a downstream table with its upstream tables, and builds the SQL that reads both in one form.

Two values that are equal have the same text on MySQL and MariaDB: integers without ZEROFILL, FLOAT and DOUBLE as the
double that they are, fractions with as many digits as the other side has, BIT as a number, MariaDB's UUID and addresses
as bytes. Everything with bytes is hashed as the server stores it; a text that the two sides store in different
character sets is converted first. JSON, which one server parses and the other keeps as text, may have two texts for one
value: such rows differ in their checksums and are compared as documents in the rows' own look.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pymysql.connections import Connection
from pymysql.cursors import Cursor

from schemas.tables import QualifiedName
from schemas.wire.epoch import SchemaChanged
from tailrace.validate.catalog import ComparedColumn, ComparedTable, align_digits, align_enum_comparison
from tailrace.validate.chunks import canonical_rows, in_order, json_columns, key_condition
from tailrace.validate.protocol import Digests, Key, Row, Rows, Sums

_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint"}
_PLAIN = {"decimal", "year", "date", "time", "datetime", "timestamp", *_INTEGERS, "bit", "float", "double"}
_AS_BYTES = {"uuid": 16, "inet6": 16, "inet4": 4}
# Numbers that servers do not show in one form.
_COMPUTED = {*_INTEGERS, "float", "double"}
#: keys by which a row can be found, besides text
_KEYS = _PLAIN | {"binary", "varbinary", "enum", "set"}
_TEXT_KEYS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext"}
#: rows without a key are counted in this many groups, by the first three digits of their digest
_DIGITS = 3

Collations = Mapping[tuple[str, str], Mapping[str, str]]
#: how a table is divided: key ranges, lists of keys, or not at all (rows without a common key)
Division = Literal["ranges", "keys", "whole"]


class StructureChanged(Exception):
    """The structures of tables may be others than those that were read; the text says why."""


@dataclass(frozen=True)
class Chunk:
    """Rows with ``low < key <= high``, or the rows of ``keys``; everything if nothing is set."""

    low: Key | None = None
    high: Key | None = None
    keys: tuple[Key, ...] | None = None


@dataclass(frozen=True)
class ReadUpTo:
    """How far a table is read.

    Attributes:
        listed: where keys are listed: how many tables are listed completely.
        low: the last key that was read; None before the first.
    """

    listed: int = 0
    low: Key | None = None


START = ReadUpTo()


@dataclass(frozen=True)
class TablePair:
    """A downstream table and the upstream tables that are replicated into it; all have the same columns, in order.

    Attributes:
        converted: columns that the two sides store in different character sets, in lower case.
        documents: columns that are JSON on one side and text on the other, in lower case. They are no part of the
            digest that is the key of a row without a key.
        any_time: rows may be ahead of the channel's position.
        parents: upstream tables whose changes may change rows here by foreign keys. The log does not have those.
        since: offset of an epoch before the structures were read.
        concerns: whether DDL may change the tables or their rows.
    """

    sources: tuple[ComparedTable, ...]
    target: ComparedTable
    division: Division
    converted: frozenset[str] = frozenset()
    documents: frozenset[str] = frozenset()
    any_time: bool = False
    parents: frozenset[QualifiedName] = frozenset()
    since: int = -1
    concerns: Callable[[SchemaChanged], bool] = lambda ddl: True

    @property
    def source_names(self) -> frozenset[QualifiedName]:
        return frozenset((table.db, table.name) for table in self.sources)


def pair_tables(
    sources: Sequence[ComparedTable],
    target: ComparedTable,
    collations: tuple[Collations, Collations],
    *,
    same_flavor: bool,
) -> TablePair | str:
    """Return the pair, or in which columns the structures differ. The downstream may have more columns."""
    first = sources[0]
    names = [column.name.lower() for column in first.columns]
    if any([column.name.lower() for column in source.columns] != names for source in sources):
        return "the upstream's tables have different columns"
    there = {column.name.lower(): column for column in target.columns}
    if lacking := [column.name for column in first.columns if column.name.lower() not in there]:
        return f"the downstream lacks the columns {', '.join(lacking)}"
    columns = tuple(there[name] for name in names)
    *above, below = align_digits(align_enum_comparison([*sources, replace(target, columns=columns)]))
    pairs = list(zip(above[0].columns, below.columns, strict=True))
    converted = frozenset(
        a.name.lower() for a, b in pairs if a.charset != b.charset and "" not in (a.charset, b.charset)
    )
    key_names = [column.name.lower() for column in first.key]
    by_name = {column.name.lower(): column for column in below.columns}
    # A key finds rows only if every upstream table has it.
    usable = bool(key_names) and all(
        [column.name.lower() for column in source.key] == key_names for source in above
    )
    below = replace(below, key=tuple(by_name[name] for name in key_names) if usable else ())
    division: Division = "whole"
    if usable and all(_same_key(a, b) for a, b in zip(above[0].key, below.key, strict=True)):
        here, other = (c.get((t.db, t.name), {}) for c, t in zip(collations, (above[0], below), strict=True))
        alike = all(
            not a.charset or a.members or (same_flavor and here.get(a.name) == other.get(b.name))
            for a, b in zip(above[0].key, below.key, strict=True)
        )
        division = "ranges" if alike else "keys"
    documents = frozenset(below.columns[i].name.lower() for i in json_columns(above[0], below))
    return TablePair(tuple(above), below, division, converted, documents)


def _same_key(a: ComparedColumn, b: ComparedColumn) -> bool:
    kinds = {a.data_type, b.data_type}
    if kinds <= _INTEGERS:
        return True
    if len(kinds) > 1 and not kinds <= _TEXT_KEYS:
        return False
    return kinds <= _KEYS | _TEXT_KEYS and (a.charset, a.members) == (b.charset, b.members)


class TableReader:
    """Reads a side's tables of a pair in one snapshot.

    Args:
        where: an SQL condition that both servers understand; rows that are looked at one by one are read without it.
    """

    def __init__(
        self, connection: Connection[Any], tables: Sequence[ComparedTable], pair: TablePair, where: str = ""
    ) -> None:
        self._connection, self._tables, self._pair, self._where = connection, tables, pair, where
        self.read = 0

    # -- chunks ----------------------------------------------------------------------------------

    def sums(self, chunk: Chunk) -> Sums:
        """Return counts and sums of digests by bucket. Only a table that is not divided has several buckets."""
        bucket = f"CONV(LEFT(m, {_DIGITS}), 16, 10)" if self._pair.division == "whole" else "0"
        halves = ", ".join(f"SUM(CAST(CONV({end}(m, 15), 16, 10) AS UNSIGNED))" for end in ("LEFT", "RIGHT"))
        found: dict[int, tuple[int, int, int]] = {}
        for table in self._tables:
            rows = (
                f"(SELECT {self._digest(table)} AS m FROM {table.quoted}{self._condition(table, chunk)}) AS d"
            )
            sql = f"SELECT {bucket} AS g, COUNT(*), {halves} FROM {rows} GROUP BY g"
            for row in self._rows(sql):
                group, count, one, two = (int(value or 0) for value in row)
                a, b, c = found.get(group, (0, 0, 0))
                found[group] = (a + count, b + one, c + two)
                self.read += count
        return found

    def digests(self, chunk: Chunk, buckets: Collection[int]) -> Digests:
        """Return the digests of the rows in ``buckets`` by key, sorted."""
        found: dict[Key, list[bytes]] = {}
        for table in self._tables:
            digest, condition = self._digest(table), self._condition(table, chunk)
            if self._pair.division == "whole":
                some = f"CONV(LEFT({digest}, {_DIGITS}), 16, 10) IN ({', '.join(map(str, sorted(buckets)))})"
                condition += f"{' AND' if condition else ' WHERE'} {some}"
            keys = self._key(table)
            sql = f"SELECT {', '.join([digest, *keys])} FROM {table.quoted}{condition}"
            for digest_value, *key in self._rows(sql):
                found.setdefault(tuple(part or b"" for part in key), []).append(bytes(digest_value or b""))
        return {key: tuple(sorted(values)) for key, values in found.items()}

    def rows(self, keys: Collection[Key]) -> Rows:
        """Return the rows of keys, JSON in a canonical form."""
        found: dict[Key, list[Row]] = {}
        wanted = set(keys)
        for table in self._tables:
            selected = [self._shown(column) for column in table.columns] + self._key(table)
            sql = f"SELECT {', '.join(selected)} FROM {table.quoted} WHERE {self._among(table, keys)}"
            for row in self._rows(sql):
                key = tuple(part or b"" for part in row[len(table.columns) :])
                # A collation finds other spellings of a key too.
                if key in wanted:
                    found.setdefault(key, []).append(row[: len(table.columns)])
        one, other = self._pair.sources[0], self._pair.target
        return {key: tuple(sorted(canonical_rows(one, other, rows), key=repr)) for key, rows in found.items()}

    def next_key(self, table: ComparedTable, low: Key | None, rows: int) -> Key | None:
        """Return the key ``rows`` rows behind ``low``, in the order of this server; None at the table's end."""
        keys = self._keys_after(table, low, 1, rows - 1)
        return keys[0] if keys else None

    def keys_after(self, table: ComparedTable, low: Key | None, rows: int) -> list[Key]:
        """Return the next keys behind ``low``, in the order of this server."""
        return self._keys_after(table, low, rows)

    def _keys_after(self, table: ComparedTable, low: Key | None, limit: int, offset: int = 0) -> list[Key]:
        condition = "" if low is None else key_condition(table.key, low, ">", ">")
        found = in_order(self._connection, table, self._key(table), condition, limit, offset)
        return [tuple(part or b"" for part in row) for row in found]

    # -- expressions -----------------------------------------------------------------------------

    def _shown(self, column: ComparedColumn) -> str:
        """Return the expression whose bytes are compared."""
        return _padded(self._exact(column), column)

    def _exact(self, column: ComparedColumn) -> str:
        name, kind = column.quoted, column.data_type
        if column.members:
            return column.selected
        if kind in _INTEGERS:
            return f"({name} + 0)"  # without the zeros of ZEROFILL
        if kind in ("float", "double"):
            return f"({name} * 1e0)"
        if kind == "bit":
            return f"CAST({name} AS UNSIGNED)"
        if kind in _AS_BYTES:
            return f"CAST({name} AS BINARY({_AS_BYTES[kind]}))"
        if column.name.lower() in self._pair.converted:
            return f"CONVERT({name} USING utf8mb4)"
        return name

    def _digest(self, table: ComparedTable, but: Collection[str] = ()) -> str:
        """Return the expression of a row's digest, without some columns. Parts contain no |, and none is the letter N.

        MySQL 9.7 has no MD5 and no SHA1 any more.
        """
        parts = []
        for column in table.columns:
            if column.name.lower() in but:
                continue
            shown = self._shown(column)
            text = shown if column.data_type in _PLAIN else f"SHA2({shown}, 256)"
            parts.append(f"IFNULL({text}, 'N')")
        return f"SHA2(CONCAT_WS('|', {', '.join(parts)}), 256)"

    def _key(self, table: ComparedTable) -> list[str]:
        if self._pair.division == "whole":
            return [self._digest(table, self._pair.documents)]
        return [_padded(self._exact(c) if c.data_type in _COMPUTED else c.ordered, c) for c in table.key]

    def _among(self, table: ComparedTable, keys: Iterable[Key]) -> str:
        if self._pair.division == "whole":
            digests = ", ".join(f"'{key[0].decode()}'" for key in keys)
            return f"{self._digest(table, self._pair.documents)} IN ({digests})"
        if len(table.key) == 1:
            [column] = table.key
            return f"{column.ordered} IN ({', '.join(column.literal(key[0]) for key in keys)})"
        one = (
            " AND ".join(f"{c.ordered} = {c.literal(part)}" for c, part in zip(table.key, key, strict=True))
            for key in keys
        )
        return " OR ".join(f"({condition})" for condition in one)

    def _condition(self, table: ComparedTable, chunk: Chunk) -> str:
        conditions = [f"({self._where})"] if self._where else []
        if chunk.keys is not None:
            conditions.append(f"({self._among(table, chunk.keys)})")
        if chunk.low is not None:
            conditions.append(key_condition(table.key, chunk.low, ">", ">"))
        if chunk.high is not None:
            conditions.append(key_condition(table.key, chunk.high, "<", "<="))
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def _rows(self, sql: str) -> Sequence[tuple[Any, ...]]:
        with self._connection.cursor(Cursor) as cursor:
            cursor.execute(sql)
            return cursor.fetchall()


def _padded(expression: str, column: ComparedColumn) -> str:
    return f"CONCAT({expression}, '{column.padding}')" if column.padding else expression
