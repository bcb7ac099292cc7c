"""The demo's result, from the downstream's audit table, for the screen and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from compose.databases import Database

_AUDIT = """
SELECT COALESCE(SUM(inserts + updates + deletes), 0), COALESCE(MAX(last_epoch), 0),
       COALESCE(SUM(statements), 0)
FROM tailrace.applied_epochs WHERE channel = 'main'
"""


@dataclass(frozen=True)
class Applied:
    """Sums over the audit table: row events, the last epoch, and the statements written."""

    events: int
    epochs: int
    statements: int


def applied(downstream: Database) -> Applied:
    """Read the sums of what the consumer has applied so far."""
    [(events, epochs, statements)] = downstream.execute(_AUDIT)
    return Applied(int(events), int(epochs), int(statements))


@dataclass(frozen=True)
class Summary:
    """The fields of ``summary.json``; ``tables`` is the number of compared tables."""

    events: int
    rows_per_s: int
    epochs: int
    statements: int
    lag_p50_s: float
    lag_p99_s: float
    kills: int
    tables: int
    equal: bool

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    def rows(self) -> list[tuple[str, str]]:
        """Return labels and values for the screen."""
        saved = self.events - self.statements
        share = 100 * saved / self.events if self.events else 0
        return [
            ("row events", f"{self.events:,}"),
            ("rows/s", f"{self.rows_per_s:,} (as fast as the workload wrote them)"),
            ("epochs", f"{self.epochs:,}"),
            ("statements", f"{self.statements:,}; compaction and merging saved {saved:,} ({share:.0f} %)"),
            ("lag", f"p50 {self.lag_p50_s:.2f} s, p99 {self.lag_p99_s:.2f} s, with the kills in it"),
            ("kill -9", f"{self.kills}"),
            ("tables", f"{self.tables}, {'all equal' if self.equal else 'NOT EQUAL'}"),
        ]
