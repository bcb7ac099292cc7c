"""Finds the columns of a record's images without reading their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from schemas.codegen import compile_function, indent, kept
from schemas.structure import Column, TableStructure
from schemas.types import codec_of, union_tags
from schemas.types.json_avro import read_typed
from schemas.varint import read_lines, read_more
from schemas.wire.avro_schema import AFTER_AT

#: the globals that ``skip_lines`` need
SKIP_NAMES: dict[str, Any] = {"read_more": read_more, "read_typed": read_typed}
_READ_LONG = read_lines("l")
# Lines that skip a value, by Avro type.
_SKIP = {
    "int": _READ_LONG,
    "long": _READ_LONG,
    "float": ["p += 4"],
    "double": ["p += 8"],
    "string": [*_READ_LONG, "p += l >> 1"],
    "bytes": [*_READ_LONG, "p += l >> 1"],
    "map": ["p = read_typed(v, p)[2]"],
}


@kept
def compile_offsets(structure: TableStructure) -> Callable[[bytes], list[int]]:
    """Generate a function of a value with a header of ``HEADER_SIZE`` bytes and an after image.

    It returns where each column of the image begins, and where the last one ends. It raises ValueError or LookupError
    if the value has no such image.
    """
    lines = [f"if not v[{AFTER_AT}]: raise ValueError('it has no after image')", f"p = {AFTER_AT + 1}"]
    return _offsets(structure, lines, structure.after_image)


@kept
def compile_before_offsets(structure: TableStructure) -> Callable[[bytes], list[int]]:
    """Generate the same function for the before image."""
    skipped = [line for column in structure.after_image for line in skip_lines(column)]
    lines = [
        f"p = {AFTER_AT + 1}",
        *(("if v[p - 1]:", *indent(skipped)) if skipped else ()),
        "if not v[p]: raise ValueError('it has no before image')",
        "p += 1",
    ]
    return _offsets(structure, lines, structure.before_image)


def _offsets(
    structure: TableStructure, lines: list[str], image: Sequence[Column]
) -> Callable[[bytes], list[int]]:
    for number, column in enumerate(image):
        lines += [f"p{number} = p", *skip_lines(column)]
    begins = "".join(f"p{number}, " for number in range(len(image)))
    lines += ["if p > len(v): raise EOFError('the row ends within a column')", f"return [{begins}p]"]
    return compile_function("offsets", "v", lines, SKIP_NAMES, f"<offsets of {structure.name}>")


def skip_lines(column: Column) -> list[str]:
    """Return lines that move ``p`` over one Avro value at ``v[p]``."""
    tags, types = union_tags(column)[0], codec_of(column).avro(column)
    kinds = [kind if isinstance(kind, str) else str(kind["type"]) for kind in types]
    if not tags:
        return _SKIP[kinds[0]]
    first = 1 if column.nullable else 0
    lines = (
        ["t = v[p]; p += 1", "if not t: pass"] if column.nullable else ["t = v[p]; p += 1", "if t < 0: pass"]
    )
    for number, kind in enumerate(kinds, first):
        lines += [f"elif t == {number * 2}:", *indent(_SKIP[kind])]
    return [*lines, "else: raise ValueError('a union has no such branch')"]
