"""One downstream transaction a slice, and DDL exactly once, with the process killed at each step."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from compose.databases import FLAVORS, Database
from schemas.errors import DownstreamError, LogError
from spark_consumer.apply.ddl.run import DdlApplier
from spark_consumer.plan.counters import Applied
from tests.support.applying.apply_steps import apply_steps, open_applier, prepared
from tests.support.names import own_name
from tests.support.processes.child import in_child

pytestmark = pytest.mark.servers

Steps = list[dict[str, Any]]


def ddl(statement: str, kind: str, *tables: tuple[Any, ...], **more: Any) -> dict[str, Any]:
    return {"ddl": statement, "kind": kind, "tables": tables, **more}


def rows(*statements: tuple[str, int]) -> dict[str, Any]:
    return {"rows": statements}


def life_of_a_table(db: str) -> Steps:
    """None of the DDL can run twice unnoticed, or be left out."""
    return [
        ddl(f"CREATE DATABASE {db}", "CREATE DATABASE"),
        ddl("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE", (db, "t"), db=db),
        rows((f"INSERT INTO {db}.t VALUES (1),(2)", 2)),
        ddl(f"TRUNCATE TABLE {db}.t", "TRUNCATE TABLE", (db, "t")),
        rows((f"INSERT INTO {db}.t VALUES (3)", 1)),
        ddl(f"ALTER TABLE {db}.t ADD COLUMN v INT DEFAULT 7", "ALTER TABLE", (db, "t")),
        ddl(f"RENAME TABLE {db}.t TO {db}.u", "RENAME TABLE", (db, "t", None, "u")),
        rows((f"INSERT INTO {db}.u VALUES (4,8)", 1)),
        ddl(f"CREATE TABLE {db}.t (id INT PRIMARY KEY)", "CREATE TABLE", (db, "t")),
        ddl(f"DROP TABLE {db}.t", "DROP TABLE", (db, "t")),
    ]


@pytest.fixture(scope="module")
def plain_mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A downstream that has no GTIDs to prove anything with."""
    server = FLAVORS["mysql"](
        tmp_path_factory.mktemp("plain"),
        role="downstream",
        server_id=109,
        args=["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"],
    )
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(params=["mysql", "mariadb", "plain"])
def target(request: pytest.FixtureRequest) -> Database:
    """Downstreams of the three kinds of ledger."""
    name = {"mysql": "downstream_mysql", "mariadb": "downstream_mariadb", "plain": "plain_mysql"}
    found: Database = request.getfixturevalue(name[request.param])
    return found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A database and channel of the test's own."""
    return own_name("c_", request, 50)


def run_process(target: Database, channel: str, steps: Steps, crash_at: str) -> int:
    """Apply the steps in a child that dies at a crash point; the signal it died of, or 0."""
    return in_child(lambda: apply_steps(open_applier(target.url("tailrace"), channel), steps), crash_at)


def position(target: Database, channel: str) -> tuple[Any, ...]:
    [row] = target.execute(
        "SELECT epoch, executed_gtid_set, ddl_intent FROM tailrace.relay_log_info"
        f" WHERE Channel_name = '{channel}'"
    )
    return row


@pytest.mark.parametrize(
    "crash_at", ["ddl.before:2", "ddl.after", "apply.before_commit:2", "apply.after_commit"]
)
def test_killed_again_and_again_everything_happens_once(target: Database, name: str, crash_at: str) -> None:
    steps = life_of_a_table(name)
    died = 0
    # Each run gets a step further than the one before. Where only the tables tell whether a DDL happened, a
    # TRUNCATE is run again, so now and then a run has to get further by itself.
    while code := run_process(target, name, steps, crash_at if died % 4 else "ddl.after:2"):
        assert code == signal.SIGKILL
        died += 1
        assert died < 20
    assert died >= 5
    assert target.execute(f"SELECT * FROM {name}.u ORDER BY id") == [(3, 7), (4, 8)]
    assert target.execute(f"SHOW TABLES FROM {name}") == [("u",)]
    assert position(target, name) == (len(steps) - 1, f"0-1-{len(steps)}", None)
    audited = target.execute(
        f"SELECT first_epoch FROM tailrace.applied_epochs WHERE channel = '{name}' ORDER BY 1"
    )
    assert audited == [(epoch,) for epoch in range(len(steps))]


def test_a_second_consumer_fences_the_first(target: Database, name: str) -> None:
    steps = life_of_a_table(name)
    first = open_applier(target.url("tailrace"), name)
    apply_steps(first, steps[:3])
    second = open_applier(target.url("tailrace"), name)
    with pytest.raises(DownstreamError, match="TR610: another consumer"):
        first.apply(prepared(3, steps[3]))
    apply_steps(second, steps[:4])
    assert target.execute(f"SELECT COUNT(*) FROM {name}.t") == [(0,)]


def test_a_wrong_row_count_undoes_the_batch(target: Database, name: str) -> None:
    steps = life_of_a_table(name)
    applier = open_applier(target.url("tailrace"), name)
    apply_steps(applier, steps[:3])
    wrong = rows((f"INSERT INTO {name}.t VALUES (5)", 1), (f"DELETE FROM {name}.t WHERE id IN (1,9)", 2))
    with pytest.raises(DownstreamError, match="TR603: a statement changed 1 row where the log implies 2"):
        applier.apply(prepared(3, wrong))
    assert target.execute(f"SELECT id FROM {name}.t ORDER BY id") == [(1,), (2,)]
    assert position(target, name)[0] == 2
    apply_steps(applier, steps[:5])
    assert target.execute(f"SELECT id FROM {name}.t") == [(3,)]


def test_a_repeated_slice_is_left_out_and_a_gap_stops(target: Database, name: str) -> None:
    steps = life_of_a_table(name)
    applier = open_applier(target.url("tailrace"), name)
    apply_steps(applier, steps[:3])
    assert applier.apply(prepared(2, steps[2])) == Applied(0)
    with pytest.raises(LogError, match="TR551"):
        applier.apply(prepared(4, steps[4]))
    assert target.execute(f"SELECT COUNT(*) FROM {name}.t") == [(2,)]


def test_a_refused_ddl_names_the_statement_and_leaves_no_trace(target: Database, name: str) -> None:
    steps = [
        *life_of_a_table(name)[:2],
        ddl(f"ALTER TABLE {name}.t DROP COLUMN x", "ALTER TABLE", (name, "t")),
    ]
    applier = open_applier(target.url("tailrace"), name)
    with pytest.raises(DownstreamError, match=r"TR620: .*DROP COLUMN x"):
        apply_steps(applier, steps)
    assert position(target, name)[0] == 1
    # What makes it possible by hand is not taken for the statement.
    target.execute(f"ALTER TABLE {name}.t ADD COLUMN x INT")
    apply_steps(open_applier(target.url("tailrace"), name), steps)
    assert position(target, name)[0] == 2
    assert "`x`" not in target.execute(f"SHOW CREATE TABLE {name}.t")[0][1]


def test_a_lost_connection_is_made_again(target: Database, name: str) -> None:
    steps = life_of_a_table(name)
    applier = open_applier(target.url("tailrace"), name)
    apply_steps(applier, steps[:2])
    target.execute(f"KILL {applier.session.connection.thread_id()}")
    apply_steps(applier, steps[:5])
    assert target.execute(f"SELECT id FROM {name}.t") == [(3,)]


def test_a_connection_lost_in_commit_is_resolved_by_the_position(
    target: Database, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = life_of_a_table(name)
    applier = open_applier(target.url("tailrace"), name)
    apply_steps(applier, steps[:2])
    killed: list[str] = []

    def kill_after_commit(point: str) -> None:
        # The COMMIT went through, and the answer never came.
        if point == "apply.after_commit" and not killed:
            killed.append(point)
            raise ConnectionResetError("lost")

    monkeypatch.setattr("spark_consumer.apply.applier.reached", kill_after_commit)
    apply_steps(applier, steps[:3])
    assert killed
    assert target.execute(f"SELECT COUNT(*) FROM {name}.t") == [(2,)]


def test_ddl_runs_with_the_upstreams_settings(target: Database, name: str) -> None:
    # ANSI_QUOTES and no strictness: the statement means something else, or nothing, without them
    settings = {"sql_mode": 4, "time_zone": "+05:00", "foreign_key_checks": False}
    steps = [
        ddl(f'CREATE DATABASE "{name}"', "CREATE DATABASE", settings=settings),
        ddl(
            'CREATE TABLE "t" ("id" INT PRIMARY KEY, d TIMESTAMP NOT NULL DEFAULT \'2020-01-01 05:00:00\','
            " p INT, FOREIGN KEY (p) REFERENCES not_there (id))",
            "CREATE TABLE",
            (name, "t"),
            db=name,
            settings=settings,
        ),
    ]
    apply_steps(open_applier(target.url("tailrace"), name), steps)
    target.execute("SET time_zone = '+00:00'", f"INSERT INTO {name}.t (id) VALUES (1)")
    with target.connect(init_command="SET time_zone = '+00:00'") as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT CAST(d AS CHAR) FROM {name}.t")
        assert str(cursor.fetchone()).startswith("('2020-01-01 00:00:00")


@pytest.mark.parametrize(
    ("swapped", "exchanged"), [("ddl.before:4", "ddl.before:3"), ("ddl.after:4", "ddl.after:2")]
)
def test_tables_of_one_form_change_places_once(
    plain_mysql: Database, name: str, swapped: str, exchanged: str
) -> None:
    """Their definitions are the same afterwards; InnoDB's ids are not, nor are the rows at their ends."""
    swap = f"RENAME TABLE {name}.a TO {name}.x, {name}.b TO {name}.a, {name}.x TO {name}.b"
    moved = ((name, "a", None, "x"), (name, "b", None, "a"), (name, "x", None, "b"))
    parts = "(PARTITION p0 VALUES LESS THAN (9))"
    exchange = f"ALTER TABLE {name}.p EXCHANGE PARTITION p0 WITH TABLE {name}.a"
    steps = [
        ddl(f"CREATE DATABASE {name}", "CREATE DATABASE"),
        ddl(f"CREATE TABLE {name}.a (id INT PRIMARY KEY)", "CREATE TABLE", (name, "a")),
        rows((f"INSERT INTO {name}.a VALUES (1)", 1)),
        ddl(f"CREATE TABLE {name}.b (id INT PRIMARY KEY)", "CREATE TABLE", (name, "b")),
        ddl(swap, "RENAME TABLE", *moved),
        ddl(
            f"CREATE TABLE {name}.p (id INT PRIMARY KEY) PARTITION BY RANGE (id) {parts}",
            "CREATE TABLE",
            (name, "p"),
        ),
        rows((f"INSERT INTO {name}.p VALUES (2)", 1)),
        ddl(exchange, "ALTER TABLE", (name, "p"), (name, "a")),
    ]
    assert run_process(plain_mysql, name, steps, swapped) == signal.SIGKILL
    plain_mysql.execute("GRANT PROCESS ON *.* TO tailrace@'%'")
    try:
        assert run_process(plain_mysql, name, steps, exchanged) == signal.SIGKILL
        apply_steps(open_applier(plain_mysql.url("tailrace"), name), steps)
    finally:
        plain_mysql.execute("REVOKE PROCESS ON *.* FROM tailrace@'%'")
    found = [plain_mysql.execute(f"SELECT id FROM {name}.{table}") for table in "abp"]
    assert found == [[(2,)], [(1,)], []]


def test_undecidable_ddl_stops(plain_mysql: Database, name: str) -> None:
    """Without PROCESS nobody sees which table a partition was."""
    parts = "(PARTITION p0 VALUES LESS THAN (9))"
    steps = [
        ddl(f"CREATE DATABASE {name}", "CREATE DATABASE"),
        ddl(f"CREATE TABLE {name}.a (id INT PRIMARY KEY)", "CREATE TABLE", (name, "a")),
        ddl(
            f"CREATE TABLE {name}.p (id INT PRIMARY KEY) PARTITION BY RANGE (id) {parts}",
            "CREATE TABLE",
            (name, "p"),
        ),
        ddl(
            f"ALTER TABLE {name}.p EXCHANGE PARTITION p0 WITH TABLE {name}.a",
            "ALTER TABLE",
            (name, "p"),
            (name, "a"),
        ),
    ]
    assert run_process(plain_mysql, name, steps, "ddl.after:4") == signal.SIGKILL
    with pytest.raises(DownstreamError, match=r"TR621.*ids of InnoDB"):
        apply_steps(open_applier(plain_mysql.url("tailrace"), name), steps)


def test_rows_are_numbered_where_there_are_none(target: Database, name: str) -> None:
    """Numbers for rows without a key are the upstream's alone; an empty table, though, is altered."""
    numbered = ddl(f"ALTER TABLE {name}.t ADD n SERIAL PRIMARY KEY FIRST", "ALTER TABLE", (name, "t"))
    steps = [
        ddl(f"CREATE DATABASE {name}", "CREATE DATABASE"),
        ddl(f"CREATE TABLE {name}.t (v INT)", "CREATE TABLE", (name, "t")),
        numbered,
        rows((f"INSERT INTO {name}.t VALUES (7,1)", 1)),
        ddl(f"ALTER TABLE {name}.t DROP COLUMN n", "ALTER TABLE", (name, "t")),
        numbered,
    ]
    assert run_process(target, name, steps, "ddl.after:3") == signal.SIGKILL
    with pytest.raises(DownstreamError, match=r"TR629.*numbered"):
        apply_steps(open_applier(target.url("tailrace"), name), steps)
    assert position(target, name)[0] == 4
    assert target.execute(f"SELECT * FROM {name}.t") == [(1,)]


def test_rules_that_change_behind_a_ddl_leave_it_done(target: Database, name: str) -> None:
    """Its number is used, so what the new rules make of it must not be taken for it."""
    steps = [
        ddl(f"CREATE DATABASE {name}", "CREATE DATABASE"),
        ddl(f"CREATE TABLE {name}.a (id INT PRIMARY KEY)", "CREATE TABLE", (name, "a")),
        ddl(f"CREATE TABLE {name}.b (id INT PRIMARY KEY)", "CREATE TABLE", (name, "b")),
        rows((f"INSERT INTO {name}.b VALUES (1)", 1)),
    ]
    assert run_process(target, name, steps, "ddl.after:2") == signal.SIGKILL
    apply_steps(open_applier(target.url("tailrace"), name, exclude=(f"{name}.a",)), steps)
    assert position(target, name) == (len(steps) - 1, f"0-1-{len(steps)}", None)
    assert target.execute(f"SHOW TABLES FROM {name}") == [("a",), ("b",)]
    assert target.execute(f"SELECT id FROM {name}.b") == [(1,)]


HALVES = [
    (
        "CREATE TABLE",
        "CREATE OR REPLACE TABLE {db}.a (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {db}.later (id))",
        ("a",),
        "CREATE TABLE {db}.later (id INT PRIMARY KEY)",
    ),
    ("DROP TABLE", "DROP TABLE {db}.b, {db}.missing", ("b", "missing"), "CREATE TABLE {db}.missing (id INT)"),
    ("DROP VIEW", "DROP VIEW {db}.v, {db}.w", ("v", "w"), "CREATE VIEW {db}.w AS SELECT 1"),
]


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "killed before"])
def test_a_ddl_that_mariadb_did_by_half_is_not_taken_as_done(
    downstream_mariadb: Database, name: str, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It logs what a refused statement has done under the statement's number."""
    target = downstream_mariadb
    if not noted:
        # As a consumer leaves it that dies in that moment.
        monkeypatch.setattr(DdlApplier, "_record_outcome", lambda *args: None)
    made = [
        f"CREATE TABLE {name}.a (id INT PRIMARY KEY)",
        f"CREATE TABLE IF NOT EXISTS {name}.b (id INT PRIMARY KEY)",
        f"CREATE OR REPLACE VIEW {name}.v AS SELECT 1",
    ]
    target.execute(f"CREATE DATABASE {name}", *made)
    steps: Steps = []
    used = 0
    for kind, sql, tables, remedy in HALVES:
        steps.append(ddl(sql.format(db=name), kind, *((name, table) for table in tables)))
        seq = ledger_seq(target, name) if len(steps) > 1 else 0
        for _ in range(2 if noted else 1):
            with pytest.raises(DownstreamError, match="TR620"):
                apply_steps(open_applier(target.url("tailrace"), name), steps)
        used += ledger_seq(target, name) - seq
        for again in (remedy, *([] if kind == "CREATE TABLE" else [made[len(steps) - 1]])):
            target.execute(again.format(db=name))
        apply_steps(open_applier(target.url("tailrace"), name), steps)
        assert position(target, name)[0] == len(steps) - 1
    assert used >= 2 or not noted
    assert {table for (table,) in target.execute(f"SHOW TABLES FROM {name}")} == {"a", "later"}
    assert "`p` int" in target.execute(f"SHOW CREATE TABLE {name}.a")[0][1]


@pytest.mark.parametrize(
    ("kind", "sql", "tables"),
    [
        ("RENAME TABLE", "RENAME TABLE {db}.a TO {db}.z, {db}.missing TO {db}.y", ("a", "missing")),
        ("ALTER TABLE", "ALTER TABLE {db}.a ADD COLUMN x INT, DROP COLUMN nowhere", ("a",)),
        ("CREATE TABLE", "CREATE TABLE {db}.a (id INT)", ("a",)),
    ],
    ids=["rename", "alter", "create"],
)
def test_a_refused_ddl_that_changed_nothing_uses_no_number(
    target: Database, name: str, kind: str, sql: str, tables: tuple[str, ...]
) -> None:
    target.execute(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.a (id INT PRIMARY KEY)")
    step = ddl(sql.format(db=name), kind, *((name, table) for table in tables))
    with pytest.raises(DownstreamError, match="TR620"):
        apply_steps(open_applier(target.url("tailrace"), name), [step])
    assert ledger_seq(target, name) == 0
    assert target.execute(f"SHOW TABLES FROM {name}") == [("a",)]


def ledger_seq(target: Database, channel: str) -> int:
    sql = f"SELECT ledger_seq FROM tailrace.relay_log_info WHERE Channel_name = '{channel}'"
    return int(target.execute(sql)[0][0])
