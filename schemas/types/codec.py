"""The interface of a type family: its Avro types, and the lines of code that decode it and write it as SQL.

The lines become part of one generated function per table structure, so that there is no dispatch per value.
They may use these names:

    decoding   ``b`` the binlog bytes, ``p`` the offset in them (advanced by the lines)
    rendering  ``v`` the Avro bytes, ``p`` the offset in them (advanced by the lines)

Helper functions come from ``Codec.names`` and must be unique over all families.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schemas.structure import Column

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

    @abstractmethod
    def literal(self, column: Column, target: str, branches: int) -> Lines:
        """Return lines that set ``target`` to the SQL literal of the Avro value at ``v[p]``.

        Args:
            branches: number of union branches before this family's first one (0, or 1 for NULL); the branch byte
                was already read into ``t``.
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


def read_length(target: str) -> Lines:
    """Return rendering lines that read an Avro length into ``l`` and slice the value into ``target``."""
    return [
        "l = v[p]; p += 1",
        "if l > 127: l, p = read_more(v, p, l)",
        f"q = p + (l >> 1); {target} = v[p:q]; p = q",
    ]
