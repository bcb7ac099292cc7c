"""The producer between real servers and a real Kafka: what a read_committed reader finds is what upstream logged.

Every test has its own database, topic prefix and relay directory, and starts its log at the current position.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from producer.epochs.open_epoch import Records
from producer.kafka.epoch_log import EpochLog
from producer.run import ProducerProgress
from producer.settings import RelaySettings
from schemas.errors import DecodeError, LogError, RelayError, TailraceError
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.rules.config import ConsumerConfig
from tailrace.assemble.producer import producer
from tests.support.binlogs.binlog_rows import Row, binlog_end, rows_since
from tests.support.epochs.producer_case import SMALL_EPOCHS, Case
from tests.support.epochs.published import Published
from tests.support.processes.child import handles
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers


def _comparable(row: Row) -> tuple[Any, ...]:
    """What must be equal however and whenever a row was published."""
    record = row.avro()
    source = record["source"]
    place = (source["gtid"], source["file"], source["pos"], source["server_id"], source["ts_ms"])
    return (
        row.structure.table,
        row.op,
        repr(record["after"]),
        repr(record["before"]),
        row.key,
        row.headers,
        place,
    )


def _assert_exactly_once(case: Case, begin: tuple[str, int]) -> Published:
    """The log holds each row event since ``begin`` once, in order, and amounts to the tables' content."""
    published = case.published()
    logged = [_comparable(row) for row in rows_since(case.upstream, begin, f"{case.db}.*")]
    assert [_comparable(row) for row in published.all_rows] == logged
    _assert_equal(case, published)
    return published


def _assert_equal(case: Case, published: Published) -> None:
    """The log amounts to the tables' content."""
    for table, images in published.tables().items():
        ours = sorted(tuple(image.values()) for image in images.values())
        assert ours == case.content(table), table


def _work(case: Case, transactions: int, rng: random.Random) -> None:
    """Transactions of every kind of row event."""
    with case.upstream.connect(database=case.db, autocommit=False) as connection:
        cursor = connection.cursor()
        for _ in range(transactions):
            for _ in range(rng.randint(1, 4)):
                rows = [("x" * rng.randint(0, 150),) for _ in range(rng.randint(1, 20))]
                cursor.executemany("INSERT INTO t (v) VALUES (%s)", rows)
                cursor.execute("UPDATE t SET n = n + 1 WHERE id %% 7 = %s LIMIT 20", (rng.randint(0, 6),))
                cursor.execute("DELETE FROM t WHERE id %% 11 = %s LIMIT 5", (rng.randint(0, 10),))
            cursor.execute("SELECT COALESCE(MAX(id), 0) FROM t")
            ((last,),) = cursor.fetchall()
            cursor.execute("UPDATE t SET id = %s WHERE id = %s", (last + 1000, last))
            connection.commit()


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def test_kills_lose_and_double_nothing(case: Case) -> None:
    """Dead at each named place and at random times; in the end every row event is there exactly once."""
    rng = random.Random(4711)
    begin = binlog_end(case.upstream)
    for place in (
        "publish.before_commit",
        "publish.before_commit:3",
        "publish.after_commit",
        "relay.before_fsync:2",
        "relay.after_fsync:2",
    ):
        process = case.process(crash_at=place)

        def work_and_look(process: subprocess.Popen[str] = process) -> bool:
            _work(case, 10, rng)
            return process.poll() is not None

        wait_until(work_and_look, place)
        assert process.poll() == -signal.SIGKILL, place
    for _ in range(4):
        process = case.process()
        _work(case, 20, rng)
        time.sleep(rng.uniform(0.3, 1.2))
        _work(case, 20, rng)
        _kill(process)
    case.catch_up()
    published = _assert_exactly_once(case, begin)
    assert len(published.epochs) > 5
    # Nothing left to do is nothing written.
    case.catch_up()
    assert len(case.published().epochs) == len(published.epochs)


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_a_fenced_producer_says_so_whichever_call_notices_it(case: Case) -> None:
    """Once a client knows, each call says only that there was a fatal error before."""
    config, records = case.config, Records()
    records.keys, records.values = [b"\x01k"] * 10, [b"\0" * 100] * 10

    def keep_on(log: EpochLog) -> None:
        while True:
            log.write(records)
            time.sleep(0.01)

    for _ in range(5):
        one, other = (EpochLog(config.bootstrap_servers, config.prefix, config.partitions) for _ in range(2))
        one.open()
        one.begin()
        other.open()
        with pytest.raises(LogError, match="TR505"):
            keep_on(one)


def test_second_producer_fences_the_first(case: Case, tmp_path: Path) -> None:
    """The first stops with TR505 as soon as it has something to write; the log stays whole."""
    begin = binlog_end(case.upstream)
    errors: list[TailraceError] = []

    def first() -> None:
        try:
            producer(case.config).run(threading.Event())
        except TailraceError as error:
            errors.append(error)

    thread = threading.Thread(target=first, daemon=True)
    thread.start()
    case.sql("INSERT INTO t (v) VALUES ('by the first')")
    wait_until(lambda: len(case.published().all_rows) == 1, "the first row is published")
    second_config = replace(
        case.config,
        relay=RelaySettings(dir=tmp_path / "other"),
        start="earliest",
        server_id=case.config.server_id + 500,
    )
    stop = threading.Event()
    second = threading.Thread(target=producer(second_config).run, args=(stop,), daemon=True)
    second.start()

    def insert_and_look() -> bool:
        case.sql("INSERT INTO t (v) VALUES ('by either')")
        return not thread.is_alive()

    wait_until(insert_and_look, "the first producer is fenced")
    assert [error.code for error in errors] == ["TR505"]
    assert isinstance(errors[0], LogError)
    case.sql("INSERT INTO t (v) VALUES ('by the second')")
    stop.set()
    second.join(60)
    producer(replace(second_config, until_caught_up=True)).run(threading.Event())
    _assert_exactly_once(case, begin)


def test_stops_exactly_behind_a_gtid_set(case: Case) -> None:
    """Whatever fits into the epoch besides: the log ends behind the set; the next run goes on from there."""
    begin = binlog_end(case.upstream)
    stops = []
    for i in range(1, 11):
        case.sql("BEGIN", f"INSERT INTO t (v) VALUES ({i})", f"INSERT INTO t (v) VALUES ({i})", "COMMIT")
        stops.append(case.executed())
    for wanted, rows in ((stops[3], 8), (stops[3], 8), (stops[4], 10), (stops[8], 18)):
        case.catch_up(until_caught_up=False, stop_at_gtid=wanted, epoch=replace(SMALL_EPOCHS, max_delay=60.0))
        published = case.published()
        assert len(published.all_rows) == rows
        assert published.epochs[-1].executed_gtids.replace("\n", "") == wanted.replace("\n", "")
    case.catch_up()
    _assert_exactly_once(case, begin)


@pytest.mark.parametrize("flavor", ["mysql"])
def test_a_stop_leaves_whole_transactions(case: Case) -> None:
    """Stop requests at any time, in the middle of large transactions too: all of one or nothing is published."""
    begin = binlog_end(case.upstream)
    case.sql("INSERT INTO t (v) SELECT REPEAT('y', 150) FROM information_schema.COLLATIONS a"
             " JOIN information_schema.COLLATIONS b LIMIT 30000")  # fmt: skip
    for _ in range(3):
        case.sql("UPDATE t SET n = n + 1")
    sizes = set()
    for pause in (0.0, 0.4, 0.8, 1.0):
        stop = threading.Event()
        timer = threading.Timer(pause, stop.set)
        timer.start()
        producer(replace(case.config, epoch=replace(SMALL_EPOCHS, max_rows=1))).run(stop)
        timer.join()
        rows = case.visible_rows()
        assert rows % 30_000 == 0
        sizes.add(rows)
    process = case.process()
    wait_until(lambda: handles(process.pid, signal.SIGTERM), "the producer handles SIGTERM")
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    case.catch_up()
    published = _assert_exactly_once(case, begin)
    assert len(published.all_rows) == 120_000


def test_a_transaction_larger_than_memory_allows_for(case: Case) -> None:
    """120,000 rows in one transaction go to Kafka in parts, and become visible as one epoch; also after a kill."""
    begin = binlog_end(case.upstream)
    case.sql(
        "BEGIN",
        "INSERT INTO t (v) VALUES ('first')",
        "INSERT INTO t (v) SELECT 'row' FROM information_schema.COLLATIONS a"
        " JOIN information_schema.COLLATIONS b JOIN information_schema.COLLATIONS c LIMIT 119999",
        "COMMIT",
        "INSERT INTO t (v) VALUES ('behind')",
    )
    process = case.process(crash_at="publish.before_commit")
    assert process.wait(60) == -signal.SIGKILL
    assert case.published().all_rows == []
    case.catch_up()
    published = case.published()
    [runs] = [[run.rows for run in epoch.runs] for epoch in published.epochs if epoch.rows >= 120_000]
    assert sum(runs) >= 120_000
    assert max(runs) < 110_000
    assert len(published.all_rows) == 120_001
    logged = rows_since(case.upstream, begin, f"{case.db}.*")
    assert [r.key for r in published.all_rows] == [r.key for r in logged]


def test_excluded_tables_leave_no_trace(case: Case) -> None:
    """Neither rows nor DDL, even in the same transaction as others; the position moves on nevertheless."""
    begin = binlog_end(case.upstream)
    config = replace(case.config, exclude=(f"{case.db}.secret*",))
    case.sql("CREATE TABLE secret1 (id INT PRIMARY KEY)", "INSERT INTO secret1 VALUES (1)",
             "BEGIN", "INSERT INTO secret1 VALUES (2)", "INSERT INTO t (v) VALUES ('seen')", "COMMIT",
             "INSERT INTO secret1 VALUES (3)")  # fmt: skip
    producer(replace(config, until_caught_up=True)).run(threading.Event())
    published = case.published()
    assert [row.structure.table for row in published.all_rows] == ["t"]
    assert [epoch.ddl for epoch in published.epochs if epoch.ddl] == []
    assert published.epochs[-1].source_pos == binlog_end(case.upstream)[1] > begin[1]


@pytest.mark.parametrize(
    ("statements", "code"),
    [
        (("SET SESSION binlog_format = 'STATEMENT'", "UPDATE t SET n = 5"), "TR409"),
        (("SET SESSION binlog_row_image = 'MINIMAL'", "ALTER TABLE t MODIFY id INT DEFAULT 7",
          "INSERT INTO t (n) VALUES (1)"), "TR413"),
        (("CREATE TABLE t2 (a INT)", "SET GLOBAL binlog_row_metadata = 'MINIMAL'", "SET sql_log_bin = 0",
          "ALTER TABLE t2 ADD b INT", "SET sql_log_bin = 1", "INSERT INTO t2 VALUES (1, 2)"), "TR419"),
        (("SET GLOBAL binlog_row_metadata = 'MINIMAL'", "SET sql_log_bin = 0", "CREATE TABLE t2 (a INT)",
          "SET sql_log_bin = 1", "INSERT INTO t2 VALUES (1)", "DROP TABLE t2"), "TR418"),
    ],
)  # fmt: skip
def test_what_cannot_be_known_stops_the_producer(case: Case, statements: tuple[str, ...], code: str) -> None:
    """The error names the place and, of a row event, the table; what came before is complete; it stays stopped."""
    case.sql("INSERT INTO t (v) VALUES ('before')")
    case.catch_up()
    place = binlog_end(case.upstream)
    try:
        case.sql(*statements)
    finally:
        case.sql("SET GLOBAL binlog_row_metadata = 'FULL'")
    for _ in range(2):
        with pytest.raises(DecodeError) as caught:
            case.catch_up()
        error = caught.value
        assert error.code == code
        assert error.where.file == place[0]
        assert error.where.position is not None
        assert place[1] < error.where.position < binlog_end(case.upstream)[1]
        assert error.where.gtid
        assert error.hint
        if code != "TR409":
            assert error.where.table in (f"{case.db}.t", f"{case.db}.t2")
    assert [row.avro()["after"]["v"] for row in case.published().all_rows] == ["before"]


def test_epochs_state_structures_once(case: Case) -> None:
    """A structure travels with the epoch that first uses it, and again only when it changes."""
    for value in ("a", "b"):
        case.sql(f"INSERT INTO t (v) VALUES ('{value}')")
        case.catch_up()
    case.sql("ALTER TABLE t ADD COLUMN w INT", "INSERT INTO t (v, w) VALUES ('c', 1)")
    case.catch_up()
    published = case.published()
    stated = [(e.epoch, v.table) for e in published.epochs for v in e.structures]
    assert len(stated) == 2
    kinds = [e.ddl.kind for e in published.epochs if e.ddl]
    assert kinds == ["ALTER TABLE"]
    assert [row.avro()["after"].get("w") for row in published.all_rows] == [None, None, 1]
    times = [row.avro() for row in published.all_rows]
    assert all(record["ts_ms"] >= record["source"]["ts_ms"] for record in times)


def test_progress_is_reported(case: Case) -> None:
    """The last report has the final numbers."""
    reports: list[ProducerProgress] = []
    case.sql("INSERT INTO t (v) VALUES ('a'), ('b')")
    producer(replace(case.config, until_caught_up=True)).run(threading.Event(), reports.append)
    assert reports[-1].publish.rows == 2
    assert reports[-1].publish.gtid


def test_a_log_has_one_begin(case: Case, tmp_path: Path) -> None:
    """Whatever is lost of relay log and topics, nothing begins anew in the midst of what was published."""
    admin = AdminClient({"bootstrap.servers": case.config.bootstrap_servers})
    topics = [f"{case.config.prefix}.{kind}" for kind in ("rows", "epochs", "schemas", "tracked")]
    rng = random.Random(5)
    _work(case, 3, rng)
    case.catch_up()
    # Without its relay log the producer fetches what the last epoch lacks, whatever the settings say of a begin.
    _work(case, 3, rng)
    case.upstream.execute("FLUSH BINARY LOGS")
    _work(case, 3, rng)
    shutil.rmtree(case.config.relay.dir)
    case.catch_up(start="current")
    published = case.published()
    _assert_equal(case, published)
    assert published.epochs[0].log_begins == "source.start is current"
    assert {epoch.log_begins for epoch in published.epochs[1:]} == {None}
    # Rows that are not where the last epoch says.
    _delete(admin, topics[:1])
    with pytest.raises(LogError, match=rf"TR510: there is no topic {topics[0]}, and epochs that"):
        case.catch_up()
    # Epochs that retention deleted.
    _, end = LogReader(
        ConsumerConfig(case.config.bootstrap_servers, case.config.prefix, case.config.source)
    ).bounds()
    [done] = admin.delete_records([TopicPartition(topics[1], 0, end)]).values()
    done.result()
    with pytest.raises(LogError, match=rf"TR510: {topics[1]} holds no epoch, and its first {end} offsets"):
        case.catch_up()
    # The topic made anew, and the others not.
    _delete(admin, topics[1:2])
    with pytest.raises(LogError, match=rf"TR510: {topics[1]} holds no epoch, but {topics[2]} has records"):
        case.catch_up()
    # All of them gone: this relay log was published to another log.
    _delete(admin, topics[2:])
    with pytest.raises(RelayError, match="TR312"):
        case.catch_up()
    shutil.rmtree(case.config.relay.dir)
    case.catch_up(start="current")
    [only] = case.published().epochs
    assert (only.epoch, only.executed_gtids) == (0, case.executed())


def _delete(admin: AdminClient, topics: list[str]) -> None:
    for future in admin.delete_topics(topics).values():
        future.result()
    wait_until(lambda: not set(topics) & set(admin.list_topics(timeout=10).topics), "the topics are deleted")
