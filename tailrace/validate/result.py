"""The result of a validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from schemas.counted import counted
from tailrace.validate.protocol import Key

#: how many rows of each table are listed; further ones are only counted
MAX_KEYS = 20

Verdict = Literal["equal", "different", "pending", "left out"]


@dataclass
class TableReport:
    """One downstream table.

    Attributes:
        rows, chunks: what was read of it so far, on the upstream.
        differing: the rows proved different, as text, by their keys.
        undecided: keys of rows that changed in each look, or for which the channel was too slow.
        repaired: number of rows that were different before the table was copied again.
        problem: why the table as a whole is not equal, or not known to be; empty if only rows decide.
        whole: what ``problem`` makes of the table.
        structure: the lines in which the structures differ, if servers at rest are compared.
        more: whether reading ended early, because very many rows differ.
    """

    table: str
    rows: int = 0
    chunks: int = 0
    differing: dict[Key, str] = field(default_factory=dict)
    undecided: set[Key] = field(default_factory=set)
    repaired: int = 0
    problem: str = ""
    whole: Verdict = "equal"
    structure: list[str] = field(default_factory=list)
    more: bool = False

    @property
    def different(self) -> int:
        return len(self.differing)

    @property
    def pending(self) -> int:
        return len(self.undecided)

    @property
    def keys(self) -> list[str]:
        """The first different rows."""
        return list(islice(self.differing.values(), MAX_KEYS))

    @property
    def verdict(self) -> Verdict:
        """What is known of the table. ``left out``: the channel's rules make it differ."""
        if self.different:
            return "different"
        return "pending" if self.pending and self.whole == "equal" else self.whole

    def set_problem(self, problem: str, whole: Verdict) -> None:
        """Note what is true of the table as a whole."""
        self.problem, self.whole = problem, whole

    def note(self, keys: Iterable[Key], different: Mapping[Key, str], undecided: Set[Key]) -> None:
        """Note what was found of rows; those that are neither different nor undecided are equal."""
        for key in keys:
            self.differing.pop(key, None)
            self.undecided.discard(key)
        self.differing.update(different)
        self.undecided |= undecided

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for ``--json``."""
        names = (
            "table",
            "rows",
            "chunks",
            "different",
            "repaired",
            "pending",
            "keys",
            "problem",
            "structure",
            "more",
        )
        return {**{name: getattr(self, name) for name in names}, "verdict": self.verdict}


@dataclass
class Report:
    """All tables.

    Attributes:
        position: the channel's GTID set at the start, that of the run which this one goes on with; each row was
            proved at a position at or behind it.
        until: the channel's GTID set at the end.
        rows_resumed: how many of the rows an interrupted run had read.
        rows_estimated: number of rows to read, as the upstream guesses.
        by_name: the tables by their names.
    """

    position: str = ""
    until: str = ""
    rows_resumed: int = 0
    seconds: float = 0.0
    rows_estimated: int = 0
    by_name: dict[str, TableReport] = field(default_factory=dict)

    @property
    def tables(self) -> list[TableReport]:
        return list(self.by_name.values())

    @property
    def is_different(self) -> bool:
        return any(table.verdict == "different" for table in self.tables)

    @property
    def is_equal(self) -> bool:
        """Whether each table is proved equal."""
        return all(table.verdict == "equal" for table in self.tables)

    @property
    def not_equal(self) -> list[str]:
        """A line for each table that is not proved equal, and for its first different rows."""
        return [
            f"{table.table}: {line}"
            for table in self.tables
            if table.verdict != "equal"
            for line in (table.problem or table.verdict, *table.structure, *table.keys)
        ]

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
            "until": self.until,
            "rows_resumed": self.rows_resumed,
            "seconds": round(self.seconds, 3),
            "tables": [table.as_dict() for table in self.tables],
        }

    def __str__(self) -> str:
        found = [
            counted(sum(table.verdict == verdict for table in self.tables), "table") + f" {verdict}"
            for verdict in ("equal", "different", "pending", "left out")
            if any(table.verdict == verdict for table in self.tables)
        ]
        return f"{counted(self.rows, 'row')}: {', '.join(found) or 'no tables'}"
