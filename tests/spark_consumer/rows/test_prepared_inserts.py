"""Many rows of one table are written by prepared statements: the result is that of the upstream's own statements."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pymysql
import pytest

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from spark_consumer.target import session as session_module
from spark_consumer.target.session import Session, closing, connect
from tests.support.applying.binlog_applied import Channel, definitions, epochs_since
from tests.support.binlogs.binlog_rows import binlog_end
from tests.support.names import own_database
from tests.support.statements.value_types import LOOSE

pytestmark = pytest.mark.servers

_ROWS = 1_500
_TABLE = (
    "id INT PRIMARY KEY, a INT, b BIGINT UNSIGNED, c VARCHAR(900), d DECIMAL(20, 5), e ENUM('x', '1', '') NOT NULL,"
    " f DOUBLE, g BLOB, h DATETIME(3), i BIT(9), j SET('p', 'q'), k TIME(2), l VARCHAR(9) CHARACTER SET latin1, m JSON"
)
_VALUES = [
    ["0", "-1", "2147483647", "8191", "-8192"],
    ["0", "18446744073709551615", "5"],
    ["''", "'it''s'", "'?'", "REPEAT('é', 126)", "REPEAT('z', 900)", "'\\\\'"],
    ["0", "-0.00001", "123456789012345.12345"],
    ["'x'", "'1'", "''"],
    ["0", "-0e0", "1.5e-300", "-1.7e308"],
    ["''", "X'00'", "REPEAT(X'27', 300)"],
    ["'2026-02-28 23:59:59.999'", "'0000-00-00'", "'9999-12-31'"],
    ["0", "511", "1"],
    ["''", "'p,q'", "'q'"],
    ["'-838:59:59'", "'00:00:00.01'"],
    ["'é€'", "''"],
    ["""'{"a": [1, null]}'""", "'[]'", "JSON_ARRAY(1)"],
]


@pytest.fixture
def db(request: pytest.FixtureRequest, upstream: Database, downstream: Database) -> Iterator[str]:
    yield from own_database("prepared_", request, upstream, downstream)


def _value(random: Random, column: int) -> str:
    if column != 4 and random.random() < 0.3:
        return "NULL"
    return random.choice(_VALUES[column])


def _insert(db: str, random: Random, first: int, count: int, *, invalid: int = -1) -> str:
    rows = []
    for number in range(first, first + count):
        values = [_value(random, column) for column in range(len(_VALUES))]
        if number == invalid:
            values[4], values[12] = "'none'", "JSON_ARRAY(1.50)"
        rows.append(f"({number},{','.join(values)})")
    return f"INSERT INTO {db}.t VALUES {','.join(rows)}"


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"], indirect=True)
def test_many_rows_with_nulls_and_rows_that_need_literals(
    upstream: Database, downstream: Database, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = _statements(monkeypatch)
    random = Random(db)
    begin = binlog_end(upstream)
    upstream.execute(
        LOOSE,
        f"CREATE DATABASE {db}",
        f"CREATE TABLE {db}.t ({_TABLE})",
        f"CREATE TABLE {db}.n (id INT PRIMARY KEY, v VARCHAR(700) NOT NULL)",
        # One row has an invalid member and JSON with a decimal: its block is written with literals.
        _insert(db, random, 0, _ROWS, invalid=700),
        f"INSERT INTO {db}.n SELECT id, REPEAT(id, 100) FROM {db}.t",
        f"ALTER TABLE {db}.n COMMENT 'an epoch ends here'",
        f"UPDATE {db}.t SET a = id, c = CONCAT('?', id) WHERE id % 3",
        f"UPDATE {db}.n SET v = CONCAT(v, ',') WHERE id % 2",
        f"DELETE FROM {db}.t WHERE id % 7 = 0",
    )
    Channel(downstream, db).apply(epochs_since(upstream, begin))
    assert definitions(downstream, db) == definitions(upstream, db)
    heads = {sql.split(b"(")[0] for sql in prepared}
    assert heads == {b"INSERT INTO `%s`.`%s` " % (db.encode(), table) for table in (b"t", b"n")}
    assert any(b"ON DUPLICATE KEY UPDATE" in sql for sql in prepared)


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"], indirect=True)
def test_few_rows_are_values_if_one_of_them_is_long(
    upstream: Database, downstream: Database, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = _statements(monkeypatch)
    begin = binlog_end(upstream)
    upstream.execute(
        f"CREATE DATABASE {db}",
        f"CREATE TABLE {db}.long_rows (id INT PRIMARY KEY, n INT, v LONGBLOB)",
        f"CREATE TABLE {db}.short_rows LIKE {db}.long_rows",
        f"INSERT INTO {db}.long_rows VALUES (1, 1, REPEAT(X'27', 400000)), (2, 1, X'00'), (3, NULL, NULL)",
        f"INSERT INTO {db}.short_rows SELECT id, n, LEFT(v, 900) FROM {db}.long_rows",
        f"ALTER TABLE {db}.short_rows COMMENT 'an epoch ends here'",
        f"UPDATE {db}.long_rows SET n = 7, v = CONCAT(v, v) WHERE id < 3",
        f"UPDATE {db}.short_rows SET n = 7",
    )
    Channel(downstream, db).apply(epochs_since(upstream, begin))
    assert definitions(downstream, db) == definitions(upstream, db)
    assert {sql.split(b"(")[0] for sql in prepared} == {b"INSERT INTO `%s`.`long_rows` " % db.encode()}
    assert any(b"ON DUPLICATE KEY UPDATE" in sql for sql in prepared)


def _statements(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The statements that are prepared from now on."""
    found: list[bytes] = []
    run = Session.execute_prepared

    def execute(session: Session, sql: bytes, values: bytes) -> int:
        found.append(sql)
        return run(session, sql, values)

    monkeypatch.setattr(Session, "execute_prepared", execute)
    return found


def test_a_refused_row_stops_the_channel_at_its_event(
    upstream: Database, downstream: Database, db: str
) -> None:
    begin = binlog_end(upstream)
    upstream.execute(f"CREATE DATABASE {db}", f"CREATE TABLE {db}.t (id INT PRIMARY KEY, v INT)")
    values = ",".join(f"({number}, {number})" for number in range(400))
    upstream.execute(f"INSERT INTO {db}.t VALUES {values}")
    epochs = epochs_since(upstream, begin)
    channel = Channel(downstream, db)
    channel.apply(epochs[:-1])
    downstream.execute(f"INSERT INTO {db}.t VALUES (333, 0)")
    with pytest.raises(DownstreamError, match="Duplicate entry '333'") as stopped:
        channel.apply(epochs)
    assert stopped.value.code == "TR604"
    assert downstream.execute(f"SELECT COUNT(*) FROM {db}.t") == [(1,)]


@pytest.fixture
def session(downstream: Database) -> Iterator[Session]:
    with closing(connect(ServerUrl.parse(downstream.url("root")))) as opened:
        yield opened


def test_a_session_keeps_few_statements_and_survives_refused_ones(
    downstream: Database, session: Session, db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    downstream.execute(f"CREATE DATABASE {db}", f"CREATE TABLE {db}.t (id BIGINT PRIMARY KEY)")
    most = 16
    monkeypatch.setattr(session_module, "_MOST_PREPARED", (most + 1) * session_module._PREPARED)
    head = f"INSERT INTO {db}.t VALUES ".encode()
    wanted = 0
    for number in [*range(1, 2 * most), *range(most, 0, -1)]:
        values = b"".join((wanted + one).to_bytes(8, "little") for one in range(number))
        nulls = bytes((number + 7) // 8)
        done = session.execute_prepared(
            head + b",".join([b"(?)"] * number), nulls + b"\1" + b"\x08\0" * number + values
        )
        assert done == number
        wanted += number
        with pytest.raises(pymysql.MySQLError, match="Duplicate entry '0'"):
            session.execute_prepared(head + b"(?)", b"\0\1\x08\0" + bytes(8))
        with pytest.raises(pymysql.MySQLError, match="gone"):
            session.execute_prepared(
                b"INSERT INTO " + db.encode() + b".gone VALUES (?)", b"\0\1\x08\0" + bytes(8)
            )
    assert downstream.execute(f"SELECT COUNT(*), MAX(id) FROM {db}.t") == [(wanted, wanted - 1)]
    [(_, kept)] = session.rows("SHOW SESSION STATUS LIKE 'Com_stmt_prepare'")
    [(_, closed)] = session.rows("SHOW SESSION STATUS LIKE 'Com_stmt_close'")
    refused = 3 * most - 1
    assert most // 2 < int(kept) - refused - int(closed) <= most
    session.execute_prepared(head + b"(?)", b"\0\1\x08\0" + wanted.to_bytes(8, "little"))
    assert session.rows("SHOW SESSION STATUS LIKE 'Com_stmt_prepare'") == [("Com_stmt_prepare", kept)]
