"""The result of a validation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from schemas.counted import counted

#: how many rows of each table are listed; further ones are only counted
MAX_KEYS = 20

Verdict = Literal["equal", "different", "pending", "left out"]


@dataclass
class TableReport:
    """One downstream table.

    Attributes:
        rows, chunks: what was read of it so far, on the upstream.
        different: number of rows proved different.
        repaired: number of rows that were different before the table was copied again.
        pending: number of rows that changed in each look, or for which the channel was too slow.
        keys: the first different rows.
        problem: why the table as a whole is not equal, or not known to be; empty if only rows decide.
        whole: what ``problem`` makes of the table.
        more: whether reading ended early, because very many rows differ.
    """

    table: str
    rows: int = 0
    chunks: int = 0
    different: int = 0
    repaired: int = 0
    pending: int = 0
    keys: list[str] = field(default_factory=list)
    problem: str = ""
    whole: Verdict = "equal"
    more: bool = False

    @property
    def verdict(self) -> Verdict:
        """What is known of the table. ``left out``: the channel's rules make it differ."""
        if self.different:
            return "different"
        return "pending" if self.pending and self.whole == "equal" else self.whole

    def set_problem(self, problem: str, whole: Verdict) -> None:
        """Note what is true of the table as a whole."""
        self.problem, self.whole = problem, whole


@dataclass
class Report:
    """All tables.

    Attributes:
        position: the channel's GTID set at the start; each row was proved at a position at or behind it.
        rows_estimated: number of rows to read, as the upstream guesses.
    """

    position: str = ""
    seconds: float = 0.0
    rows_estimated: int = 0
    tables: list[TableReport] = field(default_factory=list)

    @property
    def is_different(self) -> bool:
        return any(table.verdict == "different" for table in self.tables)

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def different(self) -> int:
        return sum(table.different for table in self.tables)

    @property
    def repaired(self) -> int:
        return sum(table.repaired for table in self.tables)

    @property
    def pending(self) -> int:
        """Rows that are not decided; a table of which no row is decided counts as one."""
        return sum(table.pending or (table.verdict == "pending") for table in self.tables)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for ``--json``."""
        return {
            "rows": self.rows,
            "chunks": sum(table.chunks for table in self.tables),
            "different": self.different,
            "repaired": self.repaired,
            "pending": self.pending,
            "position": self.position,
            "seconds": round(self.seconds, 3),
            "tables": [_table_dict(table) for table in self.tables],
        }

    def __str__(self) -> str:
        found = [
            counted(sum(table.verdict == verdict for table in self.tables), "table") + f" {verdict}"
            for verdict in ("equal", "different", "pending", "left out")
            if any(table.verdict == verdict for table in self.tables)
        ]
        return f"{counted(self.rows, 'row')}: {', '.join(found) or 'no tables'}"


def _table_dict(table: TableReport) -> dict[str, Any]:
    shown = {name: value for name, value in vars(table).items() if name != "whole"}
    return {**shown, "verdict": table.verdict}
