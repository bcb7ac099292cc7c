"""Many tables are read and locked with few statements, and with the same result as each by itself."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pymysql
import pytest

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from spark_consumer.target import tables
from spark_consumer.target.session import Row, Session, closing, connect
from spark_consumer.target.table import TargetTable
from spark_consumer.target.tables import TableAltered, TargetCatalog, lock_tables, read_table, read_tables

pytestmark = pytest.mark.servers

#: databases whose names differ in case only, where the server distinguishes them
DBS = ("many_tables", "Many_Tables")
COUNT = 8


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Any:
    found: Database = request.getfixturevalue(request.param)
    for db in DBS:
        found.execute(f"CREATE DATABASE {db}")
    yield found
    for db in DBS:
        found.execute(f"DROP DATABASE {db}")


def _make(server: Database) -> list[tuple[str, str]]:
    names = [(db, f"{letter}{n}") for db in DBS for letter in "tT" for n in range(COUNT)]
    for n, (db, table) in enumerate(names):
        keys = ("PRIMARY KEY (id)", "UNIQUE KEY z (b, a(3)), UNIQUE KEY (id)", "KEY (a)")[n % 3]
        server.execute(
            f"CREATE TABLE {db}.{table} (id INT NOT NULL, a VARCHAR(9) DEFAULT '{n}', b INT NOT NULL, {keys})"
        )
        if n % 7 == 0:
            server.execute(
                f"CREATE TRIGGER {db}.g{table} BEFORE INSERT ON {db}.{table} FOR EACH ROW SET @a = {n}"
            )
    server.execute(f"CREATE VIEW {DBS[0]}.v AS SELECT * FROM {DBS[0]}.t0")
    return names


@pytest.mark.parametrize("server", ["downstream_mysql", "downstream_mariadb"], indirect=True)
def test_tables_read_together_are_those_read_by_themselves(
    server: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = _make(server)
    monkeypatch.setattr(tables, "_MANY_FACTS", dict.fromkeys(("mysql", "mariadb"), 20))
    # Names that differ in case only are in different queries.
    monkeypatch.setattr(tables, "TOGETHER", COUNT - 1)
    wanted = [*names, (DBS[0], "v"), (DBS[0], "gone"), ("gone", "t0")]
    with closing(connect(ServerUrl.parse(server.url()))) as session:
        together = TargetCatalog().load(session, wanted)
        assert list(together) == wanted
        assert together == {name: read_table(session, name) for name in wanted}
        assert [name for name, table in together.items() if table is None] == wanted[-2:]
        found = {name: table.definition for name, table in together.items() if table is not None}
        assert len(set(found.values())) > COUNT


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_tables_of_many_databases_are_read_by_their_names(
    flavor: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tenants: as many queries as there are names of tables, not as databases."""
    server: Database = request.getfixturevalue(f"downstream_{flavor}")
    dbs = [f"tenant{n}" for n in range(60)]
    names = [(db, table) for db in dbs for table in ("t", "u")]
    create = [f"CREATE DATABASE {db}" for db in dbs]
    create += [f"CREATE TABLE {db}.{table} (id INT PRIMARY KEY, c{db} INT UNIQUE)" for db, table in names]
    create += ["CREATE TRIGGER tenant7.g BEFORE INSERT ON tenant7.u FOR EACH ROW SET @a = 1"]
    asked: list[str] = []
    try:
        server.execute(*create)
        with closing(connect(ServerUrl.parse(server.url()))) as session:
            one_by_one = {name: read_table(session, name) for name in names}
            ask = session.rows
            monkeypatch.setattr(session, "rows", lambda sql, *args: (asked.append(sql), ask(sql, *args))[1])
            # Of tenant3 one table is not asked for, and of tenant5 one is gone.
            server.execute("DROP TABLE tenant5.t")
            one_by_one["tenant5", "t"] = None
            del one_by_one["tenant3", "u"]
            assert read_tables(session, list(one_by_one), frozenset()) == one_by_one
    finally:
        server.execute(*(f"DROP DATABASE IF EXISTS {db}" for db in dbs))
    about = [sql for sql in asked if "information_schema" in sql]
    assert len(about) == 4 * 2


@pytest.mark.parametrize("server", ["downstream_mysql", "downstream_mariadb"], indirect=True)
def test_tables_locked_together_are_not_altered(server: Database) -> None:
    names = _make(server)
    with closing(connect(ServerUrl.parse(server.url()))) as session:
        loaded = TargetCatalog().load(session, names)
        definitions = {name: table.definition for name, table in loaded.items() if table is not None}
        session.execute("BEGIN")
        lock_tables(session, definitions)
        with server.connect() as other, other.cursor() as cursor:
            cursor.execute("SET SESSION lock_wait_timeout = 1")
            for db, table in (names[0], names[COUNT], names[-1]):
                with pytest.raises(pymysql.err.OperationalError) as refused:
                    cursor.execute(f"ALTER TABLE {db}.{table} ADD c INT")
                assert refused.value.args[0] == 1205
        session.execute("ROLLBACK")
        for change in (
            "ALTER TABLE {}.{} ADD c INT",
            "CREATE TRIGGER {0}.h BEFORE DELETE ON {0}.{1} FOR EACH ROW SET @a = 1",
            "DROP TABLE {}.{}",
        ):
            db, table = name = names[COUNT + 3]
            server.execute(change.format(db, table))
            session.execute("BEGIN")
            with pytest.raises(TableAltered, match=f"{db}.{table}"):
                lock_tables(session, definitions)
            session.execute("ROLLBACK")
            if not change.startswith("DROP"):
                read = read_table(session, name)
                assert read is not None
                definitions[name] = read.definition


def _read_while_altered(
    session: Session, names: list[tuple[str, str]], at: int, alter: Any
) -> tuple[dict[tuple[str, str], TargetTable | None], bool]:
    """Read tables, and alter one behind the query of this number. Return whether there was one."""
    done = 0

    def counted(query: Any) -> Any:
        def run(*args: Any) -> Sequence[Row]:
            nonlocal done
            found: Sequence[Row] = query(*args)
            if done == at:
                alter()
            done += 1
            return found

        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "rows", counted(session.rows))
        patch.setattr(session, "rows_of_each", counted(session.rows_of_each))
        return read_tables(session, names, frozenset()), done > at


@pytest.mark.parametrize(
    ("server", "count", "step"),
    [
        ("downstream_mysql", 1, 1),
        ("downstream_mysql", 20, 1),
        ("downstream_mariadb", 1, 1),
        # It is asked for the columns, keys and triggers of each table.
        ("downstream_mariadb", 20, 11),
    ],
    indirect=["server"],
)
def test_what_is_altered_while_it_is_read_is_not_locked(server: Database, count: int, step: int) -> None:
    """A plan with the keys of one moment and the definition of another could change another row."""
    names = _make(server)[:count]
    db, table = name = names[0]
    changes = (
        "ADD UNIQUE KEY k (b)",
        "DROP KEY k",
        "MODIFY a INT",
        "MODIFY a VARCHAR(9)",
        "ADD c INT",
        "DROP c",
    )
    at, was_altered, refused = 0, True, 0
    with closing(connect(ServerUrl.parse(server.url()))) as session:
        while was_altered:
            for change in changes:
                alter = functools.partial(server.execute, f"ALTER TABLE {db}.{table} {change}")
                found, was_altered = _read_while_altered(session, names, at, alter)
                session.execute("BEGIN")
                try:
                    lock_tables(session, {one.name: one.definition for one in found.values() if one})
                except TableAltered:
                    refused += 1
                else:
                    assert found[name] == read_table(session, name)
                session.execute("ROLLBACK")
            at += step
    assert at > 4
    assert refused > len(changes)
