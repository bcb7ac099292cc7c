"""The supervisor of ``tailrace run``, over small programs instead of producer and consumer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tailrace.supervisor import Supervisor, pause_before_restart

_LOOP = "import signal,sys,time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); time.sleep(60)"


def _start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", *arguments])


def test_both_done_is_0() -> None:
    assert Supervisor([("a", ["pass"]), ("b", ["pass"])], _start).run() == 0


def test_a_failed_child_stops_the_other_and_gives_its_code() -> None:
    assert Supervisor([("a", ["import sys; sys.exit(3)"]), ("b", [_LOOP])], _start).run() == 3


def test_a_killed_child_is_started_again(tmp_path: Path) -> None:
    code = (
        "import os,pathlib,signal;"
        f"p = pathlib.Path({str(tmp_path / 'once')!r});"
        "first = not p.exists(); p.touch();"
        "os.kill(os.getpid(), signal.SIGKILL) if first else None"
    )
    starts: list[float] = []

    def start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        starts.append(time.monotonic())
        return _start(arguments)

    assert Supervisor([("a", [code])], start).run() == 0
    assert len(starts) == 2
    assert starts[1] - starts[0] >= pause_before_restart(1)


def test_pauses_grow_and_stay_bounded() -> None:
    pauses = [pause_before_restart(n) for n in (1, 2, 3, 50)]
    assert pauses == [0.5, 1.0, 2.0, 30.0]


def test_a_signal_is_passed_on_and_ends_with_0() -> None:
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    assert Supervisor([("a", [_LOOP]), ("b", [_LOOP])], _start).run() == 0


def test_children_stop_once_everything_is_through() -> None:
    supervisor = Supervisor([("a", ["pass"]), ("b", [_LOOP])], _start, lambda done: done == frozenset({"a"}))
    assert supervisor.run() == 0


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    """Even a parent that is killed with -9 leaves nobody behind."""
    pid_file = tmp_path / "pid"
    code = (
        "import pathlib, subprocess, time, tailrace.children as children;"
        "popen = subprocess.Popen;"
        "subprocess.Popen = lambda arguments, **options: popen(['sleep', '60'], **options);"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(children.start([]).pid)); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        while not (pid_file.exists() and pid_file.read_text()):
            time.sleep(0.05)
        child = int(pid_file.read_text())
        parent.kill()
        parent.wait()
        deadline = time.monotonic() + 60
        while _lives(child) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _lives(child)
    finally:
        parent.kill()


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
