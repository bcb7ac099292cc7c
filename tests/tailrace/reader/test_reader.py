"""The reader library and `tailrace topic cat`, on logs of real upstreams."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from compose.databases import Database
from compose.kafka import Kafka
from schemas.errors import LogError
from tailrace.reader import EpochReader
from tests.support.epochs.producer_case import SMALL_EPOCHS
from tests.support.epochs.source_log import SourceLog, source_log

pytestmark = pytest.mark.servers

TAILRACE = Path(sys.executable).with_name("tailrace")


@pytest.fixture
def log(upstream: Database, kafka: Kafka, tmp_path: Path) -> Iterator[SourceLog]:
    with source_log(upstream, kafka.bootstrap, tmp_path) as made:
        made.sql(
            "CREATE TABLE t (id INT UNSIGNED, part INT, name VARCHAR(40), price DECIMAL(20,4), raw BLOB,"
            " PRIMARY KEY (part, id))",
            "CREATE TABLE `no key` (`a b` BIGINT UNSIGNED, d DATETIME(3))",
        )
        yield made


def cat(log: SourceLog, *options: str) -> subprocess.Popen[str]:
    config = log.config.relay.dir.parent / "tailrace.toml"
    kafka = f'bootstrap-servers = "{log.config.bootstrap_servers}"\nprefix = "{log.config.prefix}"\n'
    config.write_text(f"[kafka]\n{kafka}")
    return subprocess.Popen(
        [str(TAILRACE), "topic", "cat", "--config", str(config), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines(log: SourceLog, *options: str) -> list[dict[str, Any]]:
    out, err = cat(log, "--json", *options).communicate(timeout=60)
    assert not err
    return [json.loads(line) for line in out.splitlines()]


def fill(log: SourceLog) -> None:
    log.sql(
        "SET SESSION sql_mode = ''",
        "INSERT INTO t VALUES (1, 9, 'Ada', 12.5, x'00ff'), (2, 9, NULL, -0.0001, ''), (3, 9, '\\n', NULL, NULL)",
        "UPDATE t SET name = 'Bob' WHERE id = 1",
        "UPDATE t SET part = 8 WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
        "INSERT INTO `no key` VALUES (18446744073709551615, '0000-00-00 00:00:00')",
    )


def test_rows_come_as_values_in_the_order_of_the_upstream(log: SourceLog) -> None:
    fill(log)
    log.publish()
    rows = log.rows()
    assert [(r.op, r.table, r.key) for r in rows] == [
        ("c", "t", {"part": 9, "id": 1}),
        ("c", "t", {"part": 9, "id": 2}),
        ("c", "t", {"part": 9, "id": 3}),
        ("u", "t", {"part": 9, "id": 1}),
        ("d", "t", {"part": 9, "id": 2}),
        ("c", "t", {"part": 8, "id": 2}),
        ("d", "t", {"part": 9, "id": 3}),
        ("c", "no key", {}),
    ]
    assert rows[0].before is None
    assert rows[0].after is not None
    assert list(rows[0].after.items())[:3] == [("id", 1), ("part", 9), ("name", "Ada")]
    assert (str(rows[0].after["price"]), rows[0].after["raw"]) == ("12.5000", b"\x00\xff")
    assert rows[3].before == rows[0].after
    assert rows[3].after == {**rows[0].after, "name": "Bob"}
    assert rows[6].after is None
    assert rows[7].after == {"a b": 2**64 - 1, "d": "0000-00-00 00:00:00.000"}


def test_many_partitions_and_epochs_merge_into_one_order(log: SourceLog) -> None:
    rng = random.Random(5)
    for _ in range(30):
        ids = rng.sample(range(100_000), 200)
        values = ",".join(f"({i}, {rng.randrange(5)}, '{'x' * rng.randrange(40)}', 1, NULL)" for i in ids)
        log.sql("SET autocommit = 0", f"REPLACE INTO t VALUES {values}", "COMMIT")
    log.publish(partitions=3, epoch=replace(SMALL_EPOCHS, max_rows=1500))
    for epoch, rows in log.epochs():
        assert [row.seq for row in rows] == list(range(epoch.rows))
        assert {row.source["epoch"] for row in rows} <= {epoch.epoch}


@pytest.mark.parametrize("flavor", ["mysql"])
def test_a_partition_that_runs_ahead_waits_in_kafka(log: SourceLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition's rows all come before the other's, so one of them is read to its end first."""
    monkeypatch.setattr("tailrace.reader.log._HELD_BYTES", 2000)
    monkeypatch.setattr("tailrace.reader.log._MESSAGES", 20)
    half = "SELECT seq, {}, REPEAT('y', 40), 1, REPEAT('z', 300) FROM s"
    log.sql(
        "CREATE TABLE s (seq INT PRIMARY KEY)",
        "INSERT INTO s VALUES " + ",".join(f"({i})" for i in range(1000)),
        "BEGIN",
        "INSERT INTO `no key` SELECT seq, NULL FROM s",
        f"INSERT INTO t {half.format(1)}",
        f"INSERT INTO t {half.format(2)}",
        "COMMIT",
    )
    log.publish()
    epoch, rows = log.epochs()[-1]
    assert epoch.rows == 3000
    assert [row.seq for row in rows] == list(range(3000))


def test_it_begins_where_it_is_told(log: SourceLog) -> None:
    fill(log)
    log.publish(epoch=replace(SMALL_EPOCHS, max_rows=1))
    everything = lines(log)
    numbers = [line["epoch"] for line in everything if line["type"] == "epoch"]
    assert numbers == list(range(len(numbers)))
    middle = next(line for line in everything if line["type"] == "epoch" and line["rows"] == 2)
    later = [line for line in everything if line["epoch"] > middle["epoch"]]
    assert lines(log, "--from", f"epoch:{middle['epoch'] + 1}") == later
    assert lines(log, "--from", f"gtid:{middle['executed_gtids']}") == later
    with (
        pytest.raises(LogError, match="TR555"),
        EpochReader(log.config.bootstrap_servers, log.config.prefix) as r,
    ):
        next(r.epochs("epoch:1000"))


def test_a_table_can_be_picked(log: SourceLog) -> None:
    fill(log)
    log.publish()
    found = lines(log, "--table", f"{log.db}.no*")
    assert [line["table"] for line in found if line["type"] == "row"] == ["no key"]
    assert all(
        any(t["table"] == "no key" for t in [*e["tables"], *(e["ddl"] or {"tables": []})["tables"]])
        for e in found
        if e["type"] == "epoch"
    )


def test_text_is_for_people(log: SourceLog) -> None:
    fill(log)
    log.publish()
    out, err = cat(log).communicate(timeout=60)
    assert not err
    assert f"  DDL in {log.db}: CREATE TABLE t (id INT" in out
    assert f"update {log.db}.t part=9 id=1  [" in out
    assert "    - id=1 part=9 name=\"Ada\" price=12.5000 raw=x'00ff'\n" in out
    assert "    + id=1 part=9 name=\"Bob\" price=12.5000 raw=x'00ff'\n" in out
    assert r'name="\\n"' in out
    assert "a b=18446744073709551615" in out


@pytest.mark.parametrize("flavor", ["mysql"])
def test_it_follows_until_it_is_interrupted(log: SourceLog) -> None:
    process = cat(log, "--follow", "--json")
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["type"], first["epoch"]) == ("epoch", 0)
    fill(log)
    log.publish()
    while json.loads(process.stdout.readline()).get("table") != "no key":
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in err


@pytest.mark.parametrize("flavor", ["mysql"])
def test_a_reader_that_goes_away_is_no_traceback(log: SourceLog) -> None:
    log.sql("CREATE TABLE s (seq INT PRIMARY KEY, v TEXT)")
    log.sql("INSERT INTO s VALUES " + ",".join(f"({i}, REPEAT('v', 500))" for i in range(2000)))
    log.publish()
    process = cat(log, "--json")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.wait(20)


def test_a_damaged_log_is_not_printed_as_if_it_were_whole(log: SourceLog) -> None:
    fill(log)
    log.publish()
    last, _ = log.epochs()[-1]
    false = replace(last, epoch=last.epoch + 1, structures=(), rows=0, tables=(), ranges=())
    producer: Any = Producer({"bootstrap.servers": log.config.bootstrap_servers})
    producer.produce(f"{log.config.prefix}.epochs", false.encode(), b"epoch", 0)
    producer.flush()
    process = cat(log)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "TR554" in err


def test_strange_records_stop_every_command_at_their_place(log: SourceLog) -> None:
    fill(log)
    log.publish()
    config = log.config.relay.dir.parent / "tailrace.toml"
    config.write_text(
        f'[kafka]\nbootstrap-servers = "{log.config.bootstrap_servers}"\nprefix = "{log.config.prefix}"\n'
        f'partitions = 3\n[source]\nurl = "{log.upstream.url()}"\n[relay]\ndir = "{log.config.relay.dir}"\n'
        f'[target]\nurl = "parquet:{config.with_name("lake")}"\n'
    )

    statement = config.with_name("statement.sql")
    statement.write_text("CREATE TABLE t (id INT)")

    def run(*command: str) -> str:
        done = subprocess.run(
            [str(TAILRACE), *command, "--config", str(config)], capture_output=True, text=True, timeout=120
        )
        said = done.stdout + done.stderr
        assert done.returncode != 0, command
        assert "Traceback" not in said
        assert "TR001" not in said
        return said

    other: Any = Producer({"bootstrap.servers": log.config.bootstrap_servers})
    other.produce(f"{log.config.prefix}.schemas", b"garbage", b"shop.t@1", 0)
    other.flush()
    commands: list[tuple[str, ...]] = [("schema", "show", f"{log.db}.t"), ("produce", "--until-caught-up")]
    for command in commands:
        said = run(*command)
        assert f"topic {log.config.prefix}.schemas, partition 0, offset " in said, (command, said)
        assert "TR568" in said, (command, said)
    other.produce(f"{log.config.prefix}.epochs", b"garbage", b"epoch", 0)
    other.flush()
    for command in (
        ("topic", "cat"),
        ("schema", "show", f"{log.db}.t"),
        ("produce", "--until-caught-up"),
        ("consume", "--until-caught-up"),
        ("schema", "set", f"{log.db}.t", "--file", str(statement)),
        ("status",),
    ):
        said = run(*command)
        assert f"topic {log.config.prefix}.epochs, partition 0, offset " in said, (command, said)
        assert "TR568" in said, (command, said)


@pytest.mark.parametrize("flavor", ["mysql"])
def test_an_open_transaction_is_neither_shown_nor_waited_for(log: SourceLog) -> None:
    fill(log)
    log.publish()
    before = lines(log)
    producer: Any = Producer(
        {"bootstrap.servers": log.config.bootstrap_servers, "transactional.id": log.config.prefix + "-other"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(f"{log.config.prefix}.epochs", b"never committed", b"epoch", 0)
    producer.flush()
    assert lines(log) == before
    producer.abort_transaction()
    assert lines(log) == before


def test_schema_show_tells_a_tables_structure_at_each_place(log: SourceLog) -> None:
    log.sql("INSERT INTO t (part, id) VALUES (1, 1)")
    log.publish()
    before = log.epochs()[-1][0]
    log.sql("ALTER TABLE t ADD later ENUM('a','b') AFTER id", "INSERT INTO t (part, id) VALUES (1, 2)")
    log.publish()

    def show(*options: str) -> subprocess.CompletedProcess[str]:
        config = log.config.relay.dir.parent / "tailrace.toml"
        kafka = f'bootstrap-servers = "{log.config.bootstrap_servers}"\nprefix = "{log.config.prefix}"\n'
        config.write_text(f"[kafka]\n{kafka}")
        command = [str(TAILRACE), "schema", "show", f"{log.db}.t", "--config", str(config), *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    now = json.loads(show("--json", "--history").stdout)
    assert [column["name"] for column in now["columns"]] == ["id", "later", "part", "name", "price", "raw"]
    assert (now["key"], now["last_epoch"]) == (["part", "id"], None)
    assert any("ADD later" in (span["ddl"] or "") for span in now["history"])
    then = show("--at-gtid", before.executed_gtids).stdout
    assert "`later`" not in then
    assert "`id` int unsigned NOT NULL" in then
    assert "PRIMARY KEY (`part`, `id`)" in then
    assert show("--at-epoch", "4000").returncode == 1
