"""Reports the error that a command ended with to its parent process: one line of JSON in a pipe."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass

from schemas.errors import TailraceError

#: names the pipe's file descriptor in the environment
REPORT_FD = "TAILRACE_REPORT_FD"
# A pipe holds 64 kB, and nobody reads before the end.
_LONGEST = 4_000


@dataclass(frozen=True)
class ErrorReport:
    """An error as its process has shown it.

    Attributes:
        another_start_helps: whether another start may go on without anybody's doing.
    """

    code: str
    what: str
    where: str
    hint: str
    another_start_helps: bool

    def fields(self) -> dict[str, str]:
        """For a log."""
        return {"code": self.code, "what": self.what, "where": self.where, "hint": self.hint}


def another_start_helps(error: Exception) -> bool:
    """Whether another start may go on without anybody's doing."""
    return isinstance(error, TailraceError) and (error.retryable or error.another_start)


def write_report(report: ErrorReport) -> None:
    """Write the report, if the parent process waits for it."""
    given = os.environ.get(REPORT_FD, "")
    if not given.isdecimal():
        return
    short = {
        name: text[:_LONGEST] if isinstance(text, str) else text for name, text in asdict(report).items()
    }
    with suppress(OSError):
        os.write(int(given), json.dumps(short).encode())


def read_report(fd: int) -> ErrorReport | None:
    """What a process that has ended wrote; None if that is nothing."""
    parts = []
    with suppress(BlockingIOError):
        while part := os.read(fd, 1 << 16):
            parts.append(part)
    try:
        return ErrorReport(**json.loads(b"".join(parts)))
    except (ValueError, TypeError):
        return None
