"""Chooses the columns by which a row is found on the downstream, from the downstream's unique keys, as TiDB's DM does.

The upstream's key finds at most one row if it contains all columns of a unique key of the downstream. Otherwise a
unique key of the downstream is used, with its values from the row's image. With neither, rows are compared exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from schemas.structure import TableStructure
from spark_consumer.target.table import TargetTable


class Find(Enum):
    """The way in which a row is found on the downstream."""

    #: by the upstream's key, from the Kafka key
    KEY = "key"
    #: by columns of a unique key of the downstream, from the image
    UNIQUE = "unique"
    #: by the upstream's key byte by byte, which is not unique on the downstream; two matching rows are an error
    EXACT = "exact"
    #: by all columns byte by byte; of equal rows any one
    WHOLE = "whole"


@dataclass(frozen=True)
class RowLocator:
    """The way in which the rows of a table are found.

    Attributes:
        columns: for UNIQUE: the unique key's columns in the upstream's spelling.
    """

    find: Find
    columns: tuple[str, ...] = ()

    @property
    def sure(self) -> bool:
        """Whether at most one row can match, so that one statement may have many rows."""
        return self.find in (Find.KEY, Find.UNIQUE)


BY_KEY = RowLocator(Find.KEY)
BY_ROW = RowLocator(Find.WHOLE)


def locator_of(structure: TableStructure, target: TargetTable, *, merged: bool, partial: bool) -> RowLocator:
    """Return how rows of ``structure`` are found in ``target``.

    Args:
        merged: whether ``target`` has rows of several upstream tables, so that the upstream's key is not unique.
        partial: whether some changes are filtered out, so that columns outside the key may differ.
    """
    if not structure.key:
        return BY_ROW
    own = {name.lower() for name in structure.key}
    if any(key.plain and own.issuperset(key.columns) for key in target.keys):
        return BY_KEY
    if merged or not partial:
        written = {column.name.lower(): column.name for column in structure.known_columns}
        for key in target.keys:
            usable = key.plain and not key.nullable and not target.generated.intersection(key.columns)
            if usable and all(name in written for name in key.columns):
                return RowLocator(Find.UNIQUE, tuple(written[name] for name in key.columns))
    return BY_ROW if merged else RowLocator(Find.EXACT)
