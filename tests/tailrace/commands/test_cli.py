"""The command line without servers: names, exit codes, messages, and what must never be printed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table
from typer.testing import CliRunner

from schemas.errors import ConfigError, DownstreamError, Where
from tailrace.commands.app import app
from tailrace.commands.failure import describe
from tailrace.config.positions import check_position
from tailrace.config.text import example
from tailrace.service.console import console
from tailrace.service.lifecycle import STOP
from tailrace.service.progress import RateMeter, Snapshot
from tailrace.service.progress import describe as progress_line

runner = CliRunner()


def _tailrace(*arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tailrace", *arguments]
    environment = {**os.environ, **env}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=60, check=False
    )


def test_every_command_has_its_fixed_name_and_a_help_text() -> None:
    for name in ("produce", "consume", "run", "check", "status", "compare", "config", "stack"):
        result = runner.invoke(app, [name, "--help"])
        assert result.exit_code == 0, name
        assert len(result.output) > 100, name


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("produce", ["--config", "--until-caught-up", "--stop-at-gtid"]),
        ("consume", ["--config", "--until-caught-up", "--stop-at-gtid", "--channel", "--from", "--until"]),
        ("run", ["--config", "--until-caught-up", "--stop-at-gtid"]),
        ("check", ["--config", "--json"]),
        ("status", ["--config", "--json"]),
        ("compare", ["--config", "--json"]),
    ],
)
def test_the_options_are_fixed(command: str, options: list[str]) -> None:
    output = runner.invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    assert [option for option in options if option not in output] == []


def test_what_goes_into_a_pipe_is_not_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "In both cases nothing is lost or applied twice."
    [line] = [one for one in _tailrace("consume", "--help").stdout.splitlines() if sentence in one]
    assert line.startswith("  SIGTERM or Ctrl-C stops after")
    long = "--no-such-option-" + "long-" * 40
    assert f"No such option: {long}" in _tailrace("consume", long).stderr
    # Tables and lines of other commands go through the same console.
    table = Table(box=None)
    table.add_row("a", "word " * 60)
    for one in (table, "word " * 60):
        console().print(one)
        assert len([line for line in capsys.readouterr().out.splitlines() if line.strip()]) == 1


def test_help_does_not_load_what_takes_long_to_load() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from tailrace.commands.app import app;"
        "CliRunner().invoke(app, ['--help']);"
        "print([m for m in ('pyspark', 'pandas', 'pymysql', 'pydantic', 'confluent_kafka') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_config_example_is_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text(runner.invoke(app, ["config", "example"]).output)
    shown = runner.invoke(app, ["config", "show", "--json", "--config", str(tmp_path / "tailrace.toml")])
    assert json.loads(shown.output)["kafka"]["prefix"] == "tailrace"


def test_config_show_masks_secrets_of_spark(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text(
        '[consumer]\n"spark.authenticate.secret" = "x y"\n"spark.cores.max" = 2'
    )
    shown = runner.invoke(app, ["config", "show", "--config", str(tmp_path / "tailrace.toml")]).output
    assert '"spark.authenticate.secret" = "********"' in shown
    assert '"spark.cores.max" = "2"' in shown


def test_config_show_masks_passwords(tmp_path: Path) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text(example().replace("replicator@", "replicator:geheim@"))
    for form in ([], ["--json"]):
        done = runner.invoke(app, ["config", "show", "--config", str(file), *form])
        assert "geheim" not in done.output
        assert "****" in done.output


def test_a_wrong_configuration_is_a_usage_error_on_stderr_and_nothing_on_stdout(tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text("[kafka]\npartition = 3\n")
    done = _tailrace("status", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    said = json.loads(done.stderr)
    assert (said["code"], said["event"]) == ("TR102", "failed")
    assert "did you mean partitions?" in said["hint"]


def test_an_unknown_option_is_a_usage_error() -> None:
    assert _tailrace("produce", "--nonsense").returncode == 2


def test_an_unforeseen_error_leaves_its_traceback_in_a_file() -> None:
    try:
        raise RuntimeError("boom\nsecond line")
    except RuntimeError as error:
        shown = describe(error)
    assert (shown.code, shown.exit_code) == ("TR001", 1)
    assert shown.what == "unexpected error: RuntimeError: boom"
    path = Path(shown.hint.split()[4].rstrip(";"))
    assert "Traceback" in path.read_text()
    path.unlink()


def test_a_known_error_says_what_where_and_the_remedy() -> None:
    shown = describe(
        DownstreamError("TR603", "one row too few", where=Where(gtid="g:1", table="a.b"), hint="look")
    )
    assert (shown.code, shown.where, shown.hint, shown.exit_code) == (
        "TR603",
        "gtid g:1, table a.b",
        "look",
        1,
    )


@pytest.mark.parametrize("text", ["earliest", "epoch:7", "gtid:3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5,0-1-9",
                                  "time:2026-01-31T12:00:00Z", "time:2026-01-31T12:00:00+02:00"])  # fmt: skip
def test_places_to_begin(text: str) -> None:
    assert check_position(text, "--from") == text


@pytest.mark.parametrize(
    "text", ["", "latest", "epoch:x", "epoch:-1", "gtid:", "time:now", "time:2026-01-31T12:00:00"]
)
def test_no_places_to_begin(text: str) -> None:
    with pytest.raises(ConfigError, match="epoch:42"):
        check_position(text, "--from")


def test_progress_tells_rate_and_time_left() -> None:
    meter = RateMeter()
    meter.add(0.0, Snapshot(0, "", None, 0.0, 100.0))
    meter.add(2.0, Snapshot(500, "epoch 3", 0.25, 20.0, 80.0))
    assert meter.rows_per_s() == 250
    assert meter.seconds_left() == 8
    line = progress_line(Snapshot(500, "epoch 3", 0.25), 250, 8.0)
    assert line == "500 rows · 250 rows/s · epoch 3 · lag 0.2 s · 8 s left"
    line = progress_line(Snapshot(500, "epoch 3", paused="disk full, writing the relay log"), 0, None)
    assert line.startswith("paused: disk full, writing the relay log · 500 rows · ")


def test_progress_without_movement_does_not_guess() -> None:
    meter = RateMeter()
    meter.add(0.0, Snapshot(5, "epoch 1", None, 1.0, 10.0))
    meter.add(1.0, Snapshot(5, "epoch 1", None, 1.0, 10.0))
    assert meter.seconds_left() is None


_WORKER = """
import sys, threading, time
from tailrace.service.lifecycle import run_until_signalled
def work(stop):
    print("working", flush=True)
    stop.wait(30)
    {after}
run_until_signalled(work)
print("done", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, STOP])
def test_the_first_signal_finishes_and_ends_with_0(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER.format(after="pass")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdout.readline() == "working\n"
    process.send_signal(number)
    assert process.communicate(timeout=20)[0].endswith("done\n")
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_at_once(number: signal.Signals) -> None:
    code = _WORKER.format(after="print('finishing', flush=True); time.sleep(60)")
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "working\n"
    process.send_signal(number)
    while "finishing" not in process.stdout.readline():
        pass
    # These come beside a first one, from systemd and from `tailrace run`.
    process.send_signal(STOP)
    process.send_signal(signal.SIGHUP)
    assert process.poll() is None
    process.send_signal(number)
    assert process.wait(30) == 128 + number, "it went on with what takes 60 s"
