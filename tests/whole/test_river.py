"""The main job, end to end, as its users run it: processes, real servers, kills, and equal rows at the end."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from relay_store.layout.readers import read_readers
from tests.support.processes.river import River
from tests.support.statements.workload import FLAT, SCHEMA, run_ddl, run_dml, run_flat

pytestmark = [pytest.mark.servers, pytest.mark.long]
MakeRiver = Callable[..., River]


@pytest.fixture
def river(tmp_path: Path, server: Callable[..., Database], kafka: Kafka) -> MakeRiver:
    """Two fresh servers with the workload's tables upstream."""

    def make(upstream: str, downstream: str, consistency: str = "batch") -> River:
        up = server(upstream, role="upstream", server_id=1)
        down = server(downstream, role="downstream", server_id=2)
        up.execute(*SCHEMA, FLAT)
        return River(tmp_path, up, down, kafka, consistency)

    return make


@pytest.mark.parametrize(
    ("upstream", "downstream", "consistency"),
    [
        ("mysql", "mysql", "worker"),
        ("mariadb", "mariadb", "batch"),
        ("mysql", "mariadb", "worker"),
        ("mariadb", "mysql", "batch"),
    ],
)
def test_random_dml_and_ddl_end_equal(
    river: MakeRiver, upstream: str, downstream: str, consistency: str
) -> None:
    it = river(upstream, downstream, consistency)
    for seed in range(3):
        run_dml(it.upstream, seed, 250)
        run_ddl(it.upstream, seed)
    it.catch_up()
    it.assert_equal()
    it.catch_up()
    it.assert_equal()
    # Both ends have told what they still need of the relay log, which is nothing any more.
    marks = {reader.name: reader.position for reader in read_readers(it.folder / "relay")}
    assert marks.keys() == {"publisher", "channel-main"}
    assert marks["publisher"] == marks["channel-main"]


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_killed_at_any_moment_it_goes_on(river: MakeRiver, flavor: str) -> None:
    it = river(flavor, flavor, "worker" if flavor == "mariadb" else "batch")
    random = Random(flavor)
    producer, consumer = it.start("produce"), it.start("consume")
    try:
        for round_ in range(4):
            run_dml(it.upstream, round_, 150)
            if round_ % 2:
                run_ddl(it.upstream, round_)
            # Every second consumer is caught at work, the others wherever this time takes them on this machine.
            if round_ % 2:
                it.told("consume", "batch_applied")
            time.sleep((2 if round_ % 2 else 12) * random.random())
            producer.send_signal(signal.SIGKILL)
            producer.wait()
            producer = it.start("produce")
            consumer.send_signal(signal.SIGKILL)
            consumer.wait()
            consumer = it.start("consume")
        # A signal ends them with 0 once they run.
        run_dml(it.upstream, 4, 150)
        it.told("produce", "mirror_connected")
        it.told("consume", "batch_applied")
        producer.send_signal(signal.SIGTERM)
        consumer.send_signal(signal.SIGTERM)
        assert producer.wait(60) == 0, it.talk()
        assert consumer.wait(120) == 0, it.talk()
    finally:
        producer.kill()
        consumer.kill()
    it.catch_up()
    it.assert_equal()


PRODUCER_POINTS = [
    "relay.before_fsync",
    "relay.after_fsync",
    "publish.before_commit:3",
    "publish.after_commit:3",
]
CONSUMER_POINTS = [
    "apply.before_commit:3",
    "apply.after_commit:3",
    "ddl.before:2",
    "ddl.after:2",
    "batch.before_return",
]


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_each_crash_point_ends_equal(river: MakeRiver, flavor: str) -> None:
    workers = flavor == "mysql"
    it = river(flavor, flavor, "worker" if workers else "batch")
    for seed, point in enumerate(PRODUCER_POINTS):
        run_dml(it.upstream, seed, 60)
        it.crash("produce", point)
    assert it.run("produce", "--until-caught-up") == 0, it.talk()
    for point in CONSUMER_POINTS:
        it.crash("consume", point)
    if workers:
        # Everything is applied by now, and only rows have parts.
        run_dml(it.upstream, 9, 60)
        assert it.run("produce", "--until-caught-up") == 0, it.talk()
        it.crash("consume", "worker.after_parts")
        run_flat(it.upstream, 3, 20)
        assert it.run("produce", "--until-caught-up") == 0, it.talk()
        it.crash("consume", "nontransactional.after_row:3")
    it.catch_up()
    it.assert_equal()


def test_the_checkpoint_is_a_cache(river: MakeRiver) -> None:
    it = river("mariadb", "mariadb")
    run_dml(it.upstream, 1, 100)
    it.catch_up()
    run_dml(it.upstream, 2, 100)
    run_ddl(it.upstream, 2)
    assert it.run("produce", "--until-caught-up") == 0
    it.crash("consume", "batch.before_return")
    commits = sorted(it.folder.glob("checkpoint/main/**/commits/[0-9]*"), key=lambda path: int(path.name))
    for last in commits[-1:]:
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    it.catch_up()
    it.assert_equal()
    shutil.rmtree(it.folder / "checkpoint")
    run_dml(it.upstream, 3, 100)
    it.catch_up()
    it.assert_equal()
