"""Cascades that the log does not hold: the downstream's rows end as an upstream's InnoDB leaves them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from structlog.testing import capture_logs

from compose.databases import Database
from schemas.structure import TableStructure
from spark_consumer.apply.applier import Applier
from spark_consumer.rules.config import ConsumerConfig
from tests.support.applying.apply_steps import apply_rows, open_channel
from tests.support.applying.binlog_applied import Channel, definitions, epochs_since
from tests.support.binlogs.binlog_rows import binlog_end
from tests.support.epochs.fake_topic import delete, insert, integer
from tests.support.names import own_database, own_name

pytestmark = pytest.mark.servers
#: types of keys that are referred to, and three values of each
KEYS = {
    "INT": ("1", "2", "3"),
    "BIGINT UNSIGNED": ("18446744073709551615", "0", "7"),
    "DECIMAL(12,4)": ("1.5", "-2.25", "0"),
    "VARCHAR(20) COLLATE utf8mb4_general_ci": ("'it''s'", "'b\\'", "'é '"),
    "VARCHAR(9) CHARACTER SET latin1": ("'ä'", "'b'", "'c'"),
    "VARBINARY(6)": ("x'0027ff'", "x'61'", "x''"),
    "DATETIME(6)": ("'2020-01-01 00:00:00.000001'", "'2000-01-01'", "'1999-12-31 23:59:59.5'"),
    "ENUM('x', 'it''s', 'z')": ("'it''s'", "'x'", "'z'"),
    "ENUM('x', 'X', 'y') COLLATE utf8mb4_general_ci": ("1", "3", "2"),
    "SET('x', 'X') COLLATE utf8mb4_general_ci": ("1", "0", "2"),
    "BIT(12)": ("300", "1", "0"),
    "DOUBLE": ("0.1", "1e300", "-2.5"),
}


@pytest.fixture
def db(request: pytest.FixtureRequest, downstream: Database) -> str:
    """A database of the test's own."""
    name = own_name("x_", request)
    downstream.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    return name


@pytest.fixture
def channel(downstream: Database, db: str) -> tuple[Applier, ConsumerConfig]:
    return open_channel(downstream.url("tailrace"), db)


def table(db: str, name: str, *more: str) -> TableStructure:
    columns = (integer("id"), *(integer(one, nullable=True) for one in more))
    return TableStructure(db, name, columns, ("id",))


def test_a_cascade_of_any_depth_leaves_nothing_behind(
    downstream: Database, db: str, channel: tuple[Applier, ConsumerConfig]
) -> None:
    """Of each type a -> b -> c -> d from one root, and with more than one row on each level."""
    statements = [
        f"USE {db}",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "CREATE TABLE root (id INT PRIMARY KEY)",
        "INSERT INTO root VALUES (1), (2)",
    ]
    for n, (kind, (one, two, three)) in enumerate(KEYS.items()):
        levels = (
            ("a", "INT", "root (id)"),
            ("b", kind, f"a{n} (k)"),
            ("c", kind, f"b{n} (k)"),
            ("d", kind, f"c{n} (k)"),
        )
        statements += [
            f"CREATE TABLE {level}{n} (k {kind} PRIMARY KEY, p {of},"
            f" FOREIGN KEY (p) REFERENCES {parent} ON DELETE {'SET NULL' if level == 'd' else 'CASCADE'})"
            for level, of, parent in levels
        ]
        statements += [f"INSERT INTO a{n} VALUES ({one}, 1), ({two}, 1), ({three}, 2)"]
        statements += [
            f"INSERT INTO {level}{n} VALUES ({one}, {one}), ({two}, {two}), ({three}, {three})"
            for level in "bcd"
        ]
    downstream.execute(*statements)
    apply_rows(*channel, delete(table(db, "root"), {"id": 1}))
    for n in range(len(KEYS)):
        for level in "abc":
            assert downstream.execute(f"SELECT COUNT(*) FROM {db}.{level}{n}") == [(1,)], (level, n)
        assert downstream.execute(f"SELECT COUNT(*), COUNT(p) FROM {db}.d{n}") == [(3, 1)], n


def test_a_table_that_refers_to_itself_loses_the_whole_branch(
    downstream: Database, db: str, channel: tuple[Applier, ConsumerConfig]
) -> None:
    downstream.execute(
        f"USE {db}",
        "CREATE TABLE tree (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES tree (id) ON DELETE CASCADE)",
        "CREATE TABLE leaf (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES tree (id) ON DELETE SET NULL)",
    )
    applier, config = channel
    tree, leaf = table(db, "tree", "p"), table(db, "leaf", "p")
    # 1 is the root; 20 and 21 are each other's parents; 30 is its own.
    parents = {1: None, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 3, 10: None, 20: None, 21: 20, 30: None}
    apply_rows(applier, config, *(insert(tree, {"id": i, "p": p}) for i, p in parents.items()))
    apply_rows(applier, config, *(insert(leaf, {"id": i, "p": i}) for i in parents))
    downstream.execute(
        f"UPDATE {db}.tree SET p = 21 WHERE id = 20", f"UPDATE {db}.tree SET p = 30 WHERE id = 30"
    )
    gone = ({"id": 2, "p": 1}, {"id": 20, "p": 21}, {"id": 30, "p": 30})
    apply_rows(applier, config, *(delete(tree, row) for row in gone))
    left = [1, 3, 7, 10]
    assert [row[0] for row in downstream.execute(f"SELECT id FROM {db}.tree ORDER BY id")] == left
    assert [row[0] for row in downstream.execute(f"SELECT p FROM {db}.leaf WHERE p > 0 ORDER BY p")] == left
    assert downstream.execute(f"SELECT COUNT(*) FROM {db}.leaf") == [(len(parents),)]


def test_two_ways_to_one_row_remove_it_and_what_hangs_on_it(
    downstream: Database, db: str, channel: tuple[Applier, ConsumerConfig]
) -> None:
    downstream.execute(
        f"USE {db}",
        "CREATE TABLE top (id INT PRIMARY KEY)",
        "CREATE TABLE l (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES top (id) ON DELETE CASCADE)",
        "CREATE TABLE r (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES top (id) ON DELETE CASCADE)",
        "CREATE TABLE lr (id INT PRIMARY KEY, l INT, r INT, FOREIGN KEY (l) REFERENCES l (id) ON DELETE CASCADE,"
        " FOREIGN KEY (r) REFERENCES r (id) ON DELETE SET NULL)",
        "CREATE TABLE x (id INT PRIMARY KEY, lr INT, l INT, FOREIGN KEY (lr) REFERENCES lr (id) ON DELETE CASCADE,"
        " FOREIGN KEY (l) REFERENCES l (id) ON DELETE SET NULL)",
        "INSERT INTO top VALUES (1), (2)",
        "INSERT INTO l VALUES (1, 1), (2, 1), (3, 2)",
        "INSERT INTO r VALUES (1, 1), (2, 1), (3, 2)",
        "INSERT INTO lr VALUES (1, 1, 1), (2, 2, 2), (3, 3, 1), (4, 3, 2), (5, 2, 3), (6, 3, 3)",
        "INSERT INTO x VALUES (1, 1, 1), (2, 2, 3), (3, 3, 2), (4, 6, 3), (5, NULL, 2)",
    )
    apply_rows(*channel, delete(table(db, "top"), {"id": 1}))
    lr = downstream.execute(f"SELECT * FROM {db}.lr ORDER BY id")
    assert lr == [(3, 3, None), (4, 3, None), (6, 3, 3)]
    assert downstream.execute(f"SELECT * FROM {db}.x ORDER BY id") == [
        (3, 3, None),
        (4, 6, 3),
        (5, None, None),
    ]


def test_two_foreign_keys_to_one_parent_hide_no_grandchildren(
    downstream: Database, db: str, channel: tuple[Applier, ConsumerConfig]
) -> None:
    downstream.execute(
        f"USE {db}",
        "CREATE TABLE r (id INT PRIMARY KEY)",
        "CREATE TABLE a (id INT PRIMARY KEY, p INT, q INT, FOREIGN KEY (p) REFERENCES r (id) ON DELETE CASCADE,"
        " FOREIGN KEY (q) REFERENCES r (id) ON DELETE CASCADE)",
        *(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES a (id) ON DELETE {rule})"
            for name, rule in (("b", "CASCADE"), ("c", "SET NULL"))
        ),
        "INSERT INTO r VALUES (1), (2)",
        "INSERT INTO a VALUES (1, 1, 2), (2, 1, 2), (3, 2, 1), (4, 2, 1), (5, 2, 2)",
        *(
            f"INSERT INTO {name} VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 4), (7, 1)"
            for name in "bc"
        ),
    )
    apply_rows(*channel, delete(table(db, "r"), {"id": 1}))
    assert downstream.execute(f"SELECT id FROM {db}.a") == [(5,)]
    assert downstream.execute(f"SELECT id FROM {db}.b") == [(5,)]
    assert downstream.execute(f"SELECT COUNT(*), SUM(p) FROM {db}.c") == [(7, 5)]


# MySQL logs what its foreign keys change, MariaDB does not.
either = pytest.mark.parametrize("flavor", ["mysql", "mariadb"], indirect=True)
_FAMILY = (
    "CREATE TABLE p (id INT PRIMARY KEY, code INT UNIQUE, n INT)",
    "CREATE TABLE c (id INT PRIMARY KEY, p INT, code INT, n INT,"
    " FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE,"
    " FOREIGN KEY (code) REFERENCES p (code) ON DELETE SET NULL ON UPDATE CASCADE)",
    "CREATE TABLE g (id INT PRIMARY KEY, c INT, n INT, FOREIGN KEY (c) REFERENCES c (id) ON DELETE CASCADE)",
    # It is in the family, and nothing changes its rows.
    "CREATE TABLE l (id INT PRIMARY KEY, g INT, n INT, FOREIGN KEY (g) REFERENCES g (id) ON DELETE SET NULL)",
)


@pytest.fixture
def both(request: pytest.FixtureRequest, upstream: Database, downstream: Database) -> Iterator[str]:
    """A database of the test's own on both servers."""
    yield from own_database("fk_", request, upstream, downstream)


def _harmless(random: Random, n: int) -> str:
    """A change for which no foreign key changes another row."""
    i, j = random.randrange(12), random.randrange(12)
    return random.choice(
        (
            f"INSERT IGNORE INTO p VALUES ({i}, {100 + i}, {n})",
            f"INSERT IGNORE INTO c VALUES ({i}, {j}, {100 + random.randrange(12)}, {n})",
            f"INSERT IGNORE INTO g VALUES ({i}, {j}, {n})",
            f"INSERT IGNORE INTO l VALUES ({i}, {j}, {n})",
            f"UPDATE IGNORE c SET p = {j}, n = {n} WHERE id = {i}",
            f"UPDATE {random.choice('cgl')} SET n = {n} WHERE id <> {i}",
            f"DELETE FROM l WHERE id = {i}",
        )
    )


def _acting(random: Random, n: int) -> str:
    """A change for which foreign keys change other rows."""
    i, j = random.randrange(12), random.randrange(12)
    table = random.choice("pcg")
    return random.choice(
        (
            f"DELETE FROM {table} WHERE id = {i}",
            f"DELETE FROM p WHERE id IN ({i}, {j})",
            f"UPDATE IGNORE p SET id = {j} WHERE id = {i}",
            f"UPDATE IGNORE p SET code = {100 + j} WHERE id = {i}",
            f"UPDATE p SET n = {n}",
        )
    )


def _make_family(upstream: Database, db: str) -> tuple[str, int]:
    begin = binlog_end(upstream)
    upstream.execute(f"CREATE DATABASE {db}", f"USE {db}", *_FAMILY)
    return begin


def _run(upstream: Database, db: str, *statements: str) -> None:
    """Run statements in one transaction, and end its epoch."""
    upstream.execute(f"USE {db}", "BEGIN", *statements, "COMMIT")
    upstream.execute(f"ALTER TABLE {db}.l COMMENT 'after {len(statements)}'")


@either
@pytest.mark.parametrize("seed", range(6))
def test_a_family_ends_as_upstream_whatever_its_foreign_keys_did(
    upstream: Database, downstream: Database, both: str, flavor: str, seed: int
) -> None:
    random = Random(seed)
    begin = _make_family(upstream, both)
    for number in range(10):
        # Every second transaction has none for which they act.
        acting = [_acting(random, n) for n in range(2 + number)] if number % 2 else []
        changes = [*acting, *(_harmless(random, n) for n in range(6 + 2 * number))]
        random.shuffle(changes)
        _run(upstream, both, *changes)
    with capture_logs() as logs:
        Channel(downstream, both).apply(epochs_since(upstream, begin))
    assert definitions(downstream, both) == definitions(upstream, both)
    less = [entry["reason"] for entry in logs if entry["event"] == "compacted_less"]
    assert less == ["foreign keys changed rows that are not in the log"] * (flavor == "mariadb")


@either
def test_a_family_is_compacted_where_no_foreign_key_acts(
    upstream: Database, downstream: Database, both: str
) -> None:
    begin = _make_family(upstream, both)
    parents = ", ".join(f"({n}, {n}, 0)" for n in range(20))
    _run(upstream, both, f"INSERT INTO p VALUES {parents}", "DELETE FROM p WHERE id = 3")
    children = ", ".join(f"({n}, {n % 3}, NULL, 0)" for n in range(20))
    updates = [f"UPDATE c SET n = {n} WHERE id = 5" for n in range(1, 31)]
    _run(upstream, both, f"INSERT INTO c VALUES {children}", *updates)
    counted = []
    apply = Applier.apply

    def noted(self: Applier, prepared: object) -> object:
        applied = apply(self, prepared)  # type: ignore[arg-type]
        counted.append(applied.row_counts.compacted)
        return applied

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Applier, "apply", noted)
        # The first one has made the channel careful about traceless changes, so it cannot help the second.
        Channel(downstream, both).apply(epochs_since(upstream, begin))
    assert definitions(downstream, both) == definitions(upstream, both)
    assert 30 in counted


@either
@pytest.mark.parametrize("extra", [False, True], ids=["alike", "apart"])
def test_a_row_whose_parent_came_and_went_is_gone(
    upstream: Database, downstream: Database, both: str, extra: bool
) -> None:
    """A parent's net change is none, or its table is in order anyway: its child's rows are not without it."""
    begin = _make_family(upstream, both)
    _run(
        upstream,
        both,
        "INSERT INTO p VALUES (1, 1, 0), (2, 2, 0), (3, 3, 0)",
        "INSERT INTO c VALUES (1, 1, NULL, 0)",
    )
    channel = Channel(downstream, both)
    channel.apply(epochs_since(upstream, begin))
    if extra:
        downstream.execute(f"ALTER TABLE {both}.p ADD COLUMN extra INT")
    _run(
        upstream,
        both,
        "INSERT INTO p VALUES (7, 7, 0)",
        "INSERT INTO c VALUES (7, 7, NULL, 0), (8, 7, NULL, 0), (9, 2, 7, 0)",
        "UPDATE c SET p = 2 WHERE id = 8",
        "DELETE FROM p WHERE id = 7",
        "DELETE FROM p WHERE id = 1",
        "INSERT INTO p VALUES (1, 1, 5)",
        "INSERT INTO c VALUES (5, 1, NULL, 3)",
    )
    # The next batch is in order at once.
    _run(upstream, both, "INSERT INTO c VALUES (3, 3, NULL, 0)", "DELETE FROM p WHERE id = 3")
    with capture_logs() as logs:
        channel.apply(epochs_since(upstream, begin))
    assert [entry["event"] for entry in logs].count("compacted_less") == (upstream.flavor == "mariadb")
    for table in "cg":
        rows = f"SELECT * FROM {both}.{table} ORDER BY id"
        assert downstream.execute(rows) == upstream.execute(rows)
    assert downstream.execute(f"SELECT id, n FROM {both}.p ORDER BY id") == [(1, 5), (2, 0)]
    assert downstream.execute(f"SELECT id, p FROM {both}.c ORDER BY id") == [(5, 1), (8, 2), (9, 2)]


@either
def test_a_key_that_changes_changes_the_rows_that_refer_to_it(
    upstream: Database, downstream: Database, both: str
) -> None:
    begin = binlog_end(upstream)
    upstream.execute(
        f"CREATE DATABASE {both}",
        f"USE {both}",
        "CREATE TABLE p (id INT PRIMARY KEY, n INT)",
        "CREATE TABLE l (id INT PRIMARY KEY, p INT, n INT, FOREIGN KEY (p) REFERENCES p (id) ON UPDATE CASCADE)",
    )
    _run(upstream, both, "INSERT INTO p VALUES (1, 0), (2, 0)", "INSERT INTO l VALUES (1, 1, 0), (2, 2, 0)")
    _run(
        upstream, both, "UPDATE l SET n = 1", "UPDATE p SET id = 11 WHERE id = 1", "DELETE FROM l WHERE p = 2"
    )
    with capture_logs() as logs:
        Channel(downstream, both).apply(epochs_since(upstream, begin))
    assert definitions(downstream, both) == definitions(upstream, both)
    assert downstream.execute(f"SELECT * FROM {both}.l") == [(1, 11, 1)]
    assert [entry["event"] for entry in logs].count("compacted_less") == (upstream.flavor == "mariadb")
