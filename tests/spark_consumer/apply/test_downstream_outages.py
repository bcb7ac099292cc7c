"""The downstream fails in every way that it has, under rows that are being written, in both consistency modes."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest

from compose.databases import FLAVORS, Database
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from schemas.structure import TableStructure
from spark_consumer.apply import executor_sessions
from spark_consumer.rules.config import ConsumerConfig
from tests.support.applying.parts import MemoryLog, apply_log
from tests.support.epochs.fake_topic import insert, integer, text, update
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers
DB, PASSWORD = "down", "first"
_SMALL_DISK = 24 << 20  # bytes
_BALLAST = 16 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Where one table's file lies."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK},mode=777", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture
def target(flavor: str, tmp_path: Path, small_disk: Path) -> Iterator[Database]:
    """A server that may be restarted and misused."""
    args = (f"--innodb-directories={small_disk}",) if flavor == "mysql" else ()
    made = FLAVORS[flavor](tmp_path / "target", role="downstream", server_id=102, args=args)
    try:
        made.start()
        yield made
    finally:
        made.kill()


@dataclass
class Channel:
    """Rows that are added to and applied, with what the tables must hold then."""

    server: Database
    config: ConsumerConfig
    random: Random
    structure: TableStructure
    log: MemoryLog = field(default_factory=MemoryLog)
    rows: dict[int, int] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)

    def add(self, epochs: int, size: int = 40) -> None:
        """More epochs, of INSERTs and of UPDATEs of earlier rows."""
        for _ in range(epochs):
            made = []
            for _ in range(size):
                if self.rows and self.random.random() < 0.4:
                    number = self.random.randrange(len(self.rows))
                    before = self.row(number)
                    self.rows[number] += 1
                    made.append(update(self.structure, before, self.row(number)))
                else:
                    number = len(self.rows)
                    self.rows[number] = 0
                    made.append(insert(self.structure, self.row(number)))
            self.log.add(*made)

    def row(self, number: int) -> dict[str, Any]:
        return {"id": number, "v": self.rows[number], "s": f"{number}-" + "x" * 40}

    def apply(self) -> threading.Thread:
        """Apply what is there, in a thread."""

        def work() -> None:
            try:
                apply_log(self.config, self.log)
            except BaseException as error:
                self.failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def check(self) -> None:
        """Each row is as the log says, and each epoch was applied once."""
        table = f"{DB}.{self.structure.table}"
        found = self.server.execute(f"SELECT id, v FROM {table} ORDER BY id")
        assert (self.failures, found) == ([], sorted(self.rows.items()))
        batches = self.server.execute(
            "SELECT first_epoch, last_epoch FROM tailrace.applied_epochs"
            f" WHERE channel = '{self.config.channel}' ORDER BY 1"
        )
        covered = [epoch for begin, end in batches for epoch in range(begin, end + 1)]
        assert covered == list(range(len(self.log.logged)))


def channel(target: Database, table: str, workers: int, options: str = "") -> Channel:
    """A channel with a table and an account of its own."""
    target.execute(
        f"CREATE TABLE {DB}.{table} (id INT PRIMARY KEY, v INT, s VARCHAR(60)) {options}",
        f"CREATE USER {table}@'%' IDENTIFIED BY '{PASSWORD}'",
        f"GRANT ALL ON *.* TO {table}@'%'",
        *([] if target.flavor == "mysql" else [f"REVOKE READ ONLY ADMIN ON *.* FROM {table}@'%'"]),
    )
    url = ServerUrl.parse(f"mysql://{table}:{PASSWORD}@127.0.0.1:{target.port}/")
    config = ConsumerConfig(
        "",
        "p",
        url,
        channel=table,
        consistency="worker",
        worker_count=workers,
        max_batch_rows=40,
        retry_time=120.0,
        statement_rows=7,
    )
    structure = TableStructure(DB, table, (integer("id"), integer("v"), text("s")), ("id",))
    made = Channel(target, config, Random(workers), structure)
    made.add(1)
    made.apply().join(60)
    made.check()
    return made


def connections(target: Database, user: str) -> list[int]:
    sql = f"SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{user}'"
    return [int(number) for (number,) in target.execute(sql)]


def kill(target: Database, user: str, what: str = "CONNECTION") -> int:
    """Kill what an account's connections do; how many there were."""
    found = connections(target, user)
    for number in found:
        with suppress(pymysql.MySQLError):
            target.execute(f"KILL {what} {number}")
    return len(found)


def while_alive(thread: threading.Thread, act: Callable[[], Any], pause: float, most: int = 30) -> int:
    """Act again and again while it works, then wait for its end; how often."""
    times = 0
    while thread.is_alive() and times < most:
        act()
        times += 1
        time.sleep(pause)
    thread.join(180)
    assert not thread.is_alive()
    return times


def variable(target: Database) -> str:
    return "super_read_only" if target.flavor == "mysql" else "read_only"


def locked_rows(target: Database, table: str, random: Random) -> Callable[[], None]:
    """Lock rows in an order of one's own, wait no longer than a second, change nothing."""

    def act() -> None:
        numbers = random.sample(range(30), 6)
        with target.connect(autocommit=False) as other, other.cursor() as cursor:
            with suppress(pymysql.MySQLError):
                cursor.execute("SET innodb_lock_wait_timeout = 1")
                for number in numbers:
                    cursor.execute(f"UPDATE {DB}.{table} SET s = CONCAT(s, '!') WHERE id = {number}")
                    time.sleep(0.01)
            other.rollback()

    return act


def connections_and_statements_are_killed(one: Channel) -> None:
    """In the midst of transactions and at their end."""
    for what in ("CONNECTION", "QUERY"):
        one.add(12)
        assert while_alive(one.apply(), partial(kill, one.server, "t", what), 0.03)
        one.check()


def rows_are_locked_crosswise(one: Channel) -> None:
    """Other sessions hold them: 1205 and 1213."""
    one.server.execute("SET GLOBAL innodb_lock_wait_timeout = 1")
    executor_sessions._sessions.clear()
    one.add(12)
    while_alive(one.apply(), locked_rows(one.server, "t", Random(one.config.workers)), 0.0)
    one.check()


def the_server_is_read_only_for_a_while(one: Channel) -> None:
    one.add(12)
    thread = one.apply()
    one.server.execute(f"SET GLOBAL {variable(one.server)} = ON")
    time.sleep(0.5)
    assert thread.is_alive()
    one.server.execute(f"SET GLOBAL {variable(one.server)} = OFF", "SET GLOBAL read_only = OFF")
    thread.join(120)
    one.check()


def all_connections_are_used_up(one: Channel) -> None:
    """Those of the server, then those of the account."""
    for closed, opened in (
        ("SET GLOBAL max_connections = 10", "SET GLOBAL max_connections = 200"),
        ("ALTER USER t WITH MAX_USER_CONNECTIONS 1", "ALTER USER t WITH MAX_USER_CONNECTIONS 0"),
    ):
        one.add(12)
        with one.server.connect() as root, root.cursor() as cursor:
            cursor.execute(closed)
            held: list[Any] = []
            with suppress(pymysql.MySQLError):
                while "GLOBAL" in closed:
                    held.append(one.server.connect())
            thread = one.apply()
            time.sleep(0.5)
            cursor.execute(opened)
            for connection in held:
                connection.close()
        thread.join(120)
        one.check()


def the_server_goes_and_comes_back(one: Channel) -> None:
    """In order, and killed."""
    for act in (one.server.restart, one.server.kill):
        one.add(25)
        thread = one.apply()
        act()
        one.server.start()
        thread.join(120)
        one.check()


def the_password_becomes_another(one: Channel) -> None:
    """It stops, with a reason that does not tell the password."""
    one.add(12)
    one.server.execute("ALTER USER t IDENTIFIED BY 'second'")
    thread = one.apply()
    kill(one.server, "t")
    thread.join(60)
    [refused] = one.failures
    assert isinstance(refused, DownstreamError)
    assert refused.code == "TR601"
    assert "check user and password" in str(refused)
    assert PASSWORD not in str(refused)
    one.failures.clear()
    url = ServerUrl.parse(f"mysql://t:second@127.0.0.1:{one.server.port}/")
    one.config = replace(one.config, target=url)
    one.apply().join(120)
    one.check()


def the_tables_disk_is_full(target: Database, workers: int, disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(_BALLAST))
    full = channel(target, "f", workers, f"DATA DIRECTORY = '{disk}'")
    full.add(16, 3000)
    thread = full.apply()
    wait_until(lambda: not thread.is_alive() or shutil.disk_usage(disk).free <= 200_000, "the disk is full")
    time.sleep(0.5)
    assert thread.is_alive()
    ballast.unlink()
    thread.join(120)
    full.check()


@pytest.mark.parametrize(("flavor", "workers"), [("mysql", 3), ("mariadb", 1)])
def test_whatever_the_downstream_does_rows_arrive_once(
    target: Database, workers: int, small_disk: Path
) -> None:
    target.execute(f"CREATE DATABASE {DB}")
    one = channel(target, "t", workers)
    connections_and_statements_are_killed(one)
    rows_are_locked_crosswise(one)
    the_server_is_read_only_for_a_while(one)
    all_connections_are_used_up(one)
    the_server_goes_and_comes_back(one)
    the_password_becomes_another(one)
    the_tables_disk_is_full(target, workers, small_disk)
