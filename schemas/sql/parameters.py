"""Converts row values to values of a prepared INSERT, with functions generated once per table structure.

A server needs a fifth to a quarter less for them than for the same rows as literals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from schemas.codegen import compile_function, indent
from schemas.sql.literals import Filled, literal_lines, literal_names
from schemas.structure import Column, TableStructure
from schemas.types import codec_of, union_tags
from schemas.types.parameter import NAMES
from schemas.varint import read_lines
from schemas.wire.avro_schema import AFTER_AT

#: the most parameters of a statement
MOST = 65_535

#: a row's NULLs, a bit for each parameter, and the values of its other parameters
Values = tuple[int, bytes]


@dataclass(frozen=True)
class Parameters:
    """How the rows of one structure become values of a prepared INSERT.

    The functions take the value with a header of ``HEADER_SIZE`` bytes. They raise ``NoParameter`` if only a literal
    can express the row.

    Attributes:
        row: the placeholders of one row, in parentheses.
        types: the types of one row's parameters.
        after: returns the values of the after image.
        copied: also returns the row's place in the log; see ``compile_copied``.
    """

    row: bytes
    types: bytes
    after: Callable[[bytes], Values]
    copied: Callable[[bytes], tuple[int, Values]]

    @property
    def count(self) -> int:
        """The number of one row's parameters."""
        return len(self.types) // 2

    def joined(self, rows: Sequence[Values]) -> bytes:
        """Return what follows the statement's number when it is executed for these rows."""
        nulls = _nulls([nulls for nulls, _ in rows], self.count)
        return b"".join((nulls, b"\1", self.types * len(rows), *(values for _, values in rows)))


def _nulls(masks: Sequence[int], count: int) -> bytes:
    size = (len(masks) * count + 7) // 8
    if not any(masks):
        return bytes(size)
    parts: list[bytes] = []
    # Eight rows have whole bytes.
    for begin in range(0, len(masks), 8):
        bits = 0
        for at, mask in enumerate(masks[begin : begin + 8]):
            bits |= mask << at * count
        parts.append(bits.to_bytes(count, "little"))
    return b"".join(parts)[:size]


@lru_cache(maxsize=1024)
def compile_parameters(
    structure: TableStructure, writable: tuple[str, ...], filled: Filled = ()
) -> Parameters:
    """Generate a structure's functions; the arguments are those of ``compile_renderers``."""
    chosen = [column for column in structure.after_image if column.name in set(writable)]
    body, types = ["n = 0", f"p = {AFTER_AT + 1}"], b""
    for number, column in enumerate(structure.after_image):
        if column in chosen:
            lines, type_ = _lines(column, f"s{number}", len(types) // 2)
            types += type_
        else:
            lines = literal_lines(column, f"s{number}")
        body += lines
    names = literal_names(structure.columns) | NAMES
    joined = "".join(f"s{number}, " for number, one in enumerate(structure.after_image) if one in chosen)
    values = f"n, b''.join(({joined}))"
    whole = "if p > len(v): raise EOFError('the row ends within a column')"
    # As in ``compile_copied``.
    place = ["p += 1", *read_lines("m"), *read_lines("e")]

    def make(name: str, lines: list[str], result: str) -> Callable[[bytes], tuple[int, bytes]]:
        every = [*body, *lines, whole, f"return {result}"]
        return compile_function(name, "v", every, names, f"<{name} of {structure.name}>")

    placeholders = [*(b"?" for _ in chosen), *(text for _, text in filled)]
    return Parameters(
        row=b"(" + b",".join(placeholders) + b")",
        types=types,
        after=make("parameters", [], values),
        copied=make("copied_parameters", place, f"e << 40 | m, ({values})"),  # type: ignore[arg-type]
    )


def _lines(column: Column, target: str, number: int) -> tuple[list[str], bytes]:
    """Return lines that read one Avro value at ``v[p]``, and the parameter's type."""
    type_, lines = codec_of(column).parameter(column, target, 1 if column.nullable else 0)
    if not union_tags(column)[0]:
        return lines, type_
    read_tag = ["t = v[p]; p += 1"]
    if not column.nullable:
        return [*read_tag, *lines], type_
    null = f"if not t: n |= {1 << number}; {target} = b''"
    return [*read_tag, null, "else:", *indent(lines)], type_
