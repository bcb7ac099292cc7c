"""Runs work in a process that may die."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from schemas import crashpoints


def handles(pid: int, number: signal.Signals) -> bool:
    """Return whether a process handles a signal already; before, the signal would kill it."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def in_child(work: Callable[[], object], crash_at: str) -> int:
    """Run work in a child that dies at a crash point. Return its signal, 0 if it survived, -1 for an error."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        # Objects of other tests, such as Kafka clients, cannot be closed in a child without their threads.
        gc.freeze()
        try:
            # As if the environment variable had been set at the start.
            crashpoints._target, _, count = crash_at.partition(":")
            crashpoints._passes_left = int(count or 1)
            work()
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    return -os.waitstatus_to_exitcode(status)
