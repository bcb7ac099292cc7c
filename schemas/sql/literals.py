"""Converts row values to SQL text, with functions generated once per table structure, from Avro bytes to SQL bytes.

The text is for a session with ``SESSION_SETUP``; in another session it may have another meaning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import fastavro

from schemas.codegen import compile_function, indent, kept
from schemas.quote import quoted
from schemas.structure import Column, TableStructure
from schemas.types import codec_of, literal_constants, with_tag
from schemas.types.enum_set import ENUM
from schemas.types.floating import DOUBLE, FLOAT, float_text
from schemas.varint import read_lines, read_more
from schemas.wire.avro_schema import AFTER_AT, read_record, row_schema
from schemas.wire.rows import HEADER_SIZE, key_prefix

#: statements that prepare a session for the rendered text
SESSION_SETUP = (
    "SET NAMES utf8mb4",
    "SET SESSION sql_mode='NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO'",
    "SET SESSION time_zone='+00:00'",
)

Render = Callable[[bytes], bytes]

#: names of columns, and the SQL text that is written into them in every row
Filled = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class RowSource:
    """The `source` record of a row; fields as in ``schemas.wire.avro_schema.SOURCE``."""

    seq: int
    epoch: int
    flags: int
    db: str
    table: str
    server_id: int
    gtid: str | None
    file: str
    pos: int
    ts_ms: int


class Renderers:
    """The functions that make SQL text for one structure, each made when it is first needed.

    ``key`` and ``match_key`` take the Kafka key, the others the value with a header of ``HEADER_SIZE`` bytes.

    Args:
        structure: the structure that the rows were written with.
        writable: the columns to write: those of the after images except the ones that the target generates.
        filled: values for columns that after images lack.
        documents: text columns that are JSON in the target.

    Attributes:
        columns: the columns of an INSERT.
        key_columns: the key, for ``… IN (…)``: one column bare, several in parentheses.
    """

    def __init__(
        self,
        structure: TableStructure,
        writable: tuple[str, ...],
        filled: Filled = (),
        documents: tuple[str, ...] = (),
    ) -> None:
        self._structure, self._writable = structure, set(writable)
        self._filled, self._documents = filled, documents
        inserted = [c.name for c in structure.after_image if c.name in self._writable]
        self.columns = ",".join(map(quoted, [*inserted, *(name for name, _ in filled)])).encode()
        key_names = ",".join(quoted(c.name) for c in structure.key_columns)
        self.key_columns = (key_names if len(structure.key_columns) == 1 else f"({key_names})").encode()

    def _make(self, name: str, argument: str, body: list[str], result: str) -> Render:
        whole = "if p > len(v): raise EOFError('the row ends within a column')"
        lines = [*body, whole, f"return {result}"]
        names = literal_names(self._structure.columns)
        return compile_function(name, argument, lines, names, f"<{name} of {self._structure.name}>")

    @property
    def _key_image(self) -> list[str]:
        # The key starts with the names of schema and table, which are the same for all rows of the table.
        begin = len(key_prefix(self._structure))
        return ["v = k", f"p = {begin}", *image_lines(self._structure.key_columns, "s")]

    @property
    def _image(self) -> list[str]:
        return [f"p = {AFTER_AT + 1}", *image_lines(self._structure.after_image, "s")]

    @cached_property
    def key(self) -> Render:
        """The key's values, for ``… IN (…)``."""
        keys = self._structure.key_columns
        value = "s0" if len(keys) == 1 else tuple_text((c, f"s{i}") for i, c in enumerate(keys))
        return self._make("key", "k", self._key_image, value if keys else "b''")

    @cached_property
    def match_key(self) -> Render:
        """The key as ``a=1 AND b='x'``."""
        keys = self._structure.key_columns
        matched = key_match((c, f"s{i}") for i, c in enumerate(keys))
        return self._make("match_key", "k", self._key_image, matched if keys else "b''")

    @cached_property
    def after(self) -> Render:
        """The values of an INSERT in parentheses."""
        values = _values(self._structure.after_image, self._writable, "s", self._filled)
        return self._make("after", "v", self._image, values)

    @cached_property
    def assignments(self) -> Render:
        """The assignments of an UPDATE, ``a=1,b='x'``."""
        made = _assignments(self._structure.after_image, self._writable, "s", self._filled)
        return self._make("assignments", "v", self._image, made)

    @cached_property
    def match_before(self) -> Render:
        """The before image as an exact, NULL-safe predicate over all its columns."""
        image = self._structure.before_image
        lines = [*_skip_after(self._structure), "p += 1", *image_lines(image, "s")]
        return self._make("match_before", "v", lines, _full_match(image, "s", self._documents))

    @cached_property
    def source(self) -> Callable[[bytes], RowSource]:
        """Reads the row's `source` record (too slow for every row)."""
        return source_reader(self._structure)


def literal_names(columns: tuple[Column, ...]) -> dict[str, Any]:
    """Return the globals that the lines of ``image_lines`` need."""
    names: dict[str, Any] = {"read_more": read_more, "from_bytes": int.from_bytes}
    for column in columns:
        names |= literal_constants(column)
    return names


def literal_lines(column: Column, target: str) -> list[str]:
    """Return lines that read one Avro value at ``v[p]`` into a SQL literal."""
    lines = codec_of(column).literal(column, target, 1 if column.nullable else 0)
    return with_tag(column, lines, f"{target} = b'NULL'")


def image_lines(columns: tuple[Column, ...], prefix: str) -> list[str]:
    """Return lines that read the image at ``v[p]`` into SQL literals ``<prefix>0``, ``<prefix>1``, …"""
    return [line for i, c in enumerate(columns) for line in literal_lines(c, f"{prefix}{i}")]


def _join(parts: list[str]) -> str:
    return f"b''.join({_tuple(parts)})"


def _tuple(parts: list[str]) -> str:
    return f"({''.join(f'{part}, ' for part in parts)})"


def values_text(variables: list[str]) -> str:
    """Return the expression for ``(…,…)`` of variables with literals."""
    return f"b'(' + b','.join({_tuple(variables)}) + b')'"


def tuple_text(chosen: Iterable[tuple[Column, str]]) -> str:
    """Return the expression for ``(…,…)`` of columns and the variables of their literals, for a comparison.

    In a list of several columns a server compares an ENUM as text, so its index 0 is ``''``.
    """
    parts = [f"(b\"''\" if {v} == b'0' else {v})" if c.code == ENUM else v for c, v in chosen]
    return values_text(parts)


def _values(columns: tuple[Column, ...], writable: set[str], prefix: str, filled: Filled = ()) -> str:
    chosen = [f"{prefix}{i}" for i, c in enumerate(columns) if c.name in writable]
    return values_text([*chosen, *(repr(value) for _, value in filled)])


def _assignments(columns: tuple[Column, ...], writable: set[str], prefix: str, filled: Filled) -> str:
    parts: list[str] = []
    for i, column in enumerate(columns):
        if column.name in writable:
            comma = "," if parts else ""
            parts += [repr(f"{comma}{quoted(column.name)}=".encode()), f"{prefix}{i}"]
    parts += [repr(f",{quoted(name)}=".encode() + value) for name, value in filled]
    return _join(parts)


def key_match(columns: Iterable[tuple[Column, str]]) -> str:
    """Return the expression for ``a=1 AND b='x'`` of columns and the variables of their literals."""
    parts: list[str] = []
    for i, (column, variable) in enumerate(columns):
        joint = " AND " if i else ""
        parts += [repr(f"{joint}{quoted(column.name)}=".encode()), variable]
    return _join(parts)


def _full_match(columns: tuple[Column, ...], prefix: str, documents: tuple[str, ...]) -> str:
    parts: list[str] = []
    for i, column in enumerate(columns):
        if column.is_row_hash:
            continue
        joint = b" AND " if parts else b""
        name = quoted(column.name).encode()
        before, after = _around_literal(column, documents)
        exact = f"{joint + before!r} + {prefix}{i} + {after!r}"
        if column.code in (FLOAT, DOUBLE):
            exact = f"{exact} + {_sign_of_zero(name, f'{prefix}{i}')}"
        if column.nullable:
            is_null = repr(joint + name + b" IS NULL")
            exact = f"{is_null} if {prefix}{i} == b'NULL' else {exact}"
        parts.append(f"({exact})")
    return _join(parts)


def _around_literal(column: Column, documents: tuple[str, ...]) -> tuple[bytes, bytes]:
    name = quoted(column.name).encode()
    if column.name in documents:
        # The server normalized the stored text, and normalizes this text in the same way.
        return (
            b"CAST(CAST(" + name + b" AS CHAR) AS BINARY) <=> CAST(CAST(CAST(",
            b" AS JSON) AS CHAR) AS BINARY)",
        )
    return codec_of(column).predicate(column, name)


class Comparison(NamedTuple):
    """A comparison of ``match_before``: of an expression of a column with ``start``, a literal and ``end``.

    Rows with equal expressions of all columns are not told apart.
    """

    column: str
    expression: bytes
    start: bytes
    end: bytes


def comparisons(structure: TableStructure, documents: tuple[str, ...]) -> list[Comparison]:
    """Return what ``match_before`` compares."""
    found = []
    for column in structure.before_image:
        if not column.is_row_hash:
            before, end = _around_literal(column, documents)
            # A name may hold the operator, but nothing behind the operator holds a name.
            expression, _, start = before.rpartition(b" <=> ")
            found.append(Comparison(column.name, expression, start, end))
    return found


def _sign_of_zero(name: bytes, variable: str) -> str:
    """Return the expression that distinguishes 0 from -0, which the server's comparison does not."""
    signed = b" AND CAST(" + name + b" AS CHAR) LIKE '%-%'"
    plain = signed.replace(b" LIKE ", b" NOT LIKE ")
    zero, negative_zero = float_text(0.0), float_text(-0.0)
    return (
        f"({plain!r} if {variable} == {zero!r} else {signed!r} if {variable} == {negative_zero!r} else b'')"
    )


def _skip_after(structure: TableStructure) -> list[str]:
    """Return lines that set ``p`` to the end of the after image, whose union branch has a fixed offset."""
    read = image_lines(structure.after_image, "x")
    return [f"p = {AFTER_AT + 1}", f"if v[{AFTER_AT}]:", *indent(read or ["pass"])]


@kept
def source_reader(structure: TableStructure) -> Callable[[bytes], RowSource]:
    """Return a reader of the `source` record in a structure's values (too slow for every row)."""
    schema = fastavro.parse_schema(json.loads(row_schema(structure).text))

    def source(value: bytes) -> RowSource:
        return RowSource(**read_record(schema, value[HEADER_SIZE:])["source"])

    return source


@kept
def compile_renderers(
    structure: TableStructure,
    writable: tuple[str, ...],
    filled: Filled = (),
    documents: tuple[str, ...] = (),
) -> Renderers:
    """Return a structure's renderers; the arguments are those of ``Renderers``."""
    return Renderers(structure, writable, filled, documents)


def place_lines() -> list[str]:
    """Return lines that read into ``place`` what is behind the after image: the row's place in the log.

    It is a number that grows with the epoch and the number in it. The row has no before image.
    """
    # The union branch of `before`, then the number in the epoch, and the epoch.
    return ["p += 1", *read_lines("m"), *read_lines("e"), "place = e << 40 | m"]


@kept
def compile_place(structure: TableStructure) -> Callable[[bytes], int]:
    """Generate a function that returns a row's place in the log, see ``place_lines``."""
    body = [*_skip_after(structure), *place_lines(), "return place"]
    return compile_function(
        "place", "v", body, literal_names(structure.columns), f"<place of {structure.name}>"
    )


@kept
def compile_placed(
    structure: TableStructure, writable: tuple[str, ...], filled: Filled = ()
) -> Callable[[bytes], tuple[int, bytes]]:
    """Generate a function that returns a row's place in the log and the values of an INSERT in parentheses.

    The row has no before image, as those of copies and of INSERTs. The arguments are those of ``compile_renderers``.
    """
    columns = structure.after_image
    whole = "if p > len(v): raise EOFError('the row ends within a column')"
    values = _values(columns, set(writable), "s", filled)
    body = [
        f"p = {AFTER_AT + 1}",
        *image_lines(columns, "s"),
        *place_lines(),
        whole,
        f"return place, {values}",
    ]
    return compile_function(
        "placed", "v", body, literal_names(structure.columns), f"<placed of {structure.name}>"
    )


@kept
def compile_images(structure: TableStructure) -> Callable[[bytes], tuple[bytes | None, bytes | None]]:
    """Generate a function that returns the bytes of a value's after and before image, None for one that it lacks."""

    def image(name: str, columns: tuple[Column, ...]) -> list[str]:
        return ["q0 = p", *image_lines(columns, "s"), f"{name} = v[q0:p]"]

    body = [
        f"p = {AFTER_AT + 1}; after = before = None",
        f"if v[{AFTER_AT}]:",
        *indent(image("after", structure.after_image)),
        "b = v[p]; p += 1",
        "if b:",
        *indent(image("before", structure.before_image)),
        "if p > len(v): raise EOFError('the row ends within a column')",
        "return after, before",
    ]
    return compile_function(
        "images", "v", body, literal_names(structure.columns), f"<images of {structure.name}>"
    )


def compile_literals(
    structure: TableStructure, wanted: tuple[str, ...], *, before: bool
) -> Callable[[bytes], tuple[bytes, ...]]:
    """Generate a function that returns the SQL literals of the ``wanted`` columns in a row's before or after image."""
    numbers = {column.name: number for number, column in enumerate(structure.columns)}
    last = max((numbers[name] for name in wanted), default=-1)
    image = image_lines(structure.columns[: last + 1], "s")
    start = [*_skip_after(structure), "p += 1"] if before else [f"p = {AFTER_AT + 1}"]
    result = ", ".join(f"s{numbers[name]}" for name in wanted)
    whole = "if p > len(v): raise EOFError('the row ends within a column')"
    body = [*start, *image, whole, f"return ({result},)" if wanted else "return ()"]
    return compile_function(
        "literals", "v", body, literal_names(structure.columns), f"<literals of {structure.name}>"
    )
