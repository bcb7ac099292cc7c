"""By which columns a row is found on the downstream: its own unique keys decide, as in TiDB's DM.

The upstream's key finds at most one row if a unique key of the downstream consists of columns of it. Otherwise a
unique key of the downstream does, with its values from the row's image. With neither, rows are compared exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from schemas.structure import TableStructure
from spark_consumer.target.table import TargetTable


class Find(Enum):
    """How a row's place on the downstream is written."""

    #: the upstream's key, from the Kafka key
    KEY = "key"
    #: columns of a unique key of the downstream, from the image
    UNIQUE = "unique"
    #: the upstream's key byte by byte, which nothing on the downstream makes unique; two rows found are an error
    EXACT = "exact"
    #: all columns byte by byte, and any one of equal rows
    WHOLE = "whole"


@dataclass(frozen=True)
class RowLocator:
    """How rows are found.

    Attributes:
        columns: of UNIQUE, by the upstream's spelling.
    """

    find: Find
    columns: tuple[str, ...] = ()

    @property
    def sure(self) -> bool:
        """Whether no two rows of the downstream can be meant, so that many rows may be in one statement."""
        return self.find in (Find.KEY, Find.UNIQUE)


BY_KEY = RowLocator(Find.KEY)
BY_ROW = RowLocator(Find.WHOLE)


def locator_of(structure: TableStructure, target: TargetTable, *, merged: bool, partial: bool) -> RowLocator:
    """How rows of ``structure`` are found in ``target``.

    Args:
        merged: whether rows of several upstream tables are in ``target``: the upstream's key is not unique there.
        partial: whether some changes are left out, so that columns beside the key may have other values there.
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
