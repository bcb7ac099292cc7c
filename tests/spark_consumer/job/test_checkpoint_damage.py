"""Spark's checkpoint damaged in each of its files: the channel goes on, each row once, its structures known."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from schemas.access.server_url import ServerUrl
from schemas.structure import TableStructure
from schemas.wire.epoch import TableChanged
from spark_consumer.job.progress import Counters
from spark_consumer.job.spark import start_spark
from spark_consumer.rules.config import ConsumerConfig
from tailrace.artifacts.spark import spark_kafka_jars
from tailrace.assemble.consumer import consumer
from tests.support.epochs.fake_topic import FakeTopic, insert, integer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers
NAME = "damaged"

#: the newest file of each kind, by a pattern below the channel's folder
KINDS = {
    "owner": "owner.json",
    "metadata": "spark/metadata",
    "offsets": "spark/offsets/[0-9]*",
    "commits": "spark/commits/[0-9]*",
    "sources": "spark/sources/0/[0-9]*",
    "delta": "spark/state/0/0/[0-9]*.changelog",
    "snapshot": "spark/state/0/0/[0-9]*.zip",
    "sst": "spark/state/0/0/SSTs/*.sst",
    "operator": "spark/state/0/_metadata/v2/[0-9]*",
    "schema": "spark/state/0/_stateSchema/default/[0-9]*",
}


def gone(file: Path) -> None:
    file.unlink()


def empty(file: Path) -> None:
    file.write_bytes(b"")


def half(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) * 2 // 3] ^= 4
    file.write_bytes(content)


#: of each kind what it is most likely to be overlooked by
DAMAGES: list[tuple[str, Callable[[Path], None]]] = [
    ("owner", half),
    ("metadata", gone),
    ("metadata", bit),
    ("offsets", bit),
    ("commits", gone),
    ("sources", empty),
    ("delta", bit),
    ("snapshot", half),
    ("sst", gone),
    ("operator", empty),
    ("schema", bit),
]


class Channel:
    """A channel whose checkpoint is put back, damaged, before each run."""

    def __init__(self, kafka: Kafka, downstream: Database, folder: Path) -> None:
        self.config = ConsumerConfig(
            kafka.bootstrap,
            NAME,
            ServerUrl.parse(downstream.url("tailrace")),
            channel=NAME,
            checkpoint_dir=folder / "0",
            jars=tuple(spark_kafka_jars()),
            until_caught_up=True,
            direct=False,
            # So that there soon are snapshots of the state, and changes since the last one.
            spark_conf={
                "spark.sql.streaming.stateStore.maintenanceInterval": "100ms",
                "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
            },
        )
        self.root, self.copies = folder, 0
        self.downstream, self.folder = downstream, self.config.channel_dir
        self.topic = FakeTopic(kafka.bootstrap, NAME)
        self.topic.ddl(f"CREATE DATABASE {NAME}", "CREATE DATABASE")
        create = f"CREATE TABLE {NAME}.t (id INT PRIMARY KEY)"
        self.topic.ddl(create, "CREATE TABLE", TableChanged(NAME, "t"))
        self.table = TableStructure(NAME, "t", (integer("id"),), ("id",))
        self.rows = 0
        self.spark = start_spark(self.config)

    def run(self) -> None:
        """One row more, and what comes of it."""
        self.topic.epoch(insert(self.table, {"id": self.rows}))
        self.rows += 1
        counters = Counters()
        consumer(self.config, lambda: self.spark, counters).run(threading.Event())
        assert counters.rows == 1
        found = self.downstream.execute(f"SELECT COUNT(*), MAX(id) FROM {NAME}.t")
        assert found == [(self.rows, self.rows - 1)]

    def newest(self, kind: str) -> Path:
        def number(file: Path) -> tuple[int, str]:
            digits = "".join(c for c in file.name.partition(".")[0] if c.isdigit())
            return int(digits or 0), file.name

        return max(self.folder.glob(KINDS[kind]), key=number)

    def put(self, checkpoint: Path) -> None:
        """Go on from a copy of a checkpoint, in a new folder: an ended query may still write its state."""
        self.copies += 1
        self.config = replace(self.config, checkpoint_dir=self.root / str(self.copies))
        self.folder = Path(shutil.copytree(checkpoint, self.config.channel_dir))


@pytest.fixture(scope="module")
def channel(
    kafka: Kafka, downstream_mysql: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Channel]:
    made = Channel(kafka, downstream_mysql, tmp_path_factory.mktemp("damage"))
    try:
        yield made
    finally:
        made.spark.stop()


@pytest.fixture(scope="module")
def older(channel: Channel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a few batches, with state in deltas and a snapshot."""
    for _ in range(5):
        channel.run()
    wait_until(lambda: list(channel.folder.glob(KINDS["snapshot"])), "the state has a snapshot")
    kept = tmp_path_factory.mktemp("older")
    # A first batch that failed on a busy machine has left one that was set aside.
    ignored = shutil.ignore_patterns("spark.aside-*")
    shutil.copytree(channel.folder, kept, ignore=ignored, dirs_exist_ok=True)
    return kept


def test_there_is_no_file_of_a_kind_that_is_not_damaged_here(channel: Channel, older: Path) -> None:
    known = {path for pattern in KINDS.values() for path in older.glob(pattern)}
    others = {path for path in older.rglob("*") if path.is_file() and not path.name.endswith(".crc")} - known
    assert {path.name for path in others} <= {"lock", "spark.log"}


@pytest.mark.parametrize(("kind", "damage"), DAMAGES, ids=lambda value: getattr(value, "__name__", value))
def test_a_damaged_file(channel: Channel, older: Path, kind: str, damage: Callable[[Path], None]) -> None:
    channel.put(older)
    file = channel.newest(kind)
    damage(file)
    if kind in ("delta", "snapshot"):
        # Without Hadoop's checksum only what reads the file can notice.
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    channel.run()
    if kind == "schema":
        # What it has left behind is one to go on from.
        channel.run()


def test_no_folder_another_channels_and_one_of_another_kind(
    channel: Channel, older: Path, tmp_path: Path
) -> None:
    channel.put(older)
    shutil.rmtree(channel.folder / "spark")
    channel.run()
    # as a copy of the machine's folders may leave it
    other = Path(shutil.copytree(older, tmp_path / "other"))
    owner = (other / "owner.json").read_text()
    (other / "owner.json").write_text(owner.replace(f'"channel": "{NAME}"', '"channel": "other"'))
    channel.put(other)
    channel.run()
    channel.put(older)
    shutil.rmtree(channel.folder / "spark")
    (channel.folder / "spark").write_text("a file in its place")
    channel.run()
    audited = channel.downstream.execute(
        "SELECT SUM(inserts), COUNT(DISTINCT first_epoch) - COUNT(*), MAX(last_epoch)"
        f" FROM tailrace.applied_epochs WHERE channel = '{NAME}'"
    )
    assert audited == [(channel.rows, 0, channel.topic.next_epoch - 1)]
