"""The supervisor of ``tailrace run``, over small programs instead of producer and consumer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog

from compose.processes import ProcessId
from schemas.errors import LogError
from tailrace.service.report import another_start_helps
from tailrace.service.supervisor import RunningChild, Supervisor, pause_before_restart, start_child
from tests.support.waiting import wait_until

_LOOP = "import signal,sys,time; signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0)); time.sleep(60)"
_FAILS = """
import sys
from schemas.errors import LogError
from tailrace.commands.failure import report
sys.exit(report(LogError("TR557", "Kafka is away", hint="wait", retryable={comes_back})))
"""


def _start(arguments: Sequence[str]) -> RunningChild:
    return RunningChild(subprocess.Popen([sys.executable, "-c", *arguments]))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], RunningChild]:
    """Starts a program as a child is started, that tells what it ended with."""
    popen = subprocess.Popen

    def program(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        return popen([sys.executable, "-c", *command[3:]], **options)

    monkeypatch.setattr(subprocess, "Popen", program)
    return start_child


def test_both_done_is_0() -> None:
    assert Supervisor([("a", ["pass"]), ("b", ["pass"])], _start).run() == 0


def test_an_error_ends_both_of_a_bounded_run_with_its_code() -> None:
    commands = [("a", ["import sys; sys.exit(3)"]), ("b", [_LOOP])]
    assert Supervisor(commands, _start, bounded=True).run() == 3


def test_what_only_a_human_can_heal_stops_one_and_is_said_again(
    told: Callable[[Sequence[str]], RunningChild], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.service.supervisor._REMIND_S", 0.3)
    starts: list[str] = []

    def start(arguments: Sequence[str]) -> RunningChild:
        starts.append(arguments[0])
        return told(arguments)

    with structlog.testing.capture_logs() as logs:
        stands = lambda: [entry for entry in logs if entry["event"] == "child_stands"]  # noqa: E731
        supervisor = Supervisor(
            [("bad", [_FAILS.format(comes_back=False)]), ("good", [_LOOP])],
            start,
            lambda done: len(stands()) == 4,
        )
        assert supervisor.run() == 1
    assert len(starts) == 2
    assert stands()[-1] == {
        "event": "child_stands",
        "log_level": "error",
        "child": "bad",
        "exit_code": 1,
        "code": "TR557",
        "what": "Kafka is away",
        "where": "",
        "hint": "wait",
        "others_go_on": ["good"],
    }


def test_what_comes_back_is_waited_for(told: Callable[[Sequence[str]], RunningChild], tmp_path: Path) -> None:
    flag = str(tmp_path / "once")
    once = f"import pathlib; p = pathlib.Path({flag!r})\nif p.exists(): raise SystemExit(0)\np.touch()"
    with structlog.testing.capture_logs() as logs:
        commands = [("a", [once + _FAILS.format(comes_back=True)]), ("b", ["pass"])]
        assert Supervisor(commands, told).run() == 0
    [waits] = [entry for entry in logs if entry["event"] == "child_waits"]
    assert (waits["child"], waits["code"], waits["waits_for"]) == ("a", "TR557", "Kafka is away")


def test_what_another_start_heals_comes_back_though_the_run_ended() -> None:
    assert another_start_helps(LogError("TR563", "the JVM was killed", another_start=True))
    assert another_start_helps(LogError("TR501", "away", retryable=True))
    assert not another_start_helps(LogError("TR505", "fenced"))
    assert not another_start_helps(ValueError("nobody foresaw it"))


def test_a_killed_child_is_started_again(tmp_path: Path) -> None:
    code = (
        "import os,pathlib,signal;"
        f"p = pathlib.Path({str(tmp_path / 'once')!r});"
        "first = not p.exists(); p.touch();"
        "os.kill(os.getpid(), signal.SIGKILL) if first else None"
    )
    starts: list[float] = []

    def start(arguments: Sequence[str]) -> RunningChild:
        starts.append(time.monotonic())
        return _start(arguments)

    assert Supervisor([("a", [code])], start).run() == 0
    assert len(starts) == 2
    assert starts[1] - starts[0] >= pause_before_restart(1)


def test_pauses_grow_and_stay_bounded() -> None:
    pauses = [pause_before_restart(n) for n in (1, 2, 3, 50)]
    assert pauses == [0.5, 1.0, 2.0, 30.0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_and_ends_with_0(number: signal.Signals) -> None:
    threading.Timer(1.0, os.kill, (os.getpid(), number)).start()
    assert Supervisor([("a", [_LOOP]), ("b", [_LOOP])], _start).run() == 0


def test_a_second_signal_ends_both_at_once_and_a_hangup_beside_the_first_does_not() -> None:
    deaf = "import signal,time; signal.signal(signal.SIGUSR1, signal.SIG_IGN); time.sleep({})"
    signals = [(1.0, signal.SIGTERM), (1.2, signal.SIGHUP), (3.0, signal.SIGINT)]
    for seconds, number in signals:
        threading.Timer(seconds, os.kill, (os.getpid(), number)).start()
    assert Supervisor([("a", [deaf.format(60)])], _start).run() == 128 + signal.SIGINT


def test_children_stop_once_everything_is_through() -> None:
    supervisor = Supervisor([("a", ["pass"]), ("b", [_LOOP])], _start, lambda done: done == frozenset({"a"}))
    assert supervisor.run() == 0


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    """Even a parent that is killed with -9 leaves nobody behind."""
    pid_file = tmp_path / "pid"
    code = (
        "import pathlib, subprocess, time, tailrace.service.supervisor as supervisor;"
        "popen = subprocess.Popen;"
        "subprocess.Popen = lambda arguments, **options: popen(['sleep', '60'], **options);"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(supervisor.start_child([]).process.pid)); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_until(lambda: pid_file.exists() and pid_file.read_text(), "the child has begun")
        child = int(pid_file.read_text())
        parent.kill()
        parent.wait()
        wait_until(lambda: ProcessId.of(child) is None, "the child ends")
    finally:
        parent.kill()
