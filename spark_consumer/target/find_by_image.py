"""Generates predicates that find a row by its image, for tables without a usable upstream key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from schemas.codegen import compile_function, indent
from schemas.quote import quoted
from schemas.sql.literals import (
    AFTER_AT,
    Render,
    key_match,
    literal_lines,
    literal_names,
    tuple_text,
)
from schemas.structure import Column, TableStructure
from schemas.types import codec_of


@dataclass(frozen=True)
class Finder:
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


@lru_cache(maxsize=1024)
def compile_finder(structure: TableStructure, names: tuple[str, ...], exact: bool) -> Finder:
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
    return Finder(
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
