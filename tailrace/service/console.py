"""Text output that is wrapped on a terminal, and not in a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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


class FactTable:
    """Facts in two columns, a label and a text with rich's markup.

    A terminal shows them as a table. Elsewhere each fact is a line by itself, which begins with all its labels, so that
    `grep` finds it: ``channel main stored: epoch 7``. It is never wrapped.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[str, str]] = []

    def add_row(self, label: str, text: str) -> None:
        """Add a fact.

        Args:
            label: of a part; of something within it, if it begins with a blank; empty: the label before.
        """
        self._rows.append((label, text))

    def print(self) -> None:
        """Print them on stdout."""
        if not sys.stdout.isatty():
            sys.stdout.writelines(line + "\n" for line in self.lines())
            return
        from rich.table import Table

        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for label, text in self._rows:
            table.add_row(label, text)
        console().print(table)

    def lines(self) -> Iterator[str]:
        """Return the facts as lines of plain text."""
        from rich.text import Text

        part = within = ""
        for label, text in self._rows:
            plain = Text.from_markup(label).plain
            if label and not label.startswith(" "):
                part, within = plain, ""
            elif label:
                within = f" {plain.strip()}"
            yield " ".join(f"{part}{within}: {Text.from_markup(text).plain}".split())


def on_terminals() -> bool:
    """Return whether stdout and stderr are terminals."""
    return sys.stdout.isatty() and sys.stderr.isatty()
