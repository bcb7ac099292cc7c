"""Tables without transactions: nothing takes their rows back, and still each change happens once."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from schemas.structure import TableStructure
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.ddl_options import DdlOptions
from spark_consumer.rules.expressions.filter import ExpressionRule
from tailrace.validate import compare, compare_servers
from tests.support.applying.apply_steps import apply_rows, open_channel, prepared_epochs
from tests.support.applying.binlog_applied import Channel, definitions, epochs_since
from tests.support.binlogs.binlog_rows import binlog_end
from tests.support.epochs.fake_topic import Change, delete, insert, integer, text, update
from tests.support.names import own_name
from tests.support.processes.child import in_child

pytestmark = pytest.mark.servers
Rows = dict[int, dict[str, Any]]
ENGINES = [("mysql", "MyISAM"), ("mysql", "MEMORY"), ("mariadb", "MyISAM"), ("mariadb", "Aria")]
each_engine = pytest.mark.parametrize(("flavor", "engine"), ENGINES)


@pytest.fixture
def db(request: pytest.FixtureRequest, downstream: Database) -> str:
    name = own_name("n_", request)
    downstream.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    return name


def _table(db: str, name: str) -> TableStructure:
    return TableStructure(db, name, (integer("id"), integer("v", nullable=True), text("s")), ("id",))


def _create(downstream: Database, db: str, name: str, engine: str, keys: str = "PRIMARY KEY (id)") -> None:
    columns = "id INT NOT NULL, v INT, s VARCHAR(60) NOT NULL"
    downstream.execute(f"CREATE TABLE {db}.{name} ({columns}, {keys}) ENGINE={engine}")


def _history(db: str, seed: int, epochs: int = 12) -> tuple[list[list[Change]], dict[str, Rows]]:
    """Random changes of three tables, whose unique texts move from row to row, and what they come to."""
    chance = random.Random(seed)
    state: dict[str, Rows] = {name: {} for name in ("a", "b", "c")}
    made: list[list[Change]] = []
    for _ in range(epochs):
        changes: list[Change] = []
        for _ in range(chance.randint(1, 9)):
            name = chance.choice("aabbc")
            rows, table = state[name], _table(db, name)
            taken = {row["s"] for row in rows.values()}
            free = next(s for s in map(str, range(99)) if s not in taken)
            key, new = chance.randint(1, 8), chance.randint(1, 8)
            if key not in rows:
                rows[key] = {"id": key, "v": chance.randint(0, 9), "s": free}
                changes.append(insert(table, rows[key]))
            elif chance.random() < 0.3:
                changes.append(delete(table, rows.pop(key)))
            else:
                before = rows.pop(key)
                key = key if new in rows or chance.random() < 0.5 else new
                rows[key] = {"id": key, "v": chance.randint(0, 9), "s": chance.choice((before["s"], free))}
                changes.append(update(table, before, rows[key]))
        made.append(changes)
    return made, state


def _apply(url: str, channel: str, epochs: Sequence[Sequence[Change]], most: int) -> None:
    """Apply what is missing, so many epochs a slice."""
    applier, config = open_channel(url, channel)
    while (begin := applier.position.epoch + 1) < len(epochs):
        applier.apply(prepared_epochs(applier, config, epochs[begin : begin + most]))
    applier.close()


def _marks(downstream: Database, channel: str) -> list[tuple[Any, ...]]:
    query = f"SELECT table_name FROM tailrace.nontransactional_info WHERE Channel_name = '{channel}'"
    return downstream.execute(query)


POINTS = ["after_mark", "after_row:2", "after_row:5", "after_all"]


@each_engine
@pytest.mark.parametrize("seed", range(3))
def test_killed_anywhere_each_change_happens_once(
    downstream: Database, db: str, engine: str, seed: int
) -> None:
    epochs, expected = _history(db, seed)
    _create(downstream, db, "a", engine, "PRIMARY KEY (id), UNIQUE (s)")
    _create(downstream, db, "b", engine)
    _create(downstream, db, "c", "InnoDB", "PRIMARY KEY (id), UNIQUE (s)")
    chance, died, code = random.Random(seed), 0, -1
    while code:
        point = (
            "nontransactional." + chance.choice(POINTS) if chance.random() < 0.8 else "apply.before_commit"
        )
        # Each start cuts the log into other slices.
        code = in_child(lambda: _apply(downstream.url("tailrace"), db, epochs, chance.randint(1, 5)), point)
        assert code in (0, signal.SIGKILL)
        died += code != 0
        if died > 25:
            _apply(downstream.url("tailrace"), db, epochs, 3)
            break
    for name, rows in expected.items():
        found = downstream.execute(f"SELECT id, v, s FROM {db}.{name} ORDER BY id")
        assert found == [(row["id"], row["v"], row["s"]) for _, row in sorted(rows.items())], name
    assert _marks(downstream, db) == []
    assert died > 3


@each_engine
def test_what_is_refused_leaves_what_came_before_and_stays_refused(
    downstream: Database, db: str, engine: str
) -> None:
    _create(downstream, db, "a", engine, "PRIMARY KEY (id), UNIQUE (s)")
    _create(downstream, db, "c", "InnoDB")
    a, c = _table(db, "a"), _table(db, "c")
    downstream.execute(f"INSERT INTO {db}.a VALUES (99, 0, 'taken')")
    rows = [{"id": n, "v": n, "s": str(n)} for n in range(1, 4)]
    refused = {"id": 4, "v": 4, "s": "taken"}
    changes = [insert(c, rows[0]), *(insert(a, row) for row in rows), insert(a, refused), delete(a, rows[0])]
    for _ in range(3):
        applier, config = open_channel(downstream.url("tailrace"), db)
        with pytest.raises(DownstreamError, match=r"TR604.*taken") as error:
            apply_rows(applier, config, *changes)
        assert error.value.where.event == (0, 4)
        assert "only earlier rows in non-transactional tables" in error.value.applied
        assert downstream.execute(f"SELECT id FROM {db}.a ORDER BY id") == [(1,), (2,), (3,), (99,)]
        assert downstream.execute(f"SELECT * FROM {db}.c") == []
        assert applier.position.epoch == -1
    downstream.execute(f"DELETE FROM {db}.a WHERE id = 99")
    apply_rows(applier, config, *changes)
    assert downstream.execute(f"SELECT id FROM {db}.a ORDER BY id") == [(2,), (3,), (4,)]
    assert downstream.execute(f"SELECT id FROM {db}.c") == [(1,)]
    # A row that somebody has removed is missed, at each start.
    downstream.execute(f"DELETE FROM {db}.a WHERE id = 3")
    for _ in range(2):
        applier, config = open_channel(downstream.url("tailrace"), db)
        with pytest.raises(DownstreamError, match="TR603"):
            apply_rows(applier, config, update(a, rows[2], {**rows[2], "v": 7}))


@each_engine
def test_without_a_key_nothing_is_written(downstream: Database, db: str, engine: str) -> None:
    _create(downstream, db, "c", "InnoDB")
    _create(downstream, db, "a", engine, "KEY (id)")
    row = {"id": 1, "v": 1, "s": "x"}
    keyless = TableStructure(db, "a", _table(db, "a").columns, ())
    applier, config = open_channel(downstream.url("tailrace"), db)
    for table in (keyless, _table(db, "a")):
        with pytest.raises(DownstreamError, match=f"TR656.*{engine}.*no unique key") as error:
            apply_rows(applier, config, insert(_table(db, "c"), row), insert(table, row))
        assert f"ALTER TABLE {db}.a ENGINE=InnoDB" in error.value.hint
    assert downstream.execute(f"SELECT * FROM {db}.c") == []
    downstream.execute(f"ALTER TABLE {db}.a ENGINE=InnoDB")
    apply_rows(applier, config, insert(keyless, row))


@pytest.mark.parametrize(("flavor", "engine"), [("mysql", "MyISAM"), ("mariadb", "Aria")])
def test_the_engine_may_change_between_two_attempts(downstream: Database, db: str, engine: str) -> None:
    """An operator's remedy, in the midst of rows that are there already."""
    url, row = downstream.url("tailrace"), {"id": 1, "v": 1, "s": "x"}
    _create(downstream, db, "a", engine)
    _create(downstream, db, "b", "InnoDB")
    a, b = _table(db, "a"), _table(db, "b")
    changes = [insert(a, row), update(a, row, {**row, "id": 2}), insert(b, row), insert(a, row)]
    work = lambda: _apply(url, db, [changes, [delete(a, row), delete(b, row)]], 1)  # noqa: E731
    assert in_child(work, "nontransactional.after_row:3") == signal.SIGKILL
    downstream.execute(f"ALTER TABLE {db}.a ENGINE=InnoDB", f"ALTER TABLE {db}.b ENGINE={engine}")
    assert in_child(work, "apply.before_commit") == signal.SIGKILL
    work()
    assert downstream.execute(f"SELECT id FROM {db}.a") == [(2,)]
    assert downstream.execute(f"SELECT id FROM {db}.b") == []
    assert _marks(downstream, db) == []


@pytest.mark.parametrize(("flavor", "engine"), [("mysql", "MyISAM"), ("mariadb", "MyISAM")])
def test_a_crashed_table_stops_it_and_a_repair_heals(downstream: Database, db: str, engine: str) -> None:
    """As a server leaves it that is killed while it writes keys."""
    _create(downstream, db, "a", engine)
    a = _table(db, "a")
    rows = [{"id": n, "v": n, "s": "x" * n} for n in range(1, 9)]
    epochs = [[insert(a, row) for row in rows], [update(a, row, {**row, "v": 7}) for row in rows]]
    url = downstream.url("tailrace")
    assert in_child(lambda: _apply(url, db, epochs, 1), "nontransactional.after_row:11") == signal.SIGKILL
    downstream.execute(f"FLUSH TABLES {db}.a")
    index = downstream.data / db / "a.MYI"
    index.write_bytes(index.read_bytes()[:1024] + bytes(1024))
    for _ in range(3):
        with pytest.raises(DownstreamError, match=f"TR663.*{db}.a is marked as crashed") as error:
            _apply(url, db, epochs, 1)
        assert f"REPAIR TABLE `{db}`.`a`" in error.value.hint
        assert len(_marks(downstream, db)) == 1
    assert downstream.execute(f"REPAIR TABLE {db}.a")[-1][3] == "OK"
    _apply(url, db, epochs, 1)
    assert downstream.execute(f"SELECT id, v FROM {db}.a ORDER BY id") == [(n, 7) for n in range(1, 9)]
    assert _marks(downstream, db) == []


@pytest.mark.parametrize("flavor", ["mysql"])
@pytest.mark.parametrize("point", ["after_mark", "after_row:3"])
def test_archive_takes_inserts(downstream: Database, db: str, point: str) -> None:
    downstream.execute(
        f"CREATE TABLE {db}.a (id INT AUTO_INCREMENT PRIMARY KEY, v INT, s VARCHAR(60) NOT NULL) ENGINE=ARCHIVE"
    )
    work = lambda: _apply(  # noqa: E731
        downstream.url("tailrace"),
        db,
        [[insert(_table(db, "a"), {"id": n, "v": 1, "s": ""}) for n in (1, 2, 3, 4)]],
        1,
    )
    assert in_child(work, f"nontransactional.{point}") == signal.SIGKILL
    work()
    assert downstream.execute(f"SELECT id FROM {db}.a ORDER BY id") == [(1,), (2,), (3,), (4,)]


def test_filters_and_columns_of_its_own_are_minded(downstream: Database, db: str, flavor: str) -> None:
    """Rows that a rule leaves out are counted all the same, and what only the downstream has stays."""
    _create(downstream, db, "a", "MyISAM")
    downstream.execute(f"ALTER TABLE {db}.a ADD mine INT")
    a, url = _table(db, "a"), downstream.url("tailrace")
    rows = [{"id": n, "v": n % 2, "s": ""} for n in range(6)]
    epochs = [[insert(a, row) for row in rows], [update(a, row, {**row, "s": "y"}) for row in rows]]
    rule = ExpressionRule(db, "a", insert_value_expr="v = 1")

    def work() -> None:
        applier, config = open_channel(url, db, expressions=(rule,))
        while (begin := applier.position.epoch + 1) < 2:
            applier.apply(prepared_epochs(applier, config, epochs[begin : begin + 1]))

    assert in_child(work, "nontransactional.after_row:2") == signal.SIGKILL
    assert in_child(work, "nontransactional.after_all") == signal.SIGKILL
    downstream.execute(f"UPDATE {db}.a SET mine = id + 100")
    assert in_child(work, "nontransactional.after_row:3") == signal.SIGKILL
    work()
    assert downstream.execute(f"SELECT id, s, mine FROM {db}.a ORDER BY id") == [
        (n, "y", n + 100) for n in (0, 2, 4)
    ]


def test_a_view_is_no_table(downstream: Database, db: str, flavor: str) -> None:
    _create(downstream, db, "under", "InnoDB")
    downstream.execute(f"CREATE VIEW {db}.a AS SELECT * FROM {db}.under")
    applier, config = open_channel(downstream.url("tailrace"), db)
    with pytest.raises(DownstreamError, match=r"TR605.*a view with this name"):
        apply_rows(applier, config, insert(_table(db, "a"), {"id": 1, "v": 1, "s": ""}))


# Statements as the two kinds of session write them; d is the database.
SCRIPT = [
    "CREATE TABLE d.named (id INT PRIMARY KEY, v INT, KEY (v) USING BTREE) ROW_FORMAT=FIXED ENGINE = MyISAM CHECKSUM=1",
    "SET SESSION default_storage_engine = MyISAM",
    "CREATE TABLE d.silent (id INT PRIMARY KEY, engine VARCHAR(9) DEFAULT 'x') COMMENT='ENGINE=CSV'",
    "CREATE TABLE d.filled (PRIMARY KEY (a)) SELECT 1 AS a, 'x' AS b UNION SELECT 2, 'y'",
    "SET SESSION default_storage_engine = MEMORY",
    "CREATE TABLE d.memory (id INT PRIMARY KEY, v INT)",
    "SET SESSION default_storage_engine = InnoDB",
    "CREATE TABLE d.like_it LIKE d.silent",
    "CREATE TABLE d.usual (id INT PRIMARY KEY, v INT UNIQUE)",
    "INSERT INTO d.named VALUES (1, 1), (2, 2), (3, 3)",
    "INSERT INTO d.silent VALUES (1, 'a'), (2, 'b')",
    "INSERT INTO d.memory VALUES (1, 1), (2, 2)",
    "UPDATE d.named SET v = v + 1, id = id + 10 ORDER BY id DESC",
    "BEGIN",
    "INSERT INTO d.usual VALUES (1, 1), (2, 2)",
    "UPDATE d.silent SET engine = 'both' WHERE id = 1",
    "DELETE FROM d.memory WHERE id = 1",
    "COMMIT",
    "BEGIN",
    "INSERT INTO d.usual VALUES (3, 3)",
    "INSERT INTO d.named VALUES (7, 7)",
    "ROLLBACK",
    "ALTER TABLE d.usual ENGINE=MyISAM, ADD COLUMN w INT",
    "INSERT INTO d.usual VALUES (5, 5, 5)",
    "ALTER TABLE d.named ENGINE InnoDB ROW_FORMAT=DYNAMIC",
    "INSERT INTO d.named VALUES (8, 8)",
    "ALTER TABLE d.named ENGINE MyISAM ROW_FORMAT=DEFAULT",
    "DELETE FROM d.named WHERE id > 11",
    "INSERT INTO d.like_it SELECT * FROM d.silent",
    "TRUNCATE TABLE d.silent",
]


@pytest.fixture
def logged(upstream: Database, db: str) -> list[Any]:
    """The script's epochs; with GTIDs MySQL mixes engines neither in a transaction nor in CREATE … SELECT."""
    upstream.execute(f"CREATE DATABASE {db}")
    begin = binlog_end(upstream)
    mixing = ("BEGIN", "COMMIT", "ROLLBACK", SCRIPT[3]) if upstream.flavor == "mysql" else ()
    upstream.execute(*(one.replace("d.", f"{db}.") for one in SCRIPT if one not in mixing))
    return epochs_since(upstream, begin)


def _engines(server: Database, db: str) -> dict[str, str]:
    query = f"SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{db}'"
    return dict(server.execute(query))


def test_tables_have_the_upstreams_engines(
    upstream: Database, downstream: Database, db: str, logged: list[Any]
) -> None:
    Channel(downstream, db).apply(logged)
    assert definitions(downstream, db) == definitions(upstream, db)
    engines = _engines(downstream, db)
    assert [engines[name] for name in ("silent", "usual", "like_it", "memory")] == [*["MyISAM"] * 3, "MEMORY"]


@pytest.mark.parametrize("point", ["nontransactional.after_row:2", "ddl.after", "apply.before_commit:2"])
def test_killed_between_ddl_and_rows(
    upstream: Database, downstream: Database, db: str, logged: list[Any], point: str
) -> None:
    channel = Channel(downstream, db)
    died = 0
    while code := channel.apply_until_it_dies(logged, point):
        assert code == signal.SIGKILL
        died += 1
        if died > 40:
            channel.apply(logged)
            break
    assert definitions(downstream, db) == definitions(upstream, db)
    assert died > 3


def test_they_may_be_in_innodb_instead(
    upstream: Database, downstream: Database, db: str, logged: list[Any]
) -> None:
    Channel(downstream, db, ddl=DdlOptions(engines="innodb")).apply(logged)
    assert set(_engines(downstream, db).values()) == {"InnoDB"}
    source, target = (ServerUrl.parse(server.url()) for server in (upstream, downstream))
    assert not compare_servers(source, target, [f"{db}.*"]).is_equal
    rules = ConsumerConfig("", "", target, include=(f"{db}.*",), ddl=DdlOptions(engines="innodb"))
    result = compare(source, rules)
    assert result.is_equal, result.not_equal
