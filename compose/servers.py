"""The common base of Kafka, MariaDB and MySQL: a folder, a port, a process, a log, a start and a stop."""

from __future__ import annotations

import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from compose.processes import ProcessId, free_port, spawn, wait_until
from schemas.errors import StackError


class Server(ABC):
    """One server in one folder, on 127.0.0.1.

    The folder has its data, its log, its pid and its port, so another process that creates an object for the same
    folder finds the same server. After it was stopped or killed, it starts again with the same data and port.
    """

    name: str
    start_timeout = 60.0
    stop_timeout = 30.0

    def __init__(self, directory: str | Path, *, args: Sequence[str] = ()) -> None:
        """``args`` are appended to the server's own command line and hold for every start of this object."""
        self.directory = Path(directory).absolute()
        self.args = list(args)
        self.data = self.directory / "data"
        self.log = self.directory / "server.log"
        self._pid_file = self.directory / "pid"

    @property
    def port(self) -> int:
        """The port it listens on, chosen once and stored with the data."""
        return self._kept_port("port")

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        process = self._process()
        return process.pid if process else None

    def start(self) -> None:
        """Start it, on a fresh copy of the template if it has no data yet, and wait until it answers."""
        if self._process():
            return
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        if not self.data.exists():
            self._copy_template()
        self._before_start()
        process = spawn(self._command(), self.log, self.directory)
        process.write(self._pid_file)
        self._wait_healthy(process)
        set_up = self.directory / "set-up"
        if not set_up.exists():
            self._first_start()
            set_up.touch()

    def stop(self) -> None:
        """Shut it down cleanly; does nothing if it does not run."""
        if process := self._process():
            process.stop(self.stop_timeout)
        self._pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """Kill it with SIGKILL, like a power failure."""
        if process := self._process():
            process.kill()
        self._pid_file.unlink(missing_ok=True)

    def restart(self) -> None:
        self.stop()
        self.start()

    def running(self) -> bool:
        """Whether its process runs."""
        return self._process() is not None

    @abstractmethod
    def healthy(self) -> bool:
        """Whether it answers."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command line that runs it in the foreground."""

    @abstractmethod
    def _template(self) -> Path:
        """Return the cached data folder that is copied for every new server."""

    def _before_start(self) -> None:  # noqa: B027 - most servers have nothing to do here
        """Remove leftovers before its process starts."""

    def _first_start(self) -> None:  # noqa: B027 - the same
        """Finish the setup of a server that was just copied from the template."""

    def _process(self) -> ProcessId | None:
        process = ProcessId.read(self._pid_file)
        return process if process and process.alive() else None

    def _kept_port(self, file: str) -> int:
        kept = self.directory / file
        if not kept.exists():
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            kept.write_text(str(free_port()))
        return int(kept.read_text())

    def _copy_template(self) -> None:
        template = self._template()
        scratch = self.directory / ".data"
        shutil.rmtree(scratch, ignore_errors=True)
        subprocess.run(["cp", "-a", "--reflink=auto", "--sparse=always", template, scratch], check=True)
        scratch.rename(self.data)

    def _wait_healthy(self, process: ProcessId) -> None:
        begin = time.monotonic()
        wait_until(lambda: self.healthy() or not process.alive(), self.start_timeout)
        if not process.alive():
            raise StackError(
                "TR700 start-failed",
                f"{self.name} ended while starting:\n{self._log_tail()}",
                hint=f"see {self.log}",
            )
        if not self.healthy():
            waited = time.monotonic() - begin
            self.kill()
            raise StackError(
                "TR700 not-healthy",
                f"{self.name} did not answer within {waited:.0f} s",
                hint=f"see {self.log}",
            )

    def _log_tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-8:])
