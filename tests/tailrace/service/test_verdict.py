"""What scripts get from `tailrace status`: exit codes, and lines that can be searched."""

from __future__ import annotations

import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas.errors import RelayError, Where
from tailrace.commands.app import app
from tailrace.commands.status import _elsewhere
from tailrace.service.console import FactTable
from tailrace.service.last_error import LAST_ERROR_NAME, error_kept, forget_error, read_error
from tailrace.status.collect import _later
from tailrace.status.verdict import channel_state, exceeds_lag, stopped_parts

ERROR = {"code": "TR640", "what": "w", "where": "", "hint": "", "at": "2026-11-26T16:00:00.000+00:00"}


def _report(*channels: dict[str, Any], stopped_by: dict[str, str] | None = None, ok: bool = True) -> Any:
    report = {"relay": {"stopped_by": stopped_by}, "downstream": {"channels": list(channels)}, "ok": ok}
    return report | {"stopped": stopped_parts(report)}


def _channel(seconds: float | None, error: object = None, memory: object = None) -> dict[str, Any]:
    return {"channel": "main", "lag": {"seconds": seconds}, "error": error, "memory": memory}


@pytest.fixture
def code_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Runs the command with a report that is given."""
    (tmp_path / "tailrace.toml").write_text('[source]\nurl = "mysql://u@h/"\n')

    def run(report: Any, *options: str) -> int:
        monkeypatch.setattr("tailrace.status.collect.collect", lambda config: report)
        monkeypatch.setattr("tailrace.commands.status._print", lambda report: None)
        arguments = ["status", "--config", str(tmp_path / "tailrace.toml"), *options]
        return CliRunner().invoke(app, arguments).exit_code

    return run


def test_the_exit_code_says_what_is_wrong(code_for: Callable[..., int]) -> None:
    assert code_for(_report()) == 0
    assert code_for(_report(_channel(0.5)), "--max-lag", "1") == 0
    assert code_for(_report(_channel(1.5))) == 0
    assert code_for(_report(_channel(1.5)), "--max-lag", "1") == 7
    assert code_for(_report(_channel(None)), "--max-lag", "1") == 7
    assert code_for(_report(_channel(9), ok=False), "--max-lag", "1") == 1
    assert code_for(_report(_channel(9, ERROR), ok=False), "--max-lag", "1") == 6
    # Its consumer runs again, and has not applied anything yet.
    assert code_for(_report(_channel(0, ERROR, {"state": "waiting"}))) == 0
    assert code_for(_report(stopped_by=ERROR)) == 6
    assert code_for(_report(), "--max-lag", "-1") == 2


def test_a_channels_state_is_a_word() -> None:
    ended = {"epoch": 7, "consistent": True}
    assert channel_state(ended) == "stopped"
    assert channel_state(ended | {"consistent": False}) == "unknown"
    assert channel_state(ended | {"epoch": None}) == "not started"
    assert channel_state(ended | {"paused": "now", "memory": {}}) == "paused"
    assert channel_state(ended | {"paused": "now", "error": ERROR}) == "failed"
    assert channel_state(ended | {"error": ERROR, "memory": {}}) == "running"


def test_an_unknown_lag_is_no_good_lag() -> None:
    assert exceeds_lag(_report(_channel(None)), 1e9)
    assert not exceeds_lag(_report(), 0)


def test_the_last_error_is_kept_until_something_works(tmp_path: Path) -> None:
    root = tmp_path / "relay"

    def fail(error: Exception) -> None:
        with pytest.raises(type(error)), error_kept(root):
            raise error

    fail(RelayError("TR304", "damaged", where=Where(file="b.000001"), hint="repair"))
    found = read_error(root)
    assert found is not None
    assert (found["code"], found["what"], found["where"]) == ("TR304", "damaged", "b.000001")
    assert stat.S_IMODE((root / LAST_ERROR_NAME).stat().st_mode) == 0o600
    fail(KeyError("x"))
    assert (read_error(root) or {})["code"] == "TR001"
    forget_error(root)
    assert read_error(root) is None
    fail(KeyError("x"))
    with error_kept(root):
        pass
    assert read_error(root) is None
    for text in ("", "[]", "{}", "[" * 9000):
        (root / LAST_ERROR_NAME).write_text(text)
        assert read_error(root) is None


def test_an_error_here_is_old_once_another_has_applied_something() -> None:
    assert _later(ERROR, "2026-11-26T15:59:59.000+00:00") == ERROR
    assert _later(ERROR, "2026-11-26T16:00:01.000+00:00") is None
    assert _later(None, "") is None


def test_in_a_pipe_a_fact_is_a_line_with_its_labels() -> None:
    facts = FactTable()
    facts.add_row("[bold]relay[/]", "/r  2 files")
    facts.add_row("  stored", "b.000001:4")
    facts.add_row("", "[red]stopped[/]: two\nlines " + "x" * 300)
    facts.add_row("[bold]channel a[/]", "mysql://h/")
    assert list(facts.lines()) == [
        "relay: /r 2 files",
        "relay stored: b.000001:4",
        "relay stored: stopped: two lines " + "x" * 300,
        "channel a: mysql://h/",
    ]


def test_a_producer_on_another_machine_is_seen_through_kafka() -> None:
    heard = (datetime.now(UTC) - timedelta(seconds=3)).isoformat(timespec="milliseconds")
    assert "Kafka last heard of one 3 s ago" in _elsewhere({"published_time": heard})
    assert "none has written to Kafka" in _elsewhere({"published_time": None})
    assert "Kafka" not in _elsewhere({"error": {}})


def test_the_version_is_the_packages() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, "tailrace 0.1.0\n")
