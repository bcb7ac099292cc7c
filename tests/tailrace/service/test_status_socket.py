"""A running process's own state over its socket: long paths, stale names, rights, and askers who leave."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.service.status_socket import query_status, serve_status
from tests.support.waiting import wait_until


def test_what_is_served_is_what_is_asked(tmp_path: Path) -> None:
    state = {"epoch": 1}
    with serve_status(tmp_path, "a.sock", lambda: state):
        assert query_status(tmp_path, "a.sock") == {"epoch": 1}
        state["epoch"] = 2
        assert query_status(tmp_path, "a.sock") == {"epoch": 2}
    assert query_status(tmp_path, "a.sock") is None
    assert list(tmp_path.iterdir()) == []


def test_nobody_there(tmp_path: Path) -> None:
    assert query_status(tmp_path, "a.sock") is None
    assert query_status(tmp_path / "nowhere", "a.sock") is None


def test_paths_longer_than_a_socket_address(tmp_path: Path) -> None:
    folder = tmp_path / ("f" * 200)
    with serve_status(folder, "a.sock", lambda: {"x": "y" * 300_000}):
        assert query_status(folder, "a.sock") == {"x": "y" * 300_000}


def test_only_the_owner_may_ask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with serve_status(tmp_path, "a.sock", dict):
            assert stat.S_IMODE((tmp_path / "a.sock").stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_the_name_that_kill_leaves_is_taken_over(tmp_path: Path) -> None:
    program = (
        "import sys, time, pathlib; from tailrace.service.status_socket import serve_status\n"
        "with serve_status(pathlib.Path(sys.argv[1]), 'a.sock', lambda: {'who': 'first'}): time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    wait_until(lambda: query_status(tmp_path, "a.sock") == {"who": "first"}, "the first one answers")
    process.kill()
    process.wait()
    assert (tmp_path / "a.sock").exists()
    assert query_status(tmp_path, "a.sock") is None
    with serve_status(tmp_path, "a.sock", lambda: {"who": "second"}):
        assert query_status(tmp_path, "a.sock") == {"who": "second"}


def test_a_successor_keeps_its_name(tmp_path: Path) -> None:
    with serve_status(tmp_path, "a.sock", lambda: {"who": 1}):
        successor = serve_status(tmp_path, "a.sock", lambda: {"who": 2})
        successor.__enter__()
    assert query_status(tmp_path, "a.sock") == {"who": 2}
    successor.__exit__(None, None, None)
    assert query_status(tmp_path, "a.sock") is None


def test_an_asker_who_leaves_or_a_state_in_motion_ends_nothing(tmp_path: Path) -> None:
    calls: list[int] = []

    def snapshot() -> dict[str, object]:
        calls.append(1)
        if len(calls) < 3:
            raise RuntimeError("dictionary changed size during iteration")
        return {"x": "y" * 10_000_000}

    with serve_status(tmp_path, "a.sock", snapshot):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "a.sock"))
        assert query_status(tmp_path, "a.sock")


def test_a_folder_that_allows_no_socket_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with serve_status(tmp_path / "file", "a.sock", dict):
        assert query_status(tmp_path / "file", "a.sock") is None


def test_a_process_that_does_not_answer_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.service.status_socket._TIMEOUT_S", 0.2)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "a.sock"))
        silent.listen()
        with pytest.raises(OSError, match="timed out"):
            query_status(tmp_path, "a.sock")
