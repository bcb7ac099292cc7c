"""Statements that are sent together: the result is that of one after the other."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import pymysql
import pytest

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError, Where
from schemas.structure import TableStructure
from spark_consumer.apply import applier
from spark_consumer.apply import write as write_module
from spark_consumer.apply.prepared import Writes
from spark_consumer.apply.workers import apply_part
from spark_consumer.apply.write import _FEWEST, write
from spark_consumer.plan.plan import ApplyMode, TablePlan
from spark_consumer.plan.statements import Statement
from spark_consumer.rows.ordered import OrderedStatement
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session, closing, connect, transaction
from spark_consumer.target.tables import TableAltered, lock_tables, read_tables
from tests.support.applying.parts import MemoryLog, apply_in_child, apply_log
from tests.support.applying.sent import note_statements
from tests.support.epochs.fake_topic import insert, integer
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


def _merged(db: str, *statements: tuple[str, int]) -> tuple[tuple[TablePlan, Statement], ...]:
    table = _ordered(db, "")[0].table
    return tuple(
        (table, Statement(sql.replace(" t ", f" {db}.t ").encode(), rows)) for sql, rows in statements
    )


def _five(first: int, *, tail: str = "") -> tuple[str, int]:
    rows = ", ".join(f"({number}, '{TEXTS[number % len(TEXTS)]}')" for number in range(first, first + 5))
    return f"INSERT INTO t VALUES {rows}{tail}", 5


_CHANGE = " ON DUPLICATE KEY UPDATE s = 'changed'"


def _writes(db: str, *more: tuple[str, int]) -> Writes:
    """Deletes, changes in place and inserts of several rows each; ``more`` are among the inserts."""
    deletes = [(f"DELETE FROM t WHERE id IN ({n}, {n + 1}, {n + 2})", 3) for n in range(0, 30, 3)]
    updates = [_five(number, tail=_CHANGE) for number in range(30, 60, 5)]
    inserts = [_five(number) for number in range(100, 125, 5)]
    inserts[2:2] = more
    return Writes(_merged(db, *deletes), _merged(db, *updates), _merged(db, *inserts))


def test_compacted_rows_are_sent_together(
    db: str, downstream: Database, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    downstream.execute(f"INSERT INTO {db}.t VALUES " + ",".join(f"({n}, '')" for n in range(60)))
    monkeypatch.setattr(write_module, "_run", None)
    with transaction(session):
        write(session, _writes(db), Where())
    there = [(n, "changed") for n in range(30, 60)]
    assert downstream.execute(f"SELECT * FROM {db}.t ORDER BY id") == [
        *there, *((n, TEXTS[n % len(TEXTS)].replace("''", "'")) for n in range(100, 125))
    ]  # fmt: skip


def test_each_tables_statements_follow_each_other(
    db: str, downstream: Database, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server keeps few tables open for a connection, so each table is to be opened once."""
    tables = "tuvw"
    downstream.execute(*(f"CREATE TABLE {db}.{table} LIKE {db}.t" for table in tables[1:]))
    downstream.execute(
        *(f"INSERT INTO {db}.{table} VALUES (1, 'gone'), (2, ''), (3, '')" for table in tables)
    )
    plans = [replace(_ordered(db, "")[0].table, target_name=(db, table)) for table in tables]

    def of_each(sql: str, rows: int) -> tuple[tuple[TablePlan, Statement], ...]:
        texts = (sql.format(".".join(plan.target_name)).encode() for plan in plans)
        return tuple((plan, Statement(text, rows)) for plan, text in zip(plans, texts, strict=True))

    writes = Writes(
        deletes=of_each("DELETE FROM {} WHERE id = 1", 1),
        updates=of_each("INSERT INTO {} VALUES (2, ''), (3, '')" + _CHANGE, 2),
        inserts=of_each("INSERT INTO {} VALUES (1, 'new')", 1),
    )
    sent = note_statements(monkeypatch, db.encode())
    with transaction(session):
        write(session, writes, Where())
    found = [sql.decode().split()[:3:2] for sql in sent]
    assert found == [[kind, f"{db}.{table}"] for table in tables for kind in ("DELETE", "INSERT", "INSERT")]
    for table in tables:
        rows = [(1, "new"), (2, "changed"), (3, "changed")]
        assert downstream.execute(f"SELECT * FROM {db}.{table} ORDER BY id") == rows


@pytest.mark.parametrize(
    ("code", "statement", "missing"),
    [
        ("TR603", ("DELETE FROM t WHERE id IN (31, 999)", 2), -1),
        ("TR603", ("INSERT INTO t VALUES (1, 'a'), (2, 'b')", 1), -1),
        ("TR604", ("INSERT INTO t VALUES (40, 'again')", 1), -1),
        # Of a change in place the row must have been there: in the statement of 45 to 49 one is not.
        ("TR603", ("INSERT INTO t VALUES (1, 'a')", 1), 47),
    ],
)
def test_the_error_of_compacted_rows_is_that_of_the_statement(
    db: str, downstream: Database, session: Session, code: str, statement: tuple[str, int], missing: int
) -> None:
    rows = [(n, "") for n in range(60) if n != missing]
    downstream.execute(f"INSERT INTO {db}.t VALUES " + ",".join(f"({n}, '')" for n, _ in rows))
    with pytest.raises(DownstreamError) as raised, transaction(session):
        write(session, _writes(db, statement), Where())
    assert raised.value.code == code
    assert ("45" if missing >= 0 else statement[0][:6]) in str(raised.value)
    assert downstream.execute(f"SELECT * FROM {db}.t ORDER BY id") == rows


def test_definitions_of_many_tables_are_read_together(
    db: str, downstream: Database, session: Session
) -> None:
    names = [(db, f"t{number}") for number in range(25)]
    downstream.execute(*(f"CREATE TABLE {db}.{table} (id INT PRIMARY KEY)" for _, table in names))
    downstream.execute(f"CREATE VIEW {db}.v AS SELECT 1", f"ALTER TABLE {db}.t7 COMMENT 'a;b'")
    asked = [(db, "missing"), *names, (db, "v")]
    single = {name: read_tables(session, [name], frozenset())[name] for name in asked}
    assert read_tables(session, asked, frozenset()) == single
    assert read_tables(session, names, frozenset()) == {name: single[name] for name in names}
    definitions = {name: table.definition for name in names if (table := single[name]) is not None}
    with transaction(session):
        lock_tables(session, definitions)
    for sql in (f"ALTER TABLE {db}.t3 COMMENT 'other'", f"DROP TABLE {db}.t3"):
        downstream.execute(sql)
        with pytest.raises(TableAltered) as raised, transaction(session):
            lock_tables(session, definitions)
        assert raised.value.where.table == f"{db}.t3"
    assert session.value("SELECT 3") == 3


def test_statements_of_few_tables_go_together_and_ordered_ones_last() -> None:
    plans = [replace(_ordered("d", "DO 1")[0].table, target_name=("d", f"t{n}")) for n in range(5)]

    def of(*numbers: int) -> tuple[tuple[TablePlan, Statement], ...]:
        return tuple((plans[n], Statement(b"%d" % at, 1)) for at, n in enumerate(numbers))

    ordered = _ordered("d", "UPDATE t SET s = 1", "DELETE FROM t")
    writes = Writes(of(3, 1, 3), of(4, 0), of(1, 2, 3), ordered)
    assert [*writes.divided(5)] == [writes]
    parts = [*writes.divided(2)]
    assert [{table.target_name[1] for table, _ in part.merged} for part in parts] == [
        {"t3", "t1"},
        {"t2", "t4"},
        {"t0"},
        set(),
    ]
    assert [part.ordered for part in parts] == [(), (), (), ordered]
    for kind in ("deletes", "updates", "inserts"):
        assert sorted(sum((getattr(part, kind) for part in parts), ()), key=str) == sorted(
            getattr(writes, kind), key=str
        )


@pytest.mark.parametrize("consistency", ["batch", "worker"])
def test_tables_are_locked_and_written_some_at_a_time(
    db: str,
    downstream: Database,
    consistency: Literal["batch", "worker"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is altered when others are written already takes these back; the next plan writes all."""
    structures = [TableStructure(db, f"t{n}", (integer("id"),), ("id",)) for n in range(5)]
    downstream.execute(*(f"CREATE TABLE {one.name} (id INT PRIMARY KEY)" for one in structures))
    locked: list[set[str]] = []

    def lock(session: Session, expected: dict[tuple[str, str], str]) -> None:
        names = {table for _, table in expected}
        locked.extend([names] if names else [])
        # A part that a worker has applied cannot be taken back.
        if consistency == "batch" and "t2" in names and not any("t2" in before for before in locked[:-1]):
            downstream.execute(f"ALTER TABLE {db}.t2 ADD w INT")
        lock_tables(session, expected)

    for module in (applier, apply_part):
        monkeypatch.setattr(module, "TOGETHER", 2)
        monkeypatch.setattr(module, "lock_tables", lock)
    log = MemoryLog()
    log.add(*(insert(one, {"id": n}) for n in range(9) for one in structures))
    config = ConsumerConfig("", "p", ServerUrl.parse(downstream.url("tailrace")), channel=db)
    apply_log(replace(config, consistency=consistency, worker_count=2), log)
    for one in structures:
        assert sorted(row[0] for row in downstream.execute(f"SELECT * FROM {one.name}")) == [*range(9)]
    assert all(len(names) <= 2 for names in locked)
    assert sum("t2" in names for names in locked) == 2


@pytest.mark.parametrize("crash", ["apply.after_tables", "apply.after_tables:2", "worker.after_tables"])
def test_tables_written_before_a_kill_are_written_again(
    db: str, downstream: Database, crash: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (applier, apply_part):
        monkeypatch.setattr(module, "TOGETHER", 2)
    structures = [TableStructure(db, f"k{n}", (integer("id"),), ("id",)) for n in range(5)]
    downstream.execute(*(f"CREATE TABLE {one.name} (id INT PRIMARY KEY)" for one in structures))
    log = MemoryLog()
    log.add(*(insert(one, {"id": n}) for n in range(9) for one in structures))
    made = ConsumerConfig("", "p", ServerUrl.parse(downstream.url("tailrace")), channel=db)
    config = replace(made, consistency="worker" if crash.startswith("worker") else "batch", worker_count=2)
    assert apply_in_child(config, log, crash) == signal.SIGKILL
    apply_log(config, log)
    for one in structures:
        assert downstream.execute(f"SELECT * FROM {one.name} ORDER BY id") == [(n,) for n in range(9)]


def test_nothing_else_may_send_several(session: Session) -> None:
    assert session.execute_together([b"DO 1", b"DO 2"]) == [(0, 0), (0, 0)]
    with pytest.raises(pymysql.MySQLError):
        session.execute_together([b"DO 1", b"nothing", b"DO 2"])
    with pytest.raises(pymysql.ProgrammingError, match="syntax"):
        session.execute(b"DO 1; DO 2")
    assert session.value("SELECT 3") == 3
