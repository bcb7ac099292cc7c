"""``tailrace check`` and ``status`` against real servers of both flavours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace.cli.app import app

pytestmark = pytest.mark.servers
runner = CliRunner()


def _config(tmp_path: Path, source: str, target: str, kafka: str) -> str:
    file = tmp_path / "tailrace.toml"
    file.write_text(
        f'[source]\nurl = "{source}"\nserver-id = 7301\n[kafka]\nbootstrap-servers = "{kafka}"\n'
        f'prefix = "check-t"\n[target]\nurl = "{target}"\n'
    )
    return str(file)


def _check(config: str) -> tuple[int, dict[tuple[str, str], dict[str, str]], list[dict[str, str]]]:
    done = runner.invoke(app, ["check", "--json", "--config", config])
    report = json.loads(done.stdout)
    findings = {(f["part"], f["code"]): f for f in report["findings"]}
    return done.exit_code, findings, report["not_checked"]


def test_a_stack_set_up_with_care_passes(upstream: Any, downstream: Any, kafka: Any, tmp_path: Path) -> None:
    config = _config(tmp_path, upstream.url("tailrace"), downstream.url("tailrace"), kafka.bootstrap)
    code, findings, _ = _check(config)
    assert code == 0
    assert [f for f in findings.values() if f["level"] == "block"] == []
    for name in (
        "log_bin",
        "binlog_format",
        "binlog_row_image",
        "binlog_row_metadata",
        "privileges",
        "retention",
    ):
        assert findings["upstream", name]["level"] == "ok", name
    assert findings["downstream", "privileges"]["level"] == "ok"
    assert findings["downstream", "ledger"]["level"] == "ok"
    assert findings["kafka", "reachable"]["level"] == "ok"


def test_an_account_without_rights_blocks_with_the_statement_that_helps(
    upstream: Any, downstream: Any, kafka: Any, tmp_path: Path
) -> None:
    for server in (upstream, downstream):
        server.execute("DROP USER IF EXISTS poor@'%'", "CREATE USER poor@'%' IDENTIFIED BY 'poor'")
    urls = [server.url().replace("root@", "poor:poor@") for server in (upstream, downstream)]
    code, findings, _ = _check(_config(tmp_path, urls[0], urls[1], kafka.bootstrap))
    assert code == 3
    assert findings["upstream", "privileges"]["level"] == "block"
    assert "GRANT REPLICATION SLAVE" in findings["upstream", "privileges"]["remedy"]
    assert findings["downstream", "privileges"]["level"] == "block"
    # Without the right to set GTIDs an intent row has to do: slower to decide after a crash, but safe.
    assert findings["downstream", "ledger"]["level"] == "warn"


def test_wrong_settings_block(server: Any, flavor: str, kafka: Any, tmp_path: Path) -> None:
    args = [
        "--binlog-row-metadata=MINIMAL",
        "--binlog-row-image=MINIMAL",
        "--binlog-expire-logs-seconds=3600",
    ]
    bad = server(flavor, args=args, role="upstream", server_id=7301)
    code, findings, _ = _check(_config(tmp_path, bad.url(), bad.url(), kafka.bootstrap))
    assert code == 3
    levels = {
        code: findings["upstream", code]["level"] for code in ("binlog_row_metadata", "binlog_row_image")
    }
    assert levels == {"binlog_row_metadata": "warn", "binlog_row_image": "warn"}
    assert findings["upstream", "retention"]["level"] == "warn"
    assert findings["upstream", "server-id"]["level"] == "block"


def test_what_does_not_answer_blocks_and_the_rest_is_not_checked(tmp_path: Path) -> None:
    nobody = "mysql://u:geheim@127.0.0.1:1/"
    config = _config(tmp_path, nobody, nobody, "127.0.0.1:1")
    code, findings, not_checked = _check(config)
    assert code == 3
    for part in ("upstream", "kafka", "downstream"):
        assert findings[part, "reachable"]["level"] == "block"
        assert any(n["part"] == part for n in not_checked)
    text = runner.invoke(app, ["check", "--config", config]).output
    assert "geheim" not in text


def test_status_of_a_fresh_stack_and_of_none(
    upstream: Any, downstream: Any, kafka: Any, tmp_path: Path
) -> None:
    config = _config(tmp_path, upstream.url("tailrace"), downstream.url("tailrace"), kafka.bootstrap)
    done = runner.invoke(app, ["status", "--json", "--config", config])
    report = json.loads(done.stdout)
    assert (done.exit_code, report["ok"]) == (0, True)
    assert report["upstream"]["file"].startswith("mysql-bin.")
    assert report["kafka"]["epoch"] is None
    assert report["relay"]["stored"] is None

    nobody = "mysql://u@127.0.0.1:1/"
    config = _config(tmp_path, nobody, downstream.url("tailrace"), kafka.bootstrap)
    done = runner.invoke(app, ["status", "--json", "--config", config])
    report = json.loads(done.stdout)
    assert (done.exit_code, report["ok"]) == (1, False)
    assert report["upstream"]["error"]["code"] in {"TR200", "TR201"}
    assert "error" not in report["downstream"]
    assert "unreachable" in runner.invoke(app, ["status", "--config", config]).output


def test_each_channels_own_target_is_looked_at(
    upstream: Any, downstream: Any, kafka: Any, tmp_path: Path
) -> None:
    config = _config(tmp_path, upstream.url("tailrace"), downstream.url("tailrace"), kafka.bootstrap)
    nobody = "mysql://u:geheim@127.0.0.1:1/"
    with Path(config).open("a") as file:
        file.write(
            f'[channel.lake.target]\nurl = "parquet:{tmp_path}/lake"\n[channel.gone.target]\nurl = "{nobody}"\n'
            f'[channel.same.target]\nurl = "{downstream.url("tailrace")}"\n'
        )
    code, findings, _ = _check(config)
    assert code == 3
    assert {part for part, _ in findings if part.startswith("downstream")} == {
        "downstream",
        "downstream of lake",
        "downstream of gone",
    }
    assert findings["downstream", "reachable"]["level"] == "ok"
    for code_ in ("time_zones", "collations", "engines", "lower_case_table_names", "innodb_strict_mode"):
        assert findings["downstream", code_]["level"] in ("ok", "warn"), findings["downstream", code_]
    assert findings["downstream of lake", "writable"]["level"] == "ok"
    assert findings["downstream of gone", "reachable"]["level"] == "block"

    done = runner.invoke(app, ["status", "--json", "--config", config])
    report = json.loads(done.stdout)
    assert (done.exit_code, report["ok"]) == (1, False)
    assert "error" not in report["downstream"]
    lake, gone = report["targets"]
    assert lake["server"] == f"parquet:{tmp_path}/lake"
    assert gone["error"]["code"] == "TR600"
    text = runner.invoke(app, ["status", "--config", config]).output
    assert "unreachable" in text
    assert "geheim" not in text + done.stdout
