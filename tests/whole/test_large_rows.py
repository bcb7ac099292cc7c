"""Rows larger than a Kafka record, and transactions larger than memory should hold, from server to server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from compose.databases import Database
from compose.kafka import Kafka
from producer.epochs.open_epoch import Records
from producer.kafka.epoch_log import EpochLog
from schemas.errors import LogError
from tests.support.applying.applied import consume
from tests.support.epochs.published import read_topic
from tests.support.epochs.source_log import SourceLog, source_log

pytestmark = pytest.mark.servers

MIB = 1 << 20
_TABLE = "CREATE TABLE t (id VARCHAR(20) PRIMARY KEY, v LONGBLOB, w LONGTEXT)"


def digests(server: Database, db: str) -> Any:
    with server.connect(database=db) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, LENGTH(v), SHA2(v, 256), LENGTH(w), SHA2(w, 256) FROM t ORDER BY id")
        return cursor.fetchall()


def set_limit(log: SourceLog, limit: int) -> None:
    admin = AdminClient({"bootstrap.servers": log.config.bootstrap_servers})
    entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, f"{log.config.prefix}.rows", incremental_configs=[entry])
    for done in admin.incremental_alter_configs([topic]).values():
        done.result()


def test_a_64_mb_value_arrives_byte_for_byte(
    flavor: str, server: Callable[..., Database], kafka: Kafka, tmp_path: Path
) -> None:
    packet = ["--max-allowed-packet=1G"]
    upstream = server(flavor, role="upstream", server_id=101, args=packet)
    downstream = server(flavor, role="downstream", server_id=102, args=packet)
    with source_log(upstream, kafka.bootstrap, tmp_path) as log:
        log.sql(
            _TABLE,
            f"INSERT INTO t VALUES ('large', REPEAT(x'00ff27', {64 * MIB} DIV 3), 'a'), ('small', x'00', 'b')",
            "UPDATE t SET w = REPEAT('é', 9000000) WHERE id = 'small'",
            "UPDATE t SET id = 'moved', v = CONCAT(x'0102', v) WHERE id = 'large'",
        )
        log.publish()
        records = read_topic(kafka.bootstrap, f"{log.config.prefix}.rows")
        assert max(len(m.value()) for m in records) <= 8 * MIB
        rows = log.rows()
        ops = [("c", "large"), ("c", "small"), ("u", "small"), ("d", "large"), ("c", "moved")]
        assert [(r.op, r.key["id"]) for r in rows] == ops
        assert rows[2].after is not None
        assert rows[2].after["w"] == "é" * 9_000_000
        del rows, records
        downstream.execute(f"CREATE DATABASE {log.db} CHARACTER SET utf8mb4")
        consume(log, downstream, tmp_path)
        assert digests(downstream, log.db) == digests(upstream, log.db)


@pytest.mark.parametrize("limit", [40_000, 1_000_000])
def test_rows_are_divided_to_what_the_topic_takes(
    limit: int, upstream: Database, kafka: Kafka, tmp_path: Path
) -> None:
    with source_log(upstream, kafka.bootstrap, tmp_path) as log:
        set_limit(log, limit)
        log.sql(_TABLE)
        # Random bytes: compression would hide what the limit is.
        log.sql("INSERT INTO t VALUES (1, '', '')")
        for _ in range(13):
            log.sql("UPDATE t SET v = CONCAT(v, RANDOM_BYTES(1000), v)")
        log.publish()
        ((_, size, *_),) = digests(upstream, log.db)
        assert size > 8_000_000
        last = log.rows()[-1].after
        assert last is not None
        assert (last["v"],) == log.sql("SELECT v FROM t")[0]


def test_a_record_that_kafka_does_not_take_stops_before_anything_is_committed(
    upstream_mysql: Database, kafka: Kafka, tmp_path: Path
) -> None:
    with source_log(upstream_mysql, kafka.bootstrap, tmp_path) as log:
        log.sql(_TABLE)
        log.publish()
        before = len(log.epochs())
        log.sql(
            "INSERT INTO t VALUES ('small', 'x', 'y')", "INSERT INTO t VALUES ('l', RANDOM_BYTES(1024), '')"
        )
        set_limit(log, 20_000)
        with pytest.raises(LogError, match=r"TR502.*20000 bytes.*max\.message\.bytes"):
            log.publish()
        assert len(log.epochs()) == before
        set_limit(log, 64 * MIB)
        log.publish()
        assert [row.key["id"] for row in log.rows()] == ["small", "l"]


@pytest.mark.parametrize("flavor", ["mysql"])
def test_a_large_transaction_is_one_epoch_of_which_little_is_held(
    upstream: Database, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    write = EpochLog.write

    def watched(log: EpochLog, records: Records) -> None:
        held.append(sum(map(len, records.values)))
        write(log, records)

    monkeypatch.setattr(EpochLog, "write", watched)
    monkeypatch.setattr("producer.epochs.open_epoch.PART_BYTES", 3 * MIB)
    with source_log(upstream, kafka.bootstrap, tmp_path) as log:
        log.sql(
            _TABLE, "CREATE TABLE n (n INT)", "INSERT INTO n VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)"
        )
        log.publish()
        log.sql("INSERT INTO t SELECT 10 * a.n + b.n, REPEAT('v', 150000), a.n FROM n a, n b")
        held.clear()
        log.publish()
        epoch, rows = log.epochs()[-1]
        assert (epoch.rows, epoch.transactions, len(rows)) == (100, 1, 100)
        assert sum(held) > 15_000_000
        assert max(held) < 6 * MIB


@pytest.mark.parametrize("flavor", ["mysql"])
@pytest.mark.parametrize("runs", [False, True], ids=["whole", "runs"])
def test_a_transaction_larger_than_a_task_is_shared_out(
    upstream: Database,
    downstream: Database,
    kafka: Kafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    runs: bool,
) -> None:
    """Inserts, updates, moved keys, deletes and a table without a key, all in one transaction."""
    monkeypatch.setattr("spark_consumer.rows.reader._TASK_ROWS", 150)
    monkeypatch.setattr("producer.kafka.epoch_log._PART", 20_000)
    monkeypatch.setattr("producer.epochs.open_epoch.PART_RECORDS", 100)
    monkeypatch.setattr("producer.kafka.epoch_log._RUN_ROWS", 300 if runs else 100_000)
    with source_log(upstream, kafka.bootstrap, tmp_path) as log:
        log.sql(
            _TABLE,
            "CREATE TABLE k (v INT, w INT)",
            "CREATE TABLE n (n INT PRIMARY KEY)",
            "INSERT INTO n VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)",
            "BEGIN",
            "INSERT INTO t SELECT 100 * a.n + 10 * b.n + c.n, REPEAT(x'00ff', 10 * a.n), b.n FROM n a, n b, n c",
            "UPDATE t SET w = CONCAT(w, 'x') WHERE id % 3 = 0",
            "UPDATE t SET id = id + 5000 WHERE id % 7 = 0",
            "UPDATE t SET v = REPEAT(x'01', 50000) WHERE id % 100 = 1",
            "DELETE FROM t WHERE id % 5 = 0",
            "INSERT INTO k SELECT a.n, b.n FROM n a, n b, n c",
            "DELETE FROM k WHERE v = 3 LIMIT 50",
            "COMMIT",
        )
        log.publish()
        epoch, _ = log.epochs()[-1]
        assert epoch.rows > 2500
        assert (len(epoch.runs) > 5) is runs
        log.sql("CREATE TABLE c SELECT id, v, LENGTH(w) AS w FROM t")
        log.publish()
        downstream.execute(f"CREATE DATABASE {log.db} CHARACTER SET utf8mb4")
        consume(log, downstream, tmp_path)
        assert digests(downstream, log.db) == digests(upstream, log.db)
        counted = "SELECT v, w, COUNT(*) FROM {}.k GROUP BY v, w ORDER BY v, w"
        created = "SELECT id, SHA2(v, 256), w FROM {}.c ORDER BY id"
        for sql in (counted, created):
            assert downstream.execute(sql.format(log.db)) == upstream.execute(sql.format(log.db))
        downstream.execute(f"DROP DATABASE {log.db}")
