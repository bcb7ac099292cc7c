"""A peer of the whole drain: Debezium's MySQL source and JDBC sink connectors on one Kafka Connect worker."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.backlog import Backlog, Pair
from bench.drain import kept_connection, wait_until
from bench.shapes import DATABASE
from compose import artifacts
from compose.databases import MySQL
from compose.kafka import Kafka
from compose.servers import Server
from schemas.errors import StackError
from tailrace.artifacts import cache
from tailrace.artifacts.maven import cached_jars, java, pinned

_LOCK_FILE = Path(__file__).with_name("debezium.lock")
_PREFIX = "debezium"
_MARK = f"{_PREFIX}.mark"
#: a table that tells when the source connector follows the binlog; it is empty on both servers afterwards
CREATE_TABLE = (f"CREATE DATABASE {_PREFIX}", f"CREATE TABLE {_MARK} (id INT PRIMARY KEY)")
_EVERY_S = 1.0


class Connect(Server):
    """A standalone worker. It keeps its connectors' offsets, and the source's structures, in its folder."""

    name = "kafka connect"
    start_timeout = 180.0

    def __init__(self, directory: Path, kafka: Kafka, connectors: Sequence[dict[str, str]]) -> None:
        super().__init__(directory)
        self._kafka, self._connectors = kafka, connectors

    def healthy(self) -> bool:
        try:
            self.ask("connectors")
        except OSError:
            return False
        return True

    def ask(self, path: str) -> Any:
        """Return what the worker's REST interface says; raises OSError."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=5) as answer:
            return json.loads(answer.read())

    def check(self) -> None:
        """Raise StackError if it has ended, or if a connector has failed."""
        try:
            failed = not self.running() or "FAILED" in json.dumps(self.ask("connectors?expand=status"))
        except OSError:
            # It does not answer while connectors start.
            return
        if failed:
            raise StackError("TR723", "a connector failed, or their worker ended", hint=f"see {self.log}")

    def _template(self) -> Path:
        return cache.bundle("connect-data", lambda folder: None)

    def _before_start(self) -> None:
        worker = {
            "bootstrap.servers": self._kafka.bootstrap,
            "listeners": f"HTTP://127.0.0.1:{self.port}",
            "offset.storage.file.filename": f"{self.data}/offsets",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "plugin.discovery": "service_load",
            # The sink's pattern finds topics only when it asks again.
            "consumer.metadata.max.age.ms": "1000",
        }
        for name, settings in [("worker", worker), *((one["name"], one) for one in self._connectors)]:
            lines = "".join(f"{key}={value}\n" for key, value in settings.items())
            (self.directory / f"{name}.properties").write_text(lines)

    def _command(self) -> list[str]:
        jars = [*cached_jars(pinned(_LOCK_FILE, "debezium")), *artifacts.kafka_jars()]
        files = [str(self.directory / f"{one['name']}.properties") for one in self._connectors]
        program = "org.apache.kafka.connect.cli.ConnectStandalone"
        options = ["-Xms256m", "-Xmx2g", "-cp", ":".join(map(str, jars)), program]
        return [java(), *options, str(self.directory / "worker.properties"), *files]


def prepare(directory: Path, kafka: Kafka, pair: Pair) -> None:
    """Let the source connector learn the tables, and note the binlog's position before the backlog."""
    worker = Connect(directory, kafka, [_source(directory, pair)])
    try:
        worker.start()
        wait_until(lambda: _has_read(worker, pair, kafka), _EVERY_S)
    finally:
        worker.stop()


def _has_read(worker: Connect, pair: Pair, kafka: Kafka) -> bool:
    """Change a row, and say whether such a change has arrived in Kafka."""
    worker.check()
    pair.upstream.execute(f"INSERT INTO {_MARK} VALUES (1)", f"DELETE FROM {_MARK}")
    with closing(
        Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "bench", "log_level": 0})
    ) as log:
        try:
            return bool(log.get_watermark_offsets(TopicPartition(f"{_PREFIX}.{_MARK}", 0), timeout=2)[1])
        except KafkaException:
            return False


def drain(directory: Path, backlog: Backlog, kafka: Kafka, target: MySQL) -> float:
    """Return the seconds from the worker's start until the tables are equal. Raises StackError."""
    worker = Connect(directory, kafka, [_source(directory, backlog), _sink(target)])
    tables = backlog.upstream.execute(f"SHOW TABLES FROM {DATABASE}")
    checksums = "CHECKSUM TABLE " + ", ".join(f"{DATABASE}.{name}" for (name,) in tables)
    wanted = backlog.upstream.execute(checksums)

    def done() -> bool:
        worker.check()
        return ask(checksums) == wanted

    begin = time.perf_counter()
    try:
        worker.start()
        with kept_connection(target) as ask:
            wait_until(done, _EVERY_S)
        return time.perf_counter() - begin
    finally:
        worker.kill()


def _source(directory: Path, pair: Pair) -> dict[str, str]:
    return {
        "name": "source",
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": "127.0.0.1",
        "database.port": str(pair.upstream.port),
        "database.user": "tailrace",
        "database.password": "tailrace",
        "database.server.id": "7200",
        "database.include.list": f"{DATABASE},{_PREFIX}",
        "topic.prefix": _PREFIX,
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        # The rows are there already; the account may not lock.
        "snapshot.mode": "no_data",
        "snapshot.locking.mode": "none",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": f"{directory}/data/history",
    }


def _sink(target: MySQL) -> dict[str, str]:
    return {
        "name": "sink",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "topics.regex": f"{_PREFIX}[.]{DATABASE}[.].*",
        "connection.url": f"jdbc:mysql://127.0.0.1:{target.port}/{DATABASE}?sslMode=DISABLED&allowPublicKeyRetrieval=true",
        "connection.username": "tailrace",
        "connection.password": "tailrace",
        "collection.name.format": "${source.table}",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
    }
