"""Filters, routes and safe mode against real servers, without Kafka and Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from compose.databases import Database
from schemas.errors import ConfigError, DownstreamError
from schemas.structure import Column, TableStructure
from schemas.types.enum_set import ENUM, SET
from schemas.types.json_type import JSON
from spark_consumer.apply.applier import Applier
from spark_consumer.rows.render import UnevaluableRow
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.route import Route
from tests.support.applying.apply_steps import apply_rows, apply_steps, open_channel
from tests.support.epochs.fake_topic import delete, insert, integer, text, update
from tests.support.names import own_name

pytestmark = pytest.mark.servers
Channel = Callable[..., tuple[Applier, ConsumerConfig]]


@pytest.fixture
def db(request: pytest.FixtureRequest, downstream: Database) -> str:
    """A database of the test's own."""
    name = own_name("p_", request)
    downstream.execute(f"CREATE DATABASE {name}")
    return name


@pytest.fixture
def channel(downstream: Database, db: str) -> Channel:
    """Opens the channel under rules."""
    return partial(open_channel, downstream.url("tailrace"), db)


def ddl(statement: str, kind: str, *tables: tuple[Any, ...], db: str = "") -> dict[str, Any]:
    return {"ddl": statement, "kind": kind, "tables": tables, "db": db}


def test_routed_ddl_and_rows_arrive_under_the_new_names(
    downstream: Database, db: str, channel: Channel
) -> None:
    applier, config = channel(
        routes=(Route("up", db), Route("up", db, "orders", "all_orders")), include=("up.*", "up")
    )
    steps = [
        ddl("CREATE DATABASE IF NOT EXISTS up", "CREATE DATABASE"),
        ddl("CREATE TABLE customers (id INT PRIMARY KEY)", "CREATE TABLE", ("up", "customers"), db="up"),
        ddl(
            "CREATE TABLE up.orders (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES customers (id))",
            "CREATE TABLE",
            ("up", "orders"),
        ),
        ddl("CREATE TABLE up.twin LIKE up.orders", "CREATE TABLE", ("up", "twin")),
        ddl("ALTER TABLE up.orders ADD v INT, ADD CHECK (orders.v <> 3)", "ALTER TABLE", ("up", "orders")),
        ddl("RENAME TABLE up.twin TO up.other", "RENAME TABLE", ("up", "twin", "up", "other")),
    ]
    apply_steps(applier, steps)
    customers = TableStructure("up", "customers", (integer("id"),), ("id",))
    columns = (integer("id"), integer("c", nullable=True), integer("v", nullable=True))
    orders = TableStructure("up", "orders", columns, ("id",))
    made = apply_rows(
        applier, config, insert(customers, {"id": 1}), insert(orders, {"id": 5, "c": 1, "v": 2})
    )
    assert made.row_counts.routed == 2
    assert downstream.execute(f"SELECT * FROM {db}.all_orders") == [(5, 1, 2)]
    assert sorted(downstream.execute(f"SHOW TABLES FROM {db}")) == [
        ("all_orders",),
        ("customers",),
        ("other",),
    ]
    [[_, shown]] = downstream.execute(f"SHOW CREATE TABLE {db}.all_orders")
    assert "REFERENCES `customers`" in shown


def test_shards_are_merged_and_what_speaks_for_one_of_them_stops(
    downstream: Database, db: str, channel: Channel
) -> None:
    applier, config = channel(routes=(Route("shard_?", db, "t", "t"),))
    steps = [
        ddl(f"CREATE TABLE shard_{n}.t (id INT PRIMARY KEY, v INT)", "CREATE TABLE", (f"shard_{n}", "t"))
        for n in (1, 2)
    ]
    apply_steps(applier, steps)
    one, two = (
        TableStructure(f"shard_{n}", "t", (integer("id"), integer("v", nullable=True)), ("id",))
        for n in (1, 2)
    )
    apply_rows(applier, config, insert(one, {"id": 1, "v": 1}), insert(two, {"id": 2, "v": 2}))
    # the row moves from one shard to the other
    apply_rows(applier, config, delete(one, {"id": 1, "v": 1}), insert(two, {"id": 1, "v": 9}))
    assert downstream.execute(f"SELECT * FROM {db}.t ORDER BY id") == [(1, 9), (2, 2)]
    with pytest.raises(DownstreamError, match="TR604"):
        apply_rows(applier, config, insert(one, {"id": 2, "v": 0}))
    position = applier.position.epoch
    steps = [*[{}] * (position + 1), ddl("TRUNCATE TABLE shard_1.t", "TRUNCATE TABLE", ("shard_1", "t"))]
    with pytest.raises(DownstreamError, match=r'TR623.*events = \["truncate table"\]'):
        apply_steps(applier, steps)
    ignoring, config = channel(
        routes=config.routes, filters=(EventRule("shard_1", "Ignore", "t", ("truncate table",)),)
    )
    apply_steps(ignoring, steps)
    assert ignoring.position.epoch == position + 1
    assert downstream.execute(f"SELECT COUNT(*) FROM {db}.t") == [(2,)]


def test_where_deletes_are_dropped_updates_may_miss_and_inserts_may_not_meet(
    downstream: Database, db: str, channel: Channel
) -> None:
    downstream.execute(f"CREATE TABLE {db}.t (id INT PRIMARY KEY, v INT)")
    t = TableStructure(db, "t", (integer("id"), integer("v", nullable=True)), ("id",))
    rule = EventRule(db, "Ignore", "t", ("delete",))
    applier, config = channel(filters=(rule,))
    one, two = {"id": 1, "v": 1}, {"id": 2, "v": 2}
    apply_rows(applier, config, insert(t, one), delete(t, one), update(t, two, {"id": 2, "v": 3}))
    assert downstream.execute(f"SELECT * FROM {db}.t") == [(1, 1)]
    with pytest.raises(DownstreamError, match="TR604"):
        apply_rows(applier, config, insert(t, {"id": 1, "v": 7}))
    applier, config = channel(filters=(rule,), safe_mode=True)
    apply_rows(applier, config, insert(t, {"id": 1, "v": 7}))
    assert downstream.execute(f"SELECT * FROM {db}.t") == [(1, 7)]


@pytest.mark.parametrize("charset", ["latin1", "ucs2", "gbk", "utf8mb4"])
def test_keys_of_several_columns_find_text_of_each_character_set(
    downstream: Database, db: str, channel: Channel, charset: str
) -> None:
    """In a list of several keys MariaDB does not find such text."""
    downstream.execute(
        f"CREATE TABLE {db}.t (id INT, u VARCHAR(60) CHARACTER SET {charset}, n INT, PRIMARY KEY (id, u))"
    )
    t = TableStructure(
        db, "t", (integer("id"), replace(text("u"), charset=charset), integer("n")), ("id", "u")
    )
    rows = [{"id": number, "u": f"é{number}", "n": 0} for number in range(5)]
    applier, config = channel()
    apply_rows(applier, config, *(insert(t, row) for row in rows))
    apply_rows(applier, config, *(update(t, row, row | {"n": 1}) for row in rows))
    assert downstream.execute(f"SELECT SUM(n) FROM {db}.t") == [(5,)]
    # Here no number of rows is expected.
    safe, config = channel(safe_mode=True)
    apply_rows(safe, config, *(delete(t, row | {"n": 1}) for row in rows[1:]))
    assert downstream.execute(f"SELECT id FROM {db}.t") == [(0,)]


@pytest.mark.parametrize("compact", [True, False])
def test_safe_mode_takes_what_is_there_already_and_touches_nobody_else(
    downstream: Database, db: str, channel: Channel, compact: bool
) -> None:
    downstream.execute(f"CREATE TABLE {db}.t (id INT PRIMARY KEY, u VARCHAR(60) UNIQUE)")
    t = TableStructure(db, "t", (integer("id"), text("u", nullable=True)), ("id",))
    changes = (
        insert(t, {"id": 1, "u": "a"}),
        insert(t, {"id": 2, "u": "b"}),
        update(t, {"id": 1, "u": "a"}, {"id": 1, "u": "c"}),
        update(t, {"id": 2, "u": "b"}, {"id": 3, "u": "a"}),
        insert(t, {"id": 4, "u": None}),
        delete(t, {"id": 4, "u": None}),
    )
    applier, config = channel(compact=compact)
    apply_rows(applier, config, *changes)
    with pytest.raises(DownstreamError):
        apply_rows(applier, config, *changes)
    safe, config = channel(safe_mode=True, compact=compact)
    if compact:
        # In order, the repetition passes through states that the unique key does not allow.
        apply_rows(safe, config, *changes)
    apply_rows(safe, config, insert(t, {"id": 1, "u": "c"}), delete(t, {"id": 9, "u": "x"}))
    assert downstream.execute(f"SELECT * FROM {db}.t ORDER BY id") == [(1, "c"), (3, "a")]
    # REPLACE would remove row 3 here.
    with pytest.raises(DownstreamError, match="TR604"):
        apply_rows(safe, config, insert(t, {"id": 8, "u": "a"}))
    assert downstream.execute(f"SELECT * FROM {db}.t ORDER BY id") == [(1, "c"), (3, "a")]


def test_safe_mode_leaves_the_children_of_a_parent(downstream: Database, db: str, channel: Channel) -> None:
    downstream.execute(
        f"CREATE TABLE {db}.p (id INT PRIMARY KEY, v INT)",
        f"CREATE TABLE {db}.c (id INT PRIMARY KEY, p INT,"
        f" FOREIGN KEY (p) REFERENCES {db}.p (id) ON DELETE CASCADE)",
        f"INSERT INTO {db}.p VALUES (1, 1)",
        f"INSERT INTO {db}.c VALUES (7, 1)",
    )
    p = TableStructure(db, "p", (integer("id"), integer("v", nullable=True)), ("id",))
    applier, config = channel(safe_mode=True)
    apply_rows(applier, config, update(p, {"id": 1, "v": 1}, {"id": 1, "v": 2}), insert(p, {"id": 1, "v": 3}))
    assert downstream.execute(f"SELECT v FROM {db}.p") == [(3,)]
    assert downstream.execute(f"SELECT id FROM {db}.c") == [(7,)]


def test_two_channels_with_different_routes_do_not_disturb_each_other(
    downstream: Database, db: str, channel: Channel
) -> None:
    downstream.execute(*(f"CREATE TABLE {db}.{name} (id INT PRIMARY KEY)" for name in ("a", "b")))
    t = TableStructure("up", "t", (integer("id"),), ("id",))
    first, first_config = channel(routes=(Route("up", db, "t", "a"),))
    second_config = replace(first_config, routes=(Route("up", db, "t", "b"),), channel=f"{db}2")
    second, _ = open_channel(downstream.url("tailrace"), second_config.channel, routes=second_config.routes)
    apply_rows(first, first_config, insert(t, {"id": 1}))
    apply_rows(second, second_config, insert(t, {"id": 1}), insert(t, {"id": 2}))
    apply_rows(first, first_config, delete(t, {"id": 1}))
    assert downstream.execute(f"SELECT id FROM {db}.a") == []
    assert downstream.execute(f"SELECT id FROM {db}.b ORDER BY id") == [(1,), (2,)]
    assert (first.position.epoch, second.position.epoch) == (1, 0)
    counted = downstream.execute(
        "SELECT row_changes, routed, merged, statements FROM tailrace.channel_counters"
        f" WHERE channel IN ('{db}', '{db}2') ORDER BY channel"
    )
    assert counted == [(2, 2, 0, 2), (2, 2, 1, 1)]


def test_expressions_leave_rows_out_by_the_downstreams_collation(
    downstream: Database, db: str, channel: Channel
) -> None:
    downstream.execute(f"CREATE TABLE {db}.t (id INT PRIMARY KEY, s VARCHAR(60) COLLATE utf8mb4_general_ci)")
    t = TableStructure(db, "t", (integer("id"), text("s", nullable=True)), ("id",))
    rule = ExpressionRule(
        db, "t", "s = 'tmp'", update_old_value_expr="s = 'tmp'", update_new_value_expr="s <> 'x'"
    )
    applier, config = channel(expressions=(rule,))
    made = apply_rows(
        applier,
        config,
        insert(t, {"id": 1, "s": "TMP "}),
        insert(t, {"id": 2, "s": "a"}),
        # the row was never written: an UPDATE that stays finds nothing, and that is right
        update(t, {"id": 1, "s": "TMP "}, {"id": 1, "s": "x"}),
        update(t, {"id": 1, "s": "x"}, {"id": 5, "s": "y"}),
        update(t, {"id": 2, "s": "tmp"}, {"id": 3, "s": "y"}),
        delete(t, {"id": 9, "s": None}),
    )
    assert made.row_counts.expression_filtered == 3
    assert downstream.execute(f"SELECT * FROM {db}.t") == [(2, "a")]
    with pytest.raises(UnevaluableRow, match="known only to the server"):
        apply_rows(applier, config, insert(t, {"id": 7, "s": "é"}))
    with pytest.raises(ConfigError, match=r"TR134.*SOUNDEX"):
        apply_rows(
            *channel(expressions=(ExpressionRule(db, "t", "SOUNDEX(s) = 'x'"),)),
            insert(t, {"id": 7, "s": "e"}),
        )


def _in_place_table(downstream: Database, db: str, more: str = "", name: str = "t") -> TableStructure:
    downstream.execute(f"CREATE TABLE {db}.{name} (id INT PRIMARY KEY, v INT, s VARCHAR(60), KEY (v){more})")
    downstream.execute(f"INSERT INTO {db}.{name} VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')")
    columns = (integer("id"), integer("v", nullable=True), text("s", nullable=True))
    return TableStructure(db, name, columns, ("id",))


def _moved(table: TableStructure, id_: int, v: int | None) -> Any:
    row = {"id": id_, "v": id_, "s": "abcdef"[id_ - 1]}
    return update(table, row, row | {"v": v})


@pytest.mark.parametrize("name", ["n", "t"])
@pytest.mark.parametrize("rows", [(1, 2, 3), (1, 2), (3,)])
def test_rows_that_are_there_are_changed_in_place(
    downstream: Database, db: str, channel: Channel, rows: tuple[int, ...], name: str
) -> None:
    table = _in_place_table(downstream, db, name=name)
    applier, config = channel()
    # The second row keeps its values, and counts as one that was there.
    made = apply_rows(applier, config, *(_moved(table, n, 2 if n < 3 else None) for n in rows))
    assert [one.rows for _, one in made.writes.updates] == [len(rows)]
    assert made.writes.merged == made.writes.updates
    after = [(n, (2 if n < 3 else None) if n in rows else n, "abc"[n - 1]) for n in (1, 2, 3)]
    assert downstream.execute(f"SELECT * FROM {db}.{name} ORDER BY id") == after


@pytest.mark.parametrize("rows", [(1, 4), (4, 5), (5,)])
def test_a_row_that_should_be_there_and_is_not_stops_the_channel(
    downstream: Database, db: str, channel: Channel, rows: tuple[int, ...]
) -> None:
    table = _in_place_table(downstream, db)
    applier, config = channel()
    with pytest.raises(DownstreamError) as stopped:
        apply_rows(applier, config, *(_moved(table, n, 9) for n in rows))
    assert stopped.value.code == "TR603"
    assert downstream.execute(f"SELECT id, v FROM {db}.t ORDER BY id") == [(1, 1), (2, 2), (3, 3)]


def test_values_of_a_second_unique_key_change_hands(downstream: Database, db: str, channel: Channel) -> None:
    table = _in_place_table(downstream, db, ", UNIQUE KEY (v)")
    applier, config = channel()
    made = apply_rows(applier, config, _moved(table, 1, None), _moved(table, 2, 1), _moved(table, 3, 2))
    assert not made.writes.updates
    assert downstream.execute(f"SELECT id, v FROM {db}.t ORDER BY id") == [(1, None), (2, 1), (3, 2)]


MEMBERS = ("new", "paid", "sent_back")


def _members_table(downstream: Database, db: str, *members: str, collation: str) -> TableStructure:
    listed = ",".join(f"'{member}'" for member in members)
    definition = ", ".join(f"{name} {kind}({listed}) COLLATE {collation}" for name, kind in KINDS.items())
    downstream.execute(
        # In strict mode alike members are refused.
        "SET SESSION sql_mode = ''",
        f"CREATE TABLE {db}.t (id INT PRIMARY KEY, {definition}, doc JSON)",
        f"INSERT INTO {db}.t VALUES (1, 1, 1, '[0]'), (2, 1, 1, '[0]'), (3, 1, 1, '[0]')",
    )
    codes = {"e": ENUM, "s": SET}
    columns = (
        Column(name, f"{kind}({listed})", codes[name], 1, True, charset="utf8mb4", members=members)
        for name, kind in KINDS.items()
    )
    doc = Column("doc", "json", JSON, 4, True)
    return TableStructure(db, "t", (integer("id"), *columns, doc), ("id",))


KINDS = {"e": "enum", "s": "set"}
OLD = {"e": "new", "s": "new", "doc": "[0]"}


def _set(table: TableStructure, id_: int, e: str | None, s: str | None, doc: Any) -> Any:
    return update(table, {"id": id_, **OLD}, {"id": id_, "e": e, "s": s, "doc": doc})


@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_bin"])
def test_members_and_documents_are_changed_in_place(
    downstream: Database, db: str, channel: Channel, collation: str
) -> None:
    table = _members_table(downstream, db, *MEMBERS, collation=collation)
    applier, config = channel()
    changes = [
        _set(table, 1, "paid", "paid,sent_back", '{"a": 1.50, "b": [-0.0, 1e300, null]}'),
        # Index 0, the value of an invalid member.
        _set(table, 2, "", "", '"x"'),
        _set(table, 3, "sent_back", None, None),
    ]
    made = apply_rows(applier, config, *changes)
    assert [one.rows for _, one in made.writes.updates] == [3]
    rows = downstream.execute(f"SELECT id, e + 0, s + 0, doc FROM {db}.t ORDER BY id")
    assert [(int(id_), int(e), s if s is None else int(s)) for id_, e, s, _ in rows] == [
        (1, 2, 6),
        (2, 0, 0),
        (3, 3, None),
    ]
    downstream.execute(f"CREATE TABLE {db}.u LIKE {db}.t", f"INSERT INTO {db}.u (id, doc) VALUES (1, '[0]')")
    apply_rows(applier, config, _set(replace(table, table="u"), 1, None, None, changes[0].after["doc"]))
    [[written]] = downstream.execute(f"SELECT doc FROM {db}.u")
    assert [doc for _, _, _, doc in rows] == [written, '"x"', None]


@pytest.mark.parametrize(
    ("members", "collation"),
    [
        (("new", "ñ", "n"), "utf8mb4_general_ci"),
        (("new", "New"), "utf8mb4_bin"),
        (("new", ""), "utf8mb4_bin"),
        (("new", "y", "i"), "utf8mb4_lithuanian_ci"),
    ],
)
def test_members_that_may_be_alike_are_not_changed_in_place(
    downstream: Database, db: str, channel: Channel, members: tuple[str, ...], collation: str
) -> None:
    table = _members_table(downstream, db, *members, collation=collation)
    applier, config = channel()
    made = apply_rows(applier, config, *(_set(table, n, members[-1], members[-1], "{}") for n in (1, 2, 3)))
    assert not made.writes.updates
    rows = downstream.execute(f"SELECT e + 0 FROM {db}.t")
    assert [int(e) for (e,) in rows] == [len(members)] * 3
