"""The interface of a type family: its Avro types, and the lines of code that decode it and write it as SQL.

The lines become part of one generated function per table structure, so that there is no dispatch per value.
They may use these names:

    decoding   ``b`` the binlog bytes, ``p`` the offset in them (advanced by the lines)
    encoding   ``b`` rows of the text protocol, ``p`` the offset in them (advanced by the lines)
    rendering  ``v`` the Avro bytes, ``p`` the offset in them (advanced by the lines)

Helper functions come from ``Codec.names`` and must be unique over all families.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schemas.structure import Column
from schemas.types.parameter import Parameter
from schemas.varint import read_lines

Lines = list[str]


class NumberLine(str):
    """A first line that reads one number, which may be read together with the numbers of neighbor columns.

    Attributes:
        form: the number's format character of ``struct``, without byte order.
        name: the variable that the line sets.
        whole: whether the number is the whole value in the binlog, so the next column's value follows.
    """

    form: str
    name: str
    whole: bool

    def __new__(cls, line: str, form: str, name: str, *, whole: bool) -> NumberLine:
        """Create the line."""
        head = super().__new__(cls, line)
        head.form, head.name, head.whole = form, name, whole
        return head


class Codec(ABC):
    """One type family."""

    #: helpers that the generated code of this family calls
    names: Mapping[str, Callable[..., Any] | Sequence[Any] | Mapping[Any, Any]] = {}

    @abstractmethod
    def avro(self, column: Column) -> list[Any]:
        """Return the Avro types that a value of this column may have; several types form a union."""

    @abstractmethod
    def decode(self, column: Column, target: str, tags: list[str]) -> Lines:
        """Return lines that set ``target`` to the Avro bytes of the value at ``b[p]``.

        Args:
            tags: for each type of ``avro``, the literal of its union branch byte, or ``b''``.
        """

    def select(self, column: Column, quoted: str) -> list[str]:
        """Return the expressions of a SELECT whose values ``encode`` reads; if the column is NULL, all of them are.

        They are for a session in UTC that does not convert text: ``session_setup`` in producer/copy/row_encoder.py.

        Args:
            quoted: the column's name, quoted.
        """
        return [quoted]

    @abstractmethod
    def encode(self, column: Column, target: str, tags: list[str]) -> Lines:
        """Return lines that set ``target`` to the Avro bytes of the value at ``b[p]``, which is not NULL.

        They are the bytes that ``decode`` makes of the same value.

        Args:
            tags: see ``decode``.
        """

    @abstractmethod
    def literal(self, column: Column, target: str, branches: int) -> Lines:
        """Return lines that set ``target`` to the SQL literal of the Avro value at ``v[p]``.

        Args:
            branches: number of union branches before this family's first one (0, or 1 for NULL); the branch byte
                was already read into ``t``.
        """

    @abstractmethod
    def parameter(self, column: Column, target: str, branches: int) -> Parameter:
        """Return the form of the Avro value at ``v[p]`` as a prepared statement's value; see ``literal``.

        The server stores the same as of the literal. The lines raise ``NoParameter`` where it might not.
        """

    @abstractmethod
    def value(self, column: Column, target: str, branches: int) -> Lines:
        """Return lines that set ``target`` to the Python value of the Avro value at ``v[p]``; see ``literal``."""

    def predicate(self, column: Column, quoted: bytes) -> tuple[bytes, bytes]:
        """Return the text before and after the literal for an exact, NULL-safe comparison with the column.

        Args:
            quoted: the column's name, quoted.
        """
        return quoted + b" <=> ", b""


def text_predicate(quoted: bytes, charset: bytes) -> tuple[bytes, bytes]:
    """``Codec.predicate`` for text: compares its bytes in a character set, since a collation treats café as CAFE."""
    using = b" USING " + charset + b") AS BINARY)"
    return b"CAST(CONVERT(" + quoted + using + b" <=> CAST(CONVERT(", using


#: the byte of a NULL in the text protocol; a smaller one is a value's length, a larger one begins a longer length
NULL_MARK = 251
_LENGTH_SIZES = {252: 2, 253: 3, 254: 8}


def read_counted_field(b: bytes, p: int) -> tuple[int, int]:
    """Return the length of the value at ``b[p]`` in the text protocol, and where the value begins.

    Raises:
        ValueError: it is not a length.
    """
    first = b[p]
    if first < NULL_MARK:
        return first, p + 1
    size = _LENGTH_SIZES.get(first)
    if size is None:
        raise ValueError(f"a value's length begins with {first}")
    return int.from_bytes(b[p + 1 : p + 1 + size], "little"), p + 1 + size


def short_field() -> Lines:
    """Return encoding lines that read a value shorter than ``NULL_MARK`` bytes into ``d``, its length into ``l``."""
    return ["l = b[p]; q = p + 1; p = q + l; d = b[q:p]"]


def number_field() -> Lines:
    """Return encoding lines that read a whole number into ``i``."""
    return ["q = p + 1; p = q + b[p]; i = int(b[q:p])"]


def any_field() -> Lines:
    """Return encoding lines that read a value of any length into ``d``, its length into ``l``."""
    return [
        "l = b[p]; q = p + 1",
        f"if l >= {NULL_MARK}: l, q = read_counted_field(b, p)",
        "p = q + l; d = b[q:p]",
    ]


def read_length(target: str) -> Lines:
    """Return rendering lines that read an Avro length into ``l`` and slice the value into ``target``."""
    return [
        *read_lines("l"),
        f"q = p + (l >> 1); {target} = v[p:q]; p = q",
    ]
