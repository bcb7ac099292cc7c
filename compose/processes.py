"""Started processes: servers that outlive the process that started them, and programs that end before it.

A server is identified by pid and start time, never by name.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import StackError

_marks: list[socket.socket] = []


@dataclass(frozen=True)
class ProcessId:
    """A pid with its start time in clock ticks since boot: a reused pid has another one."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Return the identity of the process with ``pid``; None if there is none, or only a zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        # The second field is the program's name in brackets and may contain blanks.
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else cls(pid, int(fields[19]))

    @classmethod
    def read(cls, pid_file: Path) -> ProcessId | None:
        """Read the identity that ``write`` stored in ``pid_file``; None if there is no valid one."""
        try:
            pid, started = pid_file.read_text().split()
            return cls(int(pid), int(started))
        except (OSError, ValueError):
            return None

    def write(self, pid_file: Path) -> None:
        pid_file.write_text(f"{self.pid} {self.started}\n")

    def alive(self) -> bool:
        """Whether exactly this process still runs."""
        if ProcessId.of(self.pid) == self:
            return True
        with contextlib.suppress(ChildProcessError):
            os.waitpid(
                self.pid, os.WNOHANG
            )  # a dead child of this process stays a zombie until it is waited for
        return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process's group, unless the process is gone."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def stop(self, patience: float) -> None:
        """SIGTERM, then SIGKILL after ``patience`` seconds; returns when the process is gone."""
        self.signal(signal.SIGTERM)
        if not wait_until(lambda: not self.alive(), patience):
            self.kill()

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self.signal(signal.SIGKILL)
        wait_until(lambda: not self.alive(), 10)


def spawn(
    command: Sequence[str], log: Path, cwd: Path, environment: Mapping[str, str] | None = None
) -> ProcessId:
    """Start ``command`` in its own session, with its output appended to ``log``."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=environment,
            start_new_session=True,
        )
    child.returncode = 0  # from now on it is watched by its identity, and may outlive this process
    identity = ProcessId.of(child.pid)
    if identity is None:
        raise StackError("TR700 start-failed", f"{command[0]} ended at once", hint=f"see {log}")
    return identity


class Program:
    """A Python program that this process runs. ``NAME.out`` has the last start's stdout, ``NAME.log`` all stderr.

    It has a session of its own. So a Ctrl-C does not reach it, and its child processes are found by the session even
    if the process itself is gone.
    """

    def __init__(
        self, name: str, arguments: Sequence[str], directory: Path, *, ended: str, late: str, failed: str
    ) -> None:
        """``arguments`` are a module and its arguments. The codes are those of the errors that the methods raise."""
        self.name = name
        self.log, self.out = directory / f"{name}.log", directory / f"{name}.out"
        self.kills = 0
        self._command = [sys.executable, "-m", *arguments]
        self._ended, self._late, self._failed = ended, late, failed
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: list[int] = []

    @property
    def pid(self) -> int | None:
        """The pid while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> int:
        """Start it, for the first time or again; returns the pid."""
        with self.log.open("ab") as log, self.out.open("wb") as out:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True
            )
        self._sessions.append(self._process.pid)
        return self._process.pid

    def check(self) -> None:
        """Raise StackError (``ended``) if it has ended unexpectedly."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise self._error(self._ended, f"ended unexpectedly with exit code {code}")

    def wait(self, patience: float) -> None:
        """Wait until it ends; raises StackError if that takes more seconds (``late``), or if it fails (``failed``)."""
        assert self._process is not None
        try:
            code = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            raise self._error(self._late, f"did not end within {patience:.0f} s") from None
        if code:
            raise self._error(self._failed, f"ended with exit code {code}")

    def stop(self, patience: float) -> None:
        """Send SIGTERM, and ``wait``."""
        assert self._process is not None
        self._process.terminate()
        self.wait(patience)

    def kill(self) -> None:
        """SIGKILL for the process alone; its child processes have to notice that by themselves."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.kills += 1

    def kill_all(self) -> None:
        """SIGKILL for all processes of its sessions, also those of earlier starts."""
        for pid in _processes_of(self._sessions):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def _error(self, code: str, message: str) -> StackError:
        lines = self.log.read_text(errors="replace").splitlines()[-6:]
        last = "".join(f"\n    {line}" for line in lines)
        return StackError(code, f"{self.name} {message}:{last}", hint=f"see {self.log}")


def _processes_of(sessions: list[int]) -> list[int]:
    """Return the pids of the sessions' processes in all process groups, since Spark's workers have other groups."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The second field is the program's name in brackets and may contain blanks.
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) in sessions and fields[0] not in "ZX":
                found.append(int(stat.parent.name))
    return found


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll ``condition`` until it is true; returns False if it is still false after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def free_port() -> int:
    """Return a port of 127.0.0.1 on which no process listens and that is not reserved by another process.

    It is below the range the kernel gives to outgoing connections: a server must find it free
    again when it is started for the second time.
    """
    for _ in range(1000):
        port = random.randrange(15000, 32000)
        if _taken(port):
            return port
    raise StackError("TR700 no-port", "no free port on 127.0.0.1 between 15000 and 32000")


def _taken(port: int) -> bool:
    """Reserve the port for the lifetime of this process; returns False if it is taken."""
    # A server that is starting or down does not listen, so this socket name is reserved instead.
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0tailrace-port-{port}")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError:
        mark.close()
        return False
    _marks.append(mark)
    return True
