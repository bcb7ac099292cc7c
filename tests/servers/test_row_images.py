"""Row images that lack columns: whatever ``binlog_row_image`` says, the downstream ends as the upstream is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest

from compose.databases import Database
from compose.kafka import Kafka
from schemas.server_url import ServerUrl
from schemas.structure import has_full_images
from spark_consumer.config import ConsumerConfig
from tests.support.consuming import consume
from tests.support.producer_case import Case

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
}
_TRIGGERS = [
    "CREATE TRIGGER ti BEFORE INSERT ON trg FOR EACH ROW SET NEW.b = NEW.a + 70",
    "CREATE TRIGGER tu BEFORE UPDATE ON trg FOR EACH ROW SET NEW.c = NEW.a * 2",
    "CREATE TRIGGER ta AFTER UPDATE ON trg FOR EACH ROW UPDATE defaults SET x = NEW.a WHERE id < 3",
]
_VALUES = {
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
}


def _statement(rng: random.Random, table: str, image: str, flavor: str) -> str:
    values: dict[str, Any] = _VALUES[table]
    names = [name for name in values if rng.random() < 0.4 or name in _NEEDED[table]] or [next(iter(values))]
    chosen = {name: rng.choice(values[name]) for name in names}
    place = rng.choice(list(values))
    where = f"{place} <=> {rng.choice(values[place])}"
    some = ", ".join(
        f"{name} = {rng.choice(values[name])}" for name in rng.sample(list(values), rng.choice((1, 1, 2)))
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


def _change(case: Case, seed: int, transactions: int) -> None:
    """Random transactions, each under a row image of its own."""
    rng = random.Random(seed)
    mariadb = case.upstream.flavor == "mariadb"
    images = ["FULL", "MINIMAL", "MINIMAL", "NOBLOB", *(["FULL_NODUP"] if mariadb else [])]
    with case.upstream.connect(database=case.db) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")
        for _ in range(transactions):
            image = rng.choice(images)
            cursor.execute(f"SET SESSION binlog_row_image = '{image}'")
            cursor.execute("BEGIN")
            for _ in range(rng.choice((1, 1, 3, 8))):
                statement = _statement(rng, rng.choice(list(_TABLES)), image, case.upstream.flavor)
                # Duplicate keys are as good as any other statement.
                with suppress(pymysql.err.IntegrityError):
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


def _content(server: Database, db: str, table: str) -> list[str]:
    return sorted(map(repr, server.execute("SET time_zone = '+00:00'", f"SELECT * FROM {db}.{table}")))


def test_any_mixture_of_row_images_ends_equal(case: Case, target: Database, config: ConsumerConfig) -> None:
    case.sql(*(f"CREATE TABLE {table} ({columns})" for table, columns in _TABLES.items()), *_TRIGGERS)
    for seed in range(3):
        _change(case, seed, 60)
        case.catch_up()
        consume(replace(config, max_batch_rows=1 + 40 * seed))
        for table in _TABLES:
            upstream, downstream = (_content(server, case.db, table) for server in (case.upstream, target))
            assert upstream == downstream, table
    partial = {
        v.table for e in case.published().epochs for v in e.structures if not has_full_images(v.structure)
    }
    # MariaDB logs all columns of tables without a key.
    assert partial >= set(_TABLES) - {"nuk", "nk"}
