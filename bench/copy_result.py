"""The result of ``bench --copy``, as a table for the screen and as a JSON file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.copy_lag import Lag
from bench.meter import Usage


class CopyTurn(NamedTuple):
    """Rows per second: from the producer's start to the downstream's last row, the producer's part of it, the peer."""

    copy: float
    produce: float
    mysqldump: float


@dataclass
class CopyResult:
    """What was measured; the usage is that of the last turn.

    Attributes:
        rows: of one copy.
        equal: whether each copy of Tailrace was equal.
        lag: of another table's changes during one more copy.
    """

    rows: int
    turns: list[CopyTurn] = field(default_factory=list)
    usage: dict[str, Usage] = field(default_factory=dict)
    equal: bool = True
    lag: Lag | None = None

    @property
    def medians(self) -> CopyTurn:
        """The median of each figure."""
        return CopyTurn(*(round(median(figures), 1) for figures in zip(*self.turns, strict=True)))

    @property
    def ratio(self) -> float:
        """The median of the turns' ratios: the machine's speed changes from turn to turn."""
        return round(median(turn.copy / turn.mysqldump for turn in self.turns), 2)

    def as_dict(self) -> dict[str, Any]:
        """Return the contents of ``copy.json``."""
        middle = self.medians
        return {
            "rows": self.rows,
            "copy_rows_per_s": middle.copy,
            "produce_rows_per_s": middle.produce,
            "peers": {"mysqldump_rows_per_s": middle.mysqldump},
            "ratio": self.ratio,
            "turns": [turn._asdict() for turn in self.turns],
            "cpu_seconds": {name: usage.cpu_seconds for name, usage in self.usage.items()},
            "peak_rss_mb": {name: usage.peak_rss_mb for name, usage in self.usage.items()},
            "other_tables_lag": self.lag and self.lag._asdict(),
            "equal": self.equal,
        }

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_dict(), indent=2) + "\n")


def print_copy(result: CopyResult, console: Console) -> None:
    """Print the figures, Tailrace's first."""
    table = Table(title=f"a copy of {result.rows:,} rows", title_justify="left")
    for heading in ("", "rows/s", "CPU s", "peak MB"):
        table.add_column(heading, justify="left" if not heading else "right")
    middle = result.medians
    for text, rate, processes in (
        ("Tailrace, from the start of both processes", middle.copy, ("produce", "consume")),
        ("its producer, until all is in Kafka", middle.produce, ("produce",)),
        ("peer: mysqldump | mysql", middle.mysqldump, ("mysqldump", "mysql")),
    ):
        used = [result.usage[name] for name in processes]
        table.add_row(
            text,
            f"{rate:,.0f}",
            " + ".join(f"{one.cpu_seconds:.1f}" for one in used),
            " + ".join(f"{one.peak_rss_mb:,.0f}" for one in used),
        )
    console.print(table)
    beside = ", ".join(
        f"{name} {result.usage[name].cpu_seconds:.1f} CPU s"
        for name in ("kafka", "downstream", "mysqldump.downstream")
    )
    console.print(f"beside them: {beside}")
    turns = ", ".join(f"{turn.copy:,.0f} to {turn.mysqldump:,.0f}" for turn in result.turns)
    console.print(f"copy and mysqldump in turns, rows/s: {turns}")
    console.print(f"{result.ratio} times mysqldump | mysql")
    if result.lag is not None:
        lag = result.lag
        console.print(
            f"changes of another table arrive after {lag.p50} s (median), {lag.p99} s (99 %) while"
            f" {lag.copy_rows_per_s:,.0f} rows/s are copied, and after {lag.before_p50} s, {lag.before_p99} s before"
        )
    console.print(
        "downstream equals upstream" if result.equal else "[red]downstream DIFFERS from upstream[/]"
    )
