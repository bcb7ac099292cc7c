"""``tailrace check`` and ``status`` against real servers of both flavors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace.commands.app import app
from tailrace.config.channels import channels_of
from tailrace.config.file import load
from tailrace.preflight.copy_facts import read_source
from tailrace.preflight.downstream import downstream_findings
from tailrace.preflight.finding import Finding, Result
from tailrace.preflight.first_copy import source_findings
from tailrace.preflight.gather import read_downstream, read_upstream
from tailrace.preflight.upstream import upstream_findings
from tests.support.names import forget_others

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
    # Not what other tests have left there, triggers for one.
    Path(config).write_text(Path(config).read_text() + '[tables]\ninclude = ["care.*"]\n')
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
    for part, server in (("upstream", upstream), ("downstream", downstream)):
        said = "encrypted (TLSv1.3" if server.flavor == "mysql" else "not encrypted: the server offers no TLS"
        assert said in findings[part, "encryption"]["what"]
        assert findings[part, "encryption"]["level"] == "ok"
    assert findings["configuration", "secrets"]["level"] == "warn"
    assert findings["configuration", "secrets"]["remedy"] == f"chmod 600 {config}"
    assert findings["kafka", "log_begins"]["level"] == "ok"
    # What somebody accepts is no reason to stop, and is said.
    with Path(config).open("a") as file:
        file.write('[relay]\nrelay-binlog-name = "mysql-bin.000001"\n')
    code, findings, _ = _check(config)
    assert (code, findings["kafka", "log_begins"]["level"]) == (0, "warn")
    assert "it will not contain what was written before" in findings["kafka", "log_begins"]["what"]


def test_an_account_that_asks_for_tls_is_named(
    upstream: Any, downstream: Any, kafka: Any, tmp_path: Path
) -> None:
    for server in (upstream, downstream):
        server.execute("DROP USER IF EXISTS tls@'%'", "CREATE USER tls@'%' IDENTIFIED BY 'tls' REQUIRE SSL")
    urls = [
        server.url().replace("root@", "tls:tls@") + "?ssl-mode=disabled" for server in (upstream, downstream)
    ]
    code, findings, _ = _check(_config(tmp_path, urls[0], urls[1], kafka.bootstrap))
    assert code == 3
    for part in ("upstream", "downstream"):
        assert "REQUIRE SSL" in findings[part, "reachable"]["remedy"]


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
    # Without the right to set GTIDs the tables have to show what happened: slower to decide after a crash, but safe.
    assert findings["downstream", "ledger"]["level"] == "warn"


# The account's rights as docs/SETUP.md has them; MariaDB's names for some of them.
ON_DATA = (
    "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, TRIGGER, CREATE TEMPORARY TABLES,"
    " CREATE VIEW, SHOW VIEW, CREATE ROUTINE, ALTER ROUTINE, EXECUTE, EVENT"
)
ON_SERVER = {
    "mysql": "SET_ANY_DEFINER, ALLOW_NONEXISTENT_DEFINER, SYSTEM_USER, REPLICATION CLIENT, REPLICATION_APPLIER,"
    " SESSION_VARIABLES_ADMIN",
    "mariadb": "SET USER, BINLOG ADMIN, BINLOG REPLAY, PROCESS",
}
UPSTREAM = "SELECT, SHOW VIEW, EVENT, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT"


def _of_account(findings: list[Result], right: str) -> list[Finding]:
    """The findings that say that a right is lacking, with the statement that gives it."""
    return [
        one
        for one in findings
        if isinstance(one, Finding)
        and one.level in ("block", "warn")
        and right in one.message
        and re.search(rf"GRANT [A-Z_, ]*\b{right}\b[A-Z_, ]* ON", one.hint)
    ]


def _lacking(findings: list[Result]) -> list[str]:
    return [one.message for one in findings if isinstance(one, Finding) and "lacks" in one.message]


@pytest.mark.parametrize("through_role", [False, True], ids=["account", "role"])
def test_each_right_that_is_dropped_shows(
    upstream: Any, downstream: Any, flavor: str, tmp_path: Path, through_role: bool
) -> None:
    both = (upstream, downstream)
    holder = "of_poor" if through_role else "poor@'%'"
    for server in both:
        server.execute(
            "DROP ROLE IF EXISTS of_poor",
            "DROP USER IF EXISTS poor@'%'",
            "CREATE USER poor@'%' IDENTIFIED BY 'poor'",
            *(["CREATE ROLE of_poor", "GRANT of_poor TO poor@'%'"] if through_role else []),
        )
    source, target = (server.url().replace("root@", "poor:poor@") for server in both)
    config = load(Path(_config(tmp_path, source, target, "127.0.0.1:1")))
    upstream.execute("CREATE DATABASE keyless", "CREATE TABLE keyless.t (a INT)")

    def look() -> list[list[Result]]:
        return [
            [*upstream_findings(read_upstream(config)), *source_findings(read_source(config))],
            downstream_findings(read_downstream(config, None, channels_of(config, config))),
        ]

    rights = (UPSTREAM, f"{ON_DATA}, {ON_SERVER[flavor]}")
    for server, names in zip(both, rights, strict=True):
        server.execute(f"GRANT {names} ON *.* TO {holder}")
    if through_role:
        # Rights of a role that sessions do not begin with are none.
        for found, server in zip(look(), both, strict=True):
            assert any("SET DEFAULT ROLE" in one.hint for one in _of_account(found, "SELECT"))
            server.execute(f"SET DEFAULT ROLE of_poor {'TO' if flavor == 'mysql' else 'FOR'} poor@'%'")
    assert [_lacking(found) for found in look()] == [[], []]
    for number, (server, names) in enumerate(zip(both, rights, strict=True)):
        for right in names.split(", "):
            server.execute(f"REVOKE {right} ON *.* FROM {holder}")
            found = look()[number]
            assert _of_account(found, right), (right, _lacking(found))
            server.execute(f"GRANT {right} ON *.* TO {holder}")
    upstream.execute("DROP DATABASE keyless")
    for server in both:
        server.execute("DROP USER poor@'%'", *(["DROP ROLE of_poor"] if through_role else []))


def test_mariadbs_grant_of_test_to_everybody_is_none_of_the_accounts(
    downstream_mariadb: Any, tmp_path: Path
) -> None:
    downstream_mariadb.execute(
        "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES ON test.* TO PUBLIC",
        "CREATE OR REPLACE USER poor@'%' IDENTIFIED BY 'poor'",
    )
    url = downstream_mariadb.url().replace("root@", "poor:poor@")
    config = load(Path(_config(tmp_path, url, url, "127.0.0.1:1")))
    found = downstream_findings(read_downstream(config, None, channels_of(config, config)))
    downstream_mariadb.execute("REVOKE ALL ON test.* FROM PUBLIC", "DROP USER poor@'%'")
    assert {one.level for one in _of_account(found, "INSERT")} == {"block"}


@pytest.mark.parametrize("flavor", ["mysql"])
def test_rights_that_are_taken_back_in_part_show(server: Any, flavor: str, tmp_path: Path) -> None:
    own = server(flavor, role="downstream", args=["--partial-revokes=ON"])
    own.execute(
        "CREATE DATABASE shop",
        "REVOKE TRIGGER ON shop.* FROM tailrace@'%'",
        "REVOKE SELECT ON mysql.* FROM tailrace@'%'",
    )
    file = Path(_config(tmp_path, own.url("tailrace"), own.url("tailrace"), "127.0.0.1:1"))
    file.write_text(file.read_text() + '[tables]\ninclude = ["shop.*"]\n')
    config = load(file)
    found = downstream_findings(read_downstream(config, read_upstream(config), channels_of(config, config)))
    assert [one.level for one in _of_account(found, "TRIGGER")] == ["block"]
    assert "on `shop`.*" in _of_account(found, "TRIGGER")[0].message
    assert not _of_account(found, "SELECT")


def test_programs_that_would_write_beside_us_are_found(
    upstream: Any, downstream: Any, kafka: Any, tmp_path: Path
) -> None:
    forget_others(downstream)
    tables = [f"CREATE TABLE cp.{name} (id INT PRIMARY KEY, v INT, old INT)" for name in ("t", "u")]
    upstream.execute("CREATE DATABASE cp", *tables)
    downstream.execute(
        "CREATE DATABASE cp",
        *tables,
        "CREATE TABLE cp.log (id INT)",
        "CREATE TRIGGER cp.t1 AFTER INSERT ON cp.t FOR EACH ROW INSERT INTO u (id) VALUES (NEW.id)",
        "CREATE TRIGGER cp.t2 AFTER DELETE ON cp.t FOR EACH ROW INSERT INTO log VALUES (OLD.id)",
        "CREATE TRIGGER cp.t3 BEFORE INSERT ON cp.u FOR EACH ROW SET NEW.v = 1",
        "CREATE EVENT cp.ev ON SCHEDULE EVERY 1 HOUR STARTS '2037-01-01' DO UPDATE cp.u SET v = 2",
    )
    config = Path(_config(tmp_path, upstream.url("tailrace"), downstream.url("tailrace"), kafka.bootstrap))
    config.write_text(config.read_text() + '[tables]\ninclude = ["cp.*"]\nexclude = ["cp.log"]\n')
    try:
        done = runner.invoke(app, ["check", "--json", "--config", str(config)])
        found = [f for f in json.loads(done.stdout)["findings"] if f["code"] == "side_writes"]
        assert done.exit_code == 3
        assert sorted(f["what"].partition(" may ")[0] for f in found) == [
            "event cp.ev",
            "the BEFORE trigger cp.t3 on cp.u",
            "trigger cp.t1 on cp.t",
        ]
        assert {f["level"] for f in found} == {"block"}
        assert all("DISABLE" in f["remedy"] or "DROP TRIGGER" in f["remedy"] for f in found)
    finally:
        for one in (upstream, downstream):
            one.execute("DROP DATABASE cp")


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
