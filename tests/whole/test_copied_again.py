"""Tables are copied again while clients write to them: what somebody changed downstream is mended."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from compose.databases import Database
from compose.kafka import Kafka
from producer.copy import window
from producer.copy.requests import REQUEST_NAME
from producer.settings import CopySettings
from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError, LogError, RelayError, UpstreamError
from schemas.wire.epoch import EpochCommitted
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.start import complete_copy, first_kept
from spark_consumer.rules.config import ConsumerConfig, LogAddress
from tailrace.assemble.producer import producer
from tailrace.channels.applied import AppliedEpoch
from tailrace.request_copy import ask_for_copy, cancel_copies
from tailrace.status.copies import LoggedCopies
from tests.support.applying.consuming import consume
from tests.support.epochs.producer_case import Case, producer_case
from tests.support.epochs.written_tables import TABLES, fill, writing
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers

# The clients leave these rows alone, so that only a copy can mend them.
_UPSTREAM = (
    "INSERT INTO orders VALUES (5000, 'one', 1), (5001, 'two', 2)",
    "INSERT INTO items VALUES (5000, 9, 'one'), (5001, 9, 'two')",
    "INSERT INTO names VALUES ('quiet one', 1), ('quiet two', 2)",
    "INSERT INTO events VALUES (5000, 'one'), (5000, 'one'), (5001, 'two')",
    "INSERT INTO visits VALUES (5000, 1), (5001, 2)",
)
_PLANTED = (
    "DELETE FROM orders WHERE id = 5000",
    "UPDATE orders SET id = 6000, n = -1 WHERE id = 5001",
    "UPDATE items SET note = 'wrong' WHERE order_id = 5001",
    "INSERT INTO names VALUES ('of nobody', 1)",
    "DELETE FROM events WHERE n = 5000 LIMIT 1",
    "INSERT INTO visits VALUES (5002, 3)",
)


@pytest.fixture
def case(upstream: Database, kafka: Kafka, tmp_path: Path) -> Iterator[Case]:
    """A log that is not begun."""
    with producer_case(upstream, kafka.bootstrap, tmp_path, start="copy") as made:
        fill(made)
        made.sql(*_UPSTREAM)
        yield made


def _channel(case: Case, downstream: Database) -> ConsumerConfig:
    downstream.execute(f"DROP DATABASE IF EXISTS {case.db}", f"CREATE DATABASE {case.db}")
    return ConsumerConfig(
        case.config.bootstrap_servers,
        case.config.prefix,
        ServerUrl.parse(downstream.url("tailrace")),
        channel=case.db,
        max_batch_rows=3000,
    )


def _assert_equal(case: Case, downstream: Database, tables: Iterable[str] = TABLES) -> None:
    for table in tables:
        query = f"SELECT * FROM {case.db}.{table}"
        assert sorted(downstream.execute(query)) == sorted(case.upstream.execute(query)), table


def test_a_copy_again_mends_a_channel(
    case: Case, downstream: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _channel(case, downstream)
    case.catch_up()
    consume(config)
    applied = case.published().epochs[-1].epoch
    with downstream.connect(database=case.db) as connection, connection.cursor() as cursor:
        for statement in _PLANTED:
            cursor.execute(statement)
        connection.commit()
    # By name, or everything.
    asked = ask_for_copy(case.config, [f"{case.db}.*"] if case.upstream.flavor == "mariadb" else [])
    assert "5 tables" in asked[0]
    assert "no producer" in asked[1]
    killed = case.process("copy.before_removal", until_caught_up=True)
    assert killed.wait() == -9
    assert (case.config.relay.dir / REQUEST_NAME).exists()
    # The copy waits for the channel, which seems to run, only for a moment.
    monkeypatch.setattr(window, "_PATIENCE", 0.5)
    channel = AppliedEpoch(config)
    assert channel.epoch() is None
    downstream.execute(f"UPDATE tailrace.relay_log_info SET consistent = 0 WHERE Channel_name = '{case.db}'")
    assert channel.epoch() == applied
    with writing(case, 7):
        limited = replace(case.config, until_caught_up=True, copy=CopySettings(chunk_rows=100))
        producer(limited, channels=[channel]).run(threading.Event())
    case.catch_up()
    assert not (case.config.relay.dir / REQUEST_NAME).exists()
    consume(config)
    _assert_equal(case, downstream)
    begun = [e.copy for e in case.published().epochs if e.copy is not None and e.copy.step == "begin"]
    # A table that is read while the publisher stands still may have to be begun twice.
    assert {step.copy for step in begun if step.again and step.table == "orders"} == {begun[-1].copy}
    assert len([step for step in begun if step.table == "orders"]) == 2
    downstream.execute(f"DROP DATABASE {case.db}")


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_requests_that_cannot_be_fulfilled(case: Case) -> None:
    config, file = case.config, case.config.relay.dir / REQUEST_NAME
    case.catch_up()
    with pytest.raises(ConfigError, match=r"no table .*\.missing"):
        ask_for_copy(config, [f"{case.db}.orders", f"{case.db}.missing"])
    other = replace(config, exclude=(f"{case.db}.orders",))
    with pytest.raises(ConfigError, match="leave it out"):
        ask_for_copy(other, [f"{case.db}.orders"])
    case.sql(
        "CREATE TABLE parents (id INT PRIMARY KEY)",
        "CREATE TABLE children (id INT PRIMARY KEY REFERENCES parents (id) ON DELETE CASCADE)",
    )
    other = replace(config, exclude=(f"{case.db}.parents",))
    with pytest.raises(UpstreamError, match=r"changes of .*\.parents"):
        ask_for_copy(other, [f"{case.db}.children"])
    case.sql("DROP TABLE children, parents")
    assert not file.exists()
    epochs = len(case.published().epochs)
    ask_for_copy(config, [])
    with pytest.raises(RelayError, match="earlier request"):
        ask_for_copy(config, [f"{case.db}.orders"])
    assert len(cancel_copies(config)) == 2
    case.catch_up()
    file.write_text(json.dumps({"tables": ["a.b.c"], "cancel": False, "copy": "x"}))
    case.catch_up()
    assert not file.exists()
    file.symlink_to("owner.toml")
    case.catch_up()
    assert file.is_symlink()
    assert all(epoch.copy is None for epoch in case.published().epochs[epochs:])
    file.unlink()
    # What cannot be copied any more when its turn comes is left out, and its changes go on.
    ask_for_copy(config, [])
    case.sql("CREATE SEQUENCE numbers", "SELECT NEXTVAL(numbers)")
    case.catch_up()
    found = case.published().epochs[epochs:]
    assert {epoch.copy.table for epoch in found if epoch.copy is not None} == set(TABLES)
    assert all(epoch.complete is None for epoch in found)
    assert "numbers" in {table.table for epoch in found for table in epoch.tables}
    logged = LoggedCopies.read(LogAddress(config.bootstrap_servers, config.prefix)).part()
    assert not logged["running"]
    assert [one["table"] for one in logged["not_copied"]] == [f"{case.db}.numbers"]


@pytest.mark.parametrize("flavor", ["mysql"])
def test_tables_that_are_included_later_are_copied(case: Case, downstream: Database) -> None:
    config, db = _channel(case, downstream), case.db
    case.sql("CREATE VIEW many AS SELECT id FROM orders WHERE n > 100")
    everything, some = case.config, replace(case.config, include=(f"{db}.orders", f"{db}.visits"))
    case.config = some
    case.catch_up()
    case.config = everything
    with writing(case, 8):
        case.catch_up(copy=CopySettings(chunk_rows=100))
    case.sql("DROP VIEW many", "CREATE TABLE late (id INT PRIMARY KEY)", "INSERT INTO late VALUES (1)")
    case.catch_up()
    consume(config)
    _assert_equal(case, downstream)
    case.config = some
    case.sql("DELETE FROM items WHERE number = 3")
    case.catch_up()
    case.config = everything
    case.catch_up()
    consume(config)
    _assert_equal(case, downstream)
    assert downstream.execute(f"SELECT * FROM {db}.late") == [(1,)]
    steps = [e.copy for e in case.published().epochs if e.copy is not None and e.copy.step == "end"]
    assert [step.table for step in steps].count("orders") == 1
    downstream.execute(f"DROP DATABASE {db}")


def _forget_before(case: Case, epoch: EpochCommitted) -> None:
    """Delete everything before an epoch from Kafka, as its retention does."""
    prefix, published = case.config.prefix, case.published()
    log = LogReader(LogAddress(case.config.bootstrap_servers, prefix))
    offset = next(one.offset for one in log.epochs() if one.record.epoch == epoch.epoch)
    ends = [TopicPartition(f"{prefix}.epochs", 0, offset)]
    for partition in range(case.config.partitions):
        before = [
            r.end for e in published.epochs[: epoch.epoch] for r in e.ranges if r.partition == partition
        ]
        ends.append(TopicPartition(f"{prefix}.rows", partition, max(before, default=0)))
    admin = AdminClient({"bootstrap.servers": case.config.bootstrap_servers})
    for deleted in admin.delete_records(ends).values():
        deleted.result()


@pytest.mark.parametrize("flavor", ["mysql"])
def test_a_new_channel_begins_with_a_complete_copy(case: Case, downstream: Database) -> None:
    config, db = _channel(case, downstream), case.db
    case.sql("CREATE VIEW many AS SELECT id FROM orders WHERE n > 100")
    case.catch_up()
    _forget_before(case, case.published().epochs[-1])
    with pytest.raises(LogError, match="tailrace copy --all"):
        consume(config)
    ask_for_copy(case.config, [])
    with writing(case, 9):
        thread = threading.Thread(target=case.catch_up, kwargs={"copy": CopySettings(chunk_rows=50)})
        thread.start()
        for size in range(41, 47):
            case.sql(f"ALTER TABLE items MODIFY note VARCHAR({size})")
        thread.join()
    case.catch_up()
    downstream.execute(f"DROP DATABASE {db}")
    log = LogAddress(case.config.bootstrap_servers, case.config.prefix)
    first, copied = first_kept(LogReader(log)).record.epoch, complete_copy(LogReader(log))
    assert copied is not None
    assert LoggedCopies.read(log).complete_after(first) == copied.record.epoch
    assert not LogReader(log).has_first_rows()
    consume(replace(config, channel=f"{db}_new"))
    _assert_equal(case, downstream)
    assert sorted(downstream.execute(f"SELECT id FROM {db}.many")) == sorted(case.sql("SELECT id FROM many"))
    downstream.execute(f"DROP DATABASE {db}")


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_channels_pass_over_a_copy_for_new_ones(case: Case, downstream: Database) -> None:
    """Only a channel that begins with it applies it; the producer is killed meanwhile."""
    config, db = _channel(case, downstream), case.db
    case.sql(
        "CREATE VIEW many AS SELECT id FROM orders WHERE n > 100",
        "CREATE TABLE parents (id INT PRIMARY KEY)",
        "CREATE TABLE children (id INT PRIMARY KEY, parent INT,"
        " FOREIGN KEY (parent) REFERENCES parents (id) ON DELETE CASCADE)",
        "INSERT INTO parents VALUES (1), (2), (3), (4), (5), (6)",
        "INSERT INTO children SELECT 10 * a.id + b.id, a.id FROM parents a, parents b",
    )
    case.catch_up()
    consume(config)
    downstream.execute(f"UPDATE {db}.orders SET n = -1 WHERE id = 5001")
    log = LogAddress(case.config.bootstrap_servers, case.config.prefix)
    with writing(case, 10):
        process = case.process(copy=CopySettings(chunk_rows=100, every=1))
        _, end = LogReader(log).bounds()
        wait_until(lambda: LogReader(log).bounds()[1] > end + 30, "more epochs")
        process.kill()
        process.wait()
        case.sql("DELETE FROM parents WHERE id < 3", "ALTER TABLE items MODIFY note VARCHAR(41)")
        consume(config)
        # What has begun goes on.
        case.catch_up(copy=CopySettings(chunk_rows=100))
    case.catch_up()
    consume(config)
    assert downstream.execute(f"SELECT n FROM {db}.orders WHERE id = 5001") == [(-1,)]
    downstream.execute(f"UPDATE {db}.orders SET n = 2 WHERE id = 5001")
    tables = (*TABLES, "parents", "children", "many")
    _assert_equal(case, downstream, tables)
    downstream.execute(f"DROP DATABASE {db}")
    began = LoggedCopies.read(log).complete_after(0)
    _forget_before(case, next(epoch for epoch in case.published().epochs if epoch.epoch == began))
    copied = complete_copy(LogReader(log))
    assert copied is not None
    assert copied.record.epoch == began
    new = replace(config, channel=f"{db}_new")
    for epochs in (10, 10, None):
        position = f"SELECT is_new FROM tailrace.relay_log_info WHERE Channel_name = '{db}_new'"
        consume(new, epochs=epochs)
        assert downstream.execute(position) == [(int(epochs is not None),)]
    _assert_equal(case, downstream, tables)
    downstream.execute(f"DROP DATABASE {db}")
