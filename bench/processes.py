"""Starts the measured programs, each as a process, and measures their usage."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.meter import Meter, Usage
from schemas.errors import StackError

_PATIENCE_S = 900.0


class Measured:
    """One running program under a meter, with its output in files."""

    def __init__(self, name: str, arguments: list[str], directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.out = directory / f"{name}.out"
        with self.log.open("wb") as log, self.out.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )
        self._meter = Meter(self.process.pid)

    def wait(self) -> Usage:
        """Wait until it ends by itself. Raises StackError if it fails or takes too long."""
        try:
            code = self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise StackError(
                "TR722", f"{self.name} took over {_PATIENCE_S:.0f} s", hint=f"see {self.log}"
            ) from None
        return self._ended(code)

    def check(self) -> None:
        """Raise StackError if it has ended unexpectedly."""
        if (code := self.process.poll()) is not None:
            self._ended(code or 1)

    def stop(self) -> Usage:
        """Send SIGTERM and wait for the end."""
        self.process.terminate()
        return self.wait()

    def kill(self) -> None:
        """Kill it and its child processes, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _ended(self, code: int) -> Usage:
        usage = self._meter.stop()
        if code:
            last = "\n".join(self.log.read_text(errors="replace").splitlines()[-5:])
            raise StackError("TR723", f"{self.name} ended with {code}:\n{last}", hint=f"see {self.log}")
        return usage


@contextlib.contextmanager
def measured(name: str, arguments: list[str], directory: Path) -> Iterator[Measured]:
    """Run a measured program, which is killed when the block ends."""
    program = Measured(name, arguments, directory)
    try:
        yield program
    finally:
        program.kill()


def run_part(part: str, settings: dict[str, Any], directory: Path) -> tuple[dict[str, Any], Usage]:
    """Run ``bench.parts PART`` to its end; returns its result and its usage."""
    file = directory / f"{part}.json"
    file.write_text(json.dumps(settings))
    with measured(part, ["bench.parts", part, str(file)], directory) as program:
        usage = program.wait()
        return json.loads(program.out.read_text()), usage
