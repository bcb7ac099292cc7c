"""What a session reports of the statements that it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pymysql
import pytest

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from spark_consumer.target.session import Session, _count_of_rows, closing, connect

DB, ROWS, KILLED = "killed_statements", 300, 250


@pytest.mark.parametrize(
    ("statement", "count"),
    [
        ("DELETE FROM `a`.`t` WHERE `x`=1", "SELECT COUNT(*) FROM `a`.`t` WHERE `x`=1"),
        ("DELETE FROM a.t WHERE x=' LIMIT 1'", "SELECT COUNT(*) FROM a.t WHERE x=' LIMIT 1'"),
        ("DELETE FROM `a`.`t` WHERE `x`=1 LIMIT 1", "SELECT COUNT(*) FROM `a`.`t` WHERE `x`=1"),
        (
            "UPDATE `a `` WHERE `.`t` SET `x`=' WHERE ''',` WHERE `=2 WHERE `x`=' WHERE ' LIMIT 1",
            "SELECT COUNT(*) FROM `a `` WHERE `.`t` WHERE `x`=' WHERE '",
        ),
        ("UPDATE a.t SET x = x + 1\nWHERE x = 1", None),
        ("INSERT INTO a.t SELECT 1 WHERE 1 = 0", None),
        ("DELETE a FROM t AS a WHERE 1", None),
        ("BEGIN", None),
    ],
)
def test_the_rows_that_a_change_finds_can_be_counted(statement: str, count: str | None) -> None:
    assert _count_of_rows(statement.encode()) == count


@contextmanager
def killing(server: Database, session: Session) -> Iterator[None]:
    """Kill what the session runs, again and again."""
    over = threading.Event()

    def kill() -> None:
        with server.connect() as other, other.cursor() as cursor:
            while not over.wait(0.0004):
                cursor.execute(f"KILL QUERY {session.connection.thread_id()}")

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def answer_of(session: Session, method: str, sql: str) -> int | None:
    """What a statement in a transaction answers, which is undone; None if it was killed."""
    try:
        session.execute("BEGIN")
        return int(getattr(session, method)(sql))
    except pymysql.MySQLError as error:
        if error.args[0] != 1317:
            raise
        return None
    finally:
        with suppress(pymysql.MySQLError):
            session.execute("ROLLBACK")


def test_a_killed_statement_is_not_taken_for_one_that_finds_no_row(downstream_mariadb: Database) -> None:
    server, numbers = downstream_mariadb, ",".join(map(str, range(ROWS)))
    server.execute(
        f"CREATE DATABASE {DB}",
        f"CREATE TABLE {DB}.t (id INT PRIMARY KEY, v INT NOT NULL)",
        f"INSERT INTO {DB}.t SELECT seq, 0 FROM {DB}.seq_0_to_{2 * ROWS}",
    )
    cases: list[tuple[str, str, int]] = [
        ("execute", f"UPDATE `{DB}`.`t` SET `v`=`v`+1 WHERE `id` IN ({numbers})", ROWS),
        ("execute", f"UPDATE `{DB}`.`t` SET `v`=`v`+1 WHERE `id` IN ({numbers}) LIMIT 1", 1),
        ("execute", f"DELETE FROM `{DB}`.`t` WHERE `id` IN ({numbers})", ROWS),
        ("execute", f"SELECT 1 FROM `{DB}`.`t` WHERE `id` IN ({numbers}) GROUP BY 1", 1),
        ("value", f"SELECT COUNT(*) FROM `{DB}`.`t` WHERE `id` IN ({numbers})", ROWS),
    ]
    with closing(connect(ServerUrl.parse(server.url()))) as session, killing(server, session):
        for method, sql, found in cases:
            answers, killed = set[int | None](), 0
            while killed < KILLED:
                answer = answer_of(session, method, sql)
                answers |= {answer} - {None}
                killed += answer is None
            assert answers <= {found}, sql
    server.execute(f"DROP DATABASE {DB}")
