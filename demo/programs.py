"""Runs ``tailrace produce`` and ``tailrace consume`` as processes, which are killed and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from schemas.errors import StackError

_TAILRACE = Path(sys.executable).with_name("tailrace")
_LAST_LINES = 6


class Program:
    """One ``tailrace`` command with its log.

    It runs in its own session, so that a Ctrl-C reaches only the demo, and so that its child processes can be found
    by the session even if the process itself is gone.
    """

    def __init__(self, name: str, config: Path, *options: str) -> None:
        self.name = name
        self.log = config.parent / f"{name}.log"
        self.kills = 0
        self._command = [str(_TAILRACE), name, "--config", str(config), *options]
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: list[int] = []

    @property
    def pid(self) -> int | None:
        """The pid of the running process."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._sessions.append(self._process.pid)

    def kill(self) -> None:
        """``kill -9`` only the process; its children have to notice that by themselves."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.kills += 1

    def stop(self, patience: float = 60.0) -> int:
        """Send SIGTERM and wait for the end; returns the exit code. Raises StackError if it does not end in time."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            raise self._failed(f"did not end within {patience:.0f} s of SIGTERM") from None

    def wait(self, patience: float) -> int:
        """Wait until the program ends by itself; returns the exit code."""
        assert self._process is not None
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            raise self._failed(f"was not done within {patience:.0f} s") from None

    def check(self) -> None:
        """Raise StackError if the process has ended unexpectedly."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise self._failed(f"ended unexpectedly with exit code {code}")

    def destroy(self) -> None:
        """Kill every process of every session of this program."""
        for pid in sessions_of(self._sessions):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def _failed(self, what: str) -> StackError:
        lines = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        last = "".join(f"\n    {line}" for line in lines)
        return StackError("TR710", f"tailrace {self.name} {what}:{last}", hint=f"see {self.log}")


def sessions_of(leaders: list[int]) -> list[int]:
    """Return the pids of the sessions' processes in all process groups, since Spark's workers have other groups."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The second field is the program's name in brackets and may contain blanks.
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) in leaders and fields[0] not in "ZX":
                found.append(int(stat.parent.name))
    return found
