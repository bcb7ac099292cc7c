"""Reports the error of a command to its parent process, as a line of JSON in a pipe."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass

from schemas.errors import TailraceError

#: environment variable with the pipe's file descriptor
REPORT_FD = "TAILRACE_REPORT_FD"
# Characters of a text: a pipe holds 64 kB, and the parent reads it after the end.
_LONGEST = 4_000


@dataclass(frozen=True)
class ErrorReport:
    """An error as its process showed it.

    Attributes:
        another_start_helps: whether another start may succeed without an operator.
    """

    code: str
    what: str
    where: str
    hint: str
    exit_code: int
    another_start_helps: bool

    def fields(self) -> dict[str, str]:
        """Return the fields for a log line."""
        return {"code": self.code, "what": self.what, "where": self.where, "hint": self.hint}


def another_start_helps(error: Exception) -> bool:
    """Return whether another start may succeed without an operator."""
    return isinstance(error, TailraceError) and (error.retryable or error.another_start)


def write_report(report: ErrorReport) -> None:
    """Write the report if the parent process has asked for it."""
    given = os.environ.get(REPORT_FD, "")
    if not given.isdecimal():
        return
    short = {
        name: text[:_LONGEST] if isinstance(text, str) else text for name, text in asdict(report).items()
    }
    with suppress(OSError):
        os.write(int(given), json.dumps(short).encode())


def read_report(fd: int) -> ErrorReport | None:
    """Read the report of a process that has ended; None if it wrote none."""
    parts = []
    with suppress(BlockingIOError):
        while part := os.read(fd, 1 << 16):
            parts.append(part)
    try:
        return ErrorReport(**json.loads(b"".join(parts)))
    except (ValueError, TypeError):
        return None
