"""A copy waits for an upstream and replicas that are busy, says so, and goes on by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from compose.databases import Database
from compose.kafka import Kafka
from producer.copy.progress import CopyProgress
from producer.copy.throttle import Throttle
from producer.run import ProducerProgress
from producer.settings import CopySettings
from schemas.access.server_url import ServerUrl
from spark_consumer.rules.config import LogAddress
from tailrace.assemble.producer import producer
from tailrace.service.copy_progress import copy_part
from tailrace.status.copies import LoggedCopies
from tests.support.epochs.producer_case import Case, producer_case
from tests.support.epochs.replicas import replicate, set_delay
from tests.support.epochs.written_tables import TABLES, fill
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers


@contextmanager
def busy(upstream: Database, count: int) -> Iterator[None]:
    """So many connections execute something inside the block."""
    connections = [upstream.connect() for _ in range(count)]

    def sleep(connection: pymysql.Connection[pymysql.cursors.Cursor]) -> None:
        with suppress(pymysql.err.MySQLError), connection.cursor() as cursor:
            cursor.execute("SELECT SLEEP(1000)")

    threads = [threading.Thread(target=sleep, args=(connection,)) for connection in connections]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        upstream.execute(*(f"KILL QUERY {connection.thread_id()}" for connection in connections))
        for thread, connection in zip(threads, connections, strict=True):
            thread.join()
            connection.close()


@pytest.fixture
def case(upstream: Database, kafka: Kafka, tmp_path: Path) -> Iterator[Case]:
    """A log of the test's own that is not begun."""
    with producer_case(upstream, kafka.bootstrap, tmp_path, start="copy") as made:
        fill(made)
        yield made


def test_a_copy_waits_while_the_upstream_is_busy(case: Case) -> None:
    seen: list[CopyProgress] = []

    def note(state: ProducerProgress) -> None:
        if (progress := state.copy()) is not None:
            seen.append(progress)

    limits = CopySettings(chunk_rows=100, max_threads_running=20)
    run = producer(replace(case.config, until_caught_up=True, copy=limits)).run
    thread = threading.Thread(target=run, args=(threading.Event(), note))
    with busy(case.upstream, 30):
        thread.start()
        wait_until(lambda: bool(seen) and seen[-1].paused is not None)
        assert "and max-threads-running is 20" in str(seen[-1].paused)
        assert (seen[-1].running, seen[-1].tables_total, seen[-1].rows_done) == (True, None, 0)
    thread.join()

    last = seen[-1]
    rows = sum(len(case.content(table)) for table in TABLES)
    assert (last.running, last.paused, last.rows_done) == (False, None, rows)
    assert last.tables_total == last.tables_done == len(TABLES)
    logged = LoggedCopies.read(LogAddress(case.config.bootstrap_servers, case.config.prefix))
    assert logged.part() == copy_part(last)
    names = sorted(f"{case.db}.{table}" for table in TABLES)
    assert (logged.incomplete_at(0), logged.incomplete_at(case.published().epochs[-1].epoch)) == (names, [])


@contextmanager
def asking(throttle: Throttle) -> Iterator[None]:
    """A reader asks again and again inside the block."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(0.05):
            throttle.wait(stop)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        throttle.close()


def test_a_copy_waits_for_replicas(upstream: Database, server: Callable[..., Database]) -> None:
    replica = server(upstream.flavor, server_id=150)
    settings = CopySettings(replicas=(f"127.0.0.1:{replica.port}",), max_replica_lag=0.5)
    throttle = Throttle(ServerUrl.parse(upstream.url()), settings)
    with asking(throttle):
        wait_until(lambda: "does not replicate" in str(throttle.paused))
        replicate(upstream, replica, delay=3600)
        upstream.execute("CREATE DATABASE IF NOT EXISTS behind", "DROP DATABASE behind")
        wait_until(lambda: "s behind, and max-replica-lag is 0.5 s" in str(throttle.paused))
        set_delay(upstream, replica, 0)
        wait_until(lambda: throttle.paused is None)
