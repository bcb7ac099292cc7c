"""Processes that decode a backlog: what they do to the epochs (nothing), and how they end."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer import publish
from producer.ahead import pool
from producer.ahead.blocks import BlocksAhead
from producer.ahead.pool import DecodePool, worker_count
from producer.decode.decode_rules import DecodeRules
from producer.decode.rows_events import KnownTables
from producer.epochs.open_epoch import EpochLimits, EpochWith, LogState, Records
from producer.publish import Publisher
from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition
from relay_store.read.reader import RelayBlock, RelayReader
from relay_store.write.writer import RelayWriter
from schemas.binlog import framing
from schemas.errors import RelayError
from schemas.tables import TableFilter
from schemas.wire.epoch import ORIGIN, EpochCommitted
from tests.support.binlogs.decoder import NOW
from tests.support.binlogs.relay_events import event, format_description, gtid, query, xid
from tests.support.processes.alive import processes
from tests.support.waiting import wait_until

_UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
_SUBDIR, _FILES = f"{_UUID}.000001", ("mysql-bin.000001", "mysql-bin.000002")
_GROUPS, _TEXT = 2000, bytes(4000)


def _table(name: bytes) -> bytes:
    """A TABLE_MAP of a table with the columns ``id INT``, the key, and ``b BLOB``."""
    names = b"\4\5\2id\1b" + b"\x08\1\0"
    body = (
        b"\1\0\0\0\0\0\1\0" + b"\1d\0\1" + name + b"\0" + b"\2\3\xfc\1\2\0" + b"\1\1\0" + b"\2\1\x3f" + names
    )
    return event(framing.TABLE_MAP, body)


def _group(number: int) -> bytes:
    row = b"\0" + struct.pack("<iH", number, len(_TEXT)) + _TEXT
    inserted = event(framing.WRITE_ROWS, b"\1\0\0\0\0\0" + b"\1\0" + b"\2\0" + b"\2\3" + row)
    return b"".join((gtid(number), query(b"BEGIN"), _table((b"t", b"u")[number % 2]), inserted, xid()))


def _relay_log(root: Path) -> None:
    """Two files of 8 MB, the second with a DDL in its midst."""
    relay = RelayWriter.open(root)
    relay.open_subdir(_UUID)
    relay.write_start(layout.StartPosition(_FILES[0], 4, "", _SUBDIR, ORIGIN))
    relay.rotate(_FILES[0])
    relay.close()
    groups = [_group(number) for number in range(1, 2 * _GROUPS)]
    groups[3 * _GROUPS // 2] = gtid(3 * _GROUPS // 2 + 1) + query(b"CREATE TABLE v (a INT)")
    for file, part in zip(_FILES, (groups[:_GROUPS], groups[_GROUPS:]), strict=True):
        (root / _SUBDIR / file).write_bytes(framing.MAGIC + format_description() + b"".join(part))


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("relay")
    _relay_log(root)
    return root


class _Log:
    """An epoch log in memory."""

    def __init__(self) -> None:
        self.epochs: list[tuple[EpochCommitted, list[Any]]] = []
        self._rows: list[Any] = []

    def begin(self) -> None:
        self._rows = []

    def write(self, records: Records) -> None:
        rows = enumerate(zip(records.keys, records.values, strict=True), records.first)
        self._rows += [(number, *row, records.headers.get(number)) for number, row in rows]

    def commit(
        self,
        epoch_with: EpochWith,
        tracked: tuple[tuple[bytes, bytes | None], ...] = (),
    ) -> EpochCommitted:
        epoch = epoch_with((), 0, ())
        self.epochs.append((epoch, [*self._rows, *tracked]))
        return epoch

    def abort(self) -> None: ...


@pytest.fixture
def epochs_with(
    relay: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], list[tuple[Any, list[Any]]]]:
    """Publishes the relay log with so many processes; returns the epochs, without what differs from run to run."""
    monkeypatch.setattr(publish, "_now", lambda: NOW)
    monkeypatch.setattr("producer.ahead.blocks._BACKLOG", 1 << 20)

    def published(workers: int) -> list[tuple[Any, list[Any]]]:
        log = _Log()
        rules = DecodeRules("mysql", TableFilter(), EpochLimits(300, 1 << 40, 1e9, 1e9))
        Publisher(log, relay, None, rules, workers=workers).run(LogState(None), threading.Event())
        return [
            (vars(epoch) | {"published_ms": 0, "log_id": "", "origins": ()}, rows)
            for epoch, rows in log.epochs
        ]

    return published


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Wait for the processes when they are first wanted. Gets the number of groups of each block that they decoded."""
    decoded: list[int] = []
    is_ready, result = DecodePool.is_ready, DecodePool.result
    assert isinstance(is_ready, property)
    asked = is_ready.fget
    assert asked is not None

    def wait(self: DecodePool) -> bool:
        wait_until(lambda: asked(self) or self._failures > pool._MOST_FAILURES, "a process decodes", 60)
        return asked(self)

    def noted(self: DecodePool, job: Any) -> Any:
        block = result(self, job)
        decoded.append(0 if block is None else len(block.groups.groups))
        return block

    monkeypatch.setattr(DecodePool, "is_ready", property(wait))
    monkeypatch.setattr(DecodePool, "result", noted)
    return decoded


def _children() -> list[int]:
    found = processes()
    return [pid for pid, (_, command) in found.items() if "producer.ahead.worker" in command]


def test_the_epochs_are_the_same(epochs_with: Callable[[int], Any], ready: list[int]) -> None:
    plain = epochs_with(0)
    assert not ready
    assert epochs_with(2) == plain
    assert sum(ready) > _GROUPS
    assert sum(epoch["transactions"] for epoch, _ in plain) == 2 * _GROUPS - 1


def test_a_process_that_dies_costs_nothing(
    epochs_with: Callable[[int], Any], ready: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed again and again, so that in the end none starts any more."""
    submit = DecodePool.submit

    def and_kill(self: DecodePool, block: RelayBlock, format_description: bytes) -> Any:
        job = submit(self, block, format_description)
        for worker in self._workers:
            worker.fail()
        return job

    plain = epochs_with(0)
    monkeypatch.setattr(DecodePool, "submit", and_kill)
    assert epochs_with(2) == plain
    assert 0 in ready


def test_a_process_that_hangs_is_not_waited_for(
    epochs_with: Callable[[int], Any], ready: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = DecodePool.submit
    stopped: list[int] = []

    def and_stop(self: DecodePool, block: RelayBlock, format_description: bytes) -> Any:
        for worker in self._workers if not stopped else ():
            process = worker._process
            if process is not None:
                stopped.append(process.pid)
                os.kill(process.pid, signal.SIGSTOP)
        return submit(self, block, format_description)

    plain = epochs_with(0)
    monkeypatch.setattr(DecodePool, "submit", and_stop)
    monkeypatch.setattr(pool, "_PATIENCE", 0.5)
    assert epochs_with(1) == plain
    assert stopped
    assert 0 in ready


def test_a_process_of_its_own_has_no_secret_and_ends_with_the_pool(
    relay: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told nothing by signals, and has pipes and nothing else."""
    monkeypatch.setenv("TAILRACE_PASSWORD", "s3cret")
    known = KnownTables()
    with_one = DecodePool(1, "mysql", by_fingerprint=True, known=lambda: known)
    wait_until(lambda: with_one.is_ready, "a process decodes")
    process = with_one._workers[0]._process
    assert process is not None
    assert b"s3cret" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    files = [os.readlink(file) for file in Path(f"/proc/{process.pid}/fd").iterdir()]
    assert not [file for file in files if file.startswith("socket")]
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(process.pid, number)
    reader = RelayReader(relay, RelayPosition(_SUBDIR, _FILES[0], 4))
    block = reader.read_block()
    assert block is not None
    assert with_one.result(with_one.submit(block, reader.format_description())) is not None
    reader.close()
    with_one.close()
    assert process.poll() is not None


def test_without_a_backlog_no_process_starts(relay: Path) -> None:
    known = KnownTables()
    reader = RelayReader(relay, RelayPosition(_SUBDIR, _FILES[1], 4))
    blocks = BlocksAhead(reader, DecodePool(2, "mysql", by_fingerprint=True, known=lambda: known))
    found = []
    while (one := blocks.read_block(0.0)) is not None:
        found.append(one)
    assert len(found) > 3
    assert all(job is None for _, job in found)
    assert not [pid for pid in _children() if processes().get(pid, (0, []))[0] == os.getpid()]
    blocks.close()
    reader.close()


def test_idle_processes_end_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    known = KnownTables()
    idle = DecodePool(1, "mysql", by_fingerprint=True, known=lambda: known)
    wait_until(lambda: idle.is_ready, "a process decodes")
    process = idle._workers[0]._process
    assert process is not None
    idle.rest()
    assert process.poll() is None
    monkeypatch.setattr(pool, "_IDLE", 0.0)
    idle.rest()
    assert process.poll() is not None
    wait_until(lambda: idle.is_ready, "another process decodes")
    idle.close()


def test_what_is_before_a_damage_is_decoded_before_it_is_reported(relay: Path, tmp_path: Path) -> None:
    data = bytearray((relay / _SUBDIR / _FILES[0]).read_bytes())
    data[-100] ^= 1
    _relay_log(tmp_path)
    (tmp_path / _SUBDIR / _FILES[0]).write_bytes(data)
    reader = RelayReader(tmp_path, RelayPosition(_SUBDIR, _FILES[0], 4))
    known = KnownTables()
    blocks = BlocksAhead(reader, DecodePool(1, "mysql", by_fingerprint=True, known=lambda: known))
    blocks._without_pause = 1 << 40
    assert blocks._pool is not None
    wait_until(lambda: blocks._pool is not None and blocks._pool.is_ready, "a process decodes")
    read = 4
    error = None
    while error is None:
        try:
            found = blocks.read_block(0.0)
        except RelayError as reported:
            error = reported
        else:
            assert found is not None
            assert found[0].pos == read
            read += len(found[0].data)
    assert error.code == "TR304"
    blocks.close()
    reader.close()
    assert read > len(data) - (4 << 20)


_PARENT = """
import sys, time
from producer.ahead.pool import DecodePool
from producer.decode.rows_events import KnownTables
known = KnownTables()
pool = DecodePool(2, "mysql", by_fingerprint=True, known=lambda: known)
while not all(worker.is_ready for worker in pool._workers) or not pool.is_ready:
    time.sleep(0.02)
print("pids", *(worker._process.pid for worker in pool._workers), flush=True)
time.sleep(600)
"""


def test_processes_end_with_a_parent_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    line = next(line for line in parent.stdout if line.startswith("pids"))
    workers = {int(pid) for pid in line.split()[1:]}
    assert len(workers) == 2
    assert workers <= processes().keys()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not workers & processes().keys(), "the processes end", 30)


@pytest.mark.parametrize(
    ("processors", "quota", "expected"),
    [
        (1, "", 0),
        (2, "", 0),
        (3, "", 2),
        (4, "max 100000", 3),
        (16, "", 4),
        (16, "300000 100000", 2),
        (4, "50000 100000", 0),
    ],
)
def test_as_many_processes_as_are_worth_it(
    processors: int, quota: str, expected: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(processors)))
    monkeypatch.setattr(pool, "_QUOTA", tmp_path / "cpu.max")
    if quota:
        (tmp_path / "cpu.max").write_text(quota + "\n")
    assert worker_count() == expected
