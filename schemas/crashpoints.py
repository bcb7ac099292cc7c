"""Named points at which a test can kill the process as kill -9 does.

With `TAILRACE_CRASH_AT=relay.before_fsync` the process dies at the first pass, with `relay.before_fsync:3` at the
third.
"""

from __future__ import annotations

import os
import signal

_name, _, _count = os.environ.get("TAILRACE_CRASH_AT", "").partition(":")
_target: str | None = _name or None
_passes_left = int(_count or 1)


def reached(name: str) -> None:
    """Kill the process here if the environment variable asks for it; otherwise this costs one comparison."""
    if _target is not None and name == _target:
        _die_when_due()


def _die_when_due() -> None:
    global _passes_left
    _passes_left -= 1
    if _passes_left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
