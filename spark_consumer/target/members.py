"""How values of ENUM and SET are written: by text, or by the numbers that their members have downstream.

A server takes the text of an ENUM or SET for the first member that is equal under the column's collation. Of 'a' and
'A', 'é' and 'e', 'ss' and 'ß' the second one would become the first, and a row be found by the other's value. So only
members that no collation known here takes for each other are written by text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from schemas.structure import Column, WrittenColumn
from schemas.types.enum_set import ENUM, SET
from spark_consumer.rules.expressions.kinds import Unevaluable, collation
from spark_consumer.rules.expressions.parse import UnsupportedExpression
from spark_consumer.target.table import TargetColumn


class Unclear(ValueError):
    """A column whose members cannot be told apart downstream; the message says why."""


def as_written(column: Column, there: TargetColumn) -> Column:
    """A column whose values fit downstream, as they are written there.

    Raises:
        Unclear: of two members that are the same text it cannot be said which is which there.
    """
    if column.code not in (ENUM, SET):
        return column
    ours, theirs = column.members, there.type.members
    if there.type.base != column.base:
        if len(set(ours)) < len(ours):
            raise Unclear(f"the text of its members does not tell which is which: {_twice(ours)}")
        return _written(column)
    if _apart(theirs, there.collation) and len(set(ours)) == len(ours):
        return column
    return _written(column, tuple(_numbers(ours, theirs)))


def _numbers(ours: Sequence[str], theirs: Sequence[str]) -> Sequence[int]:
    if ours == theirs:
        return range(1, len(ours) + 1)
    if twice := _twice(ours) or _twice([member for member in theirs if member in ours]):
        raise Unclear(f"the lists of members differ, and a member is there twice: {twice}")
    return [theirs.index(member) + 1 for member in ours]


def _twice(members: Sequence[str]) -> str:
    """A member that another one is the same as; "" if there is none."""
    return next((repr(m[:60]) for n, m in enumerate(members) if m in members[:n]), "")


@lru_cache(maxsize=1024)
def _apart(members: tuple[str, ...], name: str) -> bool:
    """Whether it is sure that the collation takes no two members, nor one and none, for equal."""
    try:
        key = collation(name).key
        return len({"", *map(key, members)}) > len(members)
    except (UnsupportedExpression, Unevaluable):
        return False


def _written(column: Column, numbers: tuple[int, ...] | None = None) -> WrittenColumn:
    return WrittenColumn(**vars(column), numbers=numbers)
