"""A validation that is killed goes on where it was, and reads nothing again but what may have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_consumer.apply.tables.validation import ProvedPosition
from spark_consumer.target.session import closing, connect
from tailrace.validate import Report
from tailrace.validate.catalog import ComparedColumn, ComparedTable
from tailrace.validate.protocol import chunk_suspects
from tailrace.validate.saved_run import Proved, structure_of
from tailrace.validate.tables import Chunk, ReadUpTo, TablePair
from tests.support.applying.validated import Channel

Make = Callable[..., Channel]

_KEYS = st.tuples(st.binary(), st.binary())


@given(st.none() | st.builds(ReadUpTo, st.integers(0, 9), st.none() | _KEYS), st.frozensets(_KEYS))
def test_a_state_is_read_as_it_was_written(upto: ReadUpTo | None, open_keys: frozenset[Any]) -> None:
    proved = Proved(ProvedPosition("log", 7, 9, "1-1-1"), "s", upto, 5, 2, open_keys)
    assert Proved.from_json(proved.to_json()) == proved


def test_a_structure_is_the_same_with_more_rows_and_another_with_another_collation() -> None:
    column = ComparedColumn("w", "varchar", "utf8mb4", False)
    table = ComparedTable("d", "t", (column,), (column,), 100)
    pair, longer = (
        TablePair((one,), one, "ranges") for one in (table, replace(table, average_row_bytes=200))
    )
    one, other = ({("d", "t"): {"w": name}} for name in ("a_bin", "a_ci"))
    assert structure_of(pair, (one, one)) == structure_of(longer, (one, one))
    assert len({structure_of(pair, both) for both in ((one, one), (one, other), (other, one))}) == 3


class Killed(Exception):
    """Ends a validation; only what it has written is left."""


class Reads:
    """Which chunks are read, by table; a validation dies before it reads the ``dies_at``-th one."""

    def __init__(self) -> None:
        self.chunks: list[tuple[str, Chunk]] = []
        self.dies_at = 0

    def __call__(self, sides: Any, chunk: Chunk) -> Any:
        self.dies_at -= 1
        if self.dies_at == 0:
            raise Killed
        self.chunks.append((sides.pair.target.name, chunk))
        return chunk_suspects(sides, chunk)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Small chunks, each of which is saved and noted."""
    found = Reads()
    monkeypatch.setattr("tailrace.validate.validator.chunk_suspects", found)
    monkeypatch.setattr("tailrace.validate.validator.chunk_rows", lambda table: 10)
    monkeypatch.setattr("tailrace.validate.saved_run._PAUSE", 0.0)
    return found


@contextmanager
def _killed(reads: Reads, at: int) -> Iterator[None]:
    reads.dies_at = at
    with pytest.raises(Killed):
        yield
    reads.dies_at = 0


def _saved(pipe: Channel) -> int:
    with closing(connect(pipe.consumer.target)) as session:
        return int(
            session.value("SELECT COUNT(*) FROM tailrace.validation_run WHERE channel = %s", (pipe.db,))
        )


def _different(report: Report) -> dict[str, list[str]]:
    return {table.table.partition(".")[2]: table.keys for table in report.tables if table.keys}


@pytest.mark.servers
def test_a_run_that_is_killed_again_and_again_reads_each_chunk_once(channel: Make, reads: Reads) -> None:
    pipe = channel("mysql", "mariadb")
    pipe.log.sql(
        "CREATE TABLE bag (v INT)",
        "CREATE TABLE numbers (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE words (w VARCHAR(9) PRIMARY KEY, v INT) CHARSET utf8mb4",
        *(f"INSERT INTO numbers VALUES ({n}, 0)" for n in range(40)),
        *(f"INSERT INTO words VALUES ('w{n}', 0)" for n in range(25)),
        "INSERT INTO bag VALUES (1), (2)",
    )
    pipe.replicate()
    pipe.there_sql(
        "UPDATE numbers SET v = 1 WHERE id IN (3, 4)",
        "UPDATE words SET v = 1 WHERE w = 'w0'",
        "DELETE FROM bag WHERE v = 2",
    )
    before = pipe.validate()
    whole, reads.chunks = reads.chunks, []
    assert (len(whole), before.rows, before.rows_resumed, _saved(pipe)) == (12, 67, 0, 0)

    for _ in range(5):
        with _killed(reads, 3):
            pipe.validate()
    pipe.log.sql("UPDATE numbers SET v = 2 WHERE id = 39")
    pipe.replicate()
    assert reads.chunks == whole[:10]
    pipe.there_sql("UPDATE numbers SET v = 0 WHERE id = 4")
    report = pipe.validate()
    assert reads.chunks == whole
    assert _different(report) == {
        "bag": ["v=2  only upstream"],
        "numbers": ["id=3  different values"],
        "words": ["w=w0  different values"],
    }
    assert (report.rows, report.as_dict()["chunks"], report.pending, _saved(pipe)) == (67, 12, 0, 0), (
        report.as_dict()
    )
    assert (report.position, report.until != report.position) == (before.until, True)
    assert pipe.validate().rows_resumed == 0


@pytest.mark.servers
def test_what_may_have_changed_or_is_another_run_is_read_again(channel: Make, reads: Reads) -> None:
    pipe = channel("mysql", "mysql")
    for table in "abc":
        pipe.log.sql(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO {table} VALUES " + ", ".join(f"({n}, 0)" for n in range(15)),
        )
    pipe.replicate()

    def read_again(**options: Any) -> str:
        """Kill a run at its end, go on with another one, and return the tables of its chunks."""
        with _killed(reads, 6):
            pipe.validate()
        pipe.log.sql("ALTER TABLE b COMMENT = 'another'")
        pipe.replicate()
        pipe.there_sql("ALTER TABLE a ADD COLUMN more INT")
        reads.chunks = []
        assert not pipe.validate(**options).is_different
        pipe.there_sql("ALTER TABLE a DROP COLUMN more")
        return "".join(table for table, _ in reads.chunks)

    assert read_again() == "bbc"
    assert read_again(restart=True) == "aabbcc"
    assert read_again(where="id >= 0") == "aabbcc"
    # The run that was killed is still there: another one with a condition has not touched it.
    assert _saved(pipe) == 4
    # Another process goes on with a run while the first one lives: the first one ends, and removes nothing.
    reads.chunks = []

    def taken_over(report: Report) -> None:
        if len(reads.chunks) == 1:
            with _killed(reads, 2):
                pipe.validate(restart=True)

    report = pipe.validate(restart=True, progress=taken_over)
    assert (report.rows, report.is_different, _saved(pipe)) == (45, False, 2)
