"""Child processes that do not outlive their parent and do not hear the terminal's Ctrl-C."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def start(
    arguments: Sequence[str], *, env: Mapping[str, str] | None = None, stderr: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start ``tailrace ARGUMENTS`` in this interpreter's environment.

    The child has a process group of its own: a terminal's Ctrl-C would reach it besides the signal that we
    pass on, and two signals end a command at once. If this process dies, the kernel sends the child SIGTERM.
    """
    parent = os.getpid()

    def die_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return subprocess.Popen(
        [sys.executable, "-m", "tailrace", *arguments],
        env={**os.environ, **(env or {})},
        stderr=stderr,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
