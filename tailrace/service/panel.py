"""One live panel on a terminal: the parts of a process with their progress, and the last messages below them.

Nothing is drawn before there is progress, or for two seconds, so that rich costs the start nothing. What cannot be
written, as to a terminal that was closed, is dropped: a display must not end replication. Errors are printed again
behind the panel.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from tailrace.service.logs import events_to, unbroken

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

Fields = Mapping[str, Any]

_MESSAGES, _ERRORS = 50, 20  # that are kept
_REFRESHES = 4  # a second
_PATIENCE = 2.0  # seconds until the messages are shown without any progress
_LONGEST = 1_000  # characters of a message
_LEAST_LINES = 3
#: fields of a log line that are not shown among the others
_HIDDEN = ("event", "level", "timestamp", "process", "exc_info", "exception", "stack_info")
_BAD = ("error", "critical")


class LivePanel:
    """The content of the panel. Any thread may call it.

    Args:
        title: in the panel's frame.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._lock = threading.Lock()
        self._parts: dict[str, Fields] = {}
        self._messages: deque[tuple[str, str]] = deque(maxlen=_MESSAGES)
        self._errors: dict[str, str] = {}
        #: set once there is something to draw
        self.has_progress = threading.Event()

    def show(self, part: str, fields: Fields) -> None:
        """Take a part's progress: the fields of a line ``progress`` in the log."""
        with self._lock:
            self._parts[part] = fields
        self.has_progress.set()

    def message(self, event: Fields) -> None:
        """Take a line of the log."""
        level, text = str(event.get("level", "info")), message_text(event)
        shown = f"{str(event.get('timestamp', ''))[11:19]} {text}".strip()
        with self._lock:
            self._messages.append((level, shown))
            if level in _BAD:
                # One that is repeated every minute is kept once, with its last time.
                self._errors.pop(text, None)
                self._errors[text] = shown
                while len(self._errors) > _ERRORS:
                    del self._errors[next(iter(self._errors))]

    def lines_of(self, stream: IO[bytes], part: str) -> None:
        """Take the JSON lines of another process until it closes them: progress and messages.

        Args:
            part: its name.
        """
        for line in iter(lambda: stream.readline(1 << 20), b""):
            event = _parsed(line)
            if event.get("event") == "progress":
                self.show(part, event)
            else:
                self.message({**event, "event": f"{part}: {event.get('event', '')}"})

    @property
    def errors(self) -> list[str]:
        """The errors among the messages."""
        with self._lock:
            return list(self._errors.values())

    @property
    def messages(self) -> list[str]:
        """The last messages."""
        with self._lock:
            return [text for _, text in self._messages]

    def render(self, console: Console) -> RenderableType:
        """Return what is drawn, cut to the terminal's size as it is now."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        with self._lock:
            parts, messages = dict(self._parts), list(self._messages)
        table = _table(parts)
        # The frame has two lines, and the table has a line for each part, its note, and the head.
        notes = [note for part, fields in parts.items() if (note := _note(part, fields))]
        room = console.size.height - 3 - len(parts) - 1 - len(notes)
        if console.size.height < _LEAST_LINES or console.size.width < 20:
            return Text("\n".join(f"{part} {fields.get('rows', '')}" for part, fields in parts.items()))
        lines = [Text(note, "yellow", no_wrap=True, overflow="ellipsis") for note in notes]
        for level, text in messages[-room:] if room > 0 else ():
            style = "red" if level in _BAD else "yellow" if level == "warning" else "dim"
            lines.append(Text(text, style, no_wrap=True, overflow="ellipsis"))
        content = [table, *lines] if parts else lines
        return Panel(Group(*content), title=Text(self._title, "bold"), title_align="left")


def message_text(event: Fields) -> str:
    """Return a line of the log as one line of text, without its time."""
    fields = [f"{name}={value}" for name, value in event.items() if name not in _HIDDEN and value is not None]
    text = " ".join([str(event.get("event", "")), *fields])
    # Names of tables and errors of servers come from outside, and a terminal obeys what is not printable.
    return "".join(one if one.isprintable() else " " for one in text[:_LONGEST])


@contextmanager
def live_panel(title: str) -> Iterator[LivePanel]:
    """Draw a panel on stderr while the block runs. Lines of the log go into it."""
    panel, done = LivePanel(title), threading.Event()
    thread = threading.Thread(target=_draw, args=(panel, done), name="panel", daemon=True)
    thread.start()
    try:
        with events_to(panel.message):
            yield panel
    finally:
        done.set()
        panel.has_progress.set()
        thread.join(2.0)


def _draw(panel: LivePanel, done: threading.Event) -> None:
    panel.has_progress.wait(_PATIENCE)
    if done.is_set():
        # Nothing has been drawn: the messages are all there is.
        _print(panel.messages)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=unbroken(sys.stderr))
    live: Live = Live(
        get_renderable=lambda: panel.render(console),
        console=console,
        refresh_per_second=_REFRESHES,
        # What goes into a file or a pipe is not for the terminal.
        redirect_stdout=sys.stdout.isatty(),
    )
    with suppress(OSError), live:
        done.wait()
    _print(panel.errors)


def _print(lines: list[str]) -> None:
    stream = unbroken(sys.stderr)
    for line in lines:
        stream.write(line + "\n")
    stream.flush()


def _table(parts: Mapping[str, Fields]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), expand=True)
    table.add_column("", no_wrap=True, overflow="ellipsis")
    for name in ("rows", "rows/s", "lag", "left"):
        table.add_column(name, justify="right", no_wrap=True, overflow="ellipsis")
    table.add_column("position", ratio=1, no_wrap=True, overflow="ellipsis")
    for part, fields in parts.items():
        rows, rate = fields.get("rows") or 0, fields.get("rows_per_s") or 0
        lag, left = fields.get("lag_s"), fields.get("seconds_left")
        cells = [part, f"{rows:,}", f"{rate:,}", "?" if lag is None else f"{lag:,.1f} s", _left(left)]
        table.add_row(*(Text(cell) for cell in [*cells, str(fields.get("position") or "no position yet")]))
    return table


def _left(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return "caught up" if seconds < 0.5 else f"{seconds:,.0f} s"


def _note(part: str, fields: Fields) -> str:
    """Return what else there is to say about a part; empty if nothing."""
    said = [f"{name}: {fields[name]}" for name in ("paused", "copy") if fields.get(name)]
    return message_text({"event": f"{part} {', '.join(said)}"}) if said else ""


def _parsed(line: bytes) -> dict[str, Any]:
    """Return a log line's fields. What is no JSON object is a message by itself."""
    with suppress(ValueError, RecursionError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    return {"event": line.decode(errors="replace").strip(), "level": "warning"}
