"""Values that describe how the rows of a slice can conflict; ``causality`` makes them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

from schemas.tables import QualifiedName


class Normalization(Enum):
    """How a literal is normalized for comparison."""

    #: unchanged
    EXACT = "exact"
    #: without the sign of zero: -0.0 is 0.0
    UNSIGNED = "unsigned"
    #: hexadecimal, perhaps only a prefix
    BYTES = "bytes"
    #: by a collation without letter case: in capitals if it is printable ASCII
    FOLDED = "folded"
    #: by a collation with letter case: unchanged if it is printable ASCII
    TEXT = "text"
    #: by collation weights from the server
    ASKED = "asked"


@dataclass(frozen=True)
class ConflictColumn:
    """One column of a conflict key.

    Attributes:
        column: the column's name in the log.
        length: the length of a prefix; None for the whole value.
        charset, collation: for text, those of the downstream's column.
    """

    column: str
    normalization: Normalization
    length: int | None = None
    charset: str = ""
    collation: str = ""

    @property
    def is_text(self) -> bool:
        return self.normalization in (Normalization.FOLDED, Normalization.TEXT, Normalization.ASKED)


@dataclass(frozen=True)
class ConflictKey:
    """Columns by whose values two rows may conflict.

    Attributes:
        space: the space of the values: only keys of the same space are compared.
        refers: whether it is on the child's side of a foreign key, and conflicts with parents only.
    """

    space: int
    parts: tuple[ConflictColumn, ...]
    refers: bool = False


@dataclass(frozen=True)
class TableCausality:
    """How the rows of one table structure conflict.

    Attributes:
        whole: the group of all its rows; None if the rows are compared by ``keys``.
        by_key: whether only rows with the same key in the log conflict, unless an UPDATE changes a key.
    """

    keys: tuple[ConflictKey, ...] = ()
    whole: int | None = None
    by_key: bool = False


@dataclass(frozen=True)
class Causality:
    """How the rows of a slice conflict.

    Attributes:
        tables: one for each table of the plan.
        spaces: for each space the columns of one of its keys.
        updated: the upstream's tables with UPDATEs, which may have changed keys.
    """

    tables: tuple[TableCausality, ...]
    spaces: tuple[tuple[ConflictColumn, ...], ...] = ()
    updated: frozenset[QualifiedName] = frozenset()

    def compared(self, numbers: Collection[int]) -> Causality:
        """Return it with the rows of these tables, by their numbers, compared by all that may conflict."""
        tables = (
            replace(table, by_key=table.by_key and number not in numbers)
            for number, table in enumerate(self.tables)
        )
        return replace(self, tables=tuple(tables))
