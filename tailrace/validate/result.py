"""The result of a validation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from schemas.counted import counted

#: how many rows of each table are listed; further ones are only counted
MAX_KEYS = 20


@dataclass
class TableReport:
    """One downstream table.

    Attributes:
        rows, chunks: what was read of it so far, on the upstream.
        different: number of rows proved different.
        pending: number of rows that changed in each look, or for which the channel was too slow.
        keys: the first different rows.
        problem: why the table cannot be validated, or how its structure differs.
        skipped: whether ``problem`` is a rule of the channel and no difference.
        more: whether reading ended early, because very many rows differ.
    """

    table: str
    rows: int = 0
    chunks: int = 0
    different: int = 0
    pending: int = 0
    keys: list[str] = field(default_factory=list)
    problem: str = ""
    skipped: bool = False
    more: bool = False

    @property
    def is_different(self) -> bool:
        return self.different > 0 or bool(self.problem and not self.skipped)


@dataclass
class Report:
    """All tables.

    Attributes:
        position: the channel's GTID set at the start; each row was proved at a position at or behind it.
    """

    position: str = ""
    seconds: float = 0.0
    tables: list[TableReport] = field(default_factory=list)

    @property
    def is_different(self) -> bool:
        return any(table.is_different for table in self.tables)

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def pending(self) -> int:
        return sum(table.pending for table in self.tables)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for ``--json``."""
        return {
            "rows": self.rows,
            "chunks": sum(table.chunks for table in self.tables),
            "different": sum(table.different for table in self.tables),
            "repaired": 0,
            "pending": self.pending,
            "position": self.position,
            "seconds": round(self.seconds, 3),
            "tables": [dict(vars(table)) for table in self.tables],
        }

    def __str__(self) -> str:
        verdict = (
            "different" if self.is_different else f"equal but {self.pending}" if self.pending else "equal"
        )
        return f"{counted(len(self.tables), 'table')}, {counted(self.rows, 'row')}: {verdict}"
