"""Purging and full disks against real servers: small binlogs, a small tmpfs, readers that lag."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from producer.epochs.open_epoch import EpochLimits
from producer.mirror.loop import Mirror
from producer.mirror.purging import Purging
from producer.run import ProducerConfig
from producer.settings import RelaySettings
from producer.upstream.connect import describe
from relay_store.check.verify import verify
from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition
from relay_store.layout.locks import files_locked
from relay_store.layout.readers import PUBLISHER, Mark, read_readers, register
from relay_store.purge.purge import PurgeRules, purge
from relay_store.read.reader import RelayReader
from relay_store.write.writer import RESERVE, RelayWriter
from schemas.access.server_url import ServerUrl
from schemas.binlog.framing import MAGIC
from schemas.errors import RelayError
from schemas.wire.epoch import EpochCommitted, PreparedTransaction
from spark_consumer.apply.tables import channel_tables, position_store
from spark_consumer.epochs.position import BEFORE_ALL, ChannelStart
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import closing, connect
from tailrace.assemble.producer import producer
from tailrace.channels import relay_marks
from tailrace.channels.relay_marks import ChannelMark, follow_channels
from tailrace.metrics.producer import ProducerFacts, mirror_samples
from tests.support.binlogs.mirroring import (
    assert_same_files,
    mirroring,
    relay_files,
    url_of,
    wait_for_mirror,
    work_on,
)
from tests.support.epochs.published import read_published, read_topic
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers

DISK = 4 << 20  # bytes of the small disk


@pytest.fixture
def source(server, flavor):
    """An upstream of the test's own, with many small binlogs."""
    return server(flavor, role="upstream", args=("--max-binlog-size=65536",))


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A folder that holds 4 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    """Leave no byte free; returns the file to remove."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


class Follower:
    """Reads the relay log as the publisher does, registered, when it is told to."""

    def __init__(self, mirror: Mirror, root: Path) -> None:
        self._tail = mirror.relay.tail
        wait_until(lambda: self._tail.position, "the mirror begins")
        subdir = layout.read_index(root)[0]
        begin = RelayPosition(subdir, layout.binlog_files(root / subdir)[0], 4)
        self.mark = Mark(root, PUBLISHER)
        with files_locked(root):
            self.mark.begin(begin)
        self._reader = RelayReader(root, begin, self._tail)
        self.files: dict[str, bytes] = {}

    def read(self) -> bool:
        """Take one block; whether there was one."""
        block = self._reader.read_block()
        if block is None:
            self.mark.keep_up()
            return False
        self.files[block.file] = self.files.get(block.file, MAGIC) + block.data
        assert block.pos + len(block.data) == len(self.files[block.file])
        self.mark.advance(block.end)
        return True

    def read_to_the_end(self, source, mirror: Mirror) -> None:
        def all_is_mirrored() -> bool:
            while self.read():
                pass
            info = describe(url_of(source))
            return mirror.reached(info.file, info.position)

        wait_until(all_is_mirrored, "the mirror has all")
        while self.read():
            pass
        self._reader.close()

    def assert_complete(self, source) -> None:
        """Every byte of every closed file was read, and nothing else."""
        names = [name for name, _ in describe(url_of(source)).files]
        assert list(self.files) == names
        for name in names[:-1]:
            assert self.files[name] == (source.data / name).read_bytes(), name


def test_what_a_lagging_reader_needs_stays_whatever_the_rules_say(source, flavor, tmp_path):
    root = tmp_path / "relay"
    rules = PurgeRules(expires=1e-9, remain_space=1e6, passed=True)
    work_on(source, 60)
    with mirroring(source, root) as mirror:
        follower = Follower(mirror, root)
        stop = threading.Event()

        def keep_purging() -> None:
            while not stop.wait(0.01):
                purge(root, rules)

        thread = threading.Thread(target=keep_purging)
        thread.start()
        for turn in range(6):
            work_on(source, 20, seed=turn)
            for _ in range(turn):
                follower.read()
        follower.read_to_the_end(source, mirror)
        follower.mark.flush()
        stop.set()
        thread.join()
        purge(root, rules)
        assert [file.name for file in relay_files(root)] == [describe(url_of(source)).file]
    assert verify(root).findings == []
    follower.assert_complete(source)
    assert len(follower.files) > 10


def test_a_full_disk_pauses_until_the_readers_have_passed(source, flavor, small_disk):
    """Three times as much as the disk holds goes through it; nobody frees space but the purge."""
    root = small_disk / "relay"
    root.mkdir()
    purging = Purging(root, PurgeRules(interval=0, remain_space=15))
    with mirroring(source, root, make_room=purging.purge) as mirror:
        work_on(source, 5)
        follower = Follower(mirror, root)
        source.execute(*["INSERT m.t (v) VALUES (REPEAT('z', 60000))"] * (3 * DISK // 60000))
        wait_until(lambda: mirror.progress.paused, "the disk is full")
        assert "disk full" in mirror.progress.paused
        assert "No space left on device" in mirror.progress.paused
        free, is_full = _disk_metrics(mirror, root)
        assert free < DISK / 5
        assert is_full == 1
        # What is there is published meanwhile.
        while follower.read():
            pass
        assert len(follower.files) > 20
        follower.mark.flush()
        (reader,) = read_readers(root)
        assert reader.position.file == list(follower.files)[-1]
        follower.read_to_the_end(source, mirror)
        assert mirror.progress.paused is None
        assert _disk_metrics(mirror, root)[1] == 0
    follower.assert_complete(source)


def _disk_metrics(mirror: Mirror, root: Path) -> tuple[float, float]:
    """What Prometheus gets to know of the disk: the bytes left, and whether it is full."""
    samples = (
        *ProducerFacts("m", root, lambda: None).samples(),
        *mirror_samples(mirror.progress, None, None),
    )
    found = {one.name: one.value or 0.0 for one in samples}
    return found["tailrace_relay_free_bytes"], found["tailrace_relay_disk_full"]


def test_a_full_disk_pauses_until_somebody_makes_room(source, flavor, small_disk):
    root = small_disk / "relay"
    work_on(source, 20)
    with mirroring(source, root) as mirror:
        wait_for_mirror(mirror, source)
        ballast = fill(small_disk)
        work_on(source, 20, seed=1)
        wait_until(lambda: mirror.progress.paused, "the disk is full")
        time.sleep(4)  # longer than it takes to try again
        assert mirror.progress.paused
        ballast.unlink()
        wait_for_mirror(mirror, source)
        assert mirror.progress.paused is None
    assert_same_files(source, root)


def test_a_first_start_on_a_full_disk_waits_for_room(source, flavor, small_disk):
    root = small_disk / "relay"
    root.mkdir()
    work_on(source, 5)
    ballast = fill(small_disk)
    with mirroring(source, root) as mirror:
        wait_until(lambda: mirror.progress.paused, "the disk is full")
        ballast.unlink()
        wait_for_mirror(mirror, source)
    assert_same_files(source, root)


def test_a_full_disk_leaves_room_for_first_marks(small_disk):
    """Without one nothing may be purged: the disk would stay full for good."""
    root = small_disk / "relay"
    writer = RelayWriter.open(root)
    writer.open_subdir("3e11fa47-71ca-11e1-9e33-c80aa9429562")
    writer.rotate("mysql-bin.000001")

    def write_on() -> None:
        while True:
            writer.append([bytes(60_000)], writer.file_size + 60_000)

    with pytest.raises(RelayError, match="TR320"):
        write_on()
    writer.sync()
    assert writer.file_size > DISK - RESERVE - 200_000
    begin = RelayPosition(writer.subdir, "mysql-bin.000001", 4)
    for name in ("publisher", *(f"channel-{n}" for n in range(20))):
        register(root, name, begin)
    assert len(read_readers(root)) == 21
    writer.close()


def test_a_producer_publishes_more_than_its_disk_holds(source, flavor, small_disk, kafka):
    """Each row once, though the mirror is paused again and again and most relay files are gone at the end."""
    source.execute("CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGBLOB)")
    # All there before the producer is: on a slow machine it would keep up with an upstream at work.
    rows = 4 * DISK // 60000
    source.execute(*["INSERT m.t (v) VALUES (REPEAT('z', 60000))"] * rows)
    seen: list[str] = []
    config = ProducerConfig(
        source=url_of(source),
        server_id=991,
        start="earliest",
        relay=RelaySettings(dir=small_disk / "relay"),
        epoch=EpochLimits(max_rows=10, max_bytes=1 << 20, max_delay=0.05),
        purge=PurgeRules(interval=0, remain_space=15),
        bootstrap_servers=kafka.bootstrap,
        prefix=f"full-{flavor}-{os.getpid()}",
        partitions=2,
        include=("m.*",),
    )
    stop, errors = threading.Event(), []

    def work() -> None:
        try:
            producer(config).run(stop, lambda state: seen.append(state.mirror.paused or ""))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        log = f"{config.prefix}.epochs"

        def all_is_published() -> bool:
            assert not errors
            # Not by the position: MariaDB may write a checkpoint event behind the last row.
            epochs = [EpochCommitted.decode(m.value()) for m in read_topic(kafka.bootstrap, log)]
            return sum(epoch.rows for epoch in epochs) == rows

        wait_until(lambda: (config.relay.dir / "readers").exists(), "the publisher begins")
        wait_until(all_is_published, "the producer catches up")
    finally:
        stop.set()
        thread.join()
    assert not errors
    assert any("disk full" in state for state in seen)
    (images,) = read_published(kafka.bootstrap, config.prefix).tables().values()
    assert sorted(image["id"] for image in images.values()) == list(range(1, rows + 1))
    (reader,) = read_readers(config.relay.dir)
    assert (reader.name, reader.position.file) == (PUBLISHER, describe(url_of(source)).file)


# -- channels --------------------------------------------------------------------------------------


def test_a_channel_is_registered_with_what_it_has_applied(downstream, flavor, tmp_path, monkeypatch):
    root, channel = tmp_path / "relay", f"mark-{flavor}"
    url = ServerUrl.parse(downstream.url())
    settings = ConsumerConfig("unused:1", "unused", url, channel=channel)
    subdir = "3e11fa47-71ca-11e1-9e33-c80aa9429562.000001"

    def marks() -> dict[str, RelayPosition]:
        return {reader.name: reader.position for reader in read_readers(root)}

    def applied(epoch: int, **columns: object) -> None:
        values = ", ".join(f"{name} = %s" for name in columns)
        sql = f"UPDATE tailrace.relay_log_info SET epoch = %s, {values} WHERE Channel_name = %s"
        with closing(connect(url)) as session:
            session.run(sql, (epoch, *columns.values(), channel))
            session.execute("COMMIT")

    mark = ChannelMark(settings, root)
    mark.update(-1)  # neither here nor there yet
    (root / subdir).mkdir(parents=True)
    mark.update(-1)
    assert marks() == {}
    (root / subdir / "mysql-bin.000003").write_bytes(MAGIC)
    (root / subdir / "mysql-bin.000004").write_bytes(MAGIC)
    layout.write_index(root, [subdir])
    with closing(connect(url)) as session:
        channel_tables.install(session)
        position_store.create(session, settings.key, ChannelStart(BEFORE_ALL, None, "earliest"))
        session.execute("COMMIT")
    mark.update(-1)
    assert marks() == {f"channel-{channel}": RelayPosition(subdir, "mysql-bin.000003", 4)}
    applied(0, Relay_log_name=f"{subdir}/mysql-bin.000004", Relay_log_pos=500)
    mark.update(0)
    assert marks() == {f"channel-{channel}": RelayPosition(subdir, "mysql-bin.000004", 500)}
    # A prepared transaction begins further back, and recover reads it from there.
    prepared = PreparedTransaction("x", None, subdir, "mysql-bin.000004", 300, 400)
    applied(1, Relay_log_name=f"{subdir}/mysql-bin.000005", xa_prepared=json.dumps([asdict(prepared)]))
    mark.update(1)
    assert marks() == {f"channel-{channel}": RelayPosition(subdir, "mysql-bin.000004", 300)}
    # Begun anew further back, by a consumer that starts later.
    applied(0, Relay_log_name=f"{subdir}/mysql-bin.000003", Relay_log_pos=200, xa_prepared=None)
    ChannelMark(settings, root).update(0)
    assert marks() == {f"channel-{channel}": RelayPosition(subdir, "mysql-bin.000003", 200)}
    # A producer follows the channels of its configuration, wherever their consumers run.
    monkeypatch.setattr(relay_marks, "_PAUSE_ELSEWHERE", 0.05)
    with follow_channels([replace(settings, channel="none"), settings], root):
        applied(1, Relay_log_name=f"{subdir}/mysql-bin.000004", Relay_log_pos=700)
        moved = {f"channel-{channel}": RelayPosition(subdir, "mysql-bin.000004", 700)}
        wait_until(lambda: marks() == moved, marks)


def test_a_downstream_that_is_away_leaves_the_channels_old_mark(tmp_path):
    root = tmp_path / "relay"
    old = RelayPosition("3e11fa47-71ca-11e1-9e33-c80aa9429562.000001", "mysql-bin.000003", 200)
    root.mkdir()
    register(root, "channel-main", old)
    settings = ConsumerConfig("unused:1", "unused", ServerUrl.parse("mysql://root@127.0.0.1:1/"))
    ChannelMark(settings, root).update(7)
    assert [reader.position for reader in read_readers(root)] == [old]
