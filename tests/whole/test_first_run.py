"""As a user begins: a configuration without `start`, `tailrace run`, an upstream full of rows that is written to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from compose.databases import Database
from compose.kafka import Kafka
from schemas.access.server_url import ServerUrl
from tailrace.commands.app import app
from tailrace.validate import compare_servers
from tests.support.epochs.producer_case import Case, producer_case
from tests.support.epochs.written_tables import TABLES, fill, writing
from tests.support.processes.alive import all_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.long]


@pytest.fixture
def case(upstream_mariadb: Database, kafka: Kafka, tmp_path: Path) -> Iterator[Case]:
    """A database with rows, and no log yet."""
    with producer_case(upstream_mariadb, kafka.bootstrap, tmp_path, start="copy") as made:
        fill(made)
        made.sql("CREATE VIEW paid AS SELECT id FROM orders WHERE state LIKE 'state%'")
        yield made


def _run(config: Path, **settings: str) -> subprocess.Popen[bytes]:
    with (config.parent / "run.log").open("ab") as log:
        command = [sys.executable, "-m", "tailrace", "run", "--config", str(config)]
        return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | settings)


def _is_being_copied(downstream: Database, db: str) -> bool:
    """Whether some rows are downstream, and a copy is under way there."""
    have = downstream.execute(f"SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{db}'")
    if not have[0][0]:
        return False
    ((copying,),) = downstream.execute(
        f"SELECT MAX(copying) FROM tailrace.relay_log_info WHERE Channel_name = '{db}'"
    )
    return bool(copying)


def _copy(config: Path) -> dict[str, Any]:
    """How far `tailrace status` says the copy is, and which copies the channel lacks."""
    report = json.loads(CliRunner().invoke(app, ["status", "--json", "--config", str(config)]).stdout)
    [channel] = [one for one in report["downstream"]["channels"] if one["stored"] is not None]
    return {**report["copy"], "lacks": channel["copies_incomplete"]}


def _is_equal(case: Case, downstream: Database) -> bool:
    urls = [ServerUrl.parse(server.url()) for server in (case.upstream, downstream)]
    result = compare_servers(urls[0], urls[1], [f"{case.db}.*"])
    return result.is_equal and len(result.tables) == len(TABLES)


def test_one_file_and_one_command_make_the_downstream_equal(
    case: Case, downstream_mysql: Database, tmp_path: Path
) -> None:
    db, config = case.db, tmp_path / "tailrace.toml"
    config.write_text(
        f'[source]\nurl = "{case.upstream.url("tailrace")}"\nserver-id = {case.config.server_id}\n'
        f'[kafka]\nbootstrap-servers = "{case.config.bootstrap_servers}"\nprefix = "{case.config.prefix}"\n'
        f'[target]\nurl = "{downstream_mysql.url("tailrace")}"\n[tables]\ninclude = ["{db}.*"]\n'
        f'[copy]\nconnections = 1\nchunk-rows = 25\n[consumer]\nchannel = "{db}"\n"spark.master" = "local[1]"\n'
    )
    with writing(case, 1):
        running = _run(config, TAILRACE_COPY_MAX_ROWS_PER_S="10")
        wait_until(lambda: _is_being_copied(downstream_mysql, db), "rows of the copy downstream")
        wait_until(lambda: _copy(config)["rows_per_s"], "a rate")
        for one in all_of(running.pid):
            os.kill(one, signal.SIGKILL)
        running.wait()
        left = _copy(config)
        assert (left["running"], left["rows_per_s"], left["tables_total"]) == (True, None, len(TABLES))
        assert left["lacks"]
        running = _run(config)
    wait_until(lambda: _is_equal(case, downstream_mysql), "the upstream's rows downstream")
    running.terminate()
    assert running.wait(60) == 0
    said = CliRunner().invoke(app, ["status", "--config", str(config)]).stdout
    assert "the tables equal the upstream" in said
    assert f"complete: {len(TABLES)} tables" in said
