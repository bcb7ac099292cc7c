"""Tables without a key, whose rows are compacted by their images: only how many equal rows there are counts."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from compose.databases import Database
from schemas.errors import DownstreamError
from tests.support.applying.binlog_applied import Channel, Epoch, definitions, epochs_since
from tests.support.applying.sent import note_statements
from tests.support.binlogs.binlog_rows import binlog_end
from tests.support.names import own_database

pytestmark = pytest.mark.servers

_TABLE = (
    "a INT, f DOUBLE, s VARCHAR(20) COLLATE utf8mb4_general_ci, g INT AS (a + 1) STORED, b BLOB, d DECIMAL(9, 2),"
    " KEY (a)"
)
_VALUES = [
    ["NULL", "0", "1", "2"],
    ["0e0", "-0e0", "1.5e0"],
    ["'cafe'", "'café'", "'CAFE'", "'cafe '", "NULL"],
    ["X'00'", "NULL", "''"],
    ["1.50", "0"],
]


@pytest.fixture
def db(request: pytest.FixtureRequest, upstream: Database, downstream: Database) -> Iterator[str]:
    yield from own_database("nokey_", request, upstream, downstream)


def _row(random: Random) -> str:
    return ",".join(random.choice(values) for values in _VALUES)


def _changes(db: str, random: Random, count: int) -> Iterator[str]:
    for _ in range(count):
        kind = random.random()
        if kind < 0.5:
            rows = ",".join(f"({_row(random)})" for _ in range(random.randrange(1, 30)))
            yield f"INSERT INTO {db}.t (a, f, s, b, d) VALUES {rows}"
        elif kind < 0.75:
            yield f"UPDATE {db}.t SET s = {random.choice(_VALUES[2])} WHERE a <=> {random.choice(_VALUES[0])} LIMIT 9"
        else:
            yield f"DELETE FROM {db}.t WHERE s <=> {random.choice(_VALUES[2])} LIMIT {random.randrange(1, 20)}"


def _epochs_of(upstream: Database, db: str, *groups: list[str]) -> list[Epoch]:
    begin = binlog_end(upstream)
    upstream.execute(f"CREATE DATABASE {db}", f"CREATE TABLE {db}.t ({_TABLE})")
    for number, statements in enumerate(groups):
        upstream.execute("BEGIN", *statements, "COMMIT")
        # A DDL ends the epoch.
        upstream.execute(f"ALTER TABLE {db}.t COMMENT '{number}'")
    return epochs_since(upstream, begin)


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"], indirect=True)
@pytest.mark.parametrize("seed", range(4))
def test_changes_of_equal_and_similar_rows_end_as_upstream(
    upstream: Database, downstream: Database, db: str, seed: int
) -> None:
    random = Random(seed)
    epochs = _epochs_of(upstream, db, *(list(_changes(db, random, 25)) for _ in range(4)))
    Channel(downstream, db).apply(epochs)
    assert definitions(downstream, db) == definitions(upstream, db)


def test_distinct_rows_are_removed_together(
    upstream: Database, downstream: Database, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ",".join(f"({number}, {number}, 'x{number}', NULL, 1)" for number in range(900))
    epochs = _epochs_of(
        upstream,
        db,
        [f"INSERT INTO {db}.t (a, f, s, b, d) VALUES {rows}"],
        [
            f"UPDATE {db}.t SET d = 2 WHERE a < 800",
            f"INSERT INTO {db}.t (a, f) VALUES (9999, 1)",
            f"DELETE FROM {db}.t WHERE a % 2",
        ],
    )
    sent = note_statements(monkeypatch, b"DELETE FROM `" + db.encode())
    Channel(downstream, db).apply(epochs)
    assert definitions(downstream, db) == definitions(upstream, db)
    deletes = [sql for sql in sent if sql.startswith(b"DELETE FROM `" + db.encode())]
    assert [sql.count(b" <=> ") // 5 for sql in deletes] == [500, 350]


#: types, and the SQL of thirty different values of each
_KINDS = {
    "TINYINT": "{n}",
    "BIGINT UNSIGNED": "18446744073709551615 - {n}",
    "DECIMAL(30, 5)": "-{n}.5",
    "FLOAT": "{n} / 3",
    "DOUBLE": "-{n} / 3",
    "BIT(40)": "{n} << 30",
    "YEAR": "1990 + {n}",
    "DATE": "'2020-01-01' + INTERVAL {n} DAY",
    "TIME(2)": "SEC_TO_TIME(-{n}.25)",
    "DATETIME(6)": "'2020-01-01 00:00:00.000001' + INTERVAL {n} SECOND",
    "TIMESTAMP(3) NULL": "'2020-01-01 00:00:00.001' + INTERVAL {n} SECOND",
    "CHAR(20) COLLATE utf8mb4_general_ci": "CONCAT('é''\\\\', {n})",
    "VARCHAR(20) CHARACTER SET latin1": "CONCAT('ü ', {n})",
    "VARCHAR(20) CHARACTER SET utf16": "CONCAT('ł', {n})",
    "TEXT": "CONCAT('x', {n})",
    "BINARY(9)": "CONCAT(X'00FF', {n})",
    "BLOB": "CONCAT(X'FF00', {n})",
    "SET('a', 'b', 'c', 'd', 'e')": "{n} + 1",
    "JSON": "JSON_OBJECT('a', {n})",
}


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"], indirect=True)
def test_rows_of_any_type_are_looked_up_in_a_list(
    upstream: Database, downstream: Database, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it a server compares each row of the table with each of the rows that go."""
    begin = binlog_end(upstream)
    upstream.execute(f"CREATE DATABASE {db}")
    for number, (kind, value) in enumerate(_KINDS.items()):
        rows = ",".join(f"({value.format(n=n)}, 7)" for n in range(30))
        upstream.execute(
            f"CREATE TABLE {db}.t{number} (v {kind}, c INT)",
            f"INSERT INTO {db}.t{number} VALUES {rows}",
            f"ALTER TABLE {db}.t{number} COMMENT 'filled'",
            f"DELETE FROM {db}.t{number} LIMIT 20",
            f"ALTER TABLE {db}.t{number} COMMENT 'less'",
        )
    sent = note_statements(monkeypatch, b"DELETE FROM `" + db.encode())
    Channel(downstream, db).apply(epochs_since(upstream, begin))
    assert definitions(downstream, db) == definitions(upstream, db)
    deletes = [sql for sql in sent if sql.startswith(b"DELETE FROM `" + db.encode())]
    assert [b" IN (" in sql for sql in deletes] == [True] * len(_KINDS), deletes


def _stopped_by(
    upstream: Database, downstream: Database, db: str, insert: str, changes: list[str], damage: str
) -> DownstreamError:
    """Apply an INSERT, damage the downstream, and return the error with which the changes stop the channel."""
    epochs = _epochs_of(upstream, db, [insert], changes)
    channel = Channel(downstream, db)
    channel.apply(epochs[:-3])
    downstream.execute(damage)
    with pytest.raises(DownstreamError) as stopped:
        channel.apply(epochs)
    return stopped.value


def test_a_row_that_is_missing_stops_the_channel_at_its_event(
    upstream: Database, downstream: Database, db: str
) -> None:
    error = _stopped_by(
        upstream,
        downstream,
        db,
        f"INSERT INTO {db}.t (a, s) VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        [f"DELETE FROM {db}.t WHERE a > 1", f"INSERT INTO {db}.t (a) VALUES (4)"],
        f"UPDATE {db}.t SET s = 'other' WHERE a = 3",
    )
    assert error.code == "TR603"
    assert error.where.event is not None
    assert downstream.execute(f"SELECT a, s FROM {db}.t ORDER BY a") == [(1, "a"), (2, "b"), (3, "other")]


def test_a_row_that_is_there_twice_is_not_taken_for_a_missing_one(
    upstream: Database, downstream: Database, db: str
) -> None:
    insert = f"INSERT INTO {db}.t (a, s) VALUES (1, 'cafe'), (1, 'café')"
    damage = f"UPDATE {db}.t SET s = 'cafe'"
    error = _stopped_by(upstream, downstream, db, insert, [f"DELETE FROM {db}.t"], damage)
    assert error.code == "TR603"
    assert downstream.execute(f"SELECT a, s FROM {db}.t") == [(1, "cafe"), (1, "cafe")]
