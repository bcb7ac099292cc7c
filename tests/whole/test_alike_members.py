"""ENUM and SET whose members are alike to a collation, or are there twice, from either server into either server.

No value becomes another one on the way, and no row is found by the value of another. The consumer runs without Spark.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from producer.epochs.open_epoch import EpochLimits
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from schemas.structure import Column, TableStructure
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.route import Route
from tailrace.validate import compare_servers
from tests.support.applying.apply_steps import apply_rows, open_channel
from tests.support.applying.consuming import consume
from tests.support.epochs.fake_topic import insert, integer
from tests.support.epochs.source_log import SourceLog, source_log
from tests.support.names import own_name
from tests.support.statements.value_types import LOOSE

pytestmark = pytest.mark.servers

_MANY = ",".join(f"'{letter}{n}'" for n in range(32) for letter in "mM")
ENUMS = {
    "e": ("ENUM('a','A','é','e','ss','ß','a','','/*m*/','it''s') COLLATE utf8mb4_general_ci", 10),
    "u": ("ENUM('ß','ss','S','ſ','a b','#') COLLATE utf8mb4_unicode_ci", 6),
    "l": ("ENUM('Ü','Y','y','ÿ') CHARACTER SET latin1 COLLATE latin1_swedish_ci", 4),
    "b": ("ENUM('a','A') COLLATE utf8mb4_bin", 2),
    "o": ("ENUM('one','two','three') COLLATE utf8mb4_general_ci", 3),
    "q": ("ENUM('?','a','A') COLLATE utf8mb4_general_ci", 3),
    "j": ("ENUM('😀','🎉','?','a') COLLATE utf8mb4_general_ci", 4),
}
SETS = {
    "s": ("SET('x','X','','ß','s','x') COLLATE utf8mb4_general_ci", 6),
    "m": (f"SET({_MANY}) COLLATE utf8mb4_general_ci", 64),
}
_ALL = ENUMS | SETS
_COLUMNS = ", ".join(f"{name} {kind}" for name, (kind, _) in _ALL.items())
TABLES = {
    "by_id": f"id INT PRIMARY KEY, {_COLUMNS}",
    "heap": f"id INT, {_COLUMNS}",
    "by_all": f"id INT, {_COLUMNS}, PRIMARY KEY (id, e, o, s)",
    "by_e": f"id INT, {_COLUMNS}, PRIMARY KEY (e)",
    "unique_e": f"id INT PRIMARY KEY, {_COLUMNS}, UNIQUE KEY (e, s)",
    "by_m": f"id INT, {_COLUMNS}, PRIMARY KEY (m)",
}
MODES: dict[str, dict[str, Any]] = {
    "batch": {},
    "workers": {"consistency": "worker"},
    "ordered": {"compact": False},
    "safe": {"safe_mode": True},
}


def _values(chance: random.Random) -> dict[str, int]:
    """A number for each column; 0 is what was no member."""
    found = {name: chance.randint(0, count) for name, (_, count) in ENUMS.items()}
    return found | {name: chance.getrandbits(count) for name, (_, count) in SETS.items()}


def _change(table: str, chance: random.Random) -> str:
    number, values = chance.randrange(12), _values(chance)
    if table == "by_m" and chance.random() < 0.5:
        values["m"] = chance.choice((0, 1, 2, 3, 1 << 63, (1 << 64) - 1))
    if (kind := chance.random()) < 0.6:
        columns, row = ", ".join(values), ", ".join(map(str, values.values()))
        return f"INSERT IGNORE INTO {table} (id, {columns}) VALUES ({number}, {row})"
    if kind < 0.8:
        some = dict(chance.sample(sorted(values.items()), 3))
        changes = ", ".join(f"{name} = {value}" for name, value in some.items())
        return f"UPDATE IGNORE {table} SET {changes} WHERE id = {number} LIMIT 1"
    return f"DELETE FROM {table} WHERE id = {number} ORDER BY CAST(e AS SIGNED) LIMIT 1"


@pytest.fixture(scope="module", params=["mysql", "mariadb"])
def log(
    request: pytest.FixtureRequest, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SourceLog]:
    upstream = request.getfixturevalue(f"upstream_{request.param}")
    folder = tmp_path_factory.mktemp("members")
    with source_log(upstream, kafka.bootstrap, folder, epoch=EpochLimits(60, 1 << 20, 60.0)) as made:
        chance = random.Random(4)
        made.sql(LOOSE, *(f"CREATE TABLE {name} ({columns})" for name, columns in TABLES.items()))
        made.sql(LOOSE, *(_change(table, chance) for _ in range(90) for table in TABLES))
        # The servers write its definition into the log, and 😀 in it as a question mark.
        known = ", ".join(name for name in _ALL if name != "j")
        made.sql(LOOSE, f"CREATE TABLE copied SELECT id, {known} FROM by_id")
        made.publish()
        yield made


def _rows(server: Database, db: str, table: str) -> list[tuple[Any, ...]]:
    names = [name for name in _ALL if (table, name) != ("copied", "j")]
    shown = ", ".join(f"CAST({name} AS SIGNED), HEX({name})" for name in names)
    return sorted(server.execute(f"SELECT id, {shown} FROM {db}.{table}"), key=str)


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@pytest.mark.parametrize("mode", MODES)
def test_every_member_arrives_as_itself(
    log: SourceLog, downstream: Database, mode: str, tmp_path: Path
) -> None:
    name = f"{log.db}_{mode}"
    downstream.execute(f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    config = ConsumerConfig(
        log.config.bootstrap_servers,
        log.config.prefix,
        ServerUrl.parse(downstream.url("tailrace")),
        channel=name,
        checkpoint_dir=tmp_path,
        routes=(Route(log.db, name),),
        max_batch_rows=100,
    )
    consume(replace(config, **MODES[mode]))
    numbers = set()
    for table in (*TABLES, "copied"):
        ours, theirs = _rows(log.upstream, log.db, table), _rows(downstream, name, table)
        assert theirs == ours, table
        numbers |= {row[1] for row in ours}
    assert numbers == set(range(11))
    downstream.execute(f"DROP DATABASE {name}")


@pytest.fixture
def db(request: pytest.FixtureRequest, downstream: Database) -> str:
    """A database of the test's own."""
    name = own_name("m_", request)
    downstream.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    return name


def _enum(*members: str) -> Column:
    return Column("e", "enum('…')", 247, 1, False, charset="utf8mb4", members=members)


def test_a_list_made_by_hand_is_paired_by_its_real_members(downstream: Database, db: str) -> None:
    """Servers show 😀 and 🎉 as question marks, and general_ci takes them for equal."""
    with downstream.connect(database=db) as connection, connection.cursor() as cursor:
        for statement in (
            LOOSE,
            "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('x','🎉','?','😀','A','a') COLLATE utf8mb4_general_ci)",
            "CREATE TABLE v (id INT PRIMARY KEY, e ENUM('x','🎉','?') COLLATE utf8mb4_general_ci)",
        ):
            cursor.execute(statement)
    columns = (integer("id"), _enum("😀", "a", "🎉", "?"))
    t, v = (TableStructure(db, name, columns, ("id",)) for name in "tv")
    applier, config = open_channel(downstream.url("tailrace"), db)
    members = ("", *t.columns[1].members)
    apply_rows(applier, config, *(insert(t, {"id": n, "e": member}) for n, member in enumerate(members)))
    found = downstream.execute(f"SELECT id, CAST(e AS SIGNED), e FROM {db}.t ORDER BY id")
    assert found == [(0, 0, ""), (1, 4, "😀"), (2, 6, "a"), (3, 2, "🎉"), (4, 3, "?")]
    with pytest.raises(DownstreamError, match=r"TR650: .*lacks the member '😀'"):
        apply_rows(applier, config, insert(v, {"id": 1, "e": "🎉"}))


def test_a_difference_of_numbers_is_seen_by_compare(
    upstream: Database, downstream: Database, db: str
) -> None:
    definition = f"CREATE TABLE {db}.t (id INT PRIMARY KEY, e ENUM('a','a','') COLLATE utf8mb4_bin)"
    upstream.execute(f"DROP DATABASE IF EXISTS {db}", f"CREATE DATABASE {db} CHARACTER SET utf8mb4")
    for server in (upstream, downstream):
        server.execute(LOOSE, definition, f"INSERT INTO {db}.t VALUES (1, 1), (2, 2), (3, 3)")
    urls = ServerUrl.parse(upstream.url()), ServerUrl.parse(downstream.url())

    def compared() -> list[str]:
        return [key.split()[0] for table in compare_servers(*urls, [f"{db}.t"]).tables for key in table.keys]

    assert compared() == []
    downstream.execute(
        LOOSE, f"UPDATE {db}.t SET e = 1 WHERE id = 2", f"UPDATE {db}.t SET e = 0 WHERE id = 3"
    )
    assert compared() == ["id=2", "id=3"]
    # In another list the numbers are others; that of what was no member tells it from the member ''.
    change = f"ALTER TABLE {db}.t MODIFY e ENUM('', 'a', 'b') COLLATE utf8mb4_bin"
    downstream.execute(LOOSE, change, f"UPDATE {db}.t SET e = IF(id = 3, 0, 2)")
    assert compared() == ["id=3"]
    downstream.execute(f"UPDATE {db}.t SET e = 1 WHERE id = 3")
    assert compared() == []
    upstream.execute(f"DROP DATABASE {db}")
