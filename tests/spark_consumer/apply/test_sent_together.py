"""Statements of tables in the upstream's order, which are sent together: the result is that of one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pymysql
import pytest

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError, Where
from schemas.structure import TableStructure
from spark_consumer.apply import write as write_module
from spark_consumer.apply.prepared import Writes
from spark_consumer.apply.write import _FEWEST, write
from spark_consumer.plan.plan import ApplyMode, TablePlan
from spark_consumer.rows.ordered import OrderedStatement
from spark_consumer.target.session import Session, closing, connect, transaction
from tests.support.epochs.fake_topic import integer
from tests.support.names import own_name

pytestmark = pytest.mark.servers
TEXTS = ("; DROP TABLE t; -- ", "a''b;''", '";#', "/* ; */ é 😀;", "\\", "")


@pytest.fixture
def db(request: pytest.FixtureRequest, downstream: Database) -> Iterator[str]:
    name = own_name("together_", request, 30)
    downstream.execute(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY, s TEXT)")
    yield name
    downstream.execute(f"DROP DATABASE {name}")


@pytest.fixture
def session(downstream: Database) -> Iterator[Session]:
    with closing(connect(ServerUrl.parse(downstream.url("tailrace")))) as opened:
        yield opened


def _ordered(db: str, *statements: str, checks: bool = False) -> tuple[OrderedStatement, ...]:
    table = TablePlan(
        b"", TableStructure(db, "t", (integer("id"),), ("id",)), ApplyMode.ORDERED, (db, "t"), ("id",)
    )
    return tuple(
        OrderedStatement(sql.replace(" t ", f" {db}.t ").encode(), table, 7, checks, seq=seq)
        for seq, sql in enumerate(statements)
    )


def _inserts(first: int, count: int) -> list[str]:
    texts = [TEXTS[number % len(TEXTS)] for number in range(first, first + count)]
    return [f"INSERT INTO t VALUES ({number}, '{text}')" for number, text in enumerate(texts, first)]


@pytest.mark.parametrize("checks", [False, True])
def test_values_and_counts_are_those_of_single_statements(
    db: str, downstream: Database, session: Session, checks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = _one_by_one(monkeypatch)
    changes = [f"UPDATE t SET s = CONCAT(s, ';') WHERE id = {number} LIMIT 1" for number in range(15)]
    deletes = [f"DELETE FROM t WHERE id = {number} LIMIT 1" for number in range(0, 30, 2)]
    with transaction(session):
        write(
            session,
            Writes(ordered=_ordered(db, *_inserts(0, 30), *changes, *deletes, checks=checks)),
            Where(),
        )
    assert single == []
    wanted = [
        (number, TEXTS[number % len(TEXTS)].replace("''", "'") + (";" if number < 15 else ""))
        for number in range(1, 30, 2)
    ]
    assert downstream.execute(f"SELECT * FROM {db}.t ORDER BY id") == wanted


def _one_by_one(monkeypatch: pytest.MonkeyPatch) -> list[OrderedStatement]:
    """The statements that are sent by themselves from now on."""
    single: list[OrderedStatement] = []
    write_one = write_module.write_ordered

    def run(session: Session, one: OrderedStatement, where: Where) -> None:
        single.append(one)
        write_one(session, one, where)

    monkeypatch.setattr(write_module, "write_ordered", run)
    return single


@pytest.mark.parametrize(
    ("code", "statement"),
    [
        ("TR603", "UPDATE t SET s = 'x' WHERE id = 999 LIMIT 1"),
        ("TR603", "DELETE FROM t WHERE id = 999 LIMIT 1"),
        ("TR604", "INSERT INTO t VALUES (1, 'again')"),
        ("TR604", "INSERT INTO t VALUES (1, 2, 3)"),
    ],
)
@pytest.mark.parametrize("place", [0, 3, _FEWEST])
def test_the_error_is_that_of_the_statement(
    db: str, downstream: Database, session: Session, code: str, statement: str, place: int
) -> None:
    downstream.execute(f"INSERT INTO {db}.t VALUES (1, 'first')")
    statements = _inserts(10, _FEWEST)
    statements.insert(place, statement)
    with pytest.raises(DownstreamError) as raised, transaction(session):
        write(session, Writes(ordered=_ordered(db, *statements)), Where())
    assert raised.value.code == code
    assert raised.value.where.event is not None
    assert (raised.value.where.event.epoch, raised.value.where.event.seq) == (7, place)
    assert downstream.execute(f"SELECT * FROM {db}.t") == [(1, "first")]


def test_nothing_else_may_send_several(session: Session) -> None:
    assert session.execute_together([b"DO 1", b"DO 2"]) == [0, 0]
    with pytest.raises(pymysql.MySQLError):
        session.execute_together([b"DO 1", b"nothing", b"DO 2"])
    with pytest.raises(pymysql.ProgrammingError, match="syntax"):
        session.execute(b"DO 1; DO 2")
    assert session.value("SELECT 3") == 3
