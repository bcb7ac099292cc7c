"""Shows an error to the operator: code, what, where and hint, without a traceback."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import ExitCode, TailraceError
from tailrace.service.report import ErrorReport, another_start_helps, write_report


@dataclass(frozen=True)
class ErrorDisplay:
    """An error as it is shown."""

    code: str
    what: str
    where: str
    hint: str
    exit_code: int


def report(error: Exception) -> int:
    """Write the error to stderr, as a JSON line if stderr is not a terminal. Return the exit code."""
    shown = describe(error)
    write_report(ErrorReport(shown.code, shown.what, shown.where, shown.hint, another_start_helps(error)))
    if sys.stderr.isatty():
        _print_error(shown)
    else:
        fields = {"event": "failed", "level": "error", **shown.__dict__}
        print(json.dumps(fields, ensure_ascii=False), file=sys.stderr, flush=True)
    return shown.exit_code


def describe(error: Exception) -> ErrorDisplay:
    """Return how to show an error. The traceback of an unexpected error is written to a file."""
    if isinstance(error, TailraceError):
        return ErrorDisplay(error.code, error.message, str(error.where), error.advice, int(error.exit_code))
    path = _keep_traceback(error)
    text = str(error).split("\n", 1)[0]
    what = f"unexpected error: {type(error).__name__}: {text}"
    return ErrorDisplay("TR001", what, "", f"the traceback is in {path}; please report it", ExitCode.FAILED)


def _keep_traceback(error: Exception) -> Path:
    handle, name = tempfile.mkstemp(prefix="tailrace-error-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    return Path(name)


def _print_error(shown: ErrorDisplay) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False)
    console.print(f"[bold red]✗ {shown.code}[/]  {escape(shown.what)}")
    if shown.where:
        console.print(f"  [dim]where[/]  {escape(shown.where)}")
    if shown.hint:
        console.print(f"  [dim]hint[/]   {escape(shown.hint)}")
