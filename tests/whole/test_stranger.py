"""docs/FORMAT.md is enough to read the log: a reader written from it finds what the upstream has."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from tests.support.epochs.producer_case import SMALL_EPOCHS
from tests.support.epochs.registry import running
from tests.support.epochs.source_log import SourceLog, source_log
from tests.support.epochs.stranger import Change, Log, comparable, expression, murmur2

pytestmark = pytest.mark.servers

COLUMNS = {
    "b": "BIGINT UNSIGNED",
    "i": "MEDIUMINT",
    "dec": "DECIMAL(65,30)",
    "f": "FLOAT",
    "dbl": "DOUBLE",
    "d": "DATE",
    "t": "TIME(6)",
    "dt": "DATETIME(3)",
    "ts": "TIMESTAMP(2) NULL",
    "y": "YEAR",
    "bits": "BIT(33)",
    "c": "CHAR(20) CHARACTER SET latin1",
    "g": "VARCHAR(20) CHARACTER SET gbk",
    "u": "VARCHAR(20) CHARACTER SET utf8mb4",
    "bin": "BINARY(5)",
    "vb": "VARBINARY(20)",
    "blb": "LONGBLOB",
    "e": "ENUM('a','it''s,','ü')",
    "s": "SET('x','y','z')",
    "geo": "POINT",
    "j": "JSON",
}
VALUES = {
    "b": ["0", "18446744073709551615"],
    "i": ["-8388608", "8388607"],
    "dec": ["-99999999999999999999999999999999999.000000000000000000000000000001", "1e-30"],
    "f": ["0.1", "-3.4e38"],
    "dbl": ["5e-324", "-0e0", "0.1"],
    "d": ["'0000-00-00'", "'9999-12-31'", "'2024-00-00'"],
    "t": ["'-838:59:59'", "'-00:00:00.000001'", "'12:00:00'"],
    "dt": ["'0000-00-00 00:00:00'", "'2024-02-29 23:59:59.999'"],
    "ts": ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.99'", "0"],
    "y": ["0", "1901", "2155"],
    "bits": ["b'1'", "b'100000000000000000000000000000001'"],
    "c": ["''", "'Gr\u00fc\u00dfe \u20ac'"],
    "g": ["'\u4e2d\u6587'", "'ascii'"],
    "u": ["'\U0001f600'", "'a\\0b'"],
    "bin": ["x'00'", "x'0102030400'"],
    "vb": ["''", "x'00ff00'"],
    "blb": ["x'c301'", "REPEAT(x'0001', 50000)"],
    "e": ["'a'", "'it''s,'", "'\u00fc'"],
    "s": ["''", "'z,x'", "'x,y,z'"],
    "geo": ["ST_GeomFromText('POINT(1 -2.5)')"],
    "j": ['\'{"a": [1, 1.0, null], "b": "\u00fc"}\'', "'1'"],
}


@pytest.fixture
def log(upstream: Database, kafka: Kafka, tmp_path: Path) -> Iterator[SourceLog]:
    with source_log(upstream, kafka.bootstrap, tmp_path, epoch=replace(SMALL_EPOCHS, max_rows=20)) as made:
        columns = ", ".join(f"`{name}` {kind}" for name, kind in COLUMNS.items())
        made.sql(
            f"CREATE TABLE everything (id INT, `p k` VARCHAR(9), {columns}, PRIMARY KEY (`p k`, id))",
            "CREATE TABLE nokey (v VARCHAR(9), n INT)",
        )
        yield made


def work(log: SourceLog, rng: random.Random) -> None:
    """Transactions with every kind of change, of both tables."""
    statements = ["SET SESSION sql_mode = '', time_zone = '+05:00', autocommit = 0"]
    for number in range(60):
        chosen = [rng.choice([*VALUES[name], "NULL"]) for name in COLUMNS]
        statements.append(f"REPLACE INTO everything VALUES ({rng.randrange(20)}, 'k', {', '.join(chosen)})")
        kind = rng.randrange(5)
        if kind == 0:
            statements.append(f"DELETE FROM everything WHERE id = {rng.randrange(20)}")
        elif kind == 1:
            statements.append(f"UPDATE everything SET i = {number} WHERE id < {rng.randrange(20)}")
        elif kind == 2:
            statements.append(
                f"UPDATE IGNORE everything SET id = {rng.randrange(99)} WHERE id = {rng.randrange(20)}"
            )
        else:
            statements.append(f"INSERT INTO nokey VALUES ('v', {rng.randrange(3)}), (NULL, {number})")
        if rng.random() < 0.4:
            statements.append("COMMIT")
    statements += ["COMMIT", "ALTER TABLE everything DROP COLUMN i, ADD COLUMN more INT DEFAULT 5"]
    statements += ["UPDATE everything SET more = id + 1000", "DELETE FROM nokey LIMIT 3", "COMMIT"]
    log.sql(*statements)


def content(changes: list[list[Change]], table: str) -> dict[bytes, Change]:
    """A table's last change per key, without the rows that are gone."""
    rows: dict[bytes, Change] = {}
    for change in (change for epoch in changes for change in epoch if change.table[1] == table):
        if change.envelope["op"] != "c":
            rows.pop(change.message.key)
        if change.envelope["op"] != "d":
            assert change.message.key not in rows
            rows[change.message.key] = change
    return rows


def upstream_values(log: SourceLog, change: Change) -> tuple[Any, ...]:
    """The row of a change, as the server says it column by column."""
    with log.upstream.connect(database=log.db) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION time_zone = '+00:00'")
        image = change.envelope["after"]
        wanted = [
            expression(f"`{field['mysql.name']}`", field, value)
            for field, value in zip(change.schema["fields"], image.values(), strict=True)
        ]
        cursor.execute(f"SELECT {', '.join(wanted)} FROM everything WHERE `p k` = %s AND id = %s", change.key)
        (row,) = cursor.fetchall()
        return row


@pytest.mark.parametrize("form", ["plain", "registry", "parts"])
def test_a_reader_made_from_the_document_finds_what_the_upstream_has(
    form: str, log: SourceLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(log, random.Random(form))
    if form == "registry":
        with running() as registry:
            log.publish(schema_registry_url=registry.url)
    else:
        monkeypatch.setattr("producer.kafka.epoch_log._PART", 30_000 if form == "parts" else 8 << 20)
        log.publish()
    read = Log(log.config.bootstrap_servers, log.config.prefix)
    changes = read.changes()
    divided = any("tailrace.part" in c.message.headers for epoch in changes for c in epoch)
    assert divided == (form == "parts")
    assert {c.message.value[0] for epoch in changes for c in epoch} == {0 if form == "registry" else 0xC3}

    rows = content(changes, "everything")
    assert [(len(rows),)] == list(log.sql("SELECT COUNT(*) FROM everything"))
    assert len(rows) > 5
    for change in rows.values():
        ours = [
            comparable(field["mysql.type"], value)
            for field, value in zip(change.schema["fields"], change.envelope["after"].values(), strict=True)
        ]
        assert ours == list(upstream_values(log, change))

    left: Counter[tuple[Any, ...]] = Counter()
    for change in (change for epoch in changes for change in epoch if change.table[1] == "nokey"):
        for image, sign in ((change.envelope["before"], -1), (change.envelope["after"], 1)):
            if image is not None:
                left[tuple(image.values())] += sign
    assert +left == left
    assert left == Counter(log.sql("SELECT v, n FROM nokey"))


def test_order_transactions_partitions_and_ddl_are_as_the_document_says(log: SourceLog) -> None:
    work(log, random.Random(1))
    log.publish()
    read = Log(log.config.bootstrap_servers, log.config.prefix)
    changes = read.changes()
    for change in (change for epoch in changes for change in epoch):
        assert (murmur2(change.message.key) & 0x7FFFFFFF) % log.config.partitions == change.message.partition
    in_order = [c.envelope["source"]["gtid"] for epoch in changes for c in epoch]
    transactions = [gtid for gtid, _ in groupby(in_order)]
    assert len(transactions) == len(set(transactions)) > 10
    assert sum(epoch["transactions"] for epoch in read.epochs) >= len(transactions)
    kinds = [epoch["ddl"]["kind"] for epoch in read.epochs if epoch["ddl"]]
    assert kinds == ["CREATE TABLE", "CREATE TABLE", "ALTER TABLE"]
    altered = next(e["epoch"] for e in read.epochs if e["ddl"] and e["ddl"]["kind"] == "ALTER TABLE")
    for epoch in changes:
        for change in (change for change in epoch if change.table[1] == "everything"):
            names = [field["mysql.name"] for field in change.schema["fields"]]
            assert ("more" in names) == (change.envelope["source"]["epoch"] > altered)
