"""``tailrace relay verify``: checks the relay log for damage, and optionally our decoding of its rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tailrace.commands.options import DEFAULT_CONFIG, AsJson, ConfigFile, print_json, read_config

if TYPE_CHECKING:
    from relay_store.check.verify import Report
    from tailrace.verify_rows.compare import RowsReport

Rows = Annotated[
    bool, typer.Option("--rows", help="Also decode every row with mysql-replication, and compare each value.")
]

_LOG_EVERY_S = 10.0


def verify(config: ConfigFile = DEFAULT_CONFIG, rows: Rows = False, as_json: AsJson = False) -> None:
    """Check the relay log: checksums, sizes and positions of all events, the sequence of files, relay.meta,
    the index, and that the GTIDs have no gap.

    The producer may keep running. Each finding has a position and a remedy. Exit code 5: there are findings.
    """
    from relay_store.check.verify import verify as verify_log
    from schemas.errors import ExitCode

    root = read_config("relay verify", config).relay.dir
    with _progress("verify") as progress:
        report = verify_log(root, progress)
    compared = _compared(root, report) if rows else None
    if as_json:
        print_json(_as_dict(report, compared, str(root)))
    else:
        _print(report, str(root))
    raise typer.Exit(ExitCode.OK if report.sound else ExitCode.DAMAGED)


def _compared(root: Path, report: Report) -> RowsReport | None:
    """Compare the rows, and add findings and notes to the report."""
    if not report.sound:
        report.notes.append("the rows were not compared because the files are damaged")
        return None
    from tailrace.verify_rows.compare import compare_rows
    from tailrace.verify_rows.report import findings_of, notes_of

    with _progress("rows") as progress:
        compared = compare_rows(root, progress)
    report.findings += findings_of(compared)
    report.notes += notes_of(compared)
    return compared


def _as_dict(report: Report, compared: RowsReport | None, root: str) -> dict[str, Any]:
    counts = {"files": report.files, "bytes": report.bytes, "events": report.events}
    findings = [finding.__dict__ for finding in report.findings]
    fields = {"directory": root, "sound": report.sound, **counts, "findings": findings, "notes": report.notes}
    if compared is not None:
        from tailrace.verify_rows.report import as_dict

        fields["rows"] = as_dict(compared)
    return fields


def _print(report: Report, root: str) -> None:
    from rich.markup import escape

    from schemas.counted import counted
    from tailrace.service.console import console as open_console

    console = open_console()
    for finding in report.findings:
        console.print(f"[bold red]✗ {finding.code}[/]  {escape(finding.place)}  {escape(finding.what)}")
        console.print(f"    [dim]remedy[/]  {escape(finding.remedy)}")
    for note in report.notes:
        console.print(f"[yellow]·[/] {escape(note)}")
    found = counted(len(report.findings), "finding")
    verdict = "[bold green]sound[/]" if report.sound else f"[bold red]{found}[/]"
    counts = {"file": report.files, "byte": report.bytes, "event": report.events}
    checked = ", ".join(counted(count, noun) for noun, count in counts.items())
    console.print(f"{escape(root)}: {checked}: {verdict}")


@contextmanager
def _progress(task: str) -> Iterator[Callable[[int, int], None]]:
    """Show bytes, bytes/s and time left: a live line on a terminal, otherwise a log line every 10 seconds."""
    from tailrace.service.logs import may_draw

    if may_draw():
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            line = bar.add_task(task)
            yield lambda done, total: bar.update(line, completed=done, total=total)
        return
    import structlog

    start = time.monotonic()
    next_line = start + _LOG_EVERY_S

    def log(done: int, total: int) -> None:
        nonlocal next_line
        now = time.monotonic()
        if now < next_line:
            return
        next_line = now + _LOG_EVERY_S
        speed = done / (now - start)
        left = round((total - done) / speed) if speed else None
        structlog.get_logger().info(
            "progress", task=task, bytes=done, of_bytes=total, bytes_per_s=round(speed), seconds_left=left
        )

    yield log
