"""Rows that would come back: one server under two names, a ring of two pipelines, the servers' own replication."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from schemas.errors import TailraceError
from tailrace.assemble.producer import producer
from tailrace.assemble.settings import origins, producer_config
from tailrace.config.channels import server_channel
from tailrace.config.file import load
from tailrace.config.model import Config
from tailrace.preflight.finding import Finding
from tailrace.preflight.gate import check_consumer, check_producer
from tailrace.preflight.gather import preflight
from tests.support.applying.consuming import consume

pytestmark = pytest.mark.servers


@dataclass
class Pipeline:
    """One pipeline's configuration; ``name`` is its prefix."""

    folder: Path
    kafka: Kafka
    name: str

    def between(self, source: Database, target: str, tables: str = "") -> Config:
        """From a server to an address."""
        file = self.folder / f"{self.name}.toml"
        file.write_text(f"""
            [source]
            url = "{source.url()}"
            start = "current"
            [relay]
            dir = "relay-{self.name}"
            [kafka]
            bootstrap-servers = "{self.kafka.bootstrap}"
            prefix = "{self.name}"
            [target]
            url = "{target}"
            [consumer]
            checkpoint-dir = "checkpoint"
            [tables]
            {tables}
            """)
        return load(file)


def publish(config: Config, stop: threading.Event | None = None) -> None:
    settings = producer_config(config, until_caught_up=stop is None)
    producer(settings, origins(config)).run(stop or threading.Event())


def apply(config: Config) -> None:
    consume(replace(server_channel(config), until_caught_up=True))


def refusals(config: Config) -> list[str]:
    """What the programs say when they are started, and which findings of `check` block."""
    said = []
    for check in (check_producer, lambda it: check_consumer(it, "main")):
        try:
            check(config)
        except TailraceError as error:
            said.append(f"{error.code} {error.message}")
    found = preflight(config, config.relay.dir.parent / f"{config.kafka.prefix}.toml").results
    return [*said, *(one.code for one in found if isinstance(one, Finding) and one.level == "block")]


def test_one_server_under_two_names_is_refused(upstream: Database, kafka: Kafka, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, kafka, f"self{upstream.port}")
    for target in (upstream.url(), f"mysql://root@localhost:{upstream.port}/"):
        producer, consumer, *codes = refusals(pipeline.between(upstream, target))
        assert "TR003 downstream: upstream and downstream are the same server" in producer
        assert producer == consumer
        assert codes == ["two_servers"]


@pytest.fixture
def pair(flavor: str, server: Callable[..., Database]) -> tuple[Database, Database]:
    return server(flavor, role="upstream", server_id=11), server(flavor, role="upstream", server_id=12)


@pytest.fixture
def background() -> Iterator[Callable[[Config], list[BaseException]]]:
    """Runs a producer until the test's end, or its own; what it ended with."""
    with ExitStack() as stack:

        def start(config: Config) -> list[BaseException]:
            ended: list[BaseException] = []
            stop = threading.Event()

            def work() -> None:
                try:
                    publish(config, stop)
                except BaseException as error:
                    ended.append(error)

            thread = threading.Thread(target=work)
            thread.start()
            stack.callback(thread.join)
            stack.callback(stop.set)
            return ended

        yield start


def test_a_ring_is_refused_and_one_that_closes_later_is_noticed(
    flavor: str,
    pair: tuple[Database, Database],
    kafka: Kafka,
    tmp_path: Path,
    background: Callable[[Config], list[BaseException]],
) -> None:
    one, other = pair
    one.execute("CREATE DATABASE d")
    there = Pipeline(tmp_path, kafka, f"there{one.port}").between(one, other.url())
    back = Pipeline(tmp_path, kafka, f"back{one.port}")
    again = back.between(other, one.url())
    assert refusals(there) == refusals(again) == []
    publish(there)
    apply(there)
    producer, consumer, *codes = refusals(again)
    assert "TR003 downstream: channel main of there" in producer
    assert (producer, codes) == (consumer, ["ring"])
    # Two pipelines that carry other tables are none.
    assert refusals(back.between(other, one.url(), 'exclude = ["*.*"]')) == []

    # Started all the same: the first one hears of its own log before a row is back.
    publish(again)
    ended = background(there)
    one.execute("CREATE TABLE d.t (id INT)", "INSERT INTO d.t VALUES (1)")
    apply(again)
    for _ in range(600):
        if ended:
            break
        threading.Event().wait(0.1)
    assert "TR211" in str(ended)
    with pytest.raises(TailraceError, match="TR211"):
        publish(there)
    assert one.execute("SELECT COUNT(*) FROM d.t") == [(1,)]
    assert refusals(there)[-1] == "ring"


def test_the_servers_own_replication_is_no_second_way(
    flavor: str, pair: tuple[Database, Database], kafka: Kafka, tmp_path: Path
) -> None:
    one, other = pair
    config = Pipeline(tmp_path, kafka, f"native{one.port}").between(one, other.url())
    user = "'follower'@'%' IDENTIFIED BY 'f'"
    for replica, source, code in (
        (one, other, "upstream_replicates"),
        (other, one, "downstream_replicates"),
    ):
        source.execute(f"CREATE USER IF NOT EXISTS {user}", "GRANT REPLICATION SLAVE ON *.* TO follower")
        place = f"HOST = '127.0.0.1', {{0}}PORT = {source.port}, {{0}}USER = 'follower', {{0}}PASSWORD = 'f'"
        start, stop = {
            "mysql": (
                f"CHANGE REPLICATION SOURCE TO SOURCE_{place.format('SOURCE_')}, GET_SOURCE_PUBLIC_KEY = 1",
                "REPLICA",
            ),
            "mariadb": (f"CHANGE MASTER TO MASTER_{place.format('MASTER_')}", "SLAVE"),
        }[flavor]
        replica.execute(start, f"START {stop}")
        assert refusals(config)[-1] == code
        replica.execute(f"STOP {stop}")
        assert refusals(config) == []
