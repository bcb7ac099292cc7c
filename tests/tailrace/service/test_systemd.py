"""What systemd is told, and the units that it is given."""

from __future__ import annotations

import configparser
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from schemas.errors import DownstreamError, ExitCode, LogError
from tailrace.commands.app import app
from tailrace.commands.failure import describe
from tailrace.service.systemd_notify import SOCKET, Watchdog, tell_status, tell_stopping
from tailrace.systemd import CHANNEL, PRODUCER, UNITS, unit


class _Unit(configparser.RawConfigParser):
    """A unit of systemd; names of its settings are as they are written."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _parsed(name: str) -> _Unit:
    parsed = _Unit(strict=True, delimiters=("=",))
    parsed.read_string(unit(name, Path("/opt/tail%race/bin/tailrace")))
    return parsed


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        monkeypatch.setenv(SOCKET, str(tmp_path / "notify"))
        yield listener


def test_systemd_hears_what_the_process_does_in_one_line(systemd: socket.socket) -> None:
    tell_status("reading shop.a\nMAINPID=1")
    tell_stopping()
    assert systemd.recv(4096) == b"STATUS=reading shop.a MAINPID=1"
    assert systemd.recv(4096) == b"STOPPING=1"


def test_nobody_is_told_if_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("", "/nowhere/at/all", "@tailrace-nobody"):
        monkeypatch.setenv(SOCKET, address)
        tell_status("fine")


def test_the_watchdog_is_fed_while_the_work_moves_or_waits(systemd: socket.socket) -> None:
    now = [0.0]
    watchdog = Watchdog(60, lambda: now[0])

    def look(at: float, moved: int, *, is_due: bool) -> bool:
        now[0] = at
        return watchdog.look(moved, is_due=is_due)

    assert look(0, 1, is_due=True)
    assert look(60, 1, is_due=True)
    assert not look(61, 1, is_due=True)
    assert look(62, 2, is_due=True)
    assert look(500, 2, is_due=False)
    assert look(560, 2, is_due=True)
    assert [systemd.recv(100) for _ in range(5)] == [b"READY=1\nWATCHDOG=1"] * 5
    with pytest.raises(BlockingIOError):
        systemd.recv(100)


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_restarts_what_may_pass_and_nothing_that_needs_a_human(name: str) -> None:
    service = _parsed(name)["Service"]
    assert service["Restart"] == "on-abnormal"
    assert int(service["RestartForceExitStatus"]) == ExitCode.MAY_PASS
    away = LogError("TR557", "Kafka is away", retryable=True)
    refused = DownstreamError("TR603", "one row too few")
    assert (describe(away).exit_code, describe(refused).exit_code) == (75, 1)


def test_the_units_differ_only_in_what_they_start() -> None:
    producer, channel = (_parsed(name) for name in UNITS)
    assert producer["Service"].pop("ExecStart").split()[:2] == ["/opt/tail%%race/bin/tailrace", "produce"]
    assert channel["Service"].pop("ExecStart").split()[1:4] == ["consume", "--channel", "%i"]
    assert dict(producer["Service"]) == dict(channel["Service"])


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_takes_the_units_and_finds_them_hardened(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["systemd", str(tmp_path)])
    assert done.exit_code == 0, done.output
    # A template is examined by the name of an instance.
    (tmp_path / CHANNEL).rename(tmp_path / CHANNEL.replace("@", "@main"))
    for name in (PRODUCER, CHANNEL.replace("@", "@main")):
        path = str(tmp_path / name)
        found = subprocess.run(
            ["systemd-analyze", "verify", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        # `verify` also reads the machine's own units.
        assert name not in found.stdout, found.stdout
        exposure = ["systemd-analyze", "security", "--offline=true", "--threshold=20", path]
        subprocess.run(exposure, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
