"""Downstream, Kafka, workers and checkpoint lost in turn: the channel goes on by itself, or says why not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
import pytest

from compose.databases import Database
from compose.kafka import Kafka
from producer import run as producer_run
from producer.run import ProducerConfig, ProducerProgress
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from schemas.structure import TableStructure
from schemas.wire.epoch import TableChanged
from spark_consumer.apply.tables import position_store
from spark_consumer.job.progress import Counters
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import closing, connect
from tailrace.assemble.consumer import consumer
from tailrace.assemble.producer import producer
from tests.support.applying.apply_steps import apply_steps, open_applier, open_channel, prepared
from tests.support.epochs.fake_topic import FakeTopic, insert, integer, update
from tests.support.epochs.producer_case import producer_case
from tests.support.names import own_name
from tests.support.processes.alive import children_of
from tests.support.processes.fault_proxy import Cut, FaultProxy, fault_proxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A database and channel of the test's own."""
    return own_name("o_", request, 50)


def step(sql: str, rows: int = 1) -> dict[str, Any]:
    return {"rows": [(sql, rows)]}


def table(downstream: Database, name: str) -> None:
    downstream.execute(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v INT)")


def through(proxy: FaultProxy, downstream: Database) -> str:
    """The downstream's address behind a proxy, which can only find what is not encrypted."""
    url = downstream.url("tailrace").replace(str(downstream.port), str(proxy.port))
    return f"{url}?ssl-mode=disabled"


def epoch_of(downstream: Database, channel: str) -> int:
    sql = f"SELECT epoch FROM tailrace.relay_log_info WHERE Channel_name = '{channel}'"
    return int(downstream.execute(sql)[0][0])


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_cut_at_commit_applies_the_batch_once(
    downstream: Database, name: str, when: Cut
) -> None:
    table(downstream, name)
    truncate = f"TRUNCATE TABLE {name}.t"
    ddl = {"ddl": truncate, "kind": "TRUNCATE TABLE", "tables": [(name, "t")]}
    with fault_proxy(downstream.port) as proxy:
        applier = open_applier(through(proxy, downstream), name)
        apply_steps(applier, [step(f"INSERT INTO {name}.t VALUES (1, 1)")])
        proxy.cut_at(b"COMMIT", when)
        steps = [{}, step(f"INSERT INTO {name}.t VALUES (2, 2)"), step(f"UPDATE {name}.t SET v = v + 1", 2)]
        apply_steps(applier, steps)
        assert downstream.execute(f"SELECT * FROM {name}.t") == [(1, 2), (2, 3)]
        # A DDL commits by itself: it is its own answer that must not be missed.
        proxy.cut_at(truncate.encode(), when)
        apply_steps(applier, [{}, {}, {}, ddl, step(f"INSERT INTO {name}.t VALUES (5, 5)")])
        assert proxy.cuts == 2
    assert downstream.execute(f"SELECT * FROM {name}.t") == [(5, 5)]
    audited = downstream.execute(
        f"SELECT first_epoch, statements FROM tailrace.applied_epochs WHERE channel = '{name}' ORDER BY 1"
    )
    assert [epoch for epoch, _ in audited] == [0, 1, 2, 3, 4]


def test_a_token_renewed_in_an_unanswered_commit_is_the_runs_own(downstream: Database, name: str) -> None:
    table(downstream, name)
    steps = [step(f"INSERT INTO {name}.t VALUES (1, 1)"), step(f"INSERT INTO {name}.t VALUES (2, 2)")]
    with fault_proxy(downstream.port) as proxy:
        applier, config = open_channel(through(proxy, downstream), name)
        first = applier.token
        proxy.cut_at(b"COMMIT", "after")
        assert applier.ahead() == []
        assert (proxy.cuts, applier.token) == (1, first + 2)
        proxy.cut_at(b"COMMIT", "after")
        with pytest.raises((pymysql.OperationalError, OSError)):
            position_store.renew_token(applier.session, config.key, applier.token)
        apply_steps(applier, steps[:1])
        assert (proxy.cuts, applier.token) == (2, first + 3)
        with closing(connect(config.target)) as other:
            taken = position_store.take_over(other, config.key).fencing_token
        for act in (applier.ahead, partial(apply_steps, applier, steps)):
            with pytest.raises(DownstreamError, match=rf"TR610.*token {taken}, ours is {first + 3}"):
                act()
    assert downstream.execute(f"SELECT id FROM {name}.t") == [(1,)]


def test_locks_and_a_read_only_server_are_waited_for(downstream: Database, name: str) -> None:
    table(downstream, name)
    applier = open_applier(downstream.url("tailrace"), name)
    apply_steps(applier, [step(f"INSERT INTO {name}.t VALUES (1, 1)")])
    slow = prepared(1, step(f"UPDATE {name}.t SET v = v + 1 WHERE id = 1"))
    failures: list[BaseException] = []

    def apply(slice_: Any) -> threading.Thread:
        def work() -> None:
            try:
                applier.apply(slice_)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    before = applier.session
    with downstream.connect(autocommit=False) as other, other.cursor() as cursor:
        cursor.execute(f"UPDATE {name}.t SET v = 100 WHERE id = 1")
        applier.session.execute("SET SESSION innodb_lock_wait_timeout = 1")
        thread = apply(slow)
        # 1205: another connection tries the whole transaction again, and waits for the lock in its turn.
        wait_until(lambda: applier.session is not before, "the applier connects again")
        other.rollback()
    thread.join(60)
    assert (failures, downstream.execute(f"SELECT v FROM {name}.t")) == ([], [(2,)])

    variable = "super_read_only" if downstream.flavor == "mysql" else "read_only"
    before = applier.session
    downstream.execute(f"SET GLOBAL {variable} = ON")
    try:
        thread = apply(prepared(2, step(f"INSERT INTO {name}.t VALUES (2, 2)")))
        wait_until(lambda: applier.session is not before, "the applier connects again")
    finally:
        downstream.execute(f"SET GLOBAL {variable} = OFF", "SET GLOBAL read_only = OFF")
    thread.join(60)
    assert (failures, downstream.execute(f"SELECT id FROM {name}.t")) == ([], [(1,), (2,)])


def test_what_does_not_pass_in_time_or_at_all_stops_with_a_reason(downstream: Database, name: str) -> None:
    table(downstream, name)
    variable = "super_read_only" if downstream.flavor == "mysql" else "read_only"
    impatient = open_applier(downstream.url("tailrace"), name, retry_time=0.3)
    downstream.execute(f"SET GLOBAL {variable} = ON")
    try:
        with pytest.raises(DownstreamError, match=r"TR640.*1290.*Hint: fix the cause"):
            apply_steps(impatient, [step(f"INSERT INTO {name}.t VALUES (1, 1)")])
    finally:
        downstream.execute(f"SET GLOBAL {variable} = OFF", "SET GLOBAL read_only = OFF")
    apply_steps(impatient, [step(f"INSERT INTO {name}.t VALUES (1, 1)")])

    user = "CREATE USER refused@'%' IDENTIFIED BY 'refused'"
    grants = "SELECT, CREATE ON *.*", "SELECT, INSERT, UPDATE, DELETE ON tailrace.*"
    downstream.execute(user, *(f"GRANT {grant} TO refused@'%'" for grant in grants))
    try:
        poor = open_applier(f"mysql://refused:refused@127.0.0.1:{downstream.port}/", name)
        with pytest.raises(DownstreamError, match=r"TR641.*denied.*table d\.t"):
            apply_steps(poor, [{}, step(f"INSERT INTO {name}.t VALUES (2, 2)")])
        poor.close()
    finally:
        downstream.execute("DROP USER refused@'%'")
    assert epoch_of(downstream, name) == 0

    with fault_proxy(downstream.port) as proxy:
        lonely = open_applier(through(proxy, downstream), name, retry_time=0.3)
        proxy.closed.set()
        proxy.cut_all()
        with pytest.raises(DownstreamError, match=r"TR607: the connection to the downstream was lost"):
            apply_steps(lonely, [{}, step(f"INSERT INTO {name}.t VALUES (2, 2)")])
    assert downstream.execute(f"SELECT id FROM {name}.t") == [(1,)]


def test_a_ddl_that_was_left_running_is_waited_for(downstream: Database, name: str) -> None:
    table(downstream, name)
    alter = {"ddl": f"ALTER TABLE {name}.t ADD w INT", "kind": "ALTER TABLE", "tables": [(name, "t")]}
    first, results = open_applier(downstream.url("tailrace"), name), list[str]()

    def apply(applier: Callable[[], Any]) -> threading.Thread:
        def work() -> None:
            try:
                apply_steps(applier(), [alter])
                results.append("applied")
            except DownstreamError as error:
                results.append(error.code)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def altering() -> bool:
        return bool(
            downstream.execute("SELECT 1 FROM information_schema.PROCESSLIST WHERE INFO LIKE 'ALTER%'")
        )

    with downstream.connect(autocommit=False) as other, other.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {name}.t")
        thread = apply(lambda: first)
        wait_until(altering, "the first one alters")
        first.connection.abort()
        thread.join(60)
        # MySQL makes it wait for the GTID that the DDL holds, MariaDB for our lock.
        second = apply(lambda: open_applier(downstream.url("tailrace"), name))
        time.sleep(1)
        other.rollback()
    second.join(60)
    assert results == ["TR607", "applied"]
    columns = downstream.execute(
        f"SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA='{name}'"
    )
    assert sorted(columns) == [("id",), ("v",), ("w",)]
    assert epoch_of(downstream, name) == 0


@dataclass
class Endless:
    """A consumer that runs until it is stopped, in a thread."""

    config: ConsumerConfig
    spark: Any
    stop: threading.Event = field(default_factory=threading.Event)
    counters: Counters = field(default_factory=Counters)
    failures: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            consumer(self.config, lambda: self.spark, self.counters).run(self.stop)
        except BaseException as error:
            self.failures.append(error)

    def has(self, rows: int) -> None:
        """Wait until it has applied that many rows."""
        wait_until(lambda: self.counters.rows >= rows or self.failures, f"{rows} rows are applied")
        assert self.failures == []

    def end(self) -> None:
        self.stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafka]:
    """A broker to be killed."""
    made = Kafka(tmp_path / "kafka")
    try:
        made.start()
        yield made
    finally:
        made.kill()


@dataclass
class EndlessProducer:
    """A producer that runs until it is stopped, in a thread."""

    config: ProducerConfig
    stop: threading.Event = field(default_factory=threading.Event)
    states: list[ProducerProgress] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            producer(self.config).run(self.stop, self.states.append)
        except BaseException as error:
            self.failures.append(error)

    def has(self, rows: int) -> None:
        """Wait until it has published that many rows."""
        wait_until(
            lambda: self.failures or (self.states and self.states[-1].publish.rows >= rows),
            f"{rows} rows are published",
        )
        assert self.failures == []

    def end(self) -> None:
        self.stop.set()
        self._thread.join(120)
        assert (self._thread.is_alive(), self.failures) == (False, [])


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_the_producer_outlives_kafka_and_a_stop_does_not_wait_for_it(
    broker: Kafka, upstream: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_run, "_LEAVE", 0.5)
    with producer_case(upstream, broker.bootstrap, tmp_path) as case:
        # Kafka comes after the producer, goes and comes back, and hangs for a while.
        broker.kill()
        running = EndlessProducer(case.config)
        case.sql("INSERT INTO t (v) VALUES ('a'), ('b')")
        time.sleep(1)
        broker.start()
        running.has(2)
        broker.kill()
        case.sql(*["INSERT INTO t (v) VALUES ('while it is gone')"] * 20)
        time.sleep(1)
        broker.start()
        running.has(22)
        assert broker.pid is not None
        os.killpg(broker.pid, signal.SIGSTOP)
        case.sql(*["UPDATE t SET n = n + 1 WHERE id = 1"] * 20)
        time.sleep(2)
        os.killpg(broker.pid, signal.SIGCONT)
        running.has(42)
        # A stop leaves the epoch.
        broker.kill()
        case.sql(*["INSERT INTO t (v) VALUES ('left')"] * 20)
        time.sleep(0.5)
        running.end()
        broker.start()
        case.catch_up()
        found = case.published()
        assert len(found.all_rows) == 62
        content = sorted(tuple(image.values()) for image in found.tables()["t"].values())
        assert content == case.content("t")


def python_workers() -> list[int]:
    """Spark's Python workers of this process: children of the daemon that its JVM started."""
    parents = {}
    commands = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                commands[int(folder.name)] = (folder / "cmdline").read_bytes()
            except OSError:
                continue

    def ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and ours(parents[pid]))

    daemons = {
        pid for pid, command in commands.items() if b"spark_consumer.job.daemon" in command and ours(pid)
    }
    return [pid for pid, parent in parents.items() if parent in daemons and pid in daemons]


def outlives_its_workers(running: Endless, topic: FakeTopic, t: TableStructure) -> None:
    """Killed between two batches, and in the middle of one."""
    for number in range(100, 103):
        for pid in python_workers():
            os.kill(pid, signal.SIGKILL)
        topic.epoch(insert(t, {"id": number, "v": 0}))
    running.has(103)


def outlives_the_downstream(running: Endless, topic: FakeTopic, t: TableStructure, proxy: FaultProxy) -> None:
    proxy.closed.set()
    proxy.cut_all()
    topic.epoch(insert(t, {"id": 103, "v": 0}))
    time.sleep(1)
    proxy.closed.clear()
    running.has(104)


def outlives_kafka(running: Endless, topic: FakeTopic, t: TableStructure, broker: Kafka) -> None:
    broker.kill()
    time.sleep(2)
    broker.start()
    topic.epoch(insert(t, {"id": 104, "v": 0}))
    running.has(105)


def leaves_a_batch_that_waits_for_a_lock(
    running: Endless, topic: FakeTopic, t: TableStructure, downstream: Database
) -> None:
    """A stop finds it."""
    with downstream.connect(autocommit=False) as other, other.cursor() as cursor:
        cursor.execute(f"UPDATE {t.db}.t SET v = 5 WHERE id = 7")
        topic.epoch(update(t, {"id": 7, "v": 0}, {"id": 7, "v": 1}))
        wait_until(lambda: running.counters.in_hand is not None and running.counters.in_hand.rows == 1)
        running.end()
        other.rollback()
    assert running.failures == []


@pytest.mark.parametrize("flavor", ["mysql"])
def test_the_consumer_outlives_what_it_needs(
    broker: Kafka, downstream: Database, name: str, spark: Any, tmp_path: Path
) -> None:
    topic = FakeTopic(broker.bootstrap, name)
    t = TableStructure(name, "t", (integer("id"), integer("v", nullable=True)), ("id",))
    topic.ddl(f"CREATE DATABASE {name}", "CREATE DATABASE")
    topic.ddl(f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v INT)", "CREATE TABLE", TableChanged(name, "t"))
    with fault_proxy(downstream.port) as proxy:
        url = ServerUrl.parse(through(proxy, downstream))
        config = ConsumerConfig(
            broker.bootstrap,
            name,
            url,
            channel=name,
            checkpoint_dir=tmp_path,
            pause_time=0.5,
            direct=False,
        )
        running = Endless(config, spark)
        topic.epoch(*(insert(t, {"id": i, "v": 0}) for i in range(100)))
        running.has(100)

        outlives_its_workers(running, topic, t)
        outlives_the_downstream(running, topic, t, proxy)
        outlives_kafka(running, topic, t, broker)
        leaves_a_batch_that_waits_for_a_lock(running, topic, t, downstream)
        assert downstream.execute(f"SELECT v FROM {name}.t WHERE id = 7") == [(0,)]
        consumer(replace(config, until_caught_up=True), lambda: spark).run(threading.Event())
    assert downstream.execute(f"SELECT COUNT(*), SUM(v) FROM {name}.t") == [(105, 1)]
    audited = downstream.execute(
        f"SELECT SUM(inserts), SUM(updates), COUNT(DISTINCT first_epoch) - COUNT(*), MAX(last_epoch)"
        f" FROM tailrace.applied_epochs WHERE channel = '{name}'"
    )
    assert audited == [(105, 1, 0, topic.next_epoch - 1)]


@pytest.mark.parametrize("flavor", ["mysql"])
def test_a_jvm_that_is_killed_ends_the_consumer_with_a_reason(
    kafka: Kafka, downstream: Database, name: str, tmp_path: Path
) -> None:
    topic = FakeTopic(kafka.bootstrap, name)
    t = TableStructure(name, "t", (integer("id"),), ("id",))
    table(downstream, name)
    topic.epoch(insert(t, {"id": 1}))
    (tmp_path / "tailrace.toml").write_text(
        f'[kafka]\nbootstrap-servers = "{kafka.bootstrap}"\nprefix = "{name}"\n'
        f'[target]\nurl = "{downstream.url("tailrace")}"\n[consumer]\nchannel = "{name}"\n'
        "direct = false\n"
    )
    command = [sys.executable, "-m", "tailrace", "consume"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            wait_until(lambda: process.poll() is not None or downstream.execute(f"SELECT * FROM {name}.t"))
            # a batch is in hand, whose transaction is the driver's
            with downstream.connect(autocommit=False) as other, other.cursor() as cursor:
                cursor.execute(f"INSERT INTO {name}.t VALUES (2, 0)")
                topic.epoch(insert(t, {"id": 2}))
                waits = (
                    f"SELECT 1 FROM information_schema.PROCESSLIST WHERE INFO LIKE 'INSERT INTO `{name}`%'"
                )
                wait_until(lambda: process.poll() is not None or downstream.execute(waits))
                [java] = children_of(process.pid)
                os.kill(java, signal.SIGKILL)
                time.sleep(0.5)
                other.rollback()
            said = process.communicate(timeout=120)[0].decode()
        finally:
            process.kill()
    assert process.returncode == 75, said
    assert '"TR563"' in said
    assert "killed by SIGKILL" in said
    assert "Traceback" not in said
    # All of it or nothing: the row of epoch 2 is there if the position says so.
    assert downstream.execute(f"SELECT MAX(id) FROM {name}.t") == [(epoch_of(downstream, name),)]
