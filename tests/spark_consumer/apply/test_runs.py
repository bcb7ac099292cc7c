"""Large transactions on real servers: their rows are applied run by run, and still all of them, or none, and once."""

from __future__ import annotations

import signal
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from schemas.errors import LogError
from schemas.structure import TableStructure
from spark_consumer.plan.refusal import EventRefused
from spark_consumer.rules.config import ConsumerConfig
from tests.support.applying.model import Model
from tests.support.applying.model_steps import assert_audited, assert_equal, create_tables, decide, refusal
from tests.support.applying.parts import MemoryLog, apply_in_child, apply_log
from tests.support.epochs.fake_topic import insert, integer
from tests.support.names import own_name

pytestmark = pytest.mark.servers
CRASHES = ("apply.after_run", "apply.after_run:3", "apply.before_commit", "apply.after_commit")


@pytest.fixture
def db(request: pytest.FixtureRequest, downstream: Database) -> str:
    """A database and channel of the test's own, with the model's tables."""
    return create_tables(downstream, own_name("r_", request))


@pytest.fixture
def config(downstream: Database, db: str) -> ConsumerConfig:
    return ConsumerConfig("", "p", ServerUrl.parse(downstream.url("tailrace")), channel=db)


def large(model: Model, log: MemoryLog, rows: int) -> None:
    """Log random changes as one transaction, in runs of so many rows."""
    log.run_rows = rows
    log.add(*model.run(300))
    assert len(log.logged[-1].record.runs) > 5


@pytest.mark.parametrize("seed", range(2))
def test_random_rows_are_applied_once_whatever_is_killed(
    downstream: Database, db: str, config: ConsumerConfig, seed: int
) -> None:
    random = Random(seed)
    model, log = Model(db, random), MemoryLog()
    died = 0
    for crash in CRASHES:
        large(model, log, random.randrange(3, 20))
        now = replace(
            config,
            compact=random.random() < 0.7,
            statement_rows=random.choice((1, 3, 2000)),
            consistency=random.choice(("batch", "worker")),
            worker_count=3,
        )
        code = apply_in_child(now, log, crash)
        assert code == 0 or code == signal.SIGKILL, (crash, now)
        died += code == signal.SIGKILL
        assert apply_in_child(now, log, "") == 0
        assert_equal(downstream, model)
        assert_audited(downstream, db, len(log.logged))
    assert died == len(CRASHES)


@pytest.mark.parametrize("compact", [True, False])
def test_a_refused_event_is_named_and_replaced(
    downstream: Database, db: str, config: ConsumerConfig, compact: bool
) -> None:
    random = Random(int(compact))
    model, log = Model(db, random), MemoryLog()
    now = replace(config, compact=compact)
    large(model, log, 7)
    apply_log(now, log)
    large(model, log, 11)
    before = downstream.execute(f"SELECT * FROM {db}.plain ORDER BY id")
    taken = random.choice([row["n"] for row in model.tables["uniques"] if row["n"] is not None])
    downstream.execute(
        f"DELETE FROM {db}.uniques WHERE n = {taken}",
        f"INSERT INTO {db}.uniques VALUES (9999, {taken}, NULL)",
    )
    seen: list[EventRefused] = []
    while (refused := refusal(now, log)) is not None:
        assert refused.event.epoch == 1
        assert refused.where.table == f"{db}.uniques"
        assert downstream.execute(f"SELECT * FROM {db}.plain ORDER BY id") == before
        seen.append(refused)
        decide(now, refused, f"DELETE FROM {db}.uniques WHERE id = 9999")
    downstream.execute(f"DELETE FROM {db}.uniques WHERE id = 9999")
    assert seen
    used = f"SELECT COUNT(*), COUNT(used_at) FROM tailrace.error_directives WHERE channel = '{db}'"
    assert downstream.execute(used) == [(len(seen), len(seen))]
    assert_audited(downstream, db, 2)


def test_only_a_few_runs_are_read_at_a_time_and_all_are_counted(
    downstream: Database, db: str, config: ConsumerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    structure = TableStructure(db, "plain", (integer("id"), integer("n")), ("id",))
    other = TableStructure(db, "parent", (integer("id"), integer("n")), ("id",))
    log = MemoryLog(run_rows=50)
    added = [insert(structure, {"id": n, "n": n}) for n in range(400)]
    left_out = [insert(other, {"id": n, "n": n}) for n in range(50)]
    log.add(*added, *left_out)
    read: list[int] = []
    written: list[str] = []
    results = log.results

    def reading(slice_: Any, work: Any, **more: Any) -> Any:
        read.append(slice_.rows)
        assert len(read) - len(written) <= 2
        return results(slice_, work, **more)

    monkeypatch.setattr(log, "results", reading)
    monkeypatch.setattr("spark_consumer.apply.applier.reached", written.append)
    [counts] = apply_log(replace(config, include=(f"{db}.plain",)), log)
    assert read == [50] * 9
    [(statements,)] = downstream.execute(
        f"SELECT statements FROM tailrace.applied_epochs WHERE channel = '{db}'"
    )
    assert statements >= 8
    assert (counts.filtered, counts.compacted, counts.merged) == (50, 0, 400 - statements)
    assert downstream.execute(f"SELECT COUNT(*) FROM {db}.plain") == [(400,)]


@pytest.mark.parametrize("change", [{"digest": 1}, {"rows": 7}])
def test_a_run_with_other_rows_leaves_nothing(
    downstream: Database, db: str, config: ConsumerConfig, change: dict[str, Any]
) -> None:
    structure = TableStructure(db, "plain", (integer("id"), integer("n")), ("id",))
    log = MemoryLog(run_rows=10)
    log.add(*(insert(structure, {"id": n, "n": n}) for n in range(30)))
    [logged] = log.logged
    *runs, last = logged.record.runs
    log.logged = [replace(logged, record=replace(logged.record, runs=(*runs, replace(last, **change))))]
    with pytest.raises(LogError, match="TR554"):
        apply_log(config, log)
    assert downstream.execute(f"SELECT COUNT(*) FROM {db}.plain") == [(0,)]
