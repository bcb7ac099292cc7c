"""The process of Spark's JVM: its start, which may be given up, and its end."""

from __future__ import annotations

import signal
import subprocess
import threading

from schemas.errors import LogError

#: seconds between the first call that the JVM does not answer and the moment when its end is known
JVM_TIMEOUT = 5.0
_running: subprocess.Popen[bytes] | None = None


class JvmStart:
    """A start of the JVM, which another thread may give up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._given_up = False

    def began(self, process: subprocess.Popen[bytes]) -> None:
        """Name the process."""
        with self._lock:
            self._process = process
            if self._given_up:
                process.kill()

    def give_up(self) -> None:
        """Kill the process, now or as soon as there is one."""
        with self._lock:
            self._given_up = True
            if self._process is not None:
                self._process.kill()


class JvmLost(LogError):
    """TR563: Spark's JVM has ended."""


def lost(ended: str) -> JvmLost:
    """Return the error for a JVM that has ended; ``ended`` describes how."""
    return JvmLost(
        "TR563",
        f"Spark's JVM terminated, {ended}",
        hint="restart the consumer: it continues from its position. spark.log beside the checkpoint may have the"
        " reason; if the kernel killed it for lack of memory, see spark.driver.memory",
        another_start=True,
    )


def runs(process: subprocess.Popen[bytes]) -> None:
    """Name the JVM that this process has a connection to."""
    global _running
    _running = process


def jvm_end(timeout: float = 0.0) -> str | None:
    """Return how Spark's JVM ended; None if it still runs after ``timeout`` seconds."""
    code = exit_code(timeout)
    return None if code is None else how_ended(code)


def exit_code(timeout: float = 0.0) -> int | None:
    """Return the JVM's exit code, negative for a signal; None if it still runs after ``timeout`` seconds."""
    if _running is None:
        return None
    try:
        return _running.wait(timeout)
    except subprocess.TimeoutExpired:
        return None


def how_ended(code: int) -> str:
    """Describe an exit code."""
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
