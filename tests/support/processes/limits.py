"""Runs work in a child process with limits of memory and time."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Exceeded(AssertionError):
    """The work exceeded its memory or time."""


def bounded(work: Callable[[], Any], *, megabytes: int, seconds: int) -> Any:
    """Run ``work`` in a child with limited additional memory and CPU time, and return its result or raise its error.

    Raises:
        Exceeded: it needed more memory, or was killed.
    """
    sys.stdout.flush()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        gc.freeze()
        outcome: tuple[bool, Any] = (False, None)
        try:
            limit = _size() + (megabytes << 20)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            used = int(resource.getrusage(resource.RUSAGE_SELF).ru_utime)
            resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, used + seconds + 1))
            outcome = (True, work())
        except MemoryError:
            outcome = (False, Exceeded(f"it took more than {megabytes} MB"))
        except BaseException as error:
            outcome = (False, error)
        finally:
            with os.fdopen(write, "wb") as pipe:
                pipe.write(_packed(outcome))
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if not data:
        raise Exceeded(f"the child ended with {os.waitstatus_to_exitcode(status)}: more than {seconds} s?")
    good, found = pickle.loads(data)
    if good:
        return found
    raise found


def _packed(outcome: tuple[bool, Any]) -> bytes:
    try:
        packed = pickle.dumps(outcome)
        pickle.loads(packed)
    except Exception:
        good, found = outcome
        copy = getattr(found, "__reduced__", None) or AssertionError(f"{type(found).__name__}: {found}")
        return pickle.dumps((good, copy))
    return packed


def _size() -> int:
    """Return the size of the address space in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
