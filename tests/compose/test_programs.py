"""Programs that the demo and the benchmark run."""

from __future__ import annotations

from pathlib import Path

import pytest

from compose.processes import ProcessId, Program
from schemas.errors import StackError
from tests.support.waiting import wait_until


def _program(folder: Path, *arguments: str) -> Program:
    program = Program("one", arguments, folder, ended="TR1", late="TR2", failed="TR3")
    program.start()
    return program


def test_a_program_that_ends_leaves_its_output(tmp_path: Path) -> None:
    program = _program(tmp_path, "this")
    program.wait(30)
    assert "Beautiful is better than ugly" in program.out.read_text()
    with pytest.raises(StackError, match="TR1: one ended unexpectedly with exit code 0"):
        program.check()


def test_a_program_that_fails_is_shown_with_the_end_of_its_log(tmp_path: Path) -> None:
    program = _program(tmp_path, "no_such_module")
    with pytest.raises(
        StackError, match=r"(?s)TR3: one ended with exit code 1:.*No module named no_such_module"
    ):
        program.wait(30)


def test_a_program_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    child = "subprocess.Popen(['sleep', '60'], process_group=0)"
    code = f"import subprocess, time; print({child}.pid, flush=True); time.sleep(60)"
    program = _program(tmp_path, "timeit", "-n1", "-r1", code)
    pid = int(wait_until(program.out.read_text, "the program has started its child"))
    with pytest.raises(StackError, match="TR2: one did not end within 0 s"):
        program.wait(0.1)
    assert ProcessId.of(pid)
    program.kill_all()
    wait_until(lambda: ProcessId.of(pid) is None, "the child is gone")
    assert program.pid is None
