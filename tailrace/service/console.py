"""Text output: wrapped on a terminal, with its own lines in a file or a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

#: columns of what is no terminal
UNWRAPPED = 1 << 16


def console(*, stderr: bool = False) -> Console:
    """A console on stdout or stderr."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else UNWRAPPED
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=width)


def on_terminals() -> bool:
    """Whether stdout and stderr are terminals."""
    return sys.stdout.isatty() and sys.stderr.isatty()
