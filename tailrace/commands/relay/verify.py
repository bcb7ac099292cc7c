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
    from relay_store.check.verify import VerifyReport
    from tailrace.verify_rows.compare import RowsReport

Rows = Annotated[
    bool, typer.Option("--rows", help="Also decode every row with mysql-replication, and compare each value.")
]


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


def _compared(root: Path, report: VerifyReport) -> RowsReport | None:
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


def _as_dict(report: VerifyReport, compared: RowsReport | None, root: str) -> dict[str, Any]:
    counts = {"files": report.files, "bytes": report.bytes, "events": report.events}
    findings = [finding.as_dict() for finding in report.findings]
    fields = {"directory": root, "sound": report.sound, **counts, "findings": findings, "notes": report.notes}
    if compared is not None:
        from tailrace.verify_rows.report import as_dict

        fields["rows"] = as_dict(compared)
    return fields


def _print(report: VerifyReport, root: str) -> None:
    from rich.markup import escape

    from schemas.counted import counted
    from tailrace.service.console import console as open_console

    console = open_console()
    for finding in report.findings:
        console.print(f"[bold red]✗ {finding.code}[/]  {escape(finding.location)}  {escape(finding.message)}")
        console.print(f"    [dim]remedy[/]  {escape(finding.hint)}")
    for note in report.notes:
        console.print(f"[yellow]·[/] {escape(note)}")
    found = counted(len(report.findings), "finding")
    verdict = "[bold green]sound[/]" if report.sound else f"[bold red]{found}[/]"
    counts = {"file": report.files, "byte": report.bytes, "event": report.events}
    checked = ", ".join(counted(count, noun) for noun, count in counts.items())
    console.print(f"{escape(root)}: {checked}: {verdict}")


@contextmanager
def _progress(task: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows the bytes done and the total bytes, with rate and time left."""
    from tailrace.service.progress import live_line

    start = time.monotonic()
    with live_line(task) as line:

        def show(done: int, total: int) -> None:
            speed = done / max(time.monotonic() - start, 0.001)
            left = round((total - done) / speed) if speed else None
            text = (
                f"{done:,} of {total:,} bytes · {speed:,.0f} bytes/s · {'?' if left is None else left} s left"
            )
            line(text, task=task, bytes=done, of_bytes=total, bytes_per_s=round(speed), seconds_left=left)

        yield show
