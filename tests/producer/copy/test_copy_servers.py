"""Copies on real servers: tables are written to while they are copied, and the log leads to the upstream's rows."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from compose.databases import Database
from compose.kafka import Kafka
from producer.settings import CopySettings
from schemas.errors import UpstreamError
from tests.support.binlogs.binlog_rows import Row
from tests.support.epochs.producer_case import Case, producer_case
from tests.support.epochs.published import Published
from tests.support.epochs.replicas import replicate
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


Image = dict[str, Any]


def _content(published: Published) -> dict[str, Counter[tuple[Any, ...]]]:
    """What a consumer has behind the log; each row that a copy brings is new, or equal to the one that is there."""
    keyed: dict[str, dict[bytes, Image]] = {}
    others: dict[str, Counter[tuple[Any, ...]]] = {}
    for epoch, rows in zip(published.epochs, published.rows, strict=True):
        if epoch.copy is not None and epoch.copy.step == "begin":
            assert epoch.copy.again or epoch.copy.table not in keyed
            keyed[epoch.copy.table], others[epoch.copy.table] = {}, Counter()
        for row in rows:
            if row.structure.key:
                _apply(keyed[row.structure.table], row)
            else:
                image, content = row.avro(), others[row.structure.table]
                if image["before"] is not None:
                    assert content[tuple(image["before"].values())] > 0
                    content[tuple(image["before"].values())] -= 1
                if image["after"] is not None:
                    content[tuple(image["after"].values())] += 1
    for table, images in keyed.items():
        others[table].update(tuple(image.values()) for image in images.values())
    return {table: +content for table, content in others.items()}


def _apply(table: dict[bytes, Image], row: Row) -> None:
    image = row.avro()
    if row.op == "r":
        assert table.get(row.key, image["after"]) == image["after"]
    else:
        assert row.op == "c" or table.get(row.key, image["before"]) == image["before"]
        table.pop(row.key, None)
    if row.op != "d":
        table[row.key] = image["after"]


def _assert_copied(case: Case) -> None:
    published = case.published()
    assert published.epochs[0].copying
    assert not published.epochs[-1].copying
    content = _content(published)
    for table in TABLES:
        assert content.get(table, Counter()) == Counter(case.sql(f"SELECT * FROM {table}")), table


@contextmanager
def _killing(case: Case, kills: int) -> Iterator[None]:
    """Kill statements and connections of the readers, once the copy has begun, inside the block."""
    stop, chance = threading.Event(), random.Random(1)
    others = (
        "SELECT ID FROM information_schema.PROCESSLIST"
        " WHERE DB IS NULL AND COMMAND IN ('Query', 'Sleep') AND ID <> CONNECTION_ID()"
    )

    def kill() -> None:
        wait_until(lambda: stop.is_set() or _end_of_log(case) > 3, "a copy that begins")
        for number in range(kills):
            if stop.wait(chance.random() * 0.2):
                return
            for (session,) in case.upstream.execute(others):
                with suppress(pymysql.err.MySQLError):  # it is gone
                    case.upstream.execute(f"KILL {'QUERY' if number % 5 else 'CONNECTION'} {session}")

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_tables_are_copied_while_they_are_written_to(case: Case) -> None:
    """Also where sessions have no snapshots unless they ask for them."""
    level = case.sql("SELECT @@global.transaction_isolation")[0][0]
    case.sql("SET GLOBAL transaction_isolation = 'READ-COMMITTED'")
    try:
        with writing(case, 1), _killing(case, 30):
            case.catch_up(copy=CopySettings(chunk_rows=100))
    finally:
        case.sql(f"SET GLOBAL transaction_isolation = '{level}'")
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


def test_a_cascade_that_nothing_carries_stops_the_producer(case: Case) -> None:
    reference = "FOREIGN KEY (parent) REFERENCES orders (id) ON DELETE CASCADE"
    case.sql(f"CREATE TABLE children (id INT PRIMARY KEY, parent INT, {reference})")
    case.config = replace(case.config, exclude=(f"{case.db}.orders",))
    if case.upstream.flavor == "mysql":
        case.catch_up()
    else:
        with pytest.raises(UpstreamError, match=r"orders, which is not replicated"):
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


def test_rows_are_read_from_a_replica(
    upstream: Database, server: Callable[..., Database], kafka: Kafka, tmp_path: Path
) -> None:
    replica = server(upstream.flavor, server_id=150)
    replicate(upstream, replica)
    with producer_case(upstream, kafka.bootstrap, tmp_path, start="copy") as case:
        fill(case)
        before = _selects(replica)
        with writing(case, 4):
            case.catch_up(copy=CopySettings(chunk_rows=300, read_from=f"127.0.0.1:{replica.port}"))
        assert _selects(replica) > before + 20
        case.catch_up()
        _assert_copied(case)


def _selects(server: Database) -> int:
    [(_, count)] = server.execute("SHOW GLOBAL STATUS LIKE 'Com_select'")
    return int(count)
