"""A refused event is named, on the downstream too, and an operator's decision acts on it and on nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

from compose.databases import Database
from compose.kafka import Kafka
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from schemas.structure import TableStructure
from schemas.wire.epoch import TableChanged
from spark_consumer.apply.tables.channel_tables import forget
from spark_consumer.job.rewind import open_rewind
from spark_consumer.plan.refusal import EventRefused
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import closing, connect
from tailrace.commands.app import app
from tests.support.applying.consuming import consume
from tests.support.epochs.fake_topic import FakeTopic, delete, insert, integer, text, update
from tests.support.names import own_name

pytestmark = pytest.mark.servers


class Channel:
    """A topic, a channel that follows it, and `tailrace error` for it."""

    def __init__(self, kafka: Kafka, downstream: Database, name: str, folder: Path, workers: int) -> None:
        self.name, self.downstream = name, downstream
        self.topic = FakeTopic(kafka.bootstrap, name)
        url = downstream.url("tailrace")
        self.config = ConsumerConfig(
            kafka.bootstrap,
            name,
            ServerUrl.parse(url),
            channel=name,
            checkpoint_dir=folder,
            retry_time=30,
            consistency="worker",
            worker_count=workers,
        )
        self._file = folder / "tailrace.toml"
        self._file.write_text(
            f'[kafka]\nbootstrap-servers = "{kafka.bootstrap}"\nprefix = "{name}"\n'
            f'[target]\nurl = "{url}"\n[consumer]\nchannel = "{name}"\n'
        )
        columns = (integer("id"), integer("v", nullable=True), text("s", nullable=True))
        self.t = TableStructure(name, "t", columns, ("id",))
        self.topic.ddl(f"CREATE DATABASE {name}", "CREATE DATABASE")
        create = f"CREATE TABLE {name}.t (id INT PRIMARY KEY, v INT, s VARCHAR(60), UNIQUE KEY (s))"
        self.ddl(create, "CREATE TABLE")

    def ddl(self, statement: str, kind: str) -> None:
        self.topic.ddl(statement, kind, TableChanged(self.name, "t"))

    def consume(self) -> None:
        consume(self.config)

    def refused(self, code: str) -> EventRefused:
        with pytest.raises(DownstreamError) as caught:
            self.consume()
        assert caught.value.code == code, str(caught.value)
        assert isinstance(caught.value, EventRefused)
        return caught.value

    def error(self, *arguments: str) -> Any:
        """Run `tailrace error`; what it raised, or its JSON."""
        done = CliRunner().invoke(app, ["error", *arguments, "--config", str(self._file)])
        # It has made the log go into a stream of its own.
        structlog.reset_defaults()
        if done.exception and not isinstance(done.exception, SystemExit):
            return str(done.exception)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout) if "--json" in arguments else done.output

    def rows(self, columns: str = "id, v, s") -> list[tuple[Any, ...]]:
        return self.downstream.execute(f"SELECT {columns} FROM {self.name}.t ORDER BY id")

    def epoch(self) -> int:
        sql = f"SELECT epoch FROM tailrace.relay_log_info WHERE Channel_name = '{self.name}'"
        return int(self.downstream.execute(sql)[0][0])


@pytest.fixture
def workers() -> int:
    """1: one transaction writes a batch. Tests of which rows are concerned run with several workers, too."""
    return 1


both = pytest.mark.parametrize("workers", [1, 4])


@pytest.fixture
def channel(
    kafka: Kafka, downstream: Database, workers: int, request: pytest.FixtureRequest, tmp_path: Path
) -> Channel:
    name = own_name("e_", request)
    return Channel(kafka, downstream, name, tmp_path, workers)


def row(number: int, v: int | None = 0, s: str | None = None) -> dict[str, Any]:
    return {"id": number, "v": v, "s": s}


@both
def test_a_row_in_a_merged_statement_is_named_and_skipped_alone(channel: Channel, workers: int) -> None:
    it = channel
    it.consume()
    it.downstream.execute(f"INSERT INTO {it.name}.t VALUES (900, 0, 'taken')")
    it.topic.epoch(*(insert(it.t, row(i)) for i in range(50)))
    culprit = [insert(it.t, row(i, 7, "taken" if i == 63 else None)) for i in range(50, 80)]
    long = insert(it.t, row(80, 0, "x" * 60))
    it.topic.epoch(*culprit, long)
    it.topic.epoch(insert(it.t, row(100)))
    error = it.refused("TR604")
    assert str(error.event.id) == f"{it.topic.next_epoch - 2}:13"
    assert error.event.key == "`id`=63"
    assert error.where.table == f"{it.name}.t"
    assert error.where.gtid == f"{'0' * 8}-0000-0000-0000-00000000cafe:{it.topic.transactions - 1}"
    assert "VALUES (63,7,'taken')" in str(error)
    there = {i for (i,) in it.rows("id")}
    if workers == 1:
        # What comes before is applied, and nothing of its epoch is.
        assert there == {*range(50), 900}
    else:
        # Other workers have applied their parts.
        assert 63 not in there
        assert len(there) > 50
        assert "parts of this batch are applied" in error.applied

    shown = it.error("show", "--json")
    assert shown["error"]["event"]["name"] == str(error.event.id)
    assert (shown["error"]["code"], shown["directives"]) == ("TR604", [])
    assert str(error.event.id) in it.error("show")
    assert "TR644" in it.error("skip", "--event", f"{it.topic.next_epoch - 2}:14")
    it.error("skip", "--event", str(error.event.id))
    it.consume()
    assert [i for (i,) in it.rows("id")] == [*(i for i in range(81) if i != 63), 100, 900]
    shown = it.error("show", "--json")
    assert shown["error"] is None
    [directive] = shown["directives"]
    assert (directive["event"], directive["action"]) == (str(error.event.id), "skip")
    assert directive["used_at"]
    assert "VALUES (63,7,'taken')" in directive["refused"]
    assert "TR644" in it.error("skip")


@both
def test_leaving_an_insert_out_shows_what_hangs_on_it(channel: Channel) -> None:
    it = channel
    it.consume()
    it.downstream.execute(f"INSERT INTO {it.name}.t VALUES (1, 5, NULL)")
    it.topic.epoch(
        insert(it.t, row(1, 1)),
        insert(it.t, row(2, 2)),
        update(it.t, row(1, 1), row(1, 3)),
        insert(it.t, row(5)),
    )
    # a key that moves is two records and one event
    it.topic.epoch(update(it.t, row(2, 2), row(2, 3)), update(it.t, row(50), row(51)))
    first = it.refused("TR604")
    assert first.event.seq == 0
    it.error("skip")
    it.downstream.execute(f"DELETE FROM {it.name}.t WHERE id = 1")
    second = it.refused("TR603")
    assert (second.event.seq, second.event.epoch) == (2, first.event.epoch)
    instead = f"INSERT INTO {it.name}.t (id, v) VALUES (4, 44), (6, 66)"
    it.error("replace", "--sql", instead, "--sql", f"UPDATE {it.name}.t SET v = v + 1 WHERE id IN (4, 6)")
    third = it.refused("TR603")
    assert (third.event.seq, third.event.epoch, third.event.key) == (1, first.event.epoch + 1, "`id`=50")
    # What comes before the epoch is through, if several workers have not begun both as one slice.
    assert (4, 45) in it.rows("id, v") or it.config.workers > 1
    it.error("skip")
    it.consume()
    assert it.rows("id, v") == [(2, 3), (4, 45), (5, 0), (6, 67)]


@both
@pytest.mark.parametrize("lost", ["apply.before_commit", "apply.after_commit"])
def test_a_replacement_runs_once(channel: Channel, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    it = channel
    it.consume()
    it.downstream.execute(f"INSERT INTO {it.name}.t VALUES (1, 5, NULL)")
    # What several workers write of it is there before.
    others = [row(number, None) for number in range(11, 20)]
    it.topic.epoch(insert(it.t, row(1, 1)), *(insert(it.t, one) for one in others))
    it.refused("TR604")
    for statement in (f"TRUNCATE TABLE {it.name}.t", "COMMIT", "CALL x.y()", f"SELECT * FROM {it.name}.t"):
        assert "TR643" in it.error("replace", "--sql", statement)
    it.error("replace", "--sql", f"UPDATE {it.name}.t SET v = v + 1")
    passed: list[str] = []

    def reached(point: str) -> None:
        passed.append(point)
        if passed == [*passed[:-1], lost] and passed.count(lost) == 1:
            raise ConnectionResetError("lost")

    monkeypatch.setattr("spark_consumer.apply.applier.reached", reached)
    it.consume()
    assert passed.count(lost) >= 1
    assert it.rows() == [(1, 6, None), *(tuple(one.values()) for one in others)]
    assert it.epoch() == it.topic.next_epoch - 1


def test_a_refused_ddl_is_skipped_or_replaced_once(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    it = channel
    it.topic.epoch(insert(it.t, row(1, 1)))
    it.ddl(f"ALTER TABLE {it.name}.t DROP COLUMN nowhere", "ALTER TABLE")
    it.ddl(f"ALTER TABLE {it.name}.t ADD COLUMN s INT", "ALTER TABLE")
    it.topic.epoch(insert(it.t, row(2, 2)))
    first = it.refused("TR620")
    assert str(first.event.id) == f"{it.topic.next_epoch - 3}:ddl"
    it.error("skip")
    second = it.refused("TR620")
    assert str(second.event.id) == f"{it.topic.next_epoch - 2}:ddl"
    more = f"ALTER TABLE {it.name}.t ADD COLUMN w INT DEFAULT 7", f"ALTER TABLE {it.name}.t ADD KEY (w)"
    dml = f"UPDATE {it.name}.t SET v = v + 10"
    assert "TR643" in it.error("replace", "--sql", dml, "--sql", more[0])
    it.error("replace", "--sql", more[0], "--sql", more[1], "--sql", dml)
    lost: list[str] = []

    def reached(point: str) -> None:
        # behind the first DDL, then behind the second, then around the COMMIT
        if point in ("ddl.after", "apply.before_commit", "apply.after_commit") and len(lost) < 4:
            lost.append(point)
            raise ConnectionResetError("lost")

    monkeypatch.setattr("spark_consumer.apply.applier.reached", reached)
    monkeypatch.setattr("spark_consumer.apply.ddl.run.reached", reached)
    it.consume()
    assert lost[:3] == ["ddl.after", "ddl.after", "apply.before_commit"]
    assert it.rows("id, v, w") == [(1, 11, 7), (2, 2, 7)]
    keys = it.downstream.execute(f"SHOW KEYS FROM {it.name}.t WHERE Column_name = 'w'")
    assert len(keys) == 1
    used = [(one["action"], bool(one["used_at"])) for one in it.error("show", "--json")["directives"]]
    assert used == [("skip", True), ("replace", True)]


@pytest.mark.parametrize("flavor", ["mysql"])
def test_a_directive_for_another_log_is_refused(channel: Channel) -> None:
    it = channel
    it.consume()
    it.downstream.execute(f"INSERT INTO {it.name}.t VALUES (1, 5, NULL)")
    it.topic.epoch(insert(it.t, row(1, 1)))
    it.refused("TR604")
    it.error("skip")
    it.downstream.execute(f"UPDATE tailrace.error_directives SET digest = 1 WHERE channel = '{it.name}'")
    assert it.refused("TR642").event.seq == 0
    assert it.rows() == [(1, 5, None)]
    it.error("skip")
    it.consume()
    assert it.epoch() == it.topic.next_epoch - 1


def rewound(it: Channel, to: str, until: str | None = None, **settings: Any) -> list[str]:
    """Move the channel back and let it apply the stretch again; what the rewind said."""
    with open_rewind(it.config, to) as about:
        said = about.describe()
        about.execute()
    consume(replace(it.config, until=until, **settings))
    if until is not None:
        it.consume()
    return said


def refused_rows(it: Channel) -> int:
    """Three epochs with rows that the downstream refuses; the number of the first."""
    begin = it.topic.next_epoch
    it.topic.epoch(*(insert(it.t, row(i)) for i in range(10)))
    # Of a key whose first change is left out there are others in the same epoch, and in the same batch.
    it.topic.epoch(
        insert(it.t, row(20, 1, "taken")),
        insert(it.t, row(21, 1, "a")),
        update(it.t, row(21, 1, "a"), row(21, 2, "a")),
        insert(it.t, row(22, 1, "also")),
        update(it.t, row(22, 1, "also"), row(22, 5, "also")),
        delete(it.t, row(3)),
        insert(it.t, row(23, 3, "z")),
        transactions=7,
    )
    it.topic.epoch(update(it.t, row(21, 2, "a"), row(21, 3, "d")), insert(it.t, row(24, 0, "b")))
    return begin


def decide_about_each(it: Channel) -> list[Any]:
    """Leave a row out, and replace two events by other statements; the table's rows when all is applied."""
    assert it.refused("TR604").event.key == "`id`=20"
    it.error("skip")
    assert it.refused("TR604").event.key == "`id`=22"
    instead = (
        f"INSERT INTO {it.name}.t (v, id) VALUES (-7, 22)",
        f"UPDATE {it.name}.t SET v = 70 WHERE id IN (0, 1)",
        f"REPLACE INTO {it.name}.other VALUES (1, 1)",
        f"DELETE FROM {it.name}.t WHERE v = 0 AND id BETWEEN 4 AND 5",
    )
    it.error("replace", *(word for sql in instead for word in ("--sql", sql)))
    assert it.refused("TR604").event.seq == 4
    it.error("replace", "--sql", f"UPDATE {it.name}.t SET v = 5 WHERE id = 22")
    it.consume()
    after = it.rows()
    assert (22, 5, None) in after
    assert {(0, 70, None), (1, 70, None), (900, 0, "taken")} < set(after)
    assert not {3, 4, 5, 20} & {i for i, _, _ in after}
    return after


@both
def test_a_rewind_keeps_what_was_decided_about_rows(
    channel: Channel, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has changed rows, so they are made as they were; what was decided stays decided."""
    it = channel
    # as a large transaction, which several tasks divide among themselves
    monkeypatch.setattr("spark_consumer.rows.reader._TASK_ROWS", 2)
    it.consume()
    it.downstream.execute(
        f"CREATE TABLE {it.name}.other (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {it.name}.t VALUES (900, 0, 'taken'), (901, 0, 'also')",
    )
    begin = refused_rows(it)
    after = decide_about_each(it)
    of_the_last = [(i, -1, None) if 6 <= i <= 9 else (i, v, s) for i, v, s in after]
    gtids = f"gtid:{'0' * 8}-0000-0000-0000-00000000cafe:1-"
    for to, until, decisions, expected in (
        (f"epoch:{begin}", None, 3, after),
        (f"{gtids}{it.topic.transactions - 5}", None, 2, of_the_last),
        (f"epoch:{begin}", f"{gtids}{it.topic.transactions - 4}", 3, after),
    ):
        it.downstream.execute(f"UPDATE {it.name}.t SET v = -1, s = NULL WHERE id BETWEEN 6 AND 24")
        said = rewound(it, to, until)
        assert sum("tailrace error" in one for one in said) == decisions
        assert it.rows() == expected, (to, until)
    assert it.downstream.execute(f"SELECT * FROM {it.name}.other") == [(1, 1)]
    assert len(it.error("show", "--json")["directives"]) == 3


def test_a_row_gives_way_to_one_of_the_future_only_where_nobody_has_decided(channel: Channel) -> None:
    """Row 7 would have got another value by the event that is left out, so it is none of the future."""
    it = channel
    it.consume()
    begin = it.topic.next_epoch
    it.topic.epoch(insert(it.t, row(7, 7, "x")), insert(it.t, row(8, 8, "y")))
    # A value that moves from row to row, and a transaction of which a whole batch leaves nothing.
    it.topic.epoch(update(it.t, row(8, 8, "y"), row(8, 8, "z")), insert(it.t, row(9, 9, "y")))
    passing = insert(it.t, row(30, 1, "x")), delete(it.t, row(30, 1, "x"))
    it.consume()
    rewound(it, f"epoch:{begin}")
    assert it.rows() == [(7, 7, "x"), (8, 8, "z"), (9, 9, "y")]
    it.downstream.execute(f"INSERT INTO {it.name}.t VALUES (900, 0, 'taken')")
    decided = it.topic.next_epoch
    it.topic.epoch(update(it.t, row(7, 7, "x"), row(7, 8, "taken")))
    it.refused("TR604")
    it.error("skip")
    it.consume()
    it.topic.epoch(passing[0])
    it.topic.epoch(passing[1])
    it.consume()
    after = it.rows()
    assert (7, 7, "x") in after
    with pytest.raises(EventRefused, match=rf"TR604.*'x' for key.*event {decided + 1}:0"):
        rewound(it, f"epoch:{decided + 1}", max_batch_rows=1)
    assert it.rows() == after
    it.consume()
    assert it.rows() == after


def test_a_rewind_over_a_ddl_that_was_left_out(channel: Channel) -> None:
    it = channel
    it.consume()
    begin = it.topic.next_epoch
    it.topic.epoch(insert(it.t, row(1, 1)))
    it.ddl(f"ALTER TABLE {it.name}.t DROP COLUMN nowhere", "ALTER TABLE")
    it.topic.epoch(insert(it.t, row(2, 2)))
    it.refused("TR620")
    it.error("skip")
    it.consume()
    it.downstream.execute(f"DELETE FROM {it.name}.t")
    said = rewound(it, f"epoch:{begin}")
    assert any(f"event {begin + 1}:ddl holds again: left out" in one for one in said)
    assert it.rows("id, v") == [(1, 1), (2, 2)]
    # What has run instead of one cannot run again.
    it.ddl(f"ALTER TABLE {it.name}.t DROP COLUMN nowhere", "ALTER TABLE")
    it.refused("TR620")
    it.error("replace", "--sql", f"ALTER TABLE {it.name}.t ADD KEY (v)")
    it.consume()
    with pytest.raises(
        DownstreamError, match=rf"TR576.*the earliest possible position is epoch:{begin + 4};"
    ):
        rewound(it, f"epoch:{begin}")


@pytest.mark.parametrize("flavor", ["mysql"])
def test_a_rewind_over_what_cannot_run_twice_is_refused(channel: Channel) -> None:
    it = channel
    it.consume()
    it.downstream.execute(
        f"CREATE TABLE {it.name}.heap (v INT)",
        f"CREATE TABLE {it.name}.numbered (id INT AUTO_INCREMENT PRIMARY KEY, v INT)",
        f"CREATE TABLE {it.name}.watched (id INT PRIMARY KEY)",
        f"CREATE TRIGGER {it.name}.watches AFTER INSERT ON {it.name}.watched FOR EACH ROW DO 0",
        f"INSERT INTO {it.name}.t VALUES (900, 0, 'taken')",
    )
    for statement, reason in (
        ("UPDATE {0}.t SET v = v + 1 WHERE id = 900", "only these can: UPDATE"),
        ("INSERT INTO {0}.heap VALUES (1)", "no value in a unique key"),
        ("INSERT INTO {0}.numbered (v) VALUES (1)", "no value in a unique key"),
        ("INSERT INTO {0}.watched VALUES (1)", "its table has triggers"),
    ):
        begin = it.topic.next_epoch
        it.topic.epoch(insert(it.t, row(begin, 1, "taken")))
        it.refused("TR604")
        it.error("replace", "--sql", statement.format(it.name))
        it.consume()
        with pytest.raises(DownstreamError, match=rf"TR578.*event {begin}:0.*{reason}.*epoch:{begin + 1};"):
            rewound(it, f"epoch:{begin}")
    assert it.rows("id, v") == [(900, 1)]


def test_a_decision_is_of_its_channel_and_the_last_one_holds(channel: Channel) -> None:
    it = channel
    it.consume()
    it.downstream.execute(f"INSERT INTO {it.name}.t VALUES (900, 0, 'taken')")
    begin = it.topic.next_epoch
    it.topic.epoch(insert(it.t, row(1, 1, "taken")), insert(it.t, row(2, 2)))
    it.refused("TR604")
    it.error("replace", "--sql", f"UPDATE {it.name}.t SET s = 'mine' WHERE id = 900")
    it.consume()
    it.downstream.execute(f"INSERT INTO {it.name}.t VALUES (901, 0, 'other')")
    # What ran once is refused now, so it is decided about anew.
    it.downstream.execute(f"UPDATE {it.name}.t SET s = IF(id = 900, 'x', 'mine') WHERE id >= 900")
    with pytest.raises(DownstreamError, match=r"TR604.*'mine'"):
        rewound(it, f"epoch:{begin}")
    it.error("skip")
    it.consume()
    assert it.rows() == [(2, 2, None), (900, 0, "x"), (901, 0, "mine")]
    it.downstream.execute(f"DELETE FROM {it.name}.t WHERE id = 2")
    said = rewound(it, f"epoch:{begin}")
    assert "left out" in said[-1]
    assert it.rows() == [(2, 2, None), (900, 0, "x"), (901, 0, "mine")]
    shown = it.error("show", "--json")["directives"]
    assert [(one["action"], bool(one["used_at"])) for one in shown] == [("replace", True), ("skip", True)]
    # A channel that begins anew knows of no decision.
    with closing(connect(it.config.target)) as session:
        forget(session, it.config.key)
    it.downstream.execute(f"DELETE FROM {it.name}.t")
    consume(replace(it.config, start=f"epoch:{begin}"))
    assert it.rows() == [(1, 1, "taken"), (2, 2, None)]
    assert it.error("show", "--json")["directives"] == []
