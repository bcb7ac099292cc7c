"""Copies from servers on which somebody kills the copy's statements and connections: no row is lost.

A killed SELECT may answer with no rows at all instead of an error, on MariaDB above all.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pymysql
import pytest

from compose.databases import Database
from producer.copy.copies import Boundary, ChunkRead, Work
from producer.copy.table_lock import NotVisible
from producer.copy.upstream_reader import UpstreamReader
from producer.settings import CopySettings
from producer.structures.store import BinlogPosition
from producer.upstream.connect import describe
from relay_store.layout.directory import file_number
from schemas.access.server_url import ServerUrl
from schemas.errors import UpstreamError
from schemas.tables import TableFilter

pytestmark = pytest.mark.servers

_READS = 1500
_ROWS = 2000


@contextmanager
def _killing(upstream: Database, victim: Callable[[], int | None]) -> Iterator[None]:
    """Kill the statements of a connection again and again."""
    stop, chance = threading.Event(), random.Random(1)

    def kill() -> None:
        with upstream.connect() as connection, connection.cursor() as cursor:
            while not stop.wait(chance.random() * 0.0008):
                if (number := victim()) is not None:
                    with suppress(pymysql.err.MySQLError):  # it is gone
                        cursor.execute(f"KILL QUERY {number}")

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _boundary(upstream: Database) -> Boundary:
    info = describe(ServerUrl.parse(upstream.url()))
    return Boundary(
        0, str(info.executed), BinlogPosition(info.server_uuid, file_number(info.file), info.position)
    )


def test_a_chunk_that_is_killed_does_not_end_its_table(upstream: Database) -> None:
    """Chunks of which half the reads are killed have every row, in the order of the key."""
    rows = ", ".join(f"({number}, {number})" for number in range(_ROWS))
    upstream.execute(
        "DROP DATABASE IF EXISTS killed",
        "CREATE DATABASE killed",
        "CREATE TABLE killed.t (id INT PRIMARY KEY, n INT)",
        f"INSERT INTO killed.t VALUES {rows}",
    )
    reader = UpstreamReader(ServerUrl.parse(upstream.url()), TableFilter(), CopySettings(chunk_rows=20))
    base, lower, killed = _boundary(upstream), tuple[str, ...](), 0

    def victim() -> int | None:
        connection: Any = reader._open
        return connection.thread_id() if connection is not None else None

    with _killing(upstream, victim):
        for _ in range(_READS):
            try:
                chunk = reader.read(Work(("killed", "t"), 0, base, True, lower))
            except (NotVisible, UpstreamError):
                killed += 1
                continue
            assert isinstance(chunk, ChunkRead)
            end = (int(lower[0]) + 1 if lower else 0) + len(chunk.keys)
            assert chunk.upper == (str(end - 1),)
            assert end == _ROWS if chunk.is_last else chunk.keys
            lower = () if chunk.is_last else chunk.upper
    assert 0 < killed < _READS
    reader.close()
    upstream.execute("DROP DATABASE killed")
