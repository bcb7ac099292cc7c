"""A small systemd: runs a unit's process by the rules in the unit, and hears what the process tells of itself."""

from __future__ import annotations

import configparser
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tailrace.service.systemd_notify import SOCKET
from tests.support.waiting import wait_until


class _Unit(configparser.RawConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


def read_unit(text: str) -> Mapping[str, Mapping[str, str]]:
    """Return the sections of a unit; names of settings are as they are written."""
    unit = _Unit(strict=True, delimiters=("=",))
    unit.read_string(text)
    return unit


class SupervisedUnit:
    """One service, from its unit's text.

    Args:
        instance: what ``%i`` stands for.
        config: the configuration file, in place of that in /etc.
        folder: for the process's output and the socket that it tells its state.
        pause: seconds in place of ``RestartSec``.

    Attributes:
        ended: the exit code of each process that has ended; negative for a signal.
        told: messages of sd_notify, in order.
        active: whether a process runs, or is to be started again.
    """

    def __init__(
        self,
        text: str,
        config: Path,
        folder: Path,
        environment: Mapping[str, str],
        instance: str = "",
        pause: float = 0.2,
    ) -> None:
        self._service = read_unit(text)["Service"]
        folder.mkdir(exist_ok=True)
        command = self._service["ExecStart"].replace("%i", instance)
        self._command = shlex.split(command.replace("/etc/tailrace/tailrace.toml", str(config)))
        self._folder, self._pause = folder, pause
        self._environment = {**environment, SOCKET: str(folder / "notify")}
        self.ended: list[int] = []
        self.told: list[str] = []
        self.active = False
        self.process: subprocess.Popen[bytes] | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._listener.bind(str(folder / "notify"))
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self) -> None:
        """Start the service, and wait until it tells that it is ready, or has failed."""
        self.start_without_waiting()
        wait_until(lambda: self.is_ready or not self.active, self.log)

    def start_without_waiting(self) -> None:
        """Start the service."""
        self._stopping, self.active = False, True
        self.told.clear()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the service as ``KillMode=mixed`` does: SIGTERM to the main process, SIGKILL to what is left."""
        assert self._service["KillMode"] == "mixed"
        self._stopping = True
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
        if self._thread is not None:
            self._thread.join(float(self._service["TimeoutStopSec"]))
        assert not self.active, self.log()

    def close(self) -> None:
        """End what is left."""
        self._stopping = True
        if self.process is not None:
            self._kill_group(self.process.pid)
        self._listener.close()

    @property
    def is_ready(self) -> bool:
        return any("READY=1" in message for message in self.told)

    def log(self) -> str:
        """Return the output of all its processes."""
        return (self._folder / "journal").read_text(errors="replace")

    def _supervise(self) -> None:
        while True:
            with (self._folder / "journal").open("ab") as journal:
                self.process = subprocess.Popen(
                    self._command,
                    cwd=self._folder,
                    env=dict(self._environment),
                    stdout=journal,
                    stderr=journal,
                    start_new_session=True,
                )
            code = self.process.wait()
            self._kill_group(self.process.pid)
            self.ended.append(code)
            if self._stopping or not self._is_restarted(code):
                self.active = False
                return
            time.sleep(self._pause)

    def _is_restarted(self, code: int) -> bool:
        assert self._service["Restart"] == "on-abnormal"
        clean = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)
        return str(code) in self._service["RestartForceExitStatus"].split() or (
            code < 0 and -code not in clean
        )

    @staticmethod
    def _kill_group(leader: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)

    def _listen(self) -> None:
        while True:
            try:
                self.told.append(self._listener.recv(4096).decode())
            except OSError:
                return
