"""Row images that lack columns: whatever ``binlog_row_image`` says, the downstream ends as the upstream is."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest

from compose.databases import Database
from compose.kafka import Kafka
from schemas.access.server_url import ServerUrl
from schemas.structure import has_full_images
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.route import Route
from tests.support.applying.consuming import consume
from tests.support.epochs.producer_case import Case

pytestmark = pytest.mark.servers

_TABLES = {
    "pk": "id INT AUTO_INCREMENT PRIMARY KEY, a INT NOT NULL DEFAULT 5, b VARCHAR(20),"
    " u VARCHAR(9) DEFAULT 'it''s' UNIQUE,"
    " ts TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),"
    " g INT AS (a + 1) VIRTUAL, s INT AS (a + 2) STORED, t TEXT, nn INT NOT NULL, bl BLOB, j JSON,"
    " e ENUM('x','y') NOT NULL, d DATE NOT NULL",
    "comp": "x INT NOT NULL DEFAULT 7, v INT, y VARCHAR(10) NOT NULL, bl LONGBLOB, w DECIMAL(9,3) DEFAULT 1.5,"
    " PRIMARY KEY (y, x)",
    "uk": "v INT, k VARBINARY(8) NOT NULL UNIQUE, t TEXT, w BIT(3) DEFAULT b'101'",
    "nuk": "k INT UNIQUE, v INT, t TEXT, g INT AS (v + 1) VIRTUAL, s INT AS (v + 2) STORED",
    "nk": "a INT, b VARCHAR(30) DEFAULT 'none', t TEXT, g VARCHAR(40) AS (CONCAT(b, 1)) STORED",
    "defaults": "id INT PRIMARY KEY, u VARCHAR(40) DEFAULT (UUID()), v INT DEFAULT (1 + 2), x INT,"
    " dt DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3)",
    "trg": "id INT PRIMARY KEY, a INT, b INT, c INT DEFAULT 3",
    # Its keys never change, so its changes are laid on each other.
    "one": "id INT PRIMARY KEY, a INT NOT NULL, b VARCHAR(20) NOT NULL, c DECIMAL(9,3), e ENUM('x','y') NOT NULL,"
    " st SET('p','q') NOT NULL, bi BIT(5) NOT NULL, y YEAR NOT NULL, ti TIME(3) NOT NULL, dt DATETIME NOT NULL,"
    " bl BLOB NOT NULL, j JSON NOT NULL, no INT NOT NULL AUTO_INCREMENT, u VARCHAR(40) NOT NULL DEFAULT (UUID()),"
    " f DOUBLE NOT NULL, ts TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),"
    " KEY (no)",
    "s_1": "id INT PRIMARY KEY, v VARCHAR(20), k INT UNIQUE, n INT AS (k + 1) STORED, t TEXT",
    "s_2": "id INT PRIMARY KEY, v VARCHAR(20), k INT UNIQUE, n INT AS (k + 1) STORED, t TEXT",
}
# MariaDB alone has unique keys over all of a TEXT, by a hash in a column that nobody sees.
_HASHED = "id INT PRIMARY KEY, a TEXT, b INT, UNIQUE (a)"
# What lies between a run's transactions.
_DDL = [
    [
        "ALTER TABLE pk ADD n1 BIGINT UNSIGNED NOT NULL DEFAULT 18446744073709551615 FIRST, DROP COLUMN g",
        "ALTER TABLE nk ADD n1 DECIMAL(7,2) DEFAULT 1.5 AFTER a",
    ],
    [
        "ALTER TABLE comp DROP PRIMARY KEY, ADD PRIMARY KEY (x, y), ADD n1 ENUM('a','b c') DEFAULT 'b c' AFTER v",
        "ALTER TABLE pk RENAME COLUMN n1 TO n2, MODIFY t MEDIUMTEXT FIRST",
        "ALTER TABLE uk MODIFY t VARCHAR(99) FIRST",
    ],
    [
        "ALTER TABLE uk DROP INDEX k, ADD PRIMARY KEY (k)",
        "ALTER TABLE nk MODIFY t VARCHAR(50) CHARACTER SET latin1 FIRST",
        "ALTER TABLE nuk ADD UNIQUE (v, k), DROP COLUMN g",
    ],
]
_TRIGGERS = [
    "CREATE TRIGGER ti BEFORE INSERT ON trg FOR EACH ROW SET NEW.b = NEW.a + 70",
    "CREATE TRIGGER tu BEFORE UPDATE ON trg FOR EACH ROW SET NEW.c = NEW.a * 2",
    "CREATE TRIGGER ta AFTER UPDATE ON trg FOR EACH ROW UPDATE defaults SET x = NEW.a WHERE id < 3",
]
_VALUES: dict[str, dict[str, Sequence[str | int]]] = {
    "pk": {
        "id": range(1, 9), "a": range(5), "b": ("NULL", "''", "'b'"), "u": ("NULL", "'p'", "'q'", "'r'", "'s'"),
        "t": ("NULL", "'text'", "REPEAT('é', 300)"), "nn": range(3), "bl": ("NULL", "X'00FF'"),
        "j": ("NULL", "'{\"a\": 1}'", "'[]'"), "e": ("'x'", "'y'"), "d": ("'2024-02-29'",), "ts": ("'2020-02-02'",),
    },
    "comp": {"x": range(3), "v": ("NULL", 1, 2), "y": ("'a'", "'b'", "'c'"), "w": ("NULL", "-1.25"),
             "bl": ("NULL", "X'27'", "REPEAT('z', 999)")},
    "uk": {"v": ("NULL", 1), "k": ("'a'", "'b'", "X'00'", "''"), "t": ("NULL", "'t'"), "w": ("NULL", "b'11'")},
    "nuk": {"k": ("NULL", 1, 2, 3), "v": ("NULL", 1, 2), "t": ("NULL", "'t'", "'u'")},
    "nk": {"a": ("NULL", 1, 2), "b": ("NULL", "'b'", "'c'"), "t": ("NULL", "'t'")},
    "defaults": {"id": range(6), "u": ("'given'", "NULL"), "v": (9,), "x": ("NULL", 1), "dt": ("'2024-01-01'",)},
    "trg": {"id": range(5), "a": range(9), "b": range(3), "c": range(3)},
    "one": {
        "id": range(5), "a": range(9), "b": ("'b'", "'it''s'"), "c": ("NULL", "-1.25"), "e": ("'x'", "'y'"),
        "st": ("''", "'p'", "'p,q'"), "bi": ("b'101'", 0), "y": (1999, 2024), "ti": ("'-01:02:03.5'", 0),
        "dt": ("'2024-02-29'", "'0000-00-00'"), "bl": ("X'00FF'", "REPEAT('z', 999)"), "j": ("'[1.5]'", "'null'"),
        "no": (7, 8), "u": ("'given'",), "f": ("-0.0", "1e300"), "ts": ("'2020-02-02'",),
    },
    "s_1": {"id": range(5), "v": ("'a'", "NULL", "'b'"), "k": ("NULL", 1, 2, 3), "t": ("NULL", "'t'")},
    "s_2": {"id": range(5, 10), "v": ("'a'", "NULL", "'b'"), "k": ("NULL", 4, 5, 6), "t": ("NULL", "'t'")},
    "hashed": {"id": range(5), "a": ("'p'", "REPEAT('q', 3000)", "NULL"), "b": range(3)},
}  # fmt: skip
# What an INSERT has to name, since nobody could tell the row otherwise.
_NEEDED = {
    "pk": set(),
    "comp": {"x", "y"},
    "uk": {"k"},
    "nuk": {"v"},
    "nk": {"a"},
    "defaults": {"id"},
    "trg": {"id"},
    "one": {"id", "j"},
    "s_1": {"id"},
    "s_2": {"id"},
    "hashed": {"id"},
}
_MOVES_KEYS = (
    "UPDATE pk SET id = id + 1 WHERE nn = 1 ORDER BY id DESC",
    "UPDATE comp SET x = x + 1 ORDER BY x DESC LIMIT 2",
    "UPDATE uk SET k = CONCAT(k, '1') LIMIT 2",
    "UPDATE s_1 SET id = (id + 1) % 5 WHERE v IS NULL",
)


def _statement(rng: random.Random, table: str, image: str, flavor: str) -> str:
    values = _VALUES[table]
    names = [name for name in values if rng.random() < 0.4 or name in _NEEDED[table]] or [next(iter(values))]
    chosen = {name: rng.choice(values[name]) for name in names}
    place = rng.choice(list(values))
    where = f"{place} <=> {rng.choice(values[place])}"
    settable = [name for name in values if (table, name) != ("one", "id")]
    some = ", ".join(
        f"{name} = {rng.choice(values[name])}" for name in rng.sample(settable, rng.choice((1, 1, 2)))
    )
    insert = f"INTO {table} ({', '.join(chosen)}) VALUES ({', '.join(map(str, chosen.values()))})"
    # MariaDB does not log all that these change under other images.
    logged = flavor == "mysql" or image.startswith("FULL")
    match rng.randrange(9):
        case 3 if logged or table != "trg":
            return f"INSERT {insert} ON DUPLICATE KEY UPDATE {some}"
        case 4 if logged:
            return f"REPLACE {insert}"
        case 5 | 6 | 7:
            return f"UPDATE {table} SET {some} WHERE {where}"
        case 8:
            return f"DELETE FROM {table} WHERE {where}"
        case _:
            return f"INSERT {insert}"


def _change(case: Case, seed: int, transactions: int, tables: list[str]) -> None:
    """Random transactions, each under a row image of its own, and DDL in between."""
    rng = random.Random(seed)
    mariadb = case.upstream.flavor == "mariadb"
    images = ["FULL", "MINIMAL", "MINIMAL", "NOBLOB", *(["FULL_NODUP"] if mariadb else [])]
    with case.upstream.connect(database=case.db) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")
        ddl = {(n + 1) * transactions // 4: text for n, text in enumerate(_DDL[seed])}
        for number in range(transactions):
            if number in ddl:
                cursor.execute(ddl[number])
            image = rng.choice(images)
            cursor.execute(f"SET SESSION binlog_row_image = '{image}'")
            cursor.execute("BEGIN")
            for _ in range(rng.choice((1, 1, 3, 8))):
                statement = _statement(rng, rng.choice(tables), image, case.upstream.flavor)
                if rng.random() < 0.05:
                    statement = rng.choice(_MOVES_KEYS)
                # Duplicate keys are as good as any other statement.
                with suppress(pymysql.err.IntegrityError, pymysql.err.DataError):
                    cursor.execute(statement)
            cursor.execute("COMMIT")


@pytest.fixture(params=[("mysql", "mysql"), ("mysql", "mariadb"), ("mariadb", "mariadb"), ("mariadb", "mysql")],
                ids="-".join)  # fmt: skip
def flavors(request: pytest.FixtureRequest) -> tuple[str, str]:
    pair: tuple[str, str] = request.param
    return pair


@pytest.fixture
def flavor(flavors: tuple[str, str]) -> str:
    return flavors[0]


@pytest.fixture
def target(flavors: tuple[str, str], request: pytest.FixtureRequest, case: Case) -> Iterator[Database]:
    """The other side, with the case's database as it is where its log begins."""
    found: Database = request.getfixturevalue(f"downstream_{flavors[1]}")
    found.execute(f"DROP DATABASE IF EXISTS {case.db}", f"CREATE DATABASE {case.db}")
    found.execute(f"CREATE TABLE {case.db}.t (id INT PRIMARY KEY, v VARCHAR(200), n INT NOT NULL DEFAULT 0)")
    yield found
    found.execute(f"DROP DATABASE {case.db}")


@pytest.fixture
def config(case: Case, target: Database, kafka: Kafka, tmp_path: Path) -> ConsumerConfig:
    url = ServerUrl.parse(target.url("tailrace"))
    return ConsumerConfig(
        kafka.bootstrap, case.config.prefix, url, channel=case.config.prefix, checkpoint_dir=tmp_path
    )


def _content(server: Database, db: str, *tables: str) -> list[str]:
    rows = [server.execute("SET time_zone = '+00:00'", f"SELECT * FROM {db}.{table}") for table in tables]
    return sorted(repr(row) for some in rows for row in some)


@pytest.fixture
def bare(case: Case) -> Iterator[None]:
    """TABLE_MAPs say as little as they can."""
    least = "NO_LOG" if case.upstream.flavor == "mariadb" else "MINIMAL"
    case.upstream.execute(f"SET GLOBAL binlog_row_metadata = '{least}'")
    yield
    case.upstream.execute("SET GLOBAL binlog_row_metadata = 'FULL'")


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("consistency", ["batch", "worker"])
def test_any_mixture_of_row_images_ends_equal(
    case: Case, target: Database, config: ConsumerConfig, flavors: tuple[str, str], consistency: Any
) -> None:
    """Without metadata, with DDL in between, two tables merged into one, and several workers on the way."""
    tables: dict[str, str] = _TABLES | ({"hashed": _HASHED} if flavors == ("mariadb", "mariadb") else {})
    config = replace(config, consistency=consistency, routes=(Route(case.db, case.db, "s_*", "s"),))
    case.sql(*(f"CREATE TABLE {table} ({columns})" for table, columns in tables.items()), *_TRIGGERS)
    for seed in range(3):
        _change(case, seed, 60, list(tables))
        case.catch_up()
        consume(
            replace(config, max_batch_rows=1 + 40 * seed, worker_count=(1, 4, 1)[seed], compact=seed != 2)
        )
        for table in (*(set(tables) - {"s_1", "s_2"}), "s"):
            there = ("s_1", "s_2") if table == "s" else (table,)
            assert _content(case.upstream, case.db, *there) == _content(target, case.db, table), table
    partial = {
        v.table for e in case.published().epochs for v in e.structures if not has_full_images(v.structure)
    }
    # MariaDB logs all columns of tables without a key.
    assert partial >= set(tables) - {"nuk", "nk"}
