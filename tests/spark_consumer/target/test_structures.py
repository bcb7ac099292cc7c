"""Downstream tables that are not as the upstream's: rows find their place by name and by the downstream's keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pymysql
import pytest

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from schemas.structure import Column, TableStructure
from spark_consumer.apply.applier import Applier
from spark_consumer.apply.prepared import PreparedRows
from spark_consumer.plan.plan import ApplyMode
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.route import Route
from spark_consumer.target.compatibility import incompatibilities
from spark_consumer.target.session import connect
from spark_consumer.target.tables import TableAltered, read_table
from tests.support.applying.apply_steps import apply_rows, apply_steps, open_channel, prepared_rows
from tests.support.binlogs.binlog_rows import binlog_end, rows_since
from tests.support.epochs.fake_topic import delete, insert, integer, text, update
from tests.support.epochs.records import version_record
from tests.support.names import forget_others, own_name
from tests.support.statements.value_types import LOOSE, types_of

pytestmark = pytest.mark.servers
Channel = Callable[..., tuple[Applier, ConsumerConfig]]


@pytest.fixture
def db(request: pytest.FixtureRequest, downstream: Database) -> str:
    """A database of the test's own."""
    name = own_name("s_", request)
    downstream.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    forget_others(downstream)
    return name


@pytest.fixture
def channel(downstream: Database, db: str) -> Channel:
    """Opens the channel under rules."""
    return partial(open_channel, downstream.url("tailrace"), db)


def table(db: str, *columns: Column, key: tuple[str, ...] = ("id",), name: str = "t") -> TableStructure:
    return TableStructure(db, name, columns, key)


def test_columns_go_by_name_into_wider_ones_in_another_order_beside_further_ones(
    downstream: Database, db: str, channel: Channel
) -> None:
    downstream.execute(
        f"CREATE TABLE {db}.t (extra INT NOT NULL DEFAULT 7, Name VARCHAR(99), twice INT AS (v * 2) VIRTUAL,"
        " v DECIMAL(20,4), seen TIMESTAMP DEFAULT CURRENT_TIMESTAMP, id BIGINT, PRIMARY KEY (id), KEY (v), KEY (name))"
    )
    t = table(db, integer("id"), integer("v"), text("name", nullable=True))
    applier, config = channel()
    first = {"id": 1, "v": 10, "name": "one"}
    apply_rows(applier, config, insert(t, first), insert(t, {"id": 2, "v": 20, "name": None}))
    downstream.execute(f"UPDATE {db}.t SET extra = 70 WHERE id = 1")
    made = apply_rows(applier, config, update(t, first, {"id": 3, "v": 11, "name": "uno"}))
    assert [one.sql.split()[0] for one in made.writes.ordered] == [b"UPDATE"]
    assert downstream.execute(f"SELECT id, v, name, extra, twice FROM {db}.t ORDER BY id") == [
        (2, 20, None, 7, 40),
        (3, 11, "uno", 70, 22),
    ]


def test_rows_are_found_by_the_downstreams_own_key(downstream: Database, db: str, channel: Channel) -> None:
    """It is on other columns, whose values change and change places; the upstream's key has no index there."""
    downstream.execute(f"CREATE TABLE {db}.t (id INT, a INT, b VARCHAR(60), PRIMARY KEY (a, b))")
    t = table(db, integer("id"), integer("a"), text("b"))
    applier, config = channel()

    def row(*values: Any) -> dict[str, Any]:
        return dict(zip(("id", "a", "b"), values, strict=True))

    one, two, three = row(1, 1, "x"), row(2, 2, "y"), row(3, 3, "z")
    made = apply_rows(applier, config, *(insert(t, each) for each in (one, two, three)))
    assert made.writes.inserts
    swapped = [update(t, one, row(1, 2, "y")), update(t, two, row(2, 1, "x"))]
    made = apply_rows(applier, config, *swapped, delete(t, three))
    hint = "/*+ INDEX(`t` `PRIMARY`) */ " if downstream.flavor == "mysql" else ""
    head = f"DELETE {hint}FROM `{db}`.`t` WHERE (`a`,`b`) IN (("
    assert made.writes.deletes[0][1].sql.startswith(head.encode())
    assert downstream.execute(f"SELECT * FROM {db}.t ORDER BY id") == [(1, 2, "y"), (2, 1, "x")]
    # in order, as in a family with cascades: by the same key
    applier, config = channel(compact=False)
    apply_rows(applier, config, update(t, row(1, 2, "y"), row(9, 5, "q")), delete(t, row(2, 1, "x")))
    assert downstream.execute(f"SELECT * FROM {db}.t") == [(9, 5, "q")]


@pytest.mark.parametrize("compact", [True, False])
def test_safe_mode_repeats_changes_of_the_downstreams_key(
    downstream: Database, db: str, channel: Channel, compact: bool
) -> None:
    downstream.execute(f"CREATE TABLE {db}.t (id INT, a INT, PRIMARY KEY (a))")
    t = table(db, integer("id"), integer("a"))
    applier, config = channel(safe_mode=True, compact=compact)
    for _ in range(2):
        first, second = {"id": 1, "a": 1}, {"id": 1, "a": 2}
        apply_rows(applier, config, insert(t, first))
        for _ in range(2):
            apply_rows(applier, config, update(t, first, second))
        assert downstream.execute(f"SELECT * FROM {db}.t") == [(1, 2)]
        apply_rows(applier, config, update(t, second, first))
        apply_rows(applier, config, update(t, first, {"id": 4, "a": 1}))
        apply_rows(applier, config, delete(t, {"id": 4, "a": 1}))
        assert downstream.execute(f"SELECT * FROM {db}.t") == []


def test_without_a_key_there_the_upstreams_key_is_compared_byte_by_byte(
    downstream: Database, db: str, channel: Channel
) -> None:
    """`a` and `A` are two rows upstream, and one value to the downstream's collation."""
    downstream.execute(f"CREATE TABLE {db}.t (name VARCHAR(60), v INT, KEY (name))")
    t = table(db, text("name"), integer("v"), key=("name",))
    applier, config = channel()
    rows = [{"name": name, "v": number} for number, name in enumerate(("a", "A", "a ", "é", "e"))]
    apply_rows(applier, config, *(insert(t, row) for row in rows))
    apply_rows(
        applier, config, update(t, rows[1], {"name": "A", "v": 11}), delete(t, rows[4]), delete(t, rows[0])
    )
    assert downstream.execute(f"SELECT HEX(name), v FROM {db}.t ORDER BY v") == [
        ("6120", 2),
        ("C3A9", 3),
        ("41", 11),
    ]
    downstream.execute(f"INSERT INTO {db}.t VALUES ('A', 12)")
    with pytest.raises(DownstreamError, match="TR603: a statement changed 2 rows where the log implies 1"):
        apply_rows(applier, config, delete(t, {"name": "A", "v": 11}))


def test_a_downstream_collation_that_takes_two_rows_for_one_stops(
    downstream: Database, db: str, channel: Channel
) -> None:
    downstream.execute(f"CREATE TABLE {db}.t (name VARCHAR(60) PRIMARY KEY, v INT)")
    t = table(db, text("name"), integer("v"), key=("name",))
    applier, config = channel()
    apply_rows(applier, config, insert(t, {"name": "a", "v": 1}))
    with pytest.raises(DownstreamError, match=r"TR604: .*1062"):
        apply_rows(applier, config, insert(t, {"name": "A", "v": 2}))
    # a row that changes only its spelling is one row all the time
    apply_rows(applier, config, update(t, {"name": "a", "v": 1}, {"name": "A", "v": 2}))
    assert downstream.execute(f"SELECT name, v FROM {db}.t") == [("A", 2)]


def test_rows_without_a_key_upstream_meet_a_downstream_that_numbers_them(
    downstream: Database, db: str, channel: Channel
) -> None:
    downstream.execute(f"CREATE TABLE {db}.t (no INT AUTO_INCREMENT PRIMARY KEY, v INT, s VARCHAR(60))")
    t = table(db, integer("v", nullable=True), text("s", nullable=True), key=())
    applier, config = channel()
    twin, other = {"v": 1, "s": None}, {"v": None, "s": "x"}
    apply_rows(applier, config, insert(t, twin), insert(t, twin), insert(t, other), insert(t, twin))
    apply_rows(applier, config, delete(t, twin), update(t, twin, {"v": 2, "s": "y"}))
    assert sorted(downstream.execute(f"SELECT v, s FROM {db}.t"), key=repr) == [
        (1, None),
        (2, "y"),
        (None, "x"),
    ]


@pytest.mark.parametrize("key", ["no INT AUTO_INCREMENT PRIMARY KEY", "PRIMARY KEY (id, shard)"])
def test_equal_keys_of_merged_tables_are_told_apart(
    downstream: Database, db: str, channel: Channel, key: str
) -> None:
    downstream.execute(f"CREATE TABLE {db}.t (id INT, shard INT, v INT, {key})")
    shards = [
        table("up", integer("id"), integer("shard"), integer("v"), name=f"t_{number}") for number in range(2)
    ]
    applier, config = channel(routes=(Route("up", db, "t_*", "t"),))

    def row(shard: int, number: int, v: int = 0) -> dict[str, Any]:
        return {"id": number, "shard": shard, "v": v}

    apply_rows(applier, config, *(insert(s, row(n, i)) for n, s in enumerate(shards) for i in (1, 2)))
    # only one shard in the batch: the other one's rows are there all the same
    apply_rows(applier, config, update(shards[1], row(1, 1), row(1, 1, 5)), delete(shards[1], row(1, 2)))
    assert downstream.execute(f"SELECT id, shard, v FROM {db}.t ORDER BY shard, id") == [
        (1, 0, 0),
        (2, 0, 0),
        (1, 1, 5),
    ]
    # an upstream key that changes
    apply_rows(applier, config, update(shards[0], row(0, 2), row(0, 7, 7)))
    assert downstream.execute(f"SELECT id, v FROM {db}.t WHERE shard = 0 ORDER BY id") == [(1, 0), (7, 7)]


def test_unique_keys_that_only_the_downstream_has(downstream: Database, db: str, channel: Channel) -> None:
    """A prefix, a computed column and, on MySQL, an expression: values change places within a batch."""
    expression = ", UNIQUE ((v + 1))" if downstream.flavor == "mysql" else ""
    downstream.execute(
        f"CREATE TABLE {db}.t (id INT PRIMARY KEY, name VARCHAR(60), v INT, low VARCHAR(60) AS (LOWER(name)) STORED,"
        f" UNIQUE (name(2)), UNIQUE (low){expression})"
    )
    t = table(db, integer("id"), text("name"), integer("v"))
    applier, config = channel()
    one, two = {"id": 1, "name": "aax", "v": 1}, {"id": 2, "name": "bbx", "v": 2}
    apply_rows(applier, config, insert(t, one), insert(t, two))
    moved = [update(t, one, {**one, "name": "bby", "v": 2}), update(t, two, {**two, "name": "AAY", "v": 1})]
    apply_rows(applier, config, *moved)
    assert downstream.execute(f"SELECT id, name, v FROM {db}.t ORDER BY id") == [(1, "bby", 2), (2, "AAY", 1)]
    with pytest.raises(DownstreamError, match=r"TR604: .*1062"):
        apply_rows(applier, config, insert(t, {"id": 3, "name": "bbz", "v": 9}))


def test_invisible_columns_and_triggers_that_look_on(downstream: Database, db: str, channel: Channel) -> None:
    downstream.execute(
        f"CREATE TABLE {db}.seen (what VARCHAR(20), id INT, v INT)",
        f"CREATE TABLE {db}.t (id INT PRIMARY KEY, v INT INVISIBLE, by_trigger INT)",
        f"CREATE TRIGGER {db}.fills BEFORE INSERT ON {db}.t FOR EACH ROW SET NEW.by_trigger = NEW.v * 10",
        f"CREATE TRIGGER {db}.looks AFTER UPDATE ON {db}.t FOR EACH ROW INSERT INTO {db}.seen"
        " VALUES ('update', NEW.id, NEW.v)",
        f"CREATE TRIGGER {db}.goes AFTER DELETE ON {db}.t FOR EACH ROW INSERT INTO {db}.seen"
        " VALUES ('delete', OLD.id, OLD.v)",
    )
    t = table(db, integer("id"), integer("v"))
    applier, config = channel(exclude=(f"{db}.seen",))
    apply_rows(applier, config, insert(t, {"id": 1, "v": 1}))
    apply_rows(applier, config, update(t, {"id": 1, "v": 1}, {"id": 1, "v": 2}))
    assert downstream.execute(f"SELECT id, v, by_trigger FROM {db}.t") == [(1, 2, 10)]
    assert downstream.execute(f"SELECT * FROM {db}.seen") == [("update", 1, 2)]
    downstream.execute(
        f"DROP TRIGGER {db}.fills",
        f"CREATE TRIGGER {db}.spoils BEFORE UPDATE ON {db}.t FOR EACH ROW SET NEW.v = NEW.v + 1",
    )
    with pytest.raises(
        DownstreamError, match="TR653: the downstream's trigger spoils may change the column v"
    ):
        apply_rows(applier, config, update(t, {"id": 1, "v": 2}, {"id": 1, "v": 3}))
    assert downstream.execute(f"SELECT v FROM {db}.t") == [(2,)]


ENUM = Column("v", "enum('a','b')", 247, 1, True, charset="utf8mb4", members=("a", "b"))
DECIMAL = Column("v", "decimal(10,4)", 246, 10 << 8 | 4, True)
MISFITS = [
    (integer("v", nullable=True), "v SMALLINT", "TR650", "int upstream and smallint"),
    (integer("v", nullable=True), "v INT UNSIGNED", "TR650", "it cannot be negative"),
    (DECIMAL, "v DECIMAL(10,2)", "TR650", "it would round"),
    (
        text("v", nullable=True),
        "v VARCHAR(60) CHARACTER SET latin1",
        "TR650",
        "latin1 lacks characters of utf8mb4",
    ),
    (text("v", nullable=True), "v CHAR(60)", "TR650", "it would drop spaces"),
    (ENUM, "v ENUM('b')", "TR650", "it lacks the member 'a'"),
    (integer("v", nullable=True), "v INT NOT NULL", "TR651", "NOT NULL downstream"),
    (integer("v", nullable=True), "v INT, w INT NOT NULL", "TR652", "only the downstream has the column w"),
    (integer("v", nullable=True), "w INT", "TR606", "lacks the column v"),
]


def test_what_does_not_fit_stops_before_the_first_row(
    downstream: Database, db: str, channel: Channel
) -> None:
    downstream.execute(f"CREATE TABLE {db}.first (id INT PRIMARY KEY, v INT)")
    first = table(db, integer("id"), integer("v"), name="first")
    applier, config = channel()
    for column, there, code, what in MISFITS:
        downstream.execute(
            f"DROP TABLE IF EXISTS {db}.t", f"CREATE TABLE {db}.t (id INT PRIMARY KEY, {there})"
        )
        t = table(db, integer("id"), column)
        with pytest.raises(DownstreamError) as stopped:
            apply_rows(applier, config, insert(first, {"id": 1, "v": 1}), insert(t, {"id": 1, "v": None}))
        assert (stopped.value.code, stopped.value.where.table) == (code, f"{db}.t")
        assert what in stopped.value.message
        assert f"alter {db}.t on the downstream" in stopped.value.hint
    assert downstream.execute(f"SELECT * FROM {db}.first") == []


def test_a_table_altered_on_the_way_is_looked_at_again(
    downstream: Database, db: str, channel: Channel
) -> None:
    downstream.execute(f"CREATE TABLE {db}.t (id INT PRIMARY KEY, v INT)")
    t = table(db, integer("id"), integer("v"))
    applier, config = channel()
    change = insert(t, {"id": 1, "v": 70000})
    made = prepared_rows(applier, config, change)
    downstream.execute(
        f"ALTER TABLE {db}.t ADD extra INT DEFAULT 5 FIRST, DROP PRIMARY KEY, ADD PRIMARY KEY (v)"
    )
    with pytest.raises(TableAltered):
        applier.apply(made)
    again: list[PreparedRows] = []

    def planned_again() -> PreparedRows:
        again.append(prepared_rows(applier, config, change))
        return again[-1]

    applier.apply_planned(made, planned_again)
    assert [one.table.mode for one in again[0].writes.ordered] == [ApplyMode.ORDERED]
    assert downstream.execute(f"SELECT * FROM {db}.t") == [(5, 1, 70000)]
    change = update(t, {"id": 1, "v": 70000}, {"id": 1, "v": 2})
    made = prepared_rows(applier, config, change)
    downstream.execute(f"DELETE FROM {db}.t", f"ALTER TABLE {db}.t MODIFY v SMALLINT")
    with pytest.raises(DownstreamError, match="TR650"):
        applier.apply_planned(made, lambda: prepared_rows(applier, config, change))
    downstream.execute(f"DROP TABLE {db}.t")
    with pytest.raises(DownstreamError, match="TR605"):
        applier.apply_planned(made, lambda: prepared_rows(applier, config, change))


def test_a_key_that_finds_rows_whose_other_columns_are_stale(
    downstream: Database, db: str, channel: Channel
) -> None:
    """Updates are left out, so the downstream's own key has older values than the log."""
    downstream.execute(f"CREATE TABLE {db}.t (id INT, a INT, PRIMARY KEY (a))")
    t = table(db, integer("id"), integer("a"))
    applier, config = channel(filters=(EventRule(db, "Ignore", "t", ("update",)),))
    first, second = {"id": 1, "a": 1}, {"id": 1, "a": 2}
    apply_rows(applier, config, insert(t, first), update(t, first, second), delete(t, second))
    assert downstream.execute(f"SELECT * FROM {db}.t") == []


def test_a_merged_table_is_altered_once_and_each_shards_alter_passed_over(
    downstream: Database, db: str, channel: Channel
) -> None:
    old = [table("up", integer("id"), integer("v"), name=f"t_{number}") for number in (1, 2)]
    new = [replace(s, columns=(*s.columns, text("note"))) for s in old]
    known = [version_record(1, s) for s in old]
    applier, config = channel(versions=lambda epoch: known, routes=(Route("up", db, "t_*", "t"),))
    create = [
        altering(f"CREATE TABLE up.t_{n} (id INT PRIMARY KEY, v INT NOT NULL)", n, "CREATE") for n in (1, 2)
    ]
    apply_steps(applier, create)
    apply_rows(applier, config, *(insert(s, {"id": n, "v": n}) for n, s in enumerate(old)))
    change = "ADD note VARCHAR(60) NOT NULL DEFAULT 'it''s', MODIFY v BIGINT NOT NULL, ADD KEY (note)"
    steps = [*[{}] * (applier.position.epoch + 1), altering(f"ALTER TABLE up.t_1 {change}", 1)]
    with pytest.raises(DownstreamError, match=r"TR623.*has no column note yet") as stopped:
        apply_steps(applier, steps)
    assert "alter the merged table by hand, once" in stopped.value.hint
    downstream.execute(f"ALTER TABLE {db}.t {change}")
    before = downstream.execute(f"SHOW CREATE TABLE {db}.t")
    apply_steps(applier, steps)
    # the other one still has its old form, and its rows find their place
    apply_rows(applier, config, insert(new[0], {"id": 5, "v": 5, "note": "x"}), update(old[1], *moved(1, 9)))
    apply_rows(applier, config, insert(old[1], {"id": 6, "v": 6}))
    steps = [*[{}] * (applier.position.epoch + 1), altering(f"ALTER TABLE up.t_2 {change}", 2)]
    apply_steps(applier, steps)
    apply_rows(applier, config, insert(new[1], {"id": 7, "v": 1 << 30, "note": "y"}))
    assert downstream.execute(f"SELECT * FROM {db}.t ORDER BY id") == [
        (0, 0, "it's"),
        (1, 9, "it's"),
        (5, 5, "x"),
        (6, 6, "it's"),
        (7, 1 << 30, "y"),
    ]
    assert downstream.execute(f"SHOW CREATE TABLE {db}.t") == before
    known += [version_record(5, s) for s in new]
    # a column that goes and comes again has other values there
    again = [
        altering("ALTER TABLE up.t_1 DROP note", 1),
        altering(f"ALTER TABLE up.t_1 {change}", 1),
    ]
    with pytest.raises(DownstreamError, match=r"TR623.*had a column note before"):
        apply_steps(applier, [*[{}] * (applier.position.epoch + 1), *again])
    assert downstream.execute(f"SHOW CREATE TABLE {db}.t") == before
    counted = f"SELECT ddl_left_out, ddl_passed_over FROM tailrace.channel_counters WHERE channel = '{db}'"
    assert downstream.execute(counted) == [(3, 3)]
    audited = "SELECT COUNT(*) FROM tailrace.applied_epochs WHERE ddl_left_out = 'passed over' AND ddl LIKE 'ALTER%'"
    assert downstream.execute(f"{audited} AND channel = '{db}'") == [(3,)]


def altering(statement: str, shard: int, verb: str = "ALTER") -> dict[str, Any]:
    strict = {"sql_mode": 1 << 21}
    return {"ddl": statement, "kind": f"{verb} TABLE", "tables": [("up", f"t_{shard}")], "settings": strict}


def moved(number: int, v: int) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"id": number, "v": number}, {"id": number, "v": v}


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
def test_every_type_fits_itself(
    flavor: str, request: pytest.FixtureRequest, db: str, downstream: Database
) -> None:
    """As the binlog describes it, and as the same statement makes it on the downstream."""
    source: Database = request.getfixturevalue(f"upstream_{flavor}")
    session = connect(ServerUrl.parse(downstream.url("tailrace")))
    source.execute(f"DROP DATABASE IF EXISTS {db}", f"CREATE DATABASE {db} CHARACTER SET utf8mb4")
    kinds = [kind for kind, _, _ in types_of(flavor)] + [r"ENUM('a\b','''')", r"SET('x\\y','z')"]
    there = set()
    with source.connect() as here, here.cursor() as cursor:
        cursor.execute(LOOSE)
        for number, kind in enumerate(kinds):
            statement = f"CREATE TABLE {db}.t{number} (id INT PRIMARY KEY, v {kind})"
            cursor.execute(statement)
            try:
                session.execute(statement)
                there.add(f"t{number}")
            except pymysql.MySQLError:
                # There are types of one flavor only.
                if flavor == downstream.flavor:
                    raise
        begin = binlog_end(source)
        for number in range(len(kinds)):
            cursor.execute(f"INSERT IGNORE INTO {db}.t{number} (id) VALUES (1)")
        here.commit()
    rows = rows_since(source, begin, f"{db}.*")
    assert len(rows) == len(kinds)
    assert len(there) > 80
    for row in rows:
        found = read_table(session, (db, row.structure.table))
        assert (found is not None) == (row.structure.table in there)
        told = [] if found is None else incompatibilities(row.structure, found)
        assert told == [], (kinds[int(row.structure.table[1:])], told)
    session.close()


def test_what_was_no_member_of_an_enum_stays_so_and_nothing_else_gets_through(
    downstream: Database, db: str, channel: Channel
) -> None:
    """Index 0, which a server in strict mode refuses; also beside a member that looks the same."""
    downstream.execute(
        f"CREATE TABLE {db}.t (id INT PRIMARY KEY, e ENUM('x', 'y'), f ENUM('x', '') NOT NULL, s VARCHAR(3))"
    )
    e = Column("e", "enum('x','y')", 247, 1, nullable=True, charset="utf8mb4", members=("x", "y"))
    f = Column("f", "enum('x','')", 247, 1, nullable=False, charset="utf8mb4", members=("x", ""))
    t = table(db, integer("id"), e, f, text("s", length=3))
    no_member = {0: "\0", 1: "", 2: "x", 3: "\0"}
    for compact in (True, False):
        applier, config = channel(compact=compact)
        downstream.execute(f"TRUNCATE TABLE {db}.t")
        rows = [
            {"id": n, "e": value, "f": no_member[n], "s": "abc"}
            for n, value in enumerate(("x", "", None, ""))
        ]
        apply_rows(applier, config, *(insert(t, row) for row in rows))
        apply_rows(applier, config, update(t, rows[0], rows[0] | {"e": ""}), delete(t, rows[3]))
        found = downstream.execute(f"SELECT id, e, e + 0, f + 0, s FROM {db}.t ORDER BY id")
        assert found == [(0, "", 0, 0, "abc"), (1, "", 0, 2, "abc"), (2, None, None, 1, "abc")]
        long = {"id": 9, "e": "", "f": "x", "s": "abcd"}
        with pytest.raises(DownstreamError, match="TR604"):
            apply_rows(applier, config, insert(t, long))
        assert downstream.execute(f"SELECT COUNT(*) FROM {db}.t") == [(3,)]
        [(strict,)] = applier.session.rows("SELECT @@sql_mode")
        assert "STRICT_ALL_TABLES" in strict


def test_rows_without_a_key_are_found_by_documents_that_the_downstream_writes_in_its_own_way(
    downstream: Database, db: str, channel: Channel
) -> None:
    """MariaDB's JSON is text; in MySQL it has other spaces and another order of keys."""
    downstream.execute(f"CREATE TABLE {db}.t (n INT, j JSON)")
    j = Column("j", "longtext", 252, 4, nullable=True, charset="utf8mb4")
    t = table(db, integer("n", nullable=True), j, key=())
    applier, config = channel()
    texts = ('{"long":1,"b":[1.0,"it\'s"]}', '{"long":1,"b":[1,"it\'s"]}', '"é"', "[ ]", None)
    rows = [{"n": 1, "j": text} for text in texts]
    apply_rows(applier, config, *(insert(t, row) for row in rows))
    apply_rows(applier, config, *(update(t, row, row | {"n": n}) for n, row in enumerate(rows)))
    apply_rows(applier, config, delete(t, rows[0] | {"n": 0}), delete(t, rows[4] | {"n": 4}))
    found = downstream.execute(f"SELECT n, REPLACE(j, ' ', '') FROM {db}.t ORDER BY n")
    assert [(n, "1.0" in str(text)) for n, text in found] == [(1, False), (2, False), (3, False)]
