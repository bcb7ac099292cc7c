"""Decides whether ENUM and SET values are written as text or as the numbers of their members downstream.

A server reads the text of an ENUM or SET as the first member that is equal under the column's collation. Where members
are equal under it ('a' and 'A', 'é' and 'e', 'ss' and 'ß'), the second would become the first, and a row would be found
by the other member's value. So values are written as text only if the collation is known and keeps all members apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from schemas.structure import Column, WrittenColumn
from schemas.types.enum_set import ENUM, SET
from spark_consumer.rules.expressions import UnsupportedExpression
from spark_consumer.rules.expressions.kinds import Unevaluable, collation
from spark_consumer.target.table import TargetColumn


class AmbiguousMembers(ValueError):
    """The members of a column cannot be told apart downstream. The message is the reason."""


def written_column(column: Column, there: TargetColumn) -> Column:
    """Return the column in the form in which its values are written downstream.

    Raises:
        AmbiguousMembers: two members have the same text, and it is not known which of them is which downstream.
    """
    if column.code not in (ENUM, SET):
        return column
    ours, theirs = column.members, there.type.members
    if there.type.base != column.base:
        if len(set(ours)) < len(ours):
            raise AmbiguousMembers(f"two of its members have the same text: {_twice(ours)}")
        return _written(column)
    if _apart(theirs, there.collation) and len(set(ours)) == len(ours):
        return column
    return _written(column, tuple(_numbers(ours, theirs)))


def _numbers(ours: Sequence[str], theirs: Sequence[str]) -> Sequence[int]:
    if ours == theirs:
        return range(1, len(ours) + 1)
    if twice := _twice(ours) or _twice([member for member in theirs if member in ours]):
        raise AmbiguousMembers(f"the lists of members differ, and one member occurs twice: {twice}")
    return [theirs.index(member) + 1 for member in ours]


def _twice(members: Sequence[str]) -> str:
    """Return a member that occurs twice, quoted; "" if there is none."""
    return next((repr(m[:60]) for n, m in enumerate(members) if m in members[:n]), "")


@lru_cache(maxsize=1024)
def _apart(members: tuple[str, ...], name: str) -> bool:
    """Whether the collation is known and no two members, nor a member and the empty text, are equal under it."""
    try:
        key = collation(name).key
        return len({"", *map(key, members)}) > len(members)
    except (UnsupportedExpression, Unevaluable):
        return False


def _written(column: Column, numbers: tuple[int, ...] | None = None) -> WrittenColumn:
    return WrittenColumn(**vars(column), numbers=numbers)
