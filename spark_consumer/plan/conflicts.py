"""How the rows of a slice can conflict, as values; ``causality`` decides it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from schemas.tables import QualifiedName


class Sort(Enum):
    """How a literal is normalized for comparison."""

    #: as it is
    EXACT = "exact"
    #: without its sign: -0.0 is 0.0
    UNSIGNED = "unsigned"
    #: hexadecimal, of which a prefix may count
    BYTES = "bytes"
    #: as the collation has it; folded here while it is plain
    FOLDED = "folded"
    #: the same, letters as they are
    TEXT = "text"
    #: by collation weights from the server
    ASKED = "asked"


@dataclass(frozen=True)
class ConflictColumn:
    """One column of a conflict key.

    Attributes:
        column: its name in the log.
        length: of a prefix; None for the whole value.
        charset, collation: of text, the downstream's.
    """

    column: str
    sort: Sort
    length: int | None = None
    charset: str = ""
    collation: str = ""

    @property
    def is_text(self) -> bool:
        return self.sort in (Sort.FOLDED, Sort.TEXT, Sort.ASKED)


@dataclass(frozen=True)
class ConflictKey:
    """Columns whose values, taken together, two rows may share.

    Attributes:
        space: where the values are compared: keys of one space with each other.
        refers: of a foreign key's child, which conflicts with parents only, not with other children.
    """

    space: int
    parts: tuple[ConflictColumn, ...]
    refers: bool = False


@dataclass(frozen=True)
class TableCausality:
    """How the rows of one table structure conflict.

    Attributes:
        whole: the group that all its rows belong to; None if each is judged by ``keys``.
    """

    keys: tuple[ConflictKey, ...] = ()
    whole: int | None = None


@dataclass(frozen=True)
class Causality:
    """How the rows of a slice conflict.

    Attributes:
        tables: for each table of the plan.
        spaces: the parts of the keys of each space, as one of them has them.
        updated: the upstream's tables that have UPDATEs, which may have changed keys.
    """

    tables: tuple[TableCausality, ...]
    spaces: tuple[tuple[ConflictColumn, ...], ...] = ()
    updated: frozenset[QualifiedName] = frozenset()
