"""Text output that is wrapped on a terminal, and not in a file or a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

#: the width, in columns, of output that is not a terminal
UNWRAPPED = 1 << 16


def console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else UNWRAPPED
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=width)


def on_terminals() -> bool:
    """Return whether stdout and stderr are terminals."""
    return sys.stdout.isatty() and sys.stderr.isatty()
