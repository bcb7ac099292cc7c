"""Copies on real servers: tables are written to while they are copied, and the log leads to the upstream's rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from compose.databases import Database
from compose.kafka import Kafka
from producer.settings import CopySettings
from schemas.errors import UpstreamError
from tests.support.epochs.producer_case import Case, producer_case
from tests.support.epochs.published import Published
from tests.support.epochs.written_tables import TABLES, fill, writing
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers


@pytest.fixture
def case(upstream: Database, kafka: Kafka, tmp_path: Path) -> Iterator[Case]:
    """A log of the test's own that is not begun."""
    with producer_case(upstream, kafka.bootstrap, tmp_path, start="copy") as made:
        fill(made)
        yield made


def _end_of_log(case: Case) -> int:
    """The offset at which the epochs topic ends."""
    topic = TopicPartition(f"{case.config.prefix}.epochs", 0)
    options: Any = {"bootstrap.servers": case.config.bootstrap_servers, "group.id": "tests"}
    consumer = Consumer(options)
    try:
        _, end = consumer.get_watermark_offsets(topic, timeout=10)
    except KafkaException:
        return 0  # there is no topic yet
    finally:
        consumer.close()
    return int(end)


def _content(published: Published) -> dict[str, dict[bytes, dict[str, Any]]]:
    """What a consumer has behind the log; each row that a copy brings is new, or equal to the one that is there."""
    tables: dict[str, dict[bytes, dict[str, Any]]] = {}
    for epoch, rows in zip(published.epochs, published.rows, strict=True):
        if epoch.copy is not None and epoch.copy.step == "begin":
            assert epoch.copy.again or epoch.copy.table not in tables
            tables[epoch.copy.table] = {}
        for row in rows:
            table, image = tables[row.structure.table], row.avro()
            if row.op == "r":
                assert table.get(row.key, image["after"]) == image["after"]
            else:
                assert row.op == "c" or table.get(row.key, image["before"]) == image["before"]
                table.pop(row.key, None)
            if row.op != "d":
                table[row.key] = image["after"]
    return tables


def _assert_copied(case: Case) -> None:
    content = _content(case.published())
    for table in TABLES:
        rows = sorted(tuple(image.values()) for image in content.get(table, {}).values())
        assert rows == sorted(case.sql(f"SELECT * FROM {table}")), table


def test_tables_are_copied_while_they_are_written_to(case: Case) -> None:
    with writing(case, 1):
        case.catch_up(copy=CopySettings(chunk_rows=100))
    case.catch_up()
    _assert_copied(case)


def test_a_copy_goes_on_after_a_kill(case: Case) -> None:
    with writing(case, 2):
        for _ in range(4):
            process = case.process(copy=CopySettings(chunk_rows=50))
            before = _end_of_log(case)
            wait_until(lambda known=before: _end_of_log(case) > known + 6, "more epochs")
            process.kill()
            process.wait()
        case.catch_up(copy=CopySettings(chunk_rows=50))
    case.catch_up()
    _assert_copied(case)


def test_ddl_in_the_midst_of_a_copy(case: Case) -> None:
    with writing(case, 3):
        thread = threading.Thread(target=case.catch_up, kwargs={"copy": CopySettings(chunk_rows=20)})
        thread.start()
        for size in range(41, 47):
            case.sql(f"ALTER TABLE items MODIFY note VARCHAR({size})")
        case.sql("RENAME TABLE names TO other", "RENAME TABLE other TO names", "TRUNCATE TABLE names")
        thread.join()
    case.catch_up()
    _assert_copied(case)


def test_changes_after_a_copy_are_exact(case: Case) -> None:
    case.catch_up()
    before = case.published().epochs[-1].epoch
    case.sql("UPDATE orders SET n = n + 1")
    case.catch_up()
    epochs = [e for e in case.published().epochs if e.epoch > before]
    assert all(not table.incomplete for e in epochs for table in e.tables)
    _assert_copied(case)


@pytest.mark.parametrize(
    "columns", ["(n INT)", "(id INT PRIMARY KEY) ENGINE=MyISAM", "(id INT PRIMARY KEY) ENGINE=MEMORY"]
)
def test_a_table_that_cannot_be_copied_stops_the_producer(case: Case, columns: str) -> None:
    case.sql(f"CREATE TABLE odd {columns}")
    with pytest.raises(UpstreamError, match="odd") as stopped:
        case.catch_up()
    assert stopped.value.code == "TR212"


def test_a_cascade_that_is_not_logged_stops_the_producer(case: Case) -> None:
    reference = "FOREIGN KEY (parent) REFERENCES orders (id) ON DELETE CASCADE"
    case.sql(f"CREATE TABLE children (id INT PRIMARY KEY, parent INT, {reference})")
    if case.upstream.flavor == "mysql":
        case.catch_up()
    else:
        with pytest.raises(UpstreamError, match="children"):
            case.catch_up()


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_a_table_with_a_unique_key_by_hash(case: Case) -> None:
    """The binlog has a column of it that no SELECT shows; a copy leaves it empty."""
    case.sql(
        "CREATE TABLE texts (id INT PRIMARY KEY, t TEXT, UNIQUE (t))", "INSERT INTO texts VALUES (1, 'é')"
    )
    case.catch_up()
    case.sql("INSERT INTO texts VALUES (2, 'a')")
    case.catch_up()
    rows = [row for rows in case.published().rows for row in rows if row.structure.table == "texts"]
    assert [(row.op, row.avro()["after"]["t"]) for row in rows] == [("r", "é"), ("c", "a")]
    assert [row.avro()["after"]["DB_ROW_HASH_1"] is None for row in rows] == [True, False]
    assert rows[0].structure == rows[1].structure
