"""Chooses the columns by which a row is found on the downstream, from the downstream's unique keys, as TiDB's DM does.

The upstream's key finds at most one row if it contains all columns of a unique key of the downstream. Otherwise a
unique key of the downstream is used, with its values from the row's image. With neither, rows are compared exactly.
Predicates over a row's image are compiled for each structure (``compile_finder``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from schemas.codegen import compile_function, indent, kept
from schemas.quote import quoted
from schemas.sql.literals import Render, key_match, literal_lines, literal_names, tuple_text
from schemas.structure import Column, TableStructure, WrittenColumn
from schemas.types import codec_of
from schemas.wire.avro_schema import AFTER_AT
from spark_consumer.target.table import TargetTable
from spark_consumer.target.versioned import END

#: ``row_end`` of current rows, before MariaDB 11.5 and since
_NEVER = frozenset({b"'2038-01-19 03:14:07.999999'", b"'2106-02-07 06:28:15.999999'"})

# How collations begin whose text a server compares with a statement's without converting it.
_ALIKE = ("utf8", "ascii", "binary")


class RowMatch(Enum):
    """The way in which a row is found on the downstream."""

    #: by the upstream's key, from the Kafka key
    KEY = "key"
    #: by columns of a unique key of the downstream, from the image
    UNIQUE = "unique"
    #: by the upstream's key byte by byte, which is not unique on the downstream; two matching rows are an error
    EXACT = "exact"
    #: by all columns byte by byte; of equal rows any one
    WHOLE = "whole"


@dataclass(frozen=True)
class RowLocator:
    """The way in which the rows of a table are found.

    Attributes:
        columns: for UNIQUE: the unique key's columns in the upstream's spelling.
        index: for KEY and UNIQUE: the name of the unique key.
    """

    find: RowMatch
    columns: tuple[str, ...] = ()
    index: str = ""

    @property
    def sure(self) -> bool:
        """Whether at most one row can match, so that one statement may have many rows."""
        return self.find in (RowMatch.KEY, RowMatch.UNIQUE)


BY_KEY = RowLocator(RowMatch.KEY)
BY_ROW = RowLocator(RowMatch.WHOLE)


def locator_of(structure: TableStructure, target: TargetTable, *, merged: bool, partial: bool) -> RowLocator:
    """Return how rows of ``structure`` are found in ``target``.

    Args:
        merged: whether ``target`` has rows of several upstream tables, so that the upstream's key is not unique.
        partial: whether some changes are filtered out, so that columns outside the key may differ.
    """
    if not structure.key:
        return BY_ROW
    own = {name.lower() for name in structure.key}
    for key in target.keys:
        if key.plain and own.issuperset(key.columns):
            return RowLocator(RowMatch.KEY, index=key.name)
    if merged or not partial:
        written = {column.name.lower(): column.name for column in structure.known_columns}
        for key in target.keys:
            usable = key.plain and not key.nullable and not target.generated.intersection(key.columns)
            if usable and all(name in written for name in key.columns):
                columns = tuple(written[name] for name in key.columns)
                return RowLocator(RowMatch.UNIQUE, columns, key.name)
    return BY_ROW if merged else RowLocator(RowMatch.EXACT)


def misses_in_lists(structure: TableStructure, target: TargetTable, locator: RowLocator) -> bool:
    """Whether a server may miss rows that are looked up in a list of several columns, as in ``(a,b) IN ((1,'x'),…)``.

    MySQL compares an ENUM or SET with a number as text there. MariaDB misses text of other character sets than the
    statement's, if the list has several rows.
    """
    names = structure.key if locator.find in (RowMatch.KEY, RowMatch.EXACT) else locator.columns
    columns = [column for column in structure.columns if column.name in names]
    if len(columns) == 1:
        return False
    there = [found for column in columns if (found := target.column(column.name)) is not None]
    return any(isinstance(column, WrittenColumn) and column.by_number for column in columns) or any(
        found.collation and not found.collation.startswith(_ALIKE) for found in there
    )


@dataclass(frozen=True)
class RowMatcher:
    """Functions from a row's Kafka value to SQL text. ``old`` is the before image, or without one the after image.

    Attributes:
        columns: the left side of ``… IN (…)``; several columns are in parentheses.
        old, new: return the columns' values for ``… IN (…)``.
        match_old, match_new: return the same condition as ``a=1 AND b='x'``.
    """

    columns: bytes
    old: Render
    new: Render
    match_old: Render
    match_new: Render


@kept
def compile_finder(structure: TableStructure, names: tuple[str, ...], exact: bool) -> RowMatcher:
    """Generate the finder of a structure.

    Args:
        names: the columns to find a row by; none of them is NULL.
        exact: compare text byte by byte too, not only by the downstream's collation.
    """
    index = {column.name: number for number, column in enumerate(structure.columns)}
    chosen = tuple((structure.columns[index[name]], f"s{index[name]}") for name in names)
    scope = literal_names(structure.columns)

    def image(columns: tuple[Column, ...]) -> list[str]:
        lines = (literal_lines(column, f"s{index[column.name]}") for column in columns)
        return [line for one in lines for line in one] or ["pass"]

    new = [f"p = {AFTER_AT + 1}", *image(structure.after_image)]
    old = [
        f"p = {AFTER_AT + 1}",
        f"if v[{AFTER_AT}]:",
        *indent(image(structure.after_image)),
        "b = v[p]; p += 1",
        "if b:",
        *indent(image(structure.before_image)),
    ]

    def make(name: str, body: list[str], result: str) -> Render:
        where = f"<{name} {','.join(names)} of {structure.name}>"
        return compile_function(name, "v", [*body, f"return {result}"], scope, where)

    columns = ",".join(map(quoted, names))
    key = chosen[0][1] if len(chosen) == 1 else tuple_text(chosen)
    match = _exact_match(chosen) if exact else key_match(chosen)
    return RowMatcher(
        columns=(columns if len(names) == 1 else f"({columns})").encode(),
        old=make("find_old", old, key),
        new=make("find_new", new, key),
        match_old=make("match_old", old, match),
        match_new=make("match_new", new, match),
    )


def _exact_match(chosen: tuple[tuple[Column, str], ...]) -> str:
    """Return code for a condition that compares both normally, so that an index can serve, and byte by byte."""
    parts = [key_match(chosen)]
    for column, variable in chosen:
        if column.charset:
            before, after = codec_of(column).predicate(column, quoted(column.name).encode())
            parts.append(f"{b' AND ' + before!r} + {variable} + {after!r}")
    return " + ".join(parts)


class CurrentRowTest:
    """Tells history rows from current rows."""

    def __init__(self, structure: TableStructure) -> None:
        self._end = compile_finder(structure, (END,), exact=False).old

    def __call__(self, value: bytes) -> bool:
        """Whether a change updates or deletes a current row, or inserts one."""
        return self._end(value) in _NEVER
