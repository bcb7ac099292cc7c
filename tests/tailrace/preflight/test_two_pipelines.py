"""Two pipelines whose settings meet: one downstream, one channel name, one checkpoint folder, one relay directory."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from compose.databases import Database
from compose.kafka import Kafka
from producer.kafka.epoch_log import EpochLog
from producer.settings import RelaySettings
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError, LogError, RelayError, TailraceError, UpstreamError
from spark_consumer.job.rewind import open_rewind
from spark_consumer.rules.config import ConsumerConfig
from tailrace.assemble.producer import producer
from tailrace.channels.relay_marks import ChannelMark
from tailrace.commands.app import app
from tests.support.applying.consuming import consume
from tests.support.epochs.source_log import SourceLog, source_log

pytestmark = [pytest.mark.servers, pytest.mark.parametrize("flavor", ["mariadb"])]


@pytest.fixture
def logs(
    upstream: Database, downstream: Database, kafka: Kafka, tmp_path: Path
) -> Iterator[tuple[SourceLog, SourceLog]]:
    """Two logs, each with a table ``t`` of five rows."""
    with (
        source_log(upstream, kafka.bootstrap, tmp_path) as one,
        source_log(upstream, kafka.bootstrap, tmp_path) as other,
    ):
        for log in (one, other):
            log.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3), (4), (5)")
            log.publish()
            downstream.execute(f"DROP DATABASE IF EXISTS {log.db}", f"CREATE DATABASE {log.db}")
        yield one, other


def settings(log: SourceLog, downstream: Database, folder: Path) -> ConsumerConfig:
    """The default channel, in a checkpoint folder that all pipelines share."""
    return ConsumerConfig(
        log.config.bootstrap_servers,
        log.config.prefix,
        ServerUrl.parse(downstream.url("tailrace")),
        checkpoint_dir=folder / "checkpoint",
        until_caught_up=True,
    )


def rows_of(downstream: Database, log: SourceLog, columns: str = "*") -> list[tuple[Any, ...]]:
    return downstream.execute(
        f"SELECT {columns} FROM tailrace.relay_log_info WHERE prefix = '{log.config.prefix}'"
    )


def operate(log: SourceLog, downstream: Database, folder: Path, *arguments: str) -> Any:
    """Run a command with the configuration of a log's pipeline."""
    config = folder / f"{log.config.prefix}.toml"
    config.write_text(f"""
        [source]
        url = "{log.upstream.url("tailrace")}"
        [relay]
        dir = "{log.config.relay.dir}"
        [kafka]
        bootstrap-servers = "{log.config.bootstrap_servers}"
        prefix = "{log.config.prefix}"
        [target]
        url = "{downstream.url("tailrace")}"
        [consumer]
        checkpoint-dir = "{folder / "checkpoint"}"
        """)
    done = CliRunner().invoke(app, [*arguments, "--config", str(config)])
    structlog.reset_defaults()
    return done


def checked(log: SourceLog, downstream: Database, folder: Path) -> dict[str, dict[str, str]]:
    """The findings of `check` about the downstream, by code."""
    report = json.loads(operate(log, downstream, folder, "check", "--json").stdout)
    return {found["code"]: found for found in report["findings"] if found["part"] == "downstream"}


def test_a_channel_of_the_same_name_is_another_one(
    logs: tuple[SourceLog, SourceLog], downstream: Database, tmp_path: Path
) -> None:
    one, other = logs
    ours, theirs = (settings(log, downstream, tmp_path) for log in logs)
    consume(ours)
    before = rows_of(downstream, one)
    consume(theirs)
    downstream.execute(f"DROP TABLE {other.db}.t")
    other.sql("INSERT INTO t VALUES (6)")
    other.publish()
    with pytest.raises(DownstreamError, match="TR605"):
        consume(theirs)
    assert rows_of(downstream, one) == before
    tables = ("applied_epochs", "channel_counters", "channel_errors")
    counts = [
        [
            downstream.execute(f"SELECT COUNT(*) FROM tailrace.{table} WHERE prefix = '{log.config.prefix}'")[
                0
            ][0]
            > 0
            for table in tables
        ]
        for log in logs
    ]
    assert counts == [[True, True, False], [True, True, True]]

    shown = json.loads(operate(one, downstream, tmp_path, "error", "show", "--json").stdout)
    assert shown["error"] is None
    report = json.loads(operate(one, downstream, tmp_path, "status", "--json").stdout)["downstream"]
    assert [channel["prefix"] for channel in report["channels"]] == [one.config.prefix]
    assert report["channels"][0]["lag"]["epochs"] == 0
    assert other.config.prefix in [found["prefix"] for found in report["others"]]
    listed = json.loads(operate(one, downstream, tmp_path, "channel", "list", "--json").stdout)["channels"]
    assert {one.config.prefix, other.config.prefix} <= {channel["prefix"] for channel in listed}
    found = checked(one, downstream, tmp_path)
    assert found["channel"]["what"].startswith(f"channel main of {one.config.prefix} (epoch ")
    assert found["channel"]["level"] == "ok"
    assert f"channel main of {other.config.prefix}" in found["neighbours"]["what"]

    # What one of them forgets is its own.
    assert operate(other, downstream, tmp_path, "reset", "--all", "--yes").exit_code == 0
    assert (rows_of(downstream, one), rows_of(downstream, other)) == (before, [])
    one.sql("INSERT INTO t VALUES (6)")
    one.publish()
    consume(ours)
    assert len(downstream.execute(f"SELECT * FROM {one.db}.t")) == 6


def recreate(log: SourceLog) -> None:
    """Delete a log's topics, as a Kafka does that lost its disks, or another cluster never had them."""
    admin = AdminClient({"bootstrap.servers": log.config.bootstrap_servers})
    names = [
        name for name in admin.list_topics(timeout=10).topics if name.startswith(f"{log.config.prefix}.")
    ]
    for deleted in admin.delete_topics(names).values():
        deleted.result(30)
    while set(names) & set(admin.list_topics(timeout=10).topics):
        pass


def test_another_log_under_the_same_prefix_is_seen_before_a_token_is_taken(
    logs: tuple[SourceLog, SourceLog], downstream: Database, tmp_path: Path
) -> None:
    log, _ = logs
    config = settings(log, downstream, tmp_path)
    consume(config)
    before = rows_of(downstream, log)
    recreate(log)
    with pytest.raises(RelayError, match="TR312"):
        log.publish()
    elsewhere = replace(
        log.config, relay=RelaySettings(dir=tmp_path / "elsewhere"), start="current", until_caught_up=True
    )
    producer(elsewhere).run(threading.Event())
    log.sql("INSERT INTO t VALUES (6)")
    producer(elsewhere).run(threading.Event())

    def refused(work: Any) -> str:
        with pytest.raises(TailraceError) as caught:
            work()
        return caught.value.code

    assert refused(lambda: consume(config)) == "TR558"
    assert refused(lambda: open_rewind(config, "earliest").__enter__()) == "TR558"
    assert rows_of(downstream, log) == before
    assert "TR558" in checked(log, downstream, tmp_path)["channel"]["what"]
    found = operate(log, downstream, tmp_path, "status", "--json")
    assert set(json.loads(found.stdout)["downstream"]["channels"][0]["lag"].values()) == {None}


def test_a_relay_directory_belongs_to_one_prefix(
    logs: tuple[SourceLog, SourceLog], downstream: Database, tmp_path: Path
) -> None:
    one, other = logs
    consume(settings(one, downstream, tmp_path))
    consume(settings(other, downstream, tmp_path))
    files = {path.name for path in one.config.relay.dir.iterdir()}
    mixed = replace(other, config=replace(other.config, relay=one.config.relay))
    with pytest.raises(RelayError, match="TR311"):
        mixed.publish()
    for command in (["reset", "--yes"], ["reset", "--all", "--yes"], ["recover"]):
        assert "TR311" in str(operate(mixed, downstream, tmp_path, *command).exception), command
    ChannelMark(settings(other, downstream, tmp_path), one.config.relay.dir).update(-1)
    ChannelMark(settings(one, downstream, tmp_path), one.config.relay.dir).update(-1)
    marks = {path.name for path in (one.config.relay.dir / "readers").iterdir()}
    assert marks == {"publisher.toml", "channel-main.toml"}
    assert files | {"readers"} == {path.name for path in one.config.relay.dir.iterdir()} | {"readers"}
    assert len(rows_of(downstream, other)) == 1


def test_a_producer_of_another_history_does_not_fence_the_one_that_runs(
    logs: tuple[SourceLog, SourceLog], server: Any, tmp_path: Path
) -> None:
    log, _ = logs
    config = log.config
    running = EpochLog(config.bootstrap_servers, config.prefix, config.partitions)
    last = running.open().last_epoch
    stranger = server("mariadb", role="upstream", server_id=77)
    stranger.execute("SET GLOBAL gtid_domain_id = 9", "CREATE DATABASE d", "CREATE TABLE d.t (id INT)")
    wrong = replace(
        config,
        source=ServerUrl.parse(stranger.url()),
        relay=RelaySettings(dir=tmp_path / "wrong"),
        server_id=901,
    )
    with pytest.raises(UpstreamError, match="TR207"):
        producer(wrong).run(threading.Event())
    for partitions in (1, 8):
        with pytest.raises(LogError, match="TR509"):
            producer(replace(config, partitions=partitions)).run(threading.Event())
    assert last is not None
    running.begin()
    # Nobody has taken over: the transaction commits.
    end = replace(last, epoch=last.epoch + 1, structures=())
    running.commit(lambda ranges, digest, runs: replace(end, ranges=ranges))
    assert uuid.UUID(last.log_id)
