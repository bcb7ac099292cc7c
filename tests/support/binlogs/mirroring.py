"""Runs a mirror, and compares its files with the upstream's."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

from producer.mirror.loop import Mirror
from producer.settings import RelaySettings
from producer.upstream.connect import UpstreamInfo, describe
from relay_store.layout import directory as layout
from relay_store.write.writer import RelayWriter
from schemas.access.server_url import ServerUrl
from schemas.binlog import framing
from tests.support.paths import CHECKOUT, PROGRAMS
from tests.support.waiting import wait_until

SETTINGS = RelaySettings()
MIRROR_PROCESS = PROGRAMS / "mirror_process.py"


def url_of(source) -> ServerUrl:
    return ServerUrl.parse(source.url("tailrace"))


@contextmanager
def mirroring(source, root, settings=SETTINGS, **options):
    """Run a mirror in a thread while the block runs, and raise its error at the end, if any."""
    relay, stop, errors = RelayWriter.open(root), threading.Event(), []
    mirror = Mirror(url_of(source), relay, settings, server_id=990, **options)

    def work():
        try:
            mirror.run(stop)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield mirror
    finally:
        stop.set()
        thread.join()
        relay.close()
    if errors:
        raise errors[0]


def settled_end(source) -> UpstreamInfo:
    """Describe an upstream whose binlog does not grow by itself any more.

    MariaDB writes the Binlog_checkpoint event that names a file into it a moment after the file has begun.
    """

    def settled() -> UpstreamInfo | None:
        file = describe(url_of(source)).file
        if source.flavor == "mariadb":
            events = source.execute(f"SHOW BINLOG EVENTS IN '{file}'")
            if not any((kind, text) == ("Binlog_checkpoint", file) for _, _, kind, _, _, text in events):
                return None
        info = describe(url_of(source))
        return info if info.file == file else None

    return wait_until(settled, "the binlog's last file has its checkpoint")


def catch_up(source, root, settings=SETTINGS, **options) -> None:
    """Run a mirror until the present end of the upstream's binlog is on disk."""
    info = settled_end(source)
    relay = RelayWriter.open(root)
    try:
        mirror = Mirror(url_of(source), relay, settings, server_id=990, **options)
        mirror.run(threading.Event(), until=(info.file, info.position))
    finally:
        relay.close()


def wait_for_mirror(mirror: Mirror, source) -> None:
    """Wait until the present end of the upstream's binlog is mirrored."""
    info = settled_end(source)
    wait_until(
        lambda: mirror.reached(info.file, info.position),
        lambda: f"the mirror is at {info.file}:{info.position}, not {mirror.relay.tail.position}",
    )


def purge_upstream(source, last: str) -> None:
    """Purge the upstream's files before this one. An ending dump keeps its file for a moment."""

    def purged() -> bool:
        source.execute(f"PURGE BINARY LOGS TO '{last}'")
        return bool(describe(url_of(source)).files[0][0] == last)

    wait_until(purged, f"the upstream forgets what is before {last}")


def work_on(source, turns: int, seed: int = 0) -> None:
    """Run many kinds of transactions in a table of their own, with some rotations of the binlog."""
    rng = random.Random(seed)
    source.execute(
        "CREATE DATABASE IF NOT EXISTS m",
        "CREATE TABLE IF NOT EXISTS m.t (id INT PRIMARY KEY AUTO_INCREMENT, v LONGBLOB)",
        "CREATE TABLE IF NOT EXISTS m.plain (id INT) ENGINE=MyISAM",
    )
    with source.connect(database="m") as connection, connection.cursor() as cursor:
        for _ in range(turns):
            cursor.execute("BEGIN")
            for _ in range(rng.randint(1, 5)):
                cursor.execute("INSERT t (v) VALUES (REPEAT('x', %s))", (rng.randint(0, 3000),))
            cursor.execute("SAVEPOINT s")
            cursor.execute("DELETE FROM t LIMIT 1")
            cursor.execute("ROLLBACK TO s")
            cursor.execute("COMMIT")
            cursor.execute("INSERT plain VALUES (1), (2)")
            if rng.random() < 0.1:
                cursor.execute("FLUSH BINARY LOGS")
            if rng.random() < 0.1:
                cursor.execute("ALTER TABLE plain COMMENT %s", (str(rng.random()),))


def write_odd_things(source, flavor: str) -> None:
    """Write events that break simple readers: XA, changed checksums, tags, compression."""
    source.execute(
        "CREATE TABLE m.copy SELECT * FROM m.t LIMIT 3",
        "XA START 'x'",
        "INSERT m.t (v) VALUES ('xa')",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA COMMIT 'x'",
        "SET GLOBAL binlog_checksum = NONE",
        "INSERT m.t (v) VALUES ('none')",
        "SET GLOBAL binlog_checksum = CRC32",
        "INSERT m.t (v) VALUES ('crc')",
    )
    if flavor == "mysql":
        source.execute(
            "SET gtid_next = 'AUTOMATIC:blue'",
            "INSERT m.t (v) VALUES ('tagged')",
            "SET gtid_next = 'AUTOMATIC'",
            "SET binlog_transaction_compression = 1",
            "INSERT m.t (v) VALUES (REPEAT('packed', 1000))",
            "FLUSH BINARY LOGS",
        )


def relay_files(root: Path) -> list[Path]:
    subdir = root / layout.read_index(root)[-1]
    return [subdir / name for name in layout.binlog_files(subdir)]


def assert_same_files(source, root: Path, was_killed: bool = False) -> None:
    """Assert that files are equal, except for the in-use flag in the upstream's active file.

    A MariaDB server that was killed leaves the flag set in its file, and never sends it.
    """
    files = relay_files(root)
    assert [f.name for f in files] == [name for name, _ in describe(url_of(source)).files]
    for file in files[:-1] if not was_killed else []:
        subprocess.run(["cmp", str(file), str(source.data / file.name)], check=True)
    for file in files if was_killed else files[-1:]:
        theirs = bytearray((source.data / file.name).read_bytes())
        theirs[4 + 17] &= ~framing.FLAG_IN_USE
        assert file.read_bytes() == bytes(theirs)
    for file in files:
        program = [*source.client_program("mysqlbinlog"), "--verify-binlog-checksum", str(file)]
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL)


def start_process(source, root: Path, max_file_size: int = 0, **environment: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        str(MIRROR_PROCESS),
        source.url("tailrace"),
        str(root),
        "991",
        str(max_file_size),
    ]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), **environment}
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
