"""Shows an error to the operator: code, what, where and hint, without a traceback."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

from schemas.errors import ExitCode, TailraceError
from tailrace.service.report import ErrorReport, another_start_helps, write_report


def report(error: Exception) -> int:
    """Write the error to stderr, as a JSON line if stderr is not a terminal. Return the exit code."""
    shown = describe(error)
    write_report(shown)
    if sys.stderr.isatty():
        _print_error(shown)
    else:
        fields = {"event": "failed", "level": "error", **shown.fields(), "exit_code": shown.exit_code}
        print(json.dumps(fields, ensure_ascii=False), file=sys.stderr, flush=True)
    return shown.exit_code


def describe(error: Exception) -> ErrorReport:
    """Return how to show an error. The traceback of an unexpected error is written to a file."""
    if isinstance(error, TailraceError):
        again = another_start_helps(error)
        code = ExitCode.MAY_PASS if again else error.exit_code
        return ErrorReport(error.code, error.message, str(error.where), error.advice, int(code), again)
    path = _keep_traceback(error)
    text = str(error).split("\n", 1)[0]
    what = f"unexpected error: {type(error).__name__}: {text}"
    hint = f"the traceback is in {path}; please report it"
    return ErrorReport("TR001", what, "", hint, ExitCode.FAILED, another_start_helps=False)


def _keep_traceback(error: Exception) -> Path:
    # systemd removes the temporary folder of a service at its end, so its units have a folder of logs.
    folder = os.environ.get("LOGS_DIRECTORY")
    handle, name = tempfile.mkstemp(prefix="tailrace-error-", suffix=".log", dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    return Path(name)


def _print_error(shown: ErrorReport) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False)
    console.print(f"[bold red]✗ {shown.code}[/]  {escape(shown.what)}")
    if shown.where:
        console.print(f"  [dim]where[/]  {escape(shown.where)}")
    if shown.hint:
        console.print(f"  [dim]hint[/]   {escape(shown.hint)}")
