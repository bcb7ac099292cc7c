"""Child processes that do not outlive their parent and do not hear the terminal's Ctrl-C."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

from tailrace.service import report
from tailrace.service.lifecycle import STOP
from tailrace.service.supervisor import Started

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def start(arguments: Sequence[str], **env: str) -> Started:
    """Start ``tailrace ARGUMENTS`` in this interpreter's environment.

    The child has a session of its own: what is sent to our process group, such as a terminal's Ctrl-C, is for us, and
    we pass it on. If this process dies, the kernel tells the child to stop.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "tailrace", *arguments],
            env={**os.environ, **env, report.REPORT_FD: str(writer)},
            start_new_session=True,
            pass_fds=[writer],
            preexec_fn=_dying_with(os.getpid()),
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return Started(process, lambda: _read(reader))


def _dying_with(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, STOP)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def _read(fd: int) -> report.Report | None:
    try:
        return report.read(fd)
    finally:
        os.close(fd)
