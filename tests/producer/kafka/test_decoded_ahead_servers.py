"""A backlog that other processes decode, between real servers and a real Kafka, with kills of all of them."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from producer.mirror.loop import Mirror
from relay_store.write.writer import RelayWriter
from tests.support.binlogs.binlog_rows import binlog_end
from tests.support.epochs.producer_case import Case
from tests.support.paths import PROGRAMS
from tests.support.processes.alive import processes
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers

_WITH_WORKERS = PROGRAMS / "producer_with_workers.py"
_TEXT = 20_000  # bytes of a row
_GROUPS = 1200


def _backlog(case: Case) -> list[tuple[str, str]]:
    """24 MB in the relay log, with changes of keys and a DDL. Returns each row's table and operation."""
    logged = []
    case.sql("CREATE TABLE b (id INT PRIMARY KEY, v MEDIUMBLOB, n INT)")
    with case.upstream.connect(database=case.db, autocommit=False) as connection:
        cursor = connection.cursor()
        for number in range(1, _GROUPS + 1):
            cursor.execute("INSERT INTO b (id, v) VALUES (%s, REPEAT(%s, %s))", (number, "x", _TEXT))
            cursor.execute("INSERT INTO t (v) VALUES (%s)", (number,))
            logged += [("b", "c"), ("t", "c")]
            if number % 5 == 0:
                cursor.execute("UPDATE b SET id = -id, n = 1 WHERE id = %s", (number - 1,))
                logged += [("b", "d"), ("b", "c")]
            connection.commit()
            if number == _GROUPS // 4:
                cursor.execute("ALTER TABLE b ADD COLUMN m INT")
    relay = RelayWriter.open(case.config.relay.dir)
    mirror = Mirror(case.config.source, relay, case.config.relay, server_id=case.config.server_id)
    mirror.run(threading.Event(), binlog_end(case.upstream))
    relay.close()
    return logged


def _workers_of(pid: int) -> set[int]:
    return {
        child
        for child, (parent, command) in processes().items()
        if parent == pid and "producer.ahead.worker" in command
    }


def test_kills_of_producer_and_workers_lose_and_double_nothing(case: Case) -> None:
    logged = _backlog(case)
    killed = case.process("publish.before_commit:16", _WITH_WORKERS, workers=2)
    seen: set[int] = set()

    def is_dead() -> bool:
        seen.update(_workers_of(killed.pid))
        return killed.poll() is not None

    wait_until(is_dead, "the producer dies")
    assert killed.returncode == -signal.SIGKILL
    assert len(seen) == 2
    wait_until(lambda: not seen & processes().keys(), "its workers end", 60)

    process = case.process("", _WITH_WORKERS, workers=2, until_caught_up=True)
    worker = wait_until(lambda: next(iter(_workers_of(process.pid)), 0), "a worker starts")
    os.kill(worker, signal.SIGKILL)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "decode_worker_failed" in output

    published = case.published()
    assert [(row.structure.table, row.op) for row in published.all_rows] == logged
    for table, images in published.tables().items():
        # Rows from before the ALTER do not have its column.
        ours = sorted(tuple(image.values())[:3] for image in images.values())
        assert ours == [row[:3] for row in case.content(table)], table
