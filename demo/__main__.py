"""``python -m demo [--keep]``."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from pathlib import Path
from types import FrameType

import pymysql
from rich.console import Console

from compose.stack import Stack, StackInfo
from demo.display import Display, two_columns
from demo.run import FILE, Demo, only_one
from demo.summary import Summary
from schemas.errors import ExitCode, TailraceError
from tailrace.service.console import console as open_console

_DIRECTORY = Path("var/demo")
_INTERRUPTED = 130


def main() -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m demo", description="Replicate, kill, compare.")
    parser.add_argument("--keep", action="store_true", help="leave Kafka and the two servers up")
    keep = parser.parse_args().keep
    os.umask(0o077)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    console = open_console()
    try:
        with only_one(_DIRECTORY.parent):
            summary, code = Demo(_DIRECTORY, Display(console), keep).run()
    except KeyboardInterrupt:
        console.print("interrupted; everything is stopped")
        return _INTERRUPTED
    except Exception as error:
        return _failed(error)
    _report(console, summary, keep)
    return code


def _interrupt(number: int, frame: FrameType | None) -> None:
    # A second signal must not interrupt the cleanup, which takes a few seconds.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _failed(error: Exception) -> int:
    """Report the error in one paragraph; the traceback of an unexpected error is written to a file."""
    console = open_console(stderr=True)
    if isinstance(error, TailraceError):
        console.print(str(error), style="red", markup=False)
        return error.exit_code
    log = _DIRECTORY / "demo.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(traceback.format_exception(error)))
    kind = "a server refused a statement" if isinstance(error, pymysql.MySQLError) else type(error).__name__
    console.print(f"the demo failed: {kind}: {error}\nsee {log}", style="red", markup=False)
    return ExitCode.FAILED


def _report(console: Console, summary: Summary, keep: bool) -> None:
    console.print()
    console.print(two_columns(summary.rows()))
    console.print()
    for line in _kept(Stack(_DIRECTORY).info()) if keep else _next():
        console.print(line, markup=False)


def _kept(info: StackInfo) -> list[str]:
    config = _DIRECTORY / FILE
    return [
        "The stack is still up:",
        f"  upstream    {info.upstream}",
        f"  downstream  {info.downstream}",
        f"  Kafka       {info.kafka}",
        "Try next:",
        f"  .venv/bin/tailrace run --config {config}       # continue; Ctrl-C stops it",
        f"  .venv/bin/tailrace status --config {config}",
        f"  .venv/bin/tailrace compare --config {config}",
        "Stop it with:",
        f"  .venv/bin/tailrace stack down --dir {_DIRECTORY}",
    ]


def _next() -> list[str]:
    return [
        "Try next:",
        "  make demo ARGS=--keep                     # leaves the servers running",
        "  .venv/bin/tailrace config example > tailrace.toml",
        "  .venv/bin/tailrace check                  # are your own servers ready?",
        f"Logs and summary.json: {_DIRECTORY}/",
    ]


if __name__ == "__main__":
    sys.exit(main())
