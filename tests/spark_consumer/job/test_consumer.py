"""The consumer on real servers: Kafka, Spark, and a downstream of each flavor."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from compose.databases import Database
from compose.kafka import Kafka
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError, LogError
from schemas.structure import TableStructure
from schemas.wire.epoch import TableChanged
from schemas.wire.log_records import OTHER_VERSION
from schemas.wire.rows import LEAST_PART, PART
from spark_consumer.apply.workers import spark_pool
from spark_consumer.job.progress import Counters
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.route import Route
from tailrace.assemble.consumer import consumer
from tests.support.applying.consuming import consume as consume_here
from tests.support.epochs.fake_topic import FakeTopic, delete, insert, integer, text, update
from tests.support.names import own_name
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers

UUID = "00000000-0000-0000-0000-00000000cafe"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Prefix, channel and database of the test's own."""
    return own_name("c_", request)


@pytest.fixture
def topic(kafka: Kafka, name: str) -> FakeTopic:
    return FakeTopic(kafka.bootstrap, name)


@pytest.fixture
def config(kafka: Kafka, downstream: Database, name: str, tmp_path: Path) -> ConsumerConfig:
    return ConsumerConfig(
        kafka.bootstrap,
        name,
        ServerUrl.parse(downstream.url("tailrace")),
        channel=name,
        checkpoint_dir=tmp_path,
        until_caught_up=True,
        direct=False,
    )


@pytest.fixture
def consume(config: ConsumerConfig, spark: Any) -> Callable[..., Counters]:
    """Run the channel until it has caught up."""

    def run(**changes: Any) -> Counters:
        counters = Counters()
        consumer(replace(config, **changes), lambda: spark, counters).run(threading.Event())
        return counters

    return run


def keyed(db: str, table: str = "t", *more: Any) -> TableStructure:
    columns = (integer("id"), integer("v", nullable=True), text("s", nullable=True))
    return TableStructure(db, table, (*columns, *more), ("id",))


def made(topic: FakeTopic, db: str) -> TableStructure:
    """A database with the table t, by DDL."""
    topic.ddl(f"CREATE DATABASE {db}", "CREATE DATABASE")
    statement = f"CREATE TABLE {db}.t (id INT PRIMARY KEY, v INT, s VARCHAR(60), UNIQUE KEY (s))"
    topic.ddl(statement, "CREATE TABLE", TableChanged(db, "t"))
    return keyed(db)


def row(number: int, v: int | None = 0, s: str | None = None) -> dict[str, Any]:
    return {"id": number, "v": v, "s": s}


TWICE = {"a": 1, "s": None}


def without_key(topic: FakeTopic, db: str) -> TableStructure:
    """The table n, by DDL."""
    create = f"CREATE TABLE {db}.n (a INT, s VARCHAR(60))"
    topic.ddl(create, "CREATE TABLE", TableChanged(db, "n"))
    return TableStructure(db, "n", (integer("a"), text("s", nullable=True)), ())


def audited(downstream: Database, channel: str) -> tuple[Any, ...]:
    """Transactions, INSERTs, UPDATEs and DELETEs of the channel, and its last epoch."""
    [found] = downstream.execute(
        "SELECT SUM(transactions), SUM(inserts), SUM(updates), SUM(deletes), MAX(last_epoch)"
        f" FROM tailrace.applied_epochs WHERE channel = '{channel}'"
    )
    return tuple(found)


def test_rows_of_a_first_run_arrive(
    topic: FakeTopic, consume: Callable[..., Counters], downstream: Database, name: str
) -> None:
    t, no_key = made(topic, name), without_key(topic, name)
    topic.epoch(*(insert(t, row(i, i, f"it's {i}")) for i in range(500)))
    topic.epoch(insert(no_key, TWICE), insert(no_key, TWICE), delete(no_key, TWICE))
    # a key moves, and a unique value goes from one row to another
    topic.epoch(
        update(t, row(1, 1, "it's 1"), row(1001, 1, "it's 1")),
        delete(t, row(2, 2, "it's 2")),
        update(t, row(3, 3, "it's 3"), row(3, 3, "it's 2")),
    )
    counters = consume(max_batch_rows=400)
    assert (counters.epochs, counters.rows) == (7, 507)
    wanted = [
        (3, 3, "it's 2"),
        *((i, i, f"it's {i}") for i in (0, *range(4, 500))),
        (1001, 1, "it's 1"),
    ]
    assert downstream.execute(f"SELECT id, v, s FROM {name}.t ORDER BY id") == sorted(wanted)
    assert downstream.execute(f"SELECT * FROM {name}.n") == [(1, None)]
    # a key that moves counts as two updates
    assert audited(downstream, name) == (topic.transactions, 500 + 2, 2 + 1, 1 + 1, topic.next_epoch - 1)


def test_a_channel_survives_the_loss_of_each_part_of_its_checkpoint(
    topic: FakeTopic, consume: Callable[..., Counters], downstream: Database, name: str, tmp_path: Path
) -> None:
    t, no_key = made(topic, name), without_key(topic, name)
    topic.epoch(insert(no_key, TWICE))
    assert consume().rows == 1

    # without its checkpoint, the tracker knows the structures from the schemas topic
    shutil.rmtree(tmp_path / name / name / "spark")
    topic.epoch(insert(t, row(2000)), update(no_key, TWICE, {"a": 2, "s": "x"}))
    assert consume().rows == 2
    assert downstream.execute(f"SELECT * FROM {name}.n") == [(2, "x")]

    # without its last commit file, Spark repeats the batch, and the position leaves it out
    commits = tmp_path / name / name / "spark" / "commits"
    last = max((f for f in commits.iterdir() if f.name.isdigit()), key=lambda f: int(f.name))
    last.unlink()
    topic.epoch(insert(t, row(2001)))
    assert consume().rows == 1

    # a damaged one is set aside
    for file in (tmp_path / name / name / "spark" / "offsets").iterdir():
        file.write_text("v1\n{")
    topic.epoch(insert(t, row(2002)))
    assert consume().rows == 1
    assert list((tmp_path / name / name).glob("spark.aside-*"))

    # one whose state is gone, too, and the tracker's state is made anew
    for file in (tmp_path / name / name / "spark" / "state").rglob("*"):
        if file.is_file() and "metadata" not in file.parts:
            file.unlink()
    topic.epoch(insert(t, row(1999)))
    assert consume().rows == 1
    assert downstream.execute(f"SELECT id FROM {name}.t WHERE id = 1999") == [(1999,)]
    downstream.execute(f"DELETE FROM {name}.t WHERE id = 1999")

    # and so is another channel's
    (tmp_path / name / name / "owner.json").write_text('{"channel": "other"}')
    structure = keyed(name, "t", integer("w", nullable=True))
    topic.ddl(f"ALTER TABLE {name}.t ADD COLUMN w INT", "ALTER TABLE", TableChanged(name, "t"))
    topic.epoch(insert(structure, {**row(2003), "w": 5}))
    assert consume().ddl == 1
    found = downstream.execute(f"SELECT id, w FROM {name}.t WHERE id >= 2000 ORDER BY id")
    assert found == [(2000, None), (2001, None), (2002, None), (2003, 5)]

    assert audited(downstream, name) == (topic.transactions, 1 + 5, 1, 0, topic.next_epoch - 1)


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_a_log_that_is_not_whole_stops_the_channel_before_it_writes(
    kafka: Kafka, consume: Callable[..., Counters], downstream: Database, name: str
) -> None:
    def broken(kind: str, **fault: Any) -> None:
        prefix = f"{name}_{kind}"
        topic = FakeTopic(kafka.bootstrap, prefix)
        t = made(topic, prefix)
        topic.epoch(insert(t, row(1)))
        topic.epoch(insert(t, row(2)), spoil=lambda record: replace(record, **fault))
        with pytest.raises(LogError) as caught:
            consume(prefix=prefix, channel=prefix)
        errors[kind] = caught.value.code
        tables = downstream.execute(f"SHOW DATABASES LIKE '{prefix}'")
        applied[kind] = downstream.execute(f"SELECT id FROM {prefix}.t") if tables else None

    errors: dict[str, str] = {}
    applied: dict[str, Any] = {}
    broken("digest", digest=1)
    broken("count", rows=2)
    broken("gap", epoch=9)
    assert errors == {"digest": "TR554", "count": "TR554", "gap": "TR551"}
    # The gap shows before the epochs are read, so not even those in front of it are applied.
    assert applied == {"digest": [], "count": [], "gap": None}


def _with_value(change: Callable[[bytes], bytes | None]) -> dict[str, Any]:
    return {"spoil_row": lambda record: (record[0], change(record[1]), record[2])}


def _as_part(said: bytes) -> dict[str, Any]:
    return {"spoil_row": lambda record: (record[0], record[1] + bytes(LEAST_PART), [(PART, said)])}


_STRANGE_ROWS: dict[str, dict[str, Any]] = {
    "tombstone": _with_value(lambda value: None),
    "no key": {"spoil_row": lambda record: (None, *record[1:])},
    "garbage": _with_value(lambda value: b"garbage"),
    "unknown structure": _with_value(lambda value: value[:2] + bytes(8) + value[10:]),
    "cut": _with_value(lambda value: value[:14]),
    "no operation": _with_value(lambda value: value[:11] + b"x" + value[12:]),
    "part of a row": _as_part(b"1/2"),
    "forged parts": _as_part(b"99/-1"),
    "beyond the end": {
        "spoil": lambda e: replace(e, ranges=tuple(replace(r, end=r.end + 10**12) for r in e.ranges))
    },
    "no such partition": {"spoil": lambda e: replace(e, ranges=(replace(e.ranges[0], partition=99),))},
}


@pytest.mark.parametrize("flavor", ["mysql"])
def test_rows_that_are_none_stop_the_channel_at_their_place(
    kafka: Kafka, config: ConsumerConfig, downstream: Database, name: str
) -> None:
    for number, (kind, spoiling) in enumerate(_STRANGE_ROWS.items()):
        prefix = f"{name}_{number}"
        topic = FakeTopic(kafka.bootstrap, prefix, partitions=1)
        t = made(topic, prefix)
        topic.epoch(insert(t, row(1)))
        topic.epoch(insert(t, row(2)), **spoiling)
        with pytest.raises(LogError) as caught:
            consume_here(replace(config, prefix=prefix, channel=prefix))
        where = rf"(topic )?{prefix}\.rows, partition (0, offset 2|\d+, offsets \d+ to \d+)"
        assert caught.value.code == ("TR552" if kind == "unknown structure" else "TR568"), (
            kind,
            caught.value,
        )
        assert re.match(where, caught.value.message), (kind, caught.value)
        # Nothing of the batch is there, and what was whole can be applied up to the epoch before.
        assert downstream.execute(f"SELECT id FROM {prefix}.t") == [], kind


@pytest.mark.parametrize("flavor", ["mysql"])
def test_strange_records_stop_the_job_before_it_applies_anything(
    kafka: Kafka, consume: Callable[..., Counters], downstream: Database, name: str
) -> None:
    strange: dict[str, Callable[[FakeTopic, TableStructure], Any]] = {
        "epoch": lambda topic, t: topic.strange("epochs", b"garbage"),
        "version": lambda topic, t: topic.strange("epochs", b"\xc3\x01" + bytes(8)),
        "again": lambda topic, t: topic.epoch(
            insert(t, row(2)), spoil=lambda e: replace(e, epoch=e.epoch - 1, structures=())
        ),
        "row": lambda topic, t: topic.epoch(insert(t, row(2)), **_with_value(lambda value: value[:14])),
    }
    found = {}
    for kind, write in strange.items():
        prefix = f"{name}_{kind}"
        topic = FakeTopic(kafka.bootstrap, prefix, partitions=1)
        t = made(topic, prefix)
        write(topic, t)
        with pytest.raises(LogError) as caught:
            consume(prefix=prefix, channel=prefix)
        found[kind] = (
            f"{caught.value.code} {caught.value.message.removeprefix('topic ').removeprefix(prefix)}"
        )
        assert (caught.value.hint == OTHER_VERSION) == (kind == "version")
        there = downstream.execute(f"SHOW TABLES FROM {prefix}") if kind == "row" else ()
        assert list(there) == ([("t",)] if kind == "row" else []), kind
    assert found["epoch"].startswith("TR568 .epochs, partition 0, offset 6: the record")
    assert found["version"].startswith("TR568 .epochs, partition 0, offset 6: the record")
    assert found["again"].startswith("TR567 .epochs, partition 0, offset 6: epoch 2 cannot follow epoch 2")
    assert found["row"].startswith("TR568 .rows, partition 0, offset 0: the record")


@pytest.mark.parametrize("flavor", ["mysql"])
def test_a_structure_that_the_log_never_brought_stops_the_channel(
    topic: FakeTopic, consume: Callable[..., Counters], name: str
) -> None:
    t = made(topic, name)
    topic.epoch(insert(t, row(1)), spoil=lambda record: replace(record, structures=()))
    with pytest.raises(LogError, match="TR552: the schema tracker has no structure"):
        consume()


@pytest.mark.parametrize("flavor", ["mysql"])
def test_a_run_stops_exactly_behind_a_gtid_and_goes_on_from_there(
    topic: FakeTopic, consume: Callable[..., Counters], downstream: Database, name: str
) -> None:
    t = made(topic, name)
    for number in range(1, 4):
        topic.epoch(insert(t, row(number)), insert(t, row(number + 100)), transactions=2)
    consume(until_caught_up=False, stop_at_gtid=f"{UUID}:1-5")
    assert downstream.execute(f"SELECT id FROM {name}.t ORDER BY id") == [(1,), (2,), (101,)]
    consume(until_caught_up=False, stop_at_gtid=f"{UUID}:1-6")
    assert downstream.execute(f"SELECT id FROM {name}.t ORDER BY id") == [(1,), (2,), (101,), (102,)]
    assert consume(until=f"gtid:{UUID}:7").rows == 1
    assert consume().rows == 1
    audited = downstream.execute(
        "SELECT SUM(transactions), SUM(inserts) FROM tailrace.applied_epochs"
        f" WHERE channel = '{name}' AND executed_gtid_set <> ''"
    )
    assert [int(value) for value in audited[0]] == [8, 6]


@pytest.mark.parametrize("flavor", ["mysql"])
def test_a_channel_writes_change_files_instead(
    topic: FakeTopic, consume: Callable[..., Counters], name: str, tmp_path: Path
) -> None:
    t = made(topic, name)
    topic.epoch(*(insert(t, row(number, s="x" * 2000)) for number in range(3000)))
    topic.epoch(update(t, row(1, s="x" * 2000), row(5001)), transactions=1)
    changed = TableStructure(name, "t", (*t.columns, integer("w", nullable=True)), t.key)
    topic.ddl(f"ALTER TABLE {name}.t ADD COLUMN w INT", "ALTER TABLE", TableChanged(name, "t"))
    topic.epoch(insert(changed, {**row(7000), "w": 5}))
    folder = tmp_path / "lake"
    counters = consume(files=folder)
    assert (counters.rows, counters.ddl) == (3003, 3)
    files = sorted((folder / name / "t").iterdir())
    assert [pq.read_table(file).num_rows for file in files] == [3002, 1]
    rows = pq.read_table(files[0]).to_pylist()
    assert [r["seq"] for r in rows] == [*range(3000), 0, 1]
    assert [(r["op"], r["key_change"]) for r in rows[-2:]] == [("d", True), ("c", True)]
    assert pq.read_table(files[1]).to_pylist()[0]["after"] == {**row(7000), "w": 5}
    assert consume(files=folder).rows == 0


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_a_stopped_run_returns_and_a_fenced_one_says_so(
    topic: FakeTopic, config: ConsumerConfig, downstream: Database, name: str, spark: Any
) -> None:
    t = made(topic, name)
    topic.epoch(insert(t, row(1)))
    stop, counters, failures = threading.Event(), Counters(), []

    def endless() -> None:
        try:
            consumer(replace(config, until_caught_up=False), lambda: spark, counters).run(stop)
        except DownstreamError as error:
            failures.append(error.code)

    first = threading.Thread(target=endless)
    first.start()
    wait_until(lambda: counters.rows == 1, "the first row is applied")
    topic.epoch(insert(t, row(2)))
    wait_until(lambda: counters.rows == 2, "the second row is applied")
    stop.set()
    first.join(60)
    assert not first.is_alive()
    assert failures == []

    stop.clear()
    second = threading.Thread(target=endless)
    second.start()
    topic.epoch(insert(t, row(3)))
    wait_until(lambda: counters.rows == 3, "the third row is applied")
    downstream.execute(
        f"UPDATE tailrace.relay_log_info SET fencing_token = fencing_token + 1000 WHERE Channel_name = '{name}'"
    )
    topic.epoch(insert(t, row(4)))
    second.join(60)
    assert failures == ["TR610"]
    assert downstream.execute(f"SELECT id FROM {name}.t ORDER BY id") == [(1,), (2,), (3,)]


def test_cascades_that_the_log_does_not_hold_are_run_and_others_are_not(
    topic: FakeTopic, consume: Callable[..., Counters], downstream: Database, name: str
) -> None:
    parent = TableStructure(name, "p", (integer("id"),), ("id",))
    child = TableStructure(name, "c", (integer("id"), integer("p", nullable=True)), ("id",))
    topic.ddl(f"CREATE DATABASE {name}", "CREATE DATABASE")
    topic.ddl(f"CREATE TABLE {name}.p (id INT PRIMARY KEY)", "CREATE TABLE", TableChanged(name, "p"))
    foreign = f"FOREIGN KEY (p) REFERENCES {name}.p (id) ON DELETE CASCADE ON UPDATE CASCADE"
    statement = f"CREATE TABLE {name}.c (id INT PRIMARY KEY, p INT, {foreign})"
    topic.ddl(statement, "CREATE TABLE", TableChanged(name, "c"))
    family = [(number, 10 * number + n) for number in range(1, 5) for n in range(2)]
    topic.epoch(
        *(insert(parent, {"id": number}) for number in range(1, 5)),
        *(insert(child, {"id": number, "p": of}) for of, number in family),
    )
    topic.epoch(
        delete(parent, {"id": 1}),  # its children go, unlogged
        update(parent, {"id": 2}, {"id": 22}),  # its children follow, unlogged
        delete(parent, {"id": 3}, 0x02),  # without checks: its children stay
        # logged cascade: children first, then the parent, as MySQL 9.7 writes them
        delete(child, {"id": 40, "p": 4}, 0x12),
        delete(child, {"id": 41, "p": 4}, 0x12),
        delete(parent, {"id": 4}, 0x11),
        insert(child, {"id": 10, "p": 22}),
    )
    consume()
    assert downstream.execute(f"SELECT id FROM {name}.p") == [(22,)]
    found = downstream.execute(f"SELECT id, p FROM {name}.c ORDER BY id")
    assert found == [(10, 22), (20, 22), (21, 22), (30, 3), (31, 3)]


@pytest.mark.parametrize("flavor", ["mysql"])
def test_excluded_tables_are_verified_and_left_out(
    topic: FakeTopic, consume: Callable[..., Counters], downstream: Database, name: str
) -> None:
    t = made(topic, name)
    other = keyed(name, "other")
    topic.ddl(f"CREATE TABLE {name}.other (id INT)", "CREATE TABLE", TableChanged(name, "other"))
    topic.epoch(insert(t, row(1)), insert(other, row(1)))
    topic.ddl("GRANT ALL ON *.* TO x", "GRANT")
    counters = consume(exclude=(f"{name}.other",))
    assert (counters.rows, counters.epochs) == (2, 6)
    assert downstream.execute(f"SHOW TABLES FROM {name}") == [("t",)]


@pytest.mark.parametrize("flavor", ["mysql"])
def test_two_channels_of_one_topic_with_rules_of_their_own(
    topic: FakeTopic, consume: Callable[..., Counters], downstream: Database, name: str
) -> None:
    one, two = f"{name}_1", f"{name}_2"
    t = made(topic, name)
    topic.epoch(*(insert(t, row(number, number)) for number in range(8)))
    topic.epoch(delete(t, row(1, 1)), update(t, row(2, 2), row(22, 2)), update(t, row(3, 3), row(33, 9)))
    topic.ddl(f"ALTER TABLE {name}.t ADD COLUMN w INT", "ALTER TABLE", TableChanged(name, "t"))
    route = {"routes": (Route(name, one),)}
    rule = ExpressionRule(name, "t", "v >= 5", update_old_value_expr="v = 2", update_new_value_expr="id = 22")
    keep = EventRule(name, "Ignore", None, ("delete", "alter table"))
    first = consume(**route, expressions=(rule,), filters=(keep,))
    # Nothing of this epoch is left in the first channel, and its position moves over it all the same.
    topic.epoch(delete(t, row(4, 4)))
    second = consume(channel=f"{name}_b", routes=(Route(name, two),))
    again = consume(**route, expressions=(rule,), filters=(keep,))
    assert downstream.execute(f"SELECT id FROM {one}.t ORDER BY id") == [(0,), (1,), (2,), (4,), (33,)]
    assert downstream.execute(f"SELECT id FROM {two}.t ORDER BY id") == [(0,), (5,), (6,), (7,), (22,), (33,)]
    assert (first.row_counts.filtered, first.row_counts.expression_filtered) == (1, 5)
    assert (first.row_counts.routed, second.row_counts.routed) == (12, 14)
    assert (again.rows, again.statements, again.row_counts.filtered) == (1, 0, 1)
    positions = downstream.execute(
        f"SELECT epoch FROM tailrace.relay_log_info WHERE Channel_name LIKE '{name}%'"
    )
    assert positions == [(topic.next_epoch - 1,)] * 2


@pytest.mark.parametrize("flavor", ["mysql"])
def test_a_python_worker_killed_in_its_transaction_is_replaced_and_nothing_happens_twice(
    topic: FakeTopic,
    consume: Callable[..., Counters],
    downstream: Database,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As if there were cores for executors, and many statements.
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    monkeypatch.setattr(spark_pool, "_FEW_STATEMENTS", 0)
    t = made(topic, name)
    topic.epoch(*(insert(t, row(number, number, f"s{number}")) for number in range(300)))
    consume(consistency="worker", worker_count=3, direct=False)
    # Every third row takes the unique value of a row that goes.
    topic.epoch(
        *(delete(t, row(n + 1, n + 1, f"s{n + 1}")) for n in range(0, 300, 3)),
        *(update(t, row(n, n, f"s{n}"), row(n, n + 1, f"s{n + 1}")) for n in range(0, 300, 3)),
    )
    waiting = (
        "SELECT a.ATTR_VALUE FROM performance_schema.session_connect_attrs a"
        " JOIN performance_schema.processlist p ON p.ID = a.PROCESSLIST_ID"
        f" WHERE a.ATTR_NAME = '_pid' AND p.TIME > 0 AND p.INFO LIKE 'DELETE %FROM `{name}`%'"
    )
    failures: list[BaseException] = []
    counters: list[Counters] = []

    def run() -> None:
        try:
            counters.append(consume(consistency="worker", worker_count=3, direct=False))
        except BaseException as error:
            failures.append(error)

    consumer = threading.Thread(target=run)
    with downstream.connect() as holder, holder.cursor() as cursor:
        # One worker's part has to wait for a row; the others' are committed meanwhile.
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT id FROM {name}.t WHERE id = 150 FOR UPDATE")
        consumer.start()
        found: list[Any] = []

        def one_waits() -> bool:
            found[:] = downstream.execute(waiting)
            return bool(failures) or len(found) == 1

        wait_until(one_waits, "a worker waits for the row")
        assert not failures, failures
        [(pid,)] = found
        assert int(pid) != os.getpid()
        os.kill(int(pid), signal.SIGKILL)
        cursor.execute("ROLLBACK")
    consumer.join(120)
    assert not consumer.is_alive()
    assert not failures, failures
    wanted = [(n, n + 1, f"s{n + 1}") if n % 3 == 0 else (n, n, f"s{n}") for n in range(300) if n % 3 != 1]
    assert downstream.execute(f"SELECT id, v, s FROM {name}.t ORDER BY id") == wanted
    parts = downstream.execute(
        f"SELECT Id, parts, ahead FROM tailrace.worker_info WHERE Channel_name = '{name}' ORDER BY Id"
    )
    assert parts == [(number, 2, 0) for number in (1, 2, 3)]
