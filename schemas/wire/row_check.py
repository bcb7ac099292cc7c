"""Checks operation and key of a record of the rows topic, to find records that the producer cannot have written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from schemas.codegen import compile_function, indent, kept
from schemas.structure import Column, TableStructure
from schemas.wire.avro_schema import AFTER_AT, OP_AT
from schemas.wire.row_columns import SKIP_NAMES, skip_lines
from schemas.wire.rows import key_prefix


@kept
def compile_check(structure: TableStructure) -> Callable[[bytes, bytes], None]:
    """Generate a function of a record's key and its value with a header of ``HEADER_SIZE`` bytes.

    It raises ValueError or LookupError unless the key is the key of the row in the value.
    """
    names: dict[str, Any] = {
        **SKIP_NAMES,
        "WRITTEN": frozenset(b"\x02" + op + b"\x02" for op in (b"c", b"r", b"u")),
        "DELETED": b"\x02d\0\x02",
        "PREFIX": key_prefix(structure),
    }
    begin, end = OP_AT - 1, AFTER_AT + 1
    lines = [
        f"if v[{begin}:{end}] in WRITTEN:",
        *indent([f"p = {end}", *_same(structure, structure.after_image)]),
        f"elif v[{begin}:{end + 1}] == DELETED:",
        *indent([f"p = {end + 1}", *_same(structure, structure.before_image)]),
        "else: raise ValueError('it has no operation')",
    ]
    return compile_function("check", "k, v", lines, names, f"<check of {structure.name}>")


def _same(structure: TableStructure, image: Sequence[Column]) -> list[str]:
    """Return lines that compare the key with the image that starts at ``v[p]``."""
    numbers = {column.name: number for number, column in enumerate(image)}
    if not numbers.keys() >= set(structure.key):
        return ["raise ValueError('its image has no key')"]
    lines: list[str] = []
    parts: list[str] = []
    last = max((numbers[name] for name in structure.key), default=-1)
    for number, column in enumerate(image[: last + 1]):
        lines += [f"p{number} = p", *skip_lines(column)]
        parts.append(f"v[p{number}:p{number + 1}]")
    chosen = [numbers[name] for name in structure.key]
    if not chosen:
        found = "PREFIX"
    elif chosen == list(range(chosen[0], chosen[0] + len(chosen))):
        found = f"PREFIX + v[p{chosen[0]}:p]"
    else:
        found = "PREFIX + " + " + ".join(parts[number] for number in chosen)
    return [
        *lines,
        f"p{last + 1} = p",
        f"if k != {found}: raise ValueError('its key belongs to another row')",
    ]
