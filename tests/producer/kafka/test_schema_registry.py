"""Confluent's wire format: read by Confluent's own client, and by everything of ours, as rows without a registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from compose.databases import Database
from compose.kafka import Kafka
from schemas.errors import LogError
from tailrace.assemble import producer as assembled
from tests.support.applying.applied import consume
from tests.support.epochs.published import read_topic
from tests.support.epochs.registry import Registry, running
from tests.support.epochs.source_log import SourceLog, source_log

pytestmark = pytest.mark.servers


def fill(log: SourceLog) -> None:
    log.sql(
        "SET SESSION sql_mode = ''",
        "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, `a b` DECIMAL(65,30), f FLOAT, d DATETIME(6), j JSON,"
        " e ENUM('x','y') NOT NULL, b BIT(9), raw VARBINARY(9), s VARCHAR(20) CHARACTER SET gbk)",
        "CREATE TABLE n (v VARCHAR(10))",
        "INSERT INTO t VALUES (18446744073709551615, -1e-30, 0.1, '0000-00-00', '{\"a\": 1}',"
        " 'y', b'100000001', x'00ff00', '中'), (1, NULL, NULL, NULL, NULL, 'x', NULL, NULL, NULL)",
        "UPDATE t SET f = 2 WHERE id = 1",
        "UPDATE t SET id = 2 WHERE id = 1",
        "INSERT INTO n VALUES ('a'), ('a'), (NULL)",
        "ALTER TABLE t ADD COLUMN more INT DEFAULT 7, DROP COLUMN b",
        "UPDATE t SET more = 8",
        "DELETE FROM n LIMIT 1",
    )


def content(server: Database, db: str) -> Any:
    with server.connect(database=db) as connection, connection.cursor() as cursor:
        found = []
        for query in ("SELECT t.*, HEX(raw), HEX(s) FROM t ORDER BY id", "SELECT * FROM n ORDER BY v"):
            cursor.execute(query)
            found.append(cursor.fetchall())
    return found


def comparable(log: SourceLog) -> list[Any]:
    return [(r.op, r.table, r.key, r.before, r.after, r.source["seq"]) for r in log.rows()]


def test_confluents_own_client_reads_what_we_write(upstream: Database, kafka: Kafka, tmp_path: Path) -> None:
    with (
        running(Registry(first_id=100_000)) as registry,
        source_log(upstream, kafka.bootstrap, tmp_path) as log,
    ):
        fill(log)
        log.publish(schema_registry_url=registry.url)
        with SchemaRegistryClient({"url": registry.url}) as client:
            read = AvroDeserializer(client)
            context = SerializationContext(f"{log.config.prefix}.rows", MessageField.VALUE)
            messages = read_topic(kafka.bootstrap, f"{log.config.prefix}.rows")
            theirs = [read(message.value(), context) for message in messages]
        theirs.sort(key=lambda record: (record["source"]["epoch"], record["source"]["seq"]))
        assert [message.value()[:1] for message in messages] == [b"\0"] * len(messages)
        ours = log.rows()
        assert [(r["op"], r["source"]["table"]) for r in theirs] == [(r.op, r.table) for r in ours]
        for their, our in zip(theirs, ours, strict=True):
            for image in ("before", "after"):
                values = getattr(our, image)
                found = their[image] and list(their[image].values())
                assert found == (values and list(values.values()))
        fingerprints = {v.fingerprint for epoch, _ in log.epochs() for v in epoch.structures}
        assert {int(f, 16) for f in fingerprints} == set(range(100_000, 100_000 + len(registry.texts)))
        assert all(json.loads(text)["name"] == "Envelope" for text in registry.texts)


@pytest.mark.parametrize("flavor", ["mysql"])
def test_rows_arrive_downstream_as_without_a_registry(
    upstream: Database, downstream: Database, kafka: Kafka, tmp_path: Path
) -> None:
    """The registry comes in the middle: what was written before it and after it is one log. It is away at times."""
    with running() as registry, source_log(upstream, kafka.bootstrap, tmp_path) as log:
        fill(log)
        log.publish()
        log.sql("UPDATE t SET more = 9", "INSERT INTO n VALUES ('z')")
        registry.broken = [503, None]
        log.publish(schema_registry_url=registry.url)
        log.sql("UPDATE t SET f = 3", "ALTER TABLE t DROP COLUMN f", "DELETE FROM t WHERE id = 2")
        log.publish(schema_registry_url=registry.url)
        kinds = {m.value()[0] for m in read_topic(kafka.bootstrap, f"{log.config.prefix}.rows")}
        assert kinds == {0xC3, 0x00}
        with_registry = comparable(log)
        assert len(with_registry) == 17
        downstream.execute(f"CREATE DATABASE {log.db} CHARACTER SET utf8mb4")
        consume(log, downstream, tmp_path)
        assert content(downstream, log.db) == content(upstream, log.db)
        downstream.execute(f"DROP DATABASE {log.db}")


@pytest.mark.parametrize("flavor", ["mysql"])
def test_without_its_registry_the_producer_stops_and_loses_nothing(
    upstream: Database, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembled, "_BOUNDED_PATIENCE", 1.0)
    with source_log(upstream, kafka.bootstrap, tmp_path) as log:
        with running() as registry:
            gone = registry.url
        fill(log)
        with pytest.raises(LogError, match="TR506"):
            log.publish(schema_registry_url=gone)
        assert not log.rows()
        with running() as registry:
            log.publish(schema_registry_url=registry.url)
        assert len(log.rows()) == 11
        log.sql("ALTER TABLE n ADD COLUMN w INT", "INSERT INTO n VALUES ('b', 1)")
        with running() as other, pytest.raises(LogError, match="TR507"):
            log.publish(schema_registry_url=other.url)
        assert len(log.rows()) == 11
