"""A Kafka that asks for TLS and a login: the whole way, and no password in anything that is written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producer.upstream.connect import describe
from schemas.server_url import ServerUrl
from tests.support.secured_kafka import PASSWORD, USER, SecuredKafka

pytestmark = pytest.mark.servers
DB = "secured_t"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    kafka = SecuredKafka(tmp_path_factory.mktemp("secured_kafka"))
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.kill()


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory,
    secured: SecuredKafka,
    upstream_mariadb: Any,
    downstream_mysql: Any,
) -> Path:
    upstream_mariadb.execute("FLUSH BINARY LOGS")  # other tests wrote statements that stop a producer
    begin = describe(ServerUrl.parse(upstream_mariadb.url("tailrace"))).file
    upstream_mariadb.execute(
        f"CREATE DATABASE {DB}",
        f"CREATE TABLE {DB}.t (id INT PRIMARY KEY, v VARCHAR(20))",
        f"INSERT INTO {DB}.t VALUES (1, 'one'), (2, 'two')",
    )
    made = tmp_path_factory.mktemp("secured")
    (made / "tailrace.toml").write_text(
        f'[source]\nurl = "{upstream_mariadb.url("tailrace")}"\nserver-id = 7481\n'
        f'[relay]\nrelay-binlog-name = "{begin}"\n'
        f'[kafka]\nbootstrap-servers = "{secured.secured}"\nprefix = "secured"\n'
        f'security-protocol = "sasl_ssl"\nsasl-mechanism = "PLAIN"\nsasl-username = "{USER}"\n'
        f'ssl-ca = "{secured.ca}"\n'
        f'[target]\nurl = "{downstream_mysql.url("tailrace")}"\n'
        f'[consumer]\nchannel = "secured"\n"spark.master" = "local[1]"\n[tables]\ninclude = ["{DB}.*"]\n'
    )
    return made


def tailrace(folder: Path, *arguments: str, password: str = PASSWORD) -> tuple[int, str]:
    """A command's exit code, and all that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *arguments],
        cwd=folder,
        env={**os.environ, "TAILRACE_KAFKA_SASL_PASSWORD": password},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_every_command_logs_in(folder: Path, downstream_mysql: Any) -> None:
    printed = ""
    for arguments in (
        ["produce", "--until-caught-up"],
        ["consume", "--until-caught-up"],
        ["status", "--json"],
        ["topic", "cat"],
        ["config", "show"],
    ):
        code, said = tailrace(folder, *arguments)
        assert code == 0, said
        printed += said
    assert downstream_mysql.execute(f"SELECT * FROM {DB}.t ORDER BY id") == [(1, "one"), (2, "two")]
    code, said = tailrace(folder, "check")
    assert "cannot be reached" not in said
    written = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert PASSWORD not in printed + said
    assert not any(PASSWORD.encode() in content for content in written)
