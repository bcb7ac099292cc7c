"""The live panel: what it draws, in which room, and that a terminal that goes away ends nothing."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import Any

import pytest
import structlog
from rich.console import Console

from tailrace.service.logs import configure, events_to, unbroken
from tailrace.service.panel import LivePanel, message_text
from tests.support.paths import CHECKOUT, PROGRAMS

PROGRESS = {
    "rows": 1_234_567,
    "rows_per_s": 21_830,
    "lag_s": 0.25,
    "seconds_left": 12,
    "position": "epoch 7, mysql-bin.000001:4711",
}


def _drawn(panel: LivePanel, width: int = 100, height: int = 20) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(panel.render(console))
    return capture.get().splitlines()


def _panel() -> LivePanel:
    panel = LivePanel("tailrace run")
    panel.show("produce", PROGRESS)
    panel.show(
        "consume", PROGRESS | {"lag_s": None, "seconds_left": 0.0, "paused": "since noon", "copy": None}
    )
    for number in range(60):
        panel.message(
            {"event": f"line {number}", "level": "info", "timestamp": "2026-11-26T16:30:00Z", "n": 1}
        )
    return panel


def test_it_has_a_line_for_each_part_and_the_last_messages() -> None:
    lines = _drawn(_panel())
    text = "\n".join(lines)
    assert "tailrace run" in lines[0]
    assert len(lines) <= 20
    for shown in ("1,234,567", "21,830", "0.2 s", "12 s", "caught up", "mysql-bin.000001:4711"):
        assert shown in text, shown
    assert "consume paused: since noon" in text
    assert "16:30:00 line 59 n=1" in text
    assert "line 30" not in text


@pytest.mark.parametrize("size", [(1, 1), (10, 3), (19, 50), (20, 3), (25, 5), (40, 8), (300, 100)])
def test_it_fits_into_any_terminal(size: tuple[int, int]) -> None:
    lines = _drawn(_panel(), *size)
    assert max(map(len, lines)) <= size[0]
    if size[1] >= 8:
        assert len(lines) <= size[1]


def test_without_progress_it_has_the_messages_alone() -> None:
    panel = LivePanel("t")
    panel.message({"event": "child_waits", "waits_for": "Kafka"})
    lines = _drawn(panel)
    assert len(lines) == 3
    assert "child_waits waits_for=Kafka" in lines[1]


def test_what_comes_from_outside_cannot_draw() -> None:
    assert message_text({"event": "e", "table": "a\x1b[2J\nb", "level": "info"}) == "e table=a [2J b"
    panel = LivePanel("t")
    panel.show("[red]p", {"position": "[bold]x"})
    panel.message({"event": "[blink]e"})
    assert "[bold]x" in "".join(_drawn(panel))
    assert "[blink]e" in "".join(_drawn(panel))


def test_the_lines_of_a_child_are_progress_and_messages() -> None:
    panel = LivePanel("t")
    failed = {"event": "failed", "level": "error", "code": "TR304", "what": "damaged"}
    lines = [{"event": "progress", "rows": 5}, failed, failed]
    stream = io.BytesIO(
        b"".join(json.dumps(line).encode() + b"\n" for line in lines) + b"no \xff JSON\n[1]\n"
    )
    panel.lines_of(stream, "consume")
    assert panel.has_progress.is_set()
    assert panel.errors == ["consume: failed code=TR304 what=damaged"]
    assert panel.messages[-2:] == ["consume: no \ufffd JSON", "consume: [1]"]


def test_the_log_goes_elsewhere_while_it_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    configure("test")
    seen: list[Any] = []
    with events_to(lambda event: seen.append(dict(event))):
        structlog.get_logger().info("taken", n=1)
    structlog.get_logger().info("written")
    assert [(one["event"], one["level"], one["n"]) for one in seen] == [("taken", "info", 1)]
    written = capsys.readouterr().err
    assert "written" in written
    assert "taken" not in written


def test_a_stream_that_is_gone_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    stream = unbroken(os.fdopen(write, "w", buffering=1))
    assert stream.write("x\n") == 2
    stream.flush()
    assert stream.isatty() is False


class _Terminal:
    """A terminal of its own, with a process that draws on it."""

    def __init__(self, seconds: float) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(24, 80)
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "panel_process.py"), str(seconds)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "PYTHONPATH": str(CHECKOUT), "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(theirs)

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read_until(self, text: bytes, seconds: float = 20) -> bytes:
        """Return what is drawn until a text comes, or the process ends."""
        found, deadline = b"", time.monotonic() + seconds
        while text not in found and time.monotonic() < deadline:
            if select.select([self.ours], [], [], 0.1)[0]:
                try:
                    found += os.read(self.ours, 1 << 16)
                except OSError:
                    break
        return found


def test_a_terminal_shows_a_panel_and_keeps_the_errors() -> None:
    terminal = _Terminal(2.0)
    drawn = terminal.read_until(b"batch_applied")
    assert b"1,234,567" in drawn
    assert b"disk full" in drawn
    for size in ((3, 10), (1, 1), (50, 200)):
        terminal.resize(*size)
        os.kill(terminal.process.pid, signal.SIGWINCH)
        terminal.read_until(b"never", 0.3)
    rest = terminal.read_until(b"never")
    assert terminal.process.wait(20) == 0
    assert rest.rstrip().endswith(b"went_wrong code=TR304 table=a [2Jb"), rest[-300:]
    os.close(terminal.ours)


def test_a_terminal_that_is_closed_ends_nothing() -> None:
    terminal = _Terminal(1.5)
    terminal.read_until(b"batch_applied")
    os.close(terminal.ours)
    assert terminal.process.wait(20) == 0
