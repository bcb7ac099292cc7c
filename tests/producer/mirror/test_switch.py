"""The upstream changes under the producer: another server of the same history, or a relay log made anew."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from producer.epochs.open_epoch import EpochLimits
from producer.run import ProducerConfig, ProducerProgress
from producer.settings import RelaySettings
from producer.upstream.connect import describe
from relay_store.layout import directory as layout
from schemas.access.server_url import ServerUrl
from schemas.errors import RelayError, UpstreamError
from schemas.gtid.sets import parse_gtid_set
from tailrace.assemble.producer import producer
from tests.support.binlogs.mirroring import purge_upstream
from tests.support.epochs.producer_case import NO_PURGE
from tests.support.epochs.published import read_published
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers

_numbers = iter(range(1000))


@pytest.fixture
def config(kafka: Kafka, tmp_path: Path) -> ProducerConfig:
    """A producer whose upstream is still to be said."""
    return ProducerConfig(
        source=ServerUrl.parse("mysql://nobody@127.0.0.1"),
        server_id=8800,
        start="earliest",
        relay=RelaySettings(dir=tmp_path / "relay"),
        epoch=EpochLimits(max_rows=300, max_bytes=1 << 20, max_delay=0.05),
        purge=NO_PURGE,
        bootstrap_servers=kafka.bootstrap,
        prefix=f"switch-{os.getpid()}-{next(_numbers)}",
        partitions=3,
        include=("app.*",),
    )


def source(server: Database) -> ServerUrl:
    return ServerUrl.parse(server.url("tailrace"))


def pair(server: Callable[..., Database], flavor: str) -> tuple[Database, Database]:
    """A server and its replica, which writes a binlog of its own and splits rows into smaller events."""
    small = "--binlog-row-event-max-size=256"
    first = server(flavor, role="upstream", server_id=11)
    second = server(flavor, role="upstream", server_id=12, args=[small])
    # Each made its accounts by itself, under the same or under its own GTIDs.
    for one in (first, second):
        one.execute("RESET BINARY LOGS AND GTIDS" if flavor == "mysql" else "RESET MASTER")
    if flavor == "mysql":
        second.execute(
            f"CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {first.port},"
            " SOURCE_USER = 'root', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1",
            "START REPLICA",
        )
    else:
        second.execute(
            "SET GLOBAL gtid_slave_pos = ''",
            f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {first.port}, master_user = 'root',"
            " master_ssl = 0, master_use_gtid = slave_pos",
            "START SLAVE",
        )
    return first, second


def level(first: Database, second: Database) -> None:
    """Wait until the replica has all."""
    wanted = describe(source(first)).executed
    wait_until(lambda: describe(source(second)).executed.contains(wanted), "the replica has all")


def promote(second: Database) -> None:
    second.execute("STOP REPLICA" if second.flavor == "mysql" else "STOP SLAVE")


def transactions(server: Database, seed: int) -> Generator[None]:
    """Transactions from a client, each as it is asked for."""
    rng = random.Random(seed)
    with server.connect(database="app", autocommit=False) as connection, connection.cursor() as cursor:
        while True:
            rows = [("x" * rng.randint(0, 200),) for _ in range(rng.randint(1, 30))]
            cursor.executemany("INSERT INTO t (v) VALUES (%s)", rows)
            cursor.execute("UPDATE t SET n = n + 1 WHERE id %% 5 = %s LIMIT 30", (rng.randint(0, 4),))
            cursor.execute("DELETE FROM t WHERE id %% 13 = %s LIMIT 9", (rng.randint(0, 12),))
            connection.commit()
            yield


def work(server: Database, seed: int, count: int) -> None:
    """So many transactions."""
    with closing(transactions(server, seed)) as some:
        for _ in range(count):
            next(some)


@contextmanager
def load(server: Database, seed: int) -> Iterator[None]:
    """Transactions all the time, a few of them before the block begins."""
    done, begun = threading.Event(), threading.Event()

    def run() -> None:
        with closing(transactions(server, seed)) as some:
            for number, _ in enumerate(some):
                if number == 20:
                    begun.set()
                # A few hundred transactions are enough, however fast the machine is.
                if done.wait(0.02):
                    return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert begun.wait(60)
        yield
    finally:
        done.set()
        thread.join()


def create(server: Database) -> None:
    server.execute(
        "CREATE DATABASE app",
        "CREATE TABLE app.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200), n INT NOT NULL DEFAULT 0)",
    )


def assert_equal(config: ProducerConfig, server: Database) -> None:
    """What the log amounts to is the table; each transaction is in it once."""
    published = read_published(config.bootstrap_servers, config.prefix)
    ours = sorted(tuple(image.values()) for image in published.tables()["t"].values())
    assert ours == sorted(server.execute("SELECT * FROM app.t"))
    executed: Any = parse_gtid_set(published.epochs[-1].executed_gtids, server.flavor)
    assert str(executed) == str(describe(source(server)).executed)
    transactions = sum(epoch.transactions for epoch in published.epochs)
    if server.flavor == "mysql":
        assert transactions == executed.count()
    else:
        assert transactions == sum(g.sequence for g in executed.domains.values())


def test_a_failover_is_followed_by_gtid(
    server: Callable[..., Database], flavor: str, config: ProducerConfig
) -> None:
    """Under load, to and fro; each server has a sub-directory of its own, and nothing is missing or doubled."""
    first, second = pair(server, flavor)
    create(first)
    stop, states = threading.Event(), list[ProducerProgress]()
    thread = threading.Thread(
        target=producer(replace(config, source=source(first))).run, args=(stop, states.append), daemon=True
    )
    thread.start()
    work(first, 1, 100)
    wait_until(lambda: states and states[-1].publish.rows, "the producer publishes")
    level(first, second)
    first.execute("FLUSH BINARY LOGS")
    stop.set()  # what the first one still had to say comes from the second one
    thread.join()
    promote(second)
    first.kill()
    now = replace(config, source=source(second))
    with load(second, 2):
        for _ in range(2):
            stop = threading.Event()
            threading.Timer(1.5, stop.set).start()
            producer(now).run(stop)
            second.execute("FLUSH BINARY LOGS")
    producer(replace(now, until_caught_up=True)).run(threading.Event())
    folders = layout.read_index(config.relay.dir)
    assert [layout.subdir_serial(name) for name in folders] == [1, 2]
    assert layout.subdir_uuid(folders[1]) == describe(source(second)).server_uuid
    assert_equal(config, second)
    first.start()
    with pytest.raises(UpstreamError, match="TR207"):
        producer(replace(config, source=source(first), until_caught_up=True)).run(threading.Event())


def test_a_relay_log_made_anew_is_gone_on_with_by_gtid(
    server: Callable[..., Database], flavor: str, config: ProducerConfig
) -> None:
    """Of the same server and of another one; without its transactions it stops."""
    first, second = pair(server, flavor)
    create(first)
    ours = replace(config, source=source(first), until_caught_up=True)
    with load(first, 3):
        first.execute("FLUSH BINARY LOGS")
        producer(ours).run(threading.Event())
        shutil.rmtree(config.relay.dir)
        producer(ours).run(threading.Event())
    level(first, second)
    shutil.rmtree(config.relay.dir)
    relay = replace(ours.relay, max_file_size=65_536)
    producer(replace(ours, source=source(second), relay=relay)).run(threading.Event())
    assert_equal(config, second)
    first.execute("FLUSH BINARY LOGS", "INSERT INTO app.t (v) VALUES ('late')", "FLUSH BINARY LOGS")
    shutil.rmtree(config.relay.dir)
    last = describe(source(first)).file
    with pytest.raises(RelayError, match=r"TR308.*relay-binlog-gtid"):
        producer(replace(ours, relay=replace(ours.relay, relay_binlog_name=last))).run(threading.Event())
    shutil.rmtree(config.relay.dir)
    purge_upstream(first, last)
    with pytest.raises(UpstreamError, match=r"TR204: .* no longer has these transactions"):
        producer(ours).run(threading.Event())


def test_relay_log_recovery_fetches_again_what_is_not_published(
    server: Callable[..., Database], flavor: str, config: ProducerConfig
) -> None:
    """A damaged file behind the last epoch stops the publisher; with the option it is fetched again."""
    upstream = server(flavor, role="upstream")
    create(upstream)
    relay = replace(config.relay, max_file_size=65_536)
    ours = replace(config, source=source(upstream), until_caught_up=True, relay=relay)
    producer(ours).run(threading.Event())
    work(upstream, 4, 40)
    halfway = str(describe(source(upstream)).executed)
    work(upstream, 5, 40)
    producer(replace(ours, stop_at_gtid=halfway, until_caught_up=False)).run(threading.Event())
    _mirror_all(upstream, config)
    folder = config.relay.dir / layout.read_index(config.relay.dir)[-1]
    last = folder / layout.binlog_files(folder)[-2]
    data = bytearray(last.read_bytes())
    data[-30] ^= 4
    last.write_bytes(data)
    with pytest.raises(RelayError, match="TR304"):
        producer(ours).run(threading.Event())
    producer(replace(ours, relay=replace(ours.relay, relay_log_recovery=True))).run(threading.Event())
    assert_equal(config, upstream)


def _mirror_all(upstream: Database, config: ProducerConfig) -> None:
    from producer.mirror.loop import Mirror
    from relay_store.write.writer import RelayWriter

    info, relay = describe(source(upstream)), RelayWriter.open(config.relay.dir)
    try:
        mirror = Mirror(source(upstream), relay, config.relay, server_id=8801)
        mirror.run(threading.Event(), (info.file, info.position))
    finally:
        relay.close()
