"""Turns the result of a comparison into findings, notes and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from relay_store.check.directory import RelayFinding
from schemas.counted import counted
from tailrace.reader.event_rows import plain
from tailrace.verify_rows.compare import Difference, RowsReport
from tailrace.verify_rows.values import Undecodable

_REMEDY = (
    "look at the event with `tailrace relay cat --verbose` and with mysqlbinlog -v, compare it with the upstream's"
    " table, and report the difference with the relay file"
)
_MOST = 200  # characters shown of a value


def findings_of(report: RowsReport) -> list[RelayFinding]:
    """Return the listed differences as findings TR337."""
    return [
        RelayFinding("TR337", f"{one.file}:{one.position}", _what(one), _REMEDY) for one in report.differences
    ]


def notes_of(report: RowsReport) -> list[str]:
    """Return lines that count what was compared and what was not."""
    counts = {"row": report.rows, "value": report.values, "rows event": report.events}
    compared = ", ".join(counted(count, noun) for noun, count in counts.items())
    notes = [f"decoded with mysql-replication too, and compared: {compared}"]
    if more := report.different - len(report.differences):
        notes.append(f"{counted(more, 'further difference')} not listed")
    for name, count in sorted(report.known.items()):
        notes.append(f"{counted(count, 'value')} that mysql-replication is known to read wrongly: {name}")
    for reason, count in sorted(report.not_compared.items()):
        notes.append(f"{counted(count, 'rows event')} not compared: {reason}")
    return notes


def as_dict(report: RowsReport) -> dict[str, Any]:
    """Return the report for ``--json``."""
    differences = [
        {**asdict(one), "ours": _text(one.ours), "theirs": _text(one.theirs)} for one in report.differences
    ]
    return {**report.__dict__, "differences": differences}


def _what(one: Difference) -> str:
    table = f"table {one.table}" if one.table else "a compressed event"
    where = [f"row {one.row}"] if one.row else []
    where += [f"{one.image} image"] if one.image else []
    where += [f"column {one.column}"] if one.column else []
    return f"{', '.join([table, *where])}: {_text(one.ours)} by us, {_text(one.theirs)} by mysql-replication"


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, Undecodable):
        return f"not read ({value.why})"
    text = str(plain(value))
    return text if len(text) <= _MOST else f"{text[:_MOST]}… ({len(text)} characters)"
