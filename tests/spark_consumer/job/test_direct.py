"""What a consumer applies in its own process, before Spark and beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError, LogError
from schemas.structure import TableStructure
from schemas.wire.epoch import TableChanged
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import Slice
from spark_consumer.job.jvm.process import lost
from spark_consumer.job.progress import Counters
from spark_consumer.plan.counters import Applied
from spark_consumer.rules.config import ConsumerConfig
from tailrace.assemble.consumer import consumer
from tests.support.epochs.fake_topic import FakeTopic, insert, integer, update
from tests.support.names import own_name
from tests.support.waiting import wait_until

NEVER: Callable[[], None] = lambda: None  # noqa: E731


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return own_name("bs_", request)


@pytest.fixture
def topic(kafka: Kafka, name: str) -> FakeTopic:
    """A log whose table t has a row."""
    made = FakeTopic(kafka.bootstrap, name)
    made.ddl(f"CREATE DATABASE {name}", "CREATE DATABASE")
    create = f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v INT)"
    made.ddl(create, "CREATE TABLE", TableChanged(name, "t"))
    made.epoch(insert(table(name), {"id": 0, "v": 0}))
    return made


@pytest.fixture(params=["batch", "worker"])
def config(
    kafka: Kafka, downstream: Database, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> ConsumerConfig:
    url = ServerUrl.parse(downstream.url("tailrace"))
    made = ConsumerConfig(kafka.bootstrap, name, url, channel=name, checkpoint_dir=tmp_path)
    return replace(made, consistency=request.param, worker_count=3)


def table(name: str) -> TableStructure:
    return TableStructure(name, "t", (integer("id"), integer("v", nullable=True)), ("id",))


def assert_applied_once(downstream: Database, topic: FakeTopic, rows: int) -> None:
    name = topic.prefix
    assert downstream.execute(f"SELECT COUNT(*), SUM(id) FROM {name}.t") == [(rows, rows * (rows - 1) // 2)]
    [(transactions, twice, last)] = downstream.execute(
        "SELECT SUM(transactions), COUNT(DISTINCT first_epoch) - COUNT(*), MAX(last_epoch)"
        f" FROM tailrace.applied_epochs WHERE channel = '{name}'"
    )
    assert (transactions, twice, last) == (topic.transactions, 0, topic.next_epoch - 1)


class NotingCounters(Counters):
    """Counters that note which threads have applied a slice."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()

    def applied(
        self, slice_: Slice, position: Position, applied: Applied, read_s: float, apply_s: float
    ) -> None:
        self.threads.add(threading.current_thread().name)
        super().applied(slice_, position, applied, read_s, apply_s)


@contextmanager
def running(config: ConsumerConfig, spark: Callable[[], Any]) -> Iterator[SimpleNamespace]:
    """A consumer in a thread, which ends with the block."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            consumer(config, spark, found.counters).run(stop)
        except BaseException as error:
            failures.append(error)

    found = SimpleNamespace(counters=NotingCounters(), failures=failures, thread=threading.Thread(target=run))
    found.thread.start()
    try:
        yield found
    finally:
        stop.set()
        found.thread.join(120)
        assert not found.thread.is_alive()


@pytest.mark.servers
def test_a_log_that_ends_before_spark_is_there_needs_none(
    topic: FakeTopic, config: ConsumerConfig, downstream: Database, name: str
) -> None:
    topic.epoch(*(insert(table(name), {"id": i, "v": i}) for i in range(1, 500)))
    consumer(replace(config, until_caught_up=True), NEVER).run(threading.Event())
    assert_applied_once(downstream, topic, 500)
    # Another one continues, with the structures that only the schemas topic has.
    topic.epoch(insert(table(name), {"id": 500, "v": 0}))
    consumer(replace(config, until_caught_up=True), NEVER).run(threading.Event())
    assert_applied_once(downstream, topic, 501)


@pytest.mark.servers
def test_spark_does_not_start_while_a_transaction_is_on_its_way(
    topic: FakeTopic,
    config: ConsumerConfig,
    downstream: Database,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr("spark_consumer.job.direct._IDLE", 0.2)
    asked = threading.Event()
    looks: list[bool] = []
    look = LogReader.has_open_rows

    def noted(log: LogReader) -> bool:
        looks.append(look(log))
        return looks[-1]

    monkeypatch.setattr(LogReader, "has_open_rows", noted)
    with topic.open_rows(10), running(config, asked.set) as it:
        wait_until(lambda: len(looks) > 3 or it.failures, "it has looked several times")
        assert all(looks)
        assert not asked.is_set()
    with running(config, asked.set) as it:
        wait_until(lambda: asked.is_set() or it.failures, "Spark starts")
    assert it.failures == []
    assert looks[-1] is False


@pytest.mark.servers
def test_spark_and_this_process_apply_each_epoch_once(
    topic: FakeTopic,
    config: ConsumerConfig,
    downstream: Database,
    name: str,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # An epoch of many rows is Spark's.
    monkeypatch.setattr("spark_consumer.job.direct._LARGE_EPOCH_ROWS", 40)
    ready = threading.Event()
    with running(config, lambda: spark if ready.is_set() else None) as it:
        ids = count(1)

        def add(rows: int) -> int:
            """Write an epoch; return how many rows the table has then."""
            epoch = [insert(table(name), {"id": next(ids), "v": 0}) for _ in range(rows)]
            topic.epoch(*epoch)
            return int(epoch[-1].after["id"]) + 1 if epoch[-1].after else 0

        def applied(rows: int) -> None:
            wait_until(lambda: it.counters.rows >= rows or it.failures, f"{rows} rows are applied")

        applied(add(1))
        assert it.counters.threads == {"direct"}
        ready.set()
        for number in range(300):
            add(50 if number % 60 == 0 else 3)
            time.sleep(0.02)
        applied(add(1))
        for _ in range(2):
            it.counters.threads.clear()
            applied(add(50))
            assert "direct" not in it.counters.threads
            applied(add(1))
    assert it.failures == []
    assert_applied_once(downstream, topic, next(ids))


@pytest.mark.servers
def test_a_stop_and_a_spark_that_does_not_start_end_it(
    topic: FakeTopic, config: ConsumerConfig, downstream: Database, name: str
) -> None:
    with running(config, NEVER) as it:
        wait_until(lambda: it.counters.rows >= 1 or it.failures, "a row is applied before Spark")
    assert it.failures == []

    def lost_spark() -> None:
        raise lost("killed by SIGKILL")

    topic.epoch(insert(table(name), {"id": 1, "v": 0}))
    with pytest.raises(LogError, match="TR563"):
        consumer(config, lost_spark).run(threading.Event())
    consumer(replace(config, until_caught_up=True), NEVER).run(threading.Event())
    assert_applied_once(downstream, topic, 2)


@pytest.mark.servers
def test_a_stop_does_not_wait_for_a_row_that_another_holds(
    topic: FakeTopic, config: ConsumerConfig, downstream: Database, name: str
) -> None:
    ids = range(1, 400)
    topic.epoch(*(insert(table(name), {"id": i, "v": 0}) for i in ids))
    consumer(replace(config, until_caught_up=True), NEVER).run(threading.Event())
    topic.epoch(*(update(table(name), {"id": i, "v": 0}, {"id": i, "v": 1}) for i in ids))
    [(patience,)] = downstream.execute("SELECT @@GLOBAL.innodb_lock_wait_timeout")
    downstream.execute("SET GLOBAL innodb_lock_wait_timeout = 1000")
    try:
        with downstream.connect() as holder, holder.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute(f"SELECT * FROM {name}.t WHERE id = 200 FOR UPDATE")
            waits = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"
            with running(replace(config, pause_time=0.5), NEVER):
                # InnoDB makes this table anew only if nobody has read it for a tenth of a second.
                wait_until(
                    lambda: downstream.execute("DO SLEEP(0.2)", waits) == [(1,)], "a row is waited for"
                )
            cursor.execute("ROLLBACK")
    finally:
        downstream.execute(f"SET GLOBAL innodb_lock_wait_timeout = {patience}")
    consumer(replace(config, until_caught_up=True), NEVER).run(threading.Event())
    assert_applied_once(downstream, topic, 400)
    assert downstream.execute(f"SELECT SUM(v) FROM {name}.t") == [(399,)]


@pytest.mark.servers
def test_a_refused_row_stops_it_with_its_event(
    topic: FakeTopic, config: ConsumerConfig, downstream: Database, name: str
) -> None:
    topic.epoch(update(table(name), {"id": 7, "v": 0}, {"id": 7, "v": 1}))
    with pytest.raises(DownstreamError) as stopped:
        consumer(config, NEVER).run(threading.Event())
    assert stopped.value.where.epoch == topic.next_epoch - 1
    assert downstream.execute(f"SELECT id, v FROM {name}.t") == [(0, 0)]
    if config.workers > 1:
        # A part with the epoch before is applied, and the rest of the batch is not.
        return
    [(last,)] = downstream.execute(
        f"SELECT MAX(last_epoch) FROM tailrace.applied_epochs WHERE channel = '{name}'"
    )
    assert last == topic.next_epoch - 2


@pytest.mark.parametrize("changes", [{"direct": False}, {"max_batch_delay": 1}, {"files": Path("f")}])
def test_some_channels_wait_for_spark(changes: dict[str, Any]) -> None:
    config = ConsumerConfig("b", "p", ServerUrl("h"))
    assert config.applies_directly
    assert not replace(config, **changes).applies_directly
