"""The result of a comparison."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from schemas.counted import counted

#: how many differing keys are listed for each table; further ones are only counted
MAX_KEYS = 20

ONLY_SOURCE, ONLY_TARGET, DIFFERENT = "only in source", "only in target", "different values"


@dataclass(frozen=True)
class RowDifference:
    """One row that differs between the two sides."""

    key: str
    kind: str


@dataclass(frozen=True)
class TableResult:
    """One table. ``problem`` is empty when the table is equal.

    Attributes:
        rows: number of rows of the source that were compared.
        differing: number of differing rows; there are more if ``more`` is set.
        detail: the differing lines of the structure.
    """

    table: str
    rows: int = 0
    problem: str = ""
    differing: int = 0
    more: bool = False
    differences: tuple[RowDifference, ...] = ()
    detail: tuple[str, ...] = ()

    @property
    def equal(self) -> bool:
        return not self.problem

    def with_rows(self, rows: int, found: Iterable[RowDifference] = (), more: bool = False) -> TableResult:
        """Return this result with the rows and differences of one more chunk added."""
        found = list(found)
        listed = (*self.differences, *found)[:MAX_KEYS]
        problem = self.problem or ("rows differ" if found or more else "")
        return replace(
            self,
            rows=self.rows + rows,
            problem=problem,
            differing=self.differing + len(found),
            more=self.more or more,
            differences=listed,
        )


@dataclass(frozen=True)
class CompareResult:
    """All tables, in order of their names."""

    tables: tuple[TableResult, ...] = field(default_factory=tuple)

    @property
    def equal(self) -> bool:
        return all(table.equal for table in self.tables)

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for ``--json``."""
        tables = [{**asdict(table), "equal": table.equal} for table in self.tables]
        return {"equal": self.equal, "rows": self.rows, "tables": tables}

    def __str__(self) -> str:
        wrong = [
            f"{t.table}: {t.problem} {[d.key for d in t.differences]}" for t in self.tables if not t.equal
        ]
        counts = f"{counted(len(self.tables), 'table')}, {counted(self.rows, 'row')}"
        return f"{counts}, " + ("; ".join(wrong) or "equal")
