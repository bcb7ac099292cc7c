"""An operator pauses the mirror, publishing and a channel; each stands still across restarts, and then goes on."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pymysql
import pytest
from typer.testing import CliRunner

from relay_store.layout.pauses import PAUSES_NAME, PauseSwitch, read_pauses, set_pause
from schemas.errors import DownstreamError, RelayError
from spark_consumer.job.progress import Counters
from spark_consumer.sinks.parquet import folder
from tailrace.channels.pauses import set_paused
from tailrace.commands.app import app
from tailrace.config.file import load
from tailrace.config.model import Config
from tailrace.service.status_socket import PRODUCER, query_status
from tests.support.processes.operator import DB, Operator
from tests.support.waiting import wait_until


def test_a_pause_is_a_private_file_in_the_relay_directory(tmp_path: Path) -> None:
    assert read_pauses(tmp_path) == {}
    assert set_pause(tmp_path, "mirror", True) is None
    since = read_pauses(tmp_path)["mirror"]
    # A second one changes nothing.
    assert set_pause(tmp_path, "mirror", True) == since == read_pauses(tmp_path)["mirror"]
    set_pause(tmp_path, "publishing", True)
    assert read_pauses(tmp_path).keys() == {"mirror", "publishing"}
    assert stat.S_IMODE((tmp_path / PAUSES_NAME).stat().st_mode) == 0o600
    assert PauseSwitch(tmp_path, "mirror")() == since
    assert set_pause(tmp_path, "mirror", False) == since
    assert set_pause(tmp_path, "mirror", False) is None
    assert PauseSwitch(tmp_path, "mirror")() is None


@pytest.mark.parametrize(
    "text", ["", "[", "[]", '"mirror"', '{"mirror": 7}', '{"mirror": "soon"}', "[" * 3000]
)
def test_what_is_no_pause_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / PAUSES_NAME).write_text(text)
    if text == "[]":
        assert read_pauses(tmp_path) == {}
        return
    with pytest.raises(RelayError) as caught:
        read_pauses(tmp_path)
    assert caught.value.code == "TR306"


def test_a_folders_channel_is_paused_by_a_file(tmp_path: Path) -> None:
    (tmp_path / folder.METADATA_DIR).mkdir()
    assert folder.paused_since(tmp_path) is None
    folder.set_pause(tmp_path, True)
    since = folder.paused_since(tmp_path)
    folder.set_pause(tmp_path, True)
    assert since is not None
    assert folder.paused_since(tmp_path) == since
    folder.set_pause(tmp_path, False)
    assert folder.paused_since(tmp_path) is None


def _report(operator: Operator) -> Any:
    return json.loads(operator.run("status", "--json")[1])


def _rows(operator: Operator) -> int:
    try:
        [(count,)] = operator.downstream.execute(f"SELECT COUNT(*) FROM {DB}.t")
    except pymysql.MySQLError:
        return 0  # the table is not there yet
    return int(count)


def _producer(config: Config) -> Any:
    return query_status(config.relay.dir, PRODUCER) or {}


def _read_everything() -> None:
    """Run what only reads; the shape of its JSON is looked at by a fixture."""
    for command in (
        "status --max-lag 1000",
        "channel list",
        "channel show --channel main",
        "check",
        "error show",
        "validate",
        "compare",
        "relay list",
        "relay verify --rows",
        "relay readers",
        "relay cat --verbose",
        "topic cat",
        f"schema show {DB}.t --history",
        "config show",
    ):
        done = CliRunner().invoke(app, [*command.split(), "--json"])
        assert done.exit_code in (0, 4, 6), (command, done.output, done.exception)
        assert done.stdout.startswith(("{", "[")), command


@pytest.mark.servers
def test_each_part_stands_still_and_goes_on(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(operator.folder)
    for side in ("SOURCE", "TARGET"):
        monkeypatch.setenv(f"TAILRACE_{side}_PASSWORD", "tailrace")
    config = load(operator.folder / "tailrace.toml")
    operator.insert(0, 20)
    # Before the first start, as after any other end of a process.
    code, _ = operator.run("pause", "channel", "main")
    assert code == 0, operator.log("pause")
    operator.start("run")
    wait_until(lambda: "channel_paused" in operator.log("run"))
    report = _report(operator)
    [channel] = report["downstream"]["channels"]
    assert (channel["memory"]["state"], channel["state"], bool(channel["paused"])) == (
        "paused",
        "paused",
        True,
    )
    assert channel["lag"]["epochs"] >= 1
    assert _rows(operator) == 0

    set_paused(config, "publishing", True)
    wait_until(lambda: "publishing_paused" in operator.log("run"))
    epoch = _report(operator)["kafka"]["epoch"]
    set_paused(config, "channel", False)
    wait_until(lambda: _rows(operator) == 20)
    operator.insert(20, 30)
    [(_, position, *_)] = operator.upstream.execute("SHOW MASTER STATUS")
    wait_until(lambda: _producer(config)["relay"]["synced"]["Relay_log_pos"] == position)
    set_paused(config, "mirror", True)
    wait_until(lambda: "mirror_paused" in operator.log("run"))
    report = _report(operator)
    assert report["kafka"]["epoch"] == epoch
    assert report["relay"]["memory"]["state"] == "paused"
    assert report["relay"]["memory"]["publisher"]["paused"] == report["relay"]["paused"]["publishing"]
    operator.insert(30, 40)
    set_paused(config, "publishing", False)
    wait_until(lambda: _rows(operator) == 30)
    assert operator.run("resume", "mirror")[0] == 0
    wait_until(lambda: _rows(operator) == 40)
    with pytest.raises(DownstreamError, match="TR612"):
        set_paused(config, "channel", True, "other")

    _read_everything()
    # A row that is not there stops the channel, and the producer goes on.
    operator.downstream.execute(f"DELETE FROM {DB}.t WHERE id = 1")
    operator.upstream.execute(f"UPDATE {DB}.t SET v = 'x' WHERE id = 1")
    wait_until(lambda: "child_stands" in operator.log("run"))
    code, text = operator.run("status", "--json")
    assert (code, json.loads(text)["stopped"]) == (6, ["channel main"])
    _read_everything()


def test_counters_tell_a_pause_once(capsys: pytest.CaptureFixture[str]) -> None:
    counters = Counters(position_epoch=3)
    for since in (None, "now", "now", None, None):
        counters.pauses(since)
    assert counters.paused is None
    text = "".join(capsys.readouterr())
    assert (text.count("channel_paused"), text.count("channel_resumed")) == (1, 1)
