"""A Kafka that asks for TLS and a login: the whole way, no password in anything that is written, and no way in."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from producer.kafka.epoch_log import EpochLog
from producer.upstream.connect import describe
from schemas.access.kafka_security import KafkaSecurity
from schemas.access.private_files import others_may
from schemas.access.server_url import ServerUrl
from schemas.errors import LogError
from schemas.wire.epoch import OffsetRange
from spark_consumer.epochs.fetch import ALL_KEYS, TopicReader
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.rows.executors import SCHEMA, decoded, task
from spark_consumer.rows.reader import read_range
from spark_consumer.rows.results import RowTally, TaskFailure
from spark_consumer.rules.config import ConsumerConfig
from tailrace.probe_kafka import probe
from tailrace.reader import EpochReader
from tests.support.epochs.secured_kafka import PASSWORD, USER, SecuredKafka
from tests.support.processes.intruder import (
    answer,
    as_nobody,
    attempts,
    command_lines,
    family,
    has_opened,
    ports,
    unix_sockets,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers
DB = "secured_t"
TARGET_USER, TARGET_PASSWORD = "secured", "only-the-target-knows"


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
    downstream_mysql.execute(
        f"CREATE USER {TARGET_USER} IDENTIFIED BY '{TARGET_PASSWORD}' REQUIRE SSL",
        f"GRANT {downstream_mysql._grants['downstream']} ON *.* TO {TARGET_USER}",
    )
    authority = downstream_mysql.data / "ca.pem"
    made = tmp_path_factory.mktemp("secured")
    (made / "tailrace.toml").write_text(
        f'[source]\nurl = "{upstream_mariadb.url("tailrace")}"\nserver-id = 7481\n'
        f'[relay]\nrelay-binlog-name = "{begin}"\n'
        f'[kafka]\nbootstrap-servers = "{secured.secured}"\nprefix = "secured"\n'
        f'security-protocol = "sasl_ssl"\nsasl-mechanism = "PLAIN"\nsasl-username = "{USER}"\n'
        f'ssl-ca = "{secured.ca}"\n'
        f'[target]\nurl = "mysql://{TARGET_USER}@127.0.0.1:{downstream_mysql.port}/?ssl-ca={authority}"\n'
        f'[consumer]\nchannel = "secured"\nconsistency = "worker"\nworker-count = 2\ndirect = false\n'
        f'"spark.master" = "local[1]"\n[tables]\ninclude = ["{DB}.*"]\n'
    )
    return made


def environment(password: str = PASSWORD) -> dict[str, str]:
    """Ours, with the passwords."""
    secrets = {"TAILRACE_KAFKA_SASL_PASSWORD": password, "TAILRACE_TARGET_PASSWORD": TARGET_PASSWORD}
    return {**os.environ, **secrets}


def tailrace(folder: Path, *arguments: str, password: str = PASSWORD) -> tuple[int, str]:
    """A command's exit code, and all that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *arguments],
        cwd=folder,
        env=environment(password),
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


def test_another_user_finds_no_way_in(folder: Path, upstream_mariadb: Any, downstream_mysql: Any) -> None:
    def replicated(row: int) -> bool:
        return bool(downstream_mysql.execute(f"SELECT 1 FROM {DB}.t WHERE id = {row}"))

    def insert(row: int) -> None:
        upstream_mariadb.execute(f"INSERT INTO {DB}.t VALUES ({row}, 'more')")
        assert tailrace(folder, "produce", "--until-caught-up")[0] == 0

    insert(3)
    with (folder / "consume.log").open("wb") as log:
        consumer = subprocess.Popen(
            [sys.executable, "-m", "tailrace", "consume"], cwd=folder, env=environment(), stderr=log
        )
    try:
        wait_until(lambda: replicated(3), "row 3 is replicated")
        pids = family(consumer.pid)
        listening, named = ports(pids), unix_sockets(pids)
        said = as_nobody(lambda: {port: [answer(port, sent) for sent in attempts()] for port in listening})
        # Both ends of py4j, Spark's RPC and its block manager; the Python workers and their like have none.
        assert len(said) == 4
        for replies in said.values():
            assert not any(has_opened(reply) or b"!y" in reply for reply in replies), replies
        # Ours are bound by way of a file descriptor, to be short enough.
        places = [next(folder.rglob(Path(name).name)) if "/fd/" in name else Path(name) for name in named]
        assert as_nobody(lambda: [place for place in places if opens(place)]) == []
        commands = command_lines(pids)
        [scratch] = {
            found[1] for line in commands if (found := re.search(rb"java\.io\.tmpdir=([^\0]+)", line))
        }
        written = [
            path for top in (folder, Path(scratch.decode())) for path in top.rglob("*") if path.is_file()
        ]
        for secret in (PASSWORD.encode(), TARGET_PASSWORD.encode()):
            assert not any(secret in text for text in (*commands, *(path.read_bytes() for path in written)))
        ours = {folder / "tailrace.toml", folder / "consume.log"}
        # Spark copies its connector's jars as they are, into folders of its own.
        wide = [path for path in written if path not in ours and path.suffix != ".jar" and others_may(path)]
        assert wide == []
        assert others_may(Path(scratch.decode())) == ""
        insert(4)
        wait_until(lambda: replicated(4), "row 4 is replicated")
        consumer.send_signal(signal.SIGTERM)
        assert consumer.wait(60) == 0
        assert not Path(scratch.decode()).exists()
    finally:
        consumer.kill()


def opens(place: Path) -> bool:
    """Whether this user can connect to a unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(place)) == 0


def wrong(folder: Path, secured: SecuredKafka, name: str) -> tuple[KafkaSecurity, Path]:
    """A login that cannot work, and a folder whose configuration has it."""
    text = (folder / "tailrace.toml").read_text()
    login = KafkaSecurity("sasl_ssl", "PLAIN", USER, "no " + PASSWORD, secured.ca)
    if name == "authority":
        login = KafkaSecurity("sasl_ssl", "PLAIN", USER, PASSWORD)
        text = text.replace(f'ssl-ca = "{secured.ca}"\n', "")
    if name == "protocol":
        login = KafkaSecurity()
        begin, end = text.index("security-protocol"), text.index("[target]")
        text = text[:begin] + text[end:]
    made = folder / name
    made.mkdir(exist_ok=True)
    (made / "tailrace.toml").write_text(text)
    return login, made


CASES = {
    "password": (r"Authentication failed", "sasl-password"),
    "authority": (r"certificate could not be verified", "ssl-ca"),
    "protocol": (r"requires TLS, and security-protocol is plaintext", "security-protocol"),
}


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        ("password", ["consume --until-caught-up", "schema show a.b", "status --json"]),
        ("authority", ["produce --until-caught-up", "topic cat"]),
        ("protocol", ["produce", "check --json"]),
    ],
)
def test_who_is_refused_hears_it_at_once(
    folder: Path, secured: SecuredKafka, name: str, commands: list[str]
) -> None:
    why, hint = CASES[name]
    login, place = wrong(folder, secured, name)
    with pytest.raises(
        LogError, match=rf"TR508: Kafka at \S+ refuses the connection: .*{why}.*Hint: .*{hint}"
    ) as met:
        probe(secured.secured, login)
    assert not met.value.retryable
    for command in commands:
        code, said = tailrace(place, *command.split(), password=login.password)
        # `status` ends with 6, because the consumer has stopped before.
        assert code == {"check": 3, "status": 6}.get(command.split()[0], 1), said
        assert hint in said
        assert command.startswith("check") or "TR508" in said
        assert PASSWORD not in said


def test_a_password_that_has_become_wrong_stops_whoever_runs(secured: SecuredKafka) -> None:
    login = KafkaSecurity("sasl_ssl", "PLAIN", USER, "changed", secured.ca)
    config = ConsumerConfig(secured.secured, "secured", ServerUrl("nowhere"), kafka_security=login)
    # As on the executors, in the driver, and in the producer.
    begun = TopicReader(secured.secured, "secured.rows", "g", login, timeout=60.0)
    read = partial(read_range, begun, OffsetRange(0, 0, 1), ALL_KEYS, with_offsets=False)
    work = task(lambda _: [RowTally(len(read().keys), 0)])
    [result] = decoded(pa.Table.from_batches(work(iter([pa.record_batch({"n": pa.array([0])})])), SCHEMA))
    assert isinstance(result, TaskFailure)
    assert str(result.error).startswith("TR508")
    for ask in (
        LogReader(config).bounds,
        lambda: list(EpochReader(secured.secured, "secured", login).epochs()),
        EpochLog(secured.secured, "secured", 1, login).open,
    ):
        with pytest.raises(LogError, match=r"TR508.*Invalid username or password"):
            ask()
