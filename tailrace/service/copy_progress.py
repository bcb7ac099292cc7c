"""Shows how far copies of tables are: as data for ``tailrace status``, and as text."""

from __future__ import annotations

from typing import Any

from producer.copy.progress import CopyProgress
from schemas.counted import counted
from schemas.tables import QualifiedName
from tailrace.service.progress import RateMeter, Snapshot

Part = dict[str, Any]

#: names that a text lists
_SHOWN = 5
#: for a log without copies
NO_COPY: Part = {
    "running": False,
    "for_new_channels": False,
    "tables_total": None,
    "tables_done": None,
    "rows_done": None,
    "rows_estimated": None,
    "rows_per_s": None,
    "seconds_left": None,
    "paused": None,
    "tables": [],
    "not_begun": [],
    "not_copied": [],
}


def copy_part(progress: CopyProgress) -> Part:
    """Return the progress as plain data, without rate and time left."""
    not_copied = [{"table": _shown(name), "reason": reason} for name, reason in progress.refused.items()]
    if not progress.running and not progress.tables_total:
        return NO_COPY | {"not_copied": not_copied}
    return NO_COPY | {
        "running": progress.running,
        "for_new_channels": progress.for_new_channels,
        "tables_total": progress.tables_total,
        "tables_done": progress.tables_done,
        "rows_done": progress.rows_done,
        "rows_estimated": progress.rows_estimated,
        "paused": progress.paused,
        "tables": [
            {"table": _shown(name), "rows": table.rows, "rows_estimated": table.estimate}
            for name, table in progress.tables.items()
        ],
        "not_begun": [_shown(name) for name in progress.not_begun],
        "not_copied": not_copied,
    }


class CopyMeter:
    """Measures the rate of a running copy; it is asked every second."""

    def __init__(self) -> None:
        self._meter = RateMeter()

    def part(self, progress: CopyProgress | None, now: float) -> Part | None:
        """Return the progress as plain data; None if nothing is known.

        Args:
            now: seconds of a monotonic clock.
        """
        if progress is None:
            return None
        if not progress.running:
            self._meter = RateMeter()
            return copy_part(progress)
        done, estimate = progress.rows_done, progress.rows_estimated
        remaining = None if estimate is None else float(estimate - done)
        self._meter.add(now, Snapshot(done, "", done=float(done), remaining=remaining))
        left = self._meter.seconds_left()
        measured = {
            "rows_per_s": round(max(0.0, self._meter.rows_per_s())),
            "seconds_left": None if left is None else round(left),
        }
        return copy_part(progress) | measured


def describe_copy(part: Part) -> str:
    """Return the progress of a running copy as a line of text."""
    rows = counted(part["rows_done"], "row")
    if part["tables_total"] is None:
        text = "the list of tables is being read"
    else:
        text = f"{part['tables_done']:,} of {counted(part['tables_total'], 'table')}"
    if part["rows_estimated"] is not None:
        rows = f"{part['rows_done']:,} of about {counted(part['rows_estimated'], 'row')}"
    parts = [text, rows]
    if part["rows_per_s"] is not None:
        parts.append(f"{part['rows_per_s']:,} rows/s")
    if part["seconds_left"] is not None:
        parts.append(f"{part['seconds_left']:,} s left")
    if part["tables"]:
        parts.append(f"reading {listed([table['table'] for table in part['tables']])}")
    if part["for_new_channels"]:
        parts.insert(0, "for new channels only")
    if part["paused"]:
        parts.insert(0, f"paused: {part['paused']}")
    return ", ".join(parts)


def listed(names: list[str]) -> str:
    """Return names as text, only a few of many."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _shown(name: QualifiedName) -> str:
    return ".".join(name)
