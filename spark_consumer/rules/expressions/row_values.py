"""Row images as Python values: lines of code, made for one structure, that read what is asked for from Avro bytes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from schemas.codegen import indent
from schemas.structure import Column, TableStructure
from schemas.types import codec_of, union_tags
from schemas.varint import read_more
from schemas.wire.avro_schema import OP_AT

_AFTER_AT = OP_AT + 1


def value_lines(structure: TableStructure, wanted: Collection[str], *, before: bool) -> list[str]:
    """Lines that read columns of the after or before image of the row value ``v`` into ``c0``, ``c1``, …

    The number is the column's place in the structure. The lines want ``value_names`` as globals. What is wanted
    must be in the image.
    """
    lines = [f"p = {_AFTER_AT + 1}"]
    place = {column.name: i for i, column in enumerate(structure.columns)}
    if before:
        lines += [f"if v[{_AFTER_AT}]:", *indent(_image(structure.after_image, place)), "p += 1"]
    image = structure.before_image if before else structure.after_image
    last = max((i for i, c in enumerate(image) if c.name in wanted), default=-1)
    return [*lines, *_image(image[: last + 1], place)]


def value_names(structure: TableStructure) -> dict[str, Any]:
    """The globals of ``value_lines``."""
    names: dict[str, Any] = {"read_more": read_more, "from_bytes": int.from_bytes}
    for column in structure.columns:
        names |= codec_of(column).names
    return names


def _image(columns: tuple[Column, ...], place: dict[str, int]) -> list[str]:
    return [line for column in columns for line in _column(column, f"c{place[column.name]}")] or ["pass"]


def _column(column: Column, target: str) -> list[str]:
    lines = codec_of(column).value(column, target, 1 if column.nullable else 0)
    if not union_tags(column)[0]:
        return lines
    if not column.nullable:
        return ["t = v[p]; p += 1", *lines]
    return ["t = v[p]; p += 1", f"if not t: {target} = None", "else:", *indent(lines)]
