"""The demo's output: milestones as lines, and on a terminal a table below them that is updated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text


class Display:
    """Prints milestones as lines that stay; ``live`` redraws the result of ``rows`` a few times a second."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._begin = time.monotonic()

    def milestone(self, text: str, style: str = "") -> None:
        """Print one line with the seconds since the start."""
        elapsed = time.monotonic() - self._begin
        self.console.print(Text(f"{elapsed:5.1f} s  ", style="dim") + Text(text, style=style))

    @contextmanager
    def live(self, rows: Callable[[], list[tuple[str, str]]]) -> Iterator[None]:
        """Show ``rows`` until the block ends, then remove them; without a terminal show nothing."""
        if not self.console.is_terminal:
            yield
            return

        def picture() -> Group:
            return Group(Text(), two_columns(rows()))

        with Live(get_renderable=picture, console=self.console, refresh_per_second=4, transient=True):
            yield


def two_columns(rows: list[tuple[str, str]]) -> Table:
    """Return a table of labels and values without borders."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan")
    table.add_column()
    for label, value in rows:
        table.add_row(label, value)
    return table
