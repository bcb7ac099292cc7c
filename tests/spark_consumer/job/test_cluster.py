"""The consumer on a Spark cluster of two workers, each with an executor: the same result, also if one is killed.

The log begins with a copy, whose rows the executors read in runs.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from compose.spark_cluster import SparkCluster
from schemas.access.secrets import TARGET_PASSWORD
from tests.support.processes.river import River
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers

# More rows than a slice that the driver reads itself.
_ROWS = 24_000
_SECRET = secrets.token_hex(16)
_DEEP = "SET cte_max_recursion_depth = 1000000"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    made = SparkCluster(tmp_path / "cluster", _SECRET, environment={TARGET_PASSWORD: "tailrace"})
    try:
        made.start()
        yield made
    finally:
        made.stop()


def on_cluster(river: River, cluster: SparkCluster) -> None:
    text = river.config.read_text()
    text = text.replace("max-rows = 40", "max-rows = 4000").replace(
        "max-batch-rows = 100", "max-batch-rows = 100000"
    )
    settings = {"master": cluster.master, "authenticate.secret": _SECRET, "executor.memory": "512m"}
    text = text.replace('start = "earliest"', 'start = "copy"')
    lines = "".join(f'"spark.{name}" = "{value}"\n' for name, value in settings.items())
    river.config.write_text(f"{text}\ndirect = false\n{lines}")


def numbers(begin: int, end: int) -> str:
    return f"WITH RECURSIVE n (i) AS (SELECT {begin} UNION ALL SELECT i + 1 FROM n WHERE i < {end - 1})"


def write(upstream: Database, begin: int) -> None:
    """Insert many rows, change most of them, and let unique values change hands."""
    end = begin + _ROWS
    upstream.execute(
        _DEEP,
        f"INSERT INTO d.t (id, u, v) {numbers(begin, end)} SELECT i, i, REPEAT('x', i % 90) FROM n",
        f"UPDATE d.t SET v = CONCAT(v, 'y') WHERE id >= {begin} AND id % 3 = 0",
        f"DELETE FROM d.t WHERE id >= {begin} AND id % 7 = 0",
        f"UPDATE d.t SET u = -u WHERE id >= {begin} AND id % 5 = 0",
        f"UPDATE d.t SET id = id + 10000000 WHERE id >= {begin} AND id % 11 = 0",
        f"INSERT INTO d.plain SELECT id, v FROM d.t WHERE id >= {begin} AND id < {end}",
        f"UPDATE d.plain SET v = 'z' WHERE id >= {begin} AND id % 2 = 0",
    )


def tasks_of(cluster: SparkCluster, worker: int) -> int:
    """Return how many tasks a worker's executors have run."""
    logs = cluster.work(worker).glob("app-*/*/stderr")
    return sum(len(re.findall("Running task", log.read_text(errors="replace"))) for log in logs)


def test_two_executors_share_the_work_and_one_may_die(
    server: Callable[..., Database], kafka: Kafka, cluster: SparkCluster, tmp_path: Path
) -> None:
    upstream = server("mysql", role="upstream", server_id=1)
    downstream = server("mysql", role="downstream", server_id=2)
    river = River(tmp_path, upstream, downstream, kafka)
    on_cluster(river, cluster)
    upstream.execute(
        _DEEP,
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, u INT UNIQUE, v VARCHAR(100))",
        "CREATE TABLE d.plain (id INT PRIMARY KEY, v VARCHAR(100))",
        f"CREATE TABLE d.copied (id INT PRIMARY KEY) {numbers(0, _ROWS)} SELECT i AS id FROM n",
    )
    assert river.run("produce", "--until-caught-up") == 0, river.talk()
    write(upstream, 0)
    river.catch_up()
    river.assert_equal()
    assert all(tasks_of(cluster, worker) for worker in range(2))

    # Now the executors write, too, since there are many statements.
    river.config.write_text(
        river.config.read_text().replace(
            'consistency = "batch"', 'consistency = "worker"\nstatement-rows = 10'
        )
    )
    upstream.execute("ALTER TABLE d.t ADD w INT NOT NULL DEFAULT 7")
    write(upstream, 100_000)
    assert river.run("produce", "--until-caught-up") == 0, river.talk()
    consume = river.start("consume", "--until-caught-up")
    before = tasks_of(cluster, 0)
    wait_until(lambda: tasks_of(cluster, 0) > before, river.talk)
    cluster.kill_worker(1)
    assert consume.wait(180) == 0, river.talk()
    river.assert_equal()
