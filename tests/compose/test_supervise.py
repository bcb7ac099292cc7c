"""The image's first process, with a small program in the place of ``tailrace``."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import CHECKOUT
from tests.support.waiting import wait_until


def _started(folder: Path, program: str, first: str = "") -> subprocess.Popen[str]:
    (folder / "tailrace").write_text(f"#!/bin/sh\n{first}\necho started $1 >>{folder}/starts\n{program}\n")
    (folder / "tailrace").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "SUPERVISE_PAUSE": "0.1"}
    command = [str(CHECKOUT / "compose" / "supervise"), "produce"]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def _starts(folder: Path) -> int:
    path = folder / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.parametrize("end", ["exit 75", "kill -KILL $$", "kill -ABRT $$"])
def test_what_another_start_may_repair_is_started_again(tmp_path: Path, end: str) -> None:
    process = _started(tmp_path, f"[ $(wc -l <{tmp_path}/starts) -gt 2 ] && exit 0; {end}")
    assert process.communicate(timeout=20)[1].count("starts again") == 2
    assert (process.returncode, _starts(tmp_path)) == (0, 3)


@pytest.mark.parametrize("code", [0, 1, 2, 143])
def test_every_other_end_is_the_end(tmp_path: Path, code: int) -> None:
    process = _started(tmp_path, f"exit {code}")
    process.communicate(timeout=20)
    assert (process.returncode, _starts(tmp_path)) == (code, 1)


def test_a_signal_is_passed_on_and_the_program_may_finish(tmp_path: Path) -> None:
    process = _started(tmp_path, "while :; do sleep 0.05; done", first="trap 'sleep 0.3; exit 0' TERM")
    wait_until(lambda: _starts(tmp_path) == 1, seconds=20)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert (process.returncode, _starts(tmp_path)) == (0, 1)


def test_a_signal_ends_the_pause_before_the_next_start(tmp_path: Path) -> None:
    process = _started(tmp_path, "exit 75")
    wait_until(lambda: _starts(tmp_path) == 2, seconds=20)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode in (0, 75)
