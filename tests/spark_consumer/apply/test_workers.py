"""Several workers on real servers: the same rows as upstream, once, whatever is killed and whatever is set anew."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from schemas.structure import TableStructure
from spark_consumer.apply.workers.apply_part import run_parts
from spark_consumer.plan.refusal import EventRefused
from spark_consumer.rules.config import ConsumerConfig
from tests.support.applying.model import Model
from tests.support.applying.model_steps import assert_audited, assert_equal, create_tables, decide, refusal
from tests.support.applying.parts import MemoryLog, apply_in_child, apply_log
from tests.support.epochs.fake_topic import delete, insert, integer, text, update
from tests.support.names import own_name

pytestmark = pytest.mark.servers
Start = Callable[..., ConsumerConfig]


@pytest.fixture
def db(request: pytest.FixtureRequest, downstream: Database) -> str:
    """A database and channel of the test's own, with the model's tables."""
    return create_tables(downstream, own_name("w_", request))


@pytest.fixture
def config(downstream: Database, db: str) -> ConsumerConfig:
    url = ServerUrl.parse(downstream.url("tailrace"))
    return ConsumerConfig("", "p", url, channel=db, consistency="worker", worker_count=4, max_batch_rows=60)


CRASHES = (
    "worker.before_commit:2",
    "worker.after_commit",
    "worker.after_commit:2",
    "apply.before_commit",
    "apply.after_commit",
)


@pytest.mark.parametrize("seed", range(2))
def test_random_rows_are_applied_once_whatever_is_killed(
    downstream: Database, db: str, config: ConsumerConfig, seed: int
) -> None:
    random = Random(seed)
    model, log = Model(db, random), MemoryLog()
    died = 0
    for round_ in range(5):
        for _ in range(random.randrange(2, 5)):
            log.add(*model.run(random.randrange(10, 40)))
        # The settings are other ones each time, also while a slice is applied in part.
        for crash in (CRASHES[round_], random.choice(CRASHES), ""):
            now = replace(
                config,
                worker_count=random.choice((2, 4, 7)) if crash else random.choice((1, 3)),
                compact=random.random() < 0.7,
                max_batch_rows=random.choice((30, 1000)),
                statement_rows=random.choice((1, 3, 2000)),
                causality=random.choice(("rows", "rows", "tables")),
            )
            code = apply_in_child(now, log, crash)
            assert code == 0 or (crash and code == signal.SIGKILL), (crash, now)
            died += code == signal.SIGKILL
        assert_equal(downstream, model)
        assert_audited(downstream, db, len(log.logged))
    assert died >= 4


@pytest.mark.parametrize("compact", [True, False])
def test_refused_events_are_replaced_once_whatever_is_killed(
    downstream: Database, db: str, config: ConsumerConfig, compact: bool
) -> None:
    """A row of nobody's is in the way; an operator has it removed and the statement run, event by event."""
    random = Random(int(compact))
    model, log = Model(db, random), MemoryLog()
    downstream.execute(f"CREATE TABLE {db}.decided (n INT)", f"INSERT INTO {db}.decided VALUES (0)")
    decided = died = 0
    for round_ in range(4):
        for _ in range(4):
            log.add(*model.run(40))
        taken = random.choice([row["n"] for row in model.tables["uniques"] if row["n"] is not None])
        downstream.execute(f"INSERT IGNORE INTO {db}.uniques VALUES (9999, {taken}, NULL)")
        now = replace(config, compact=compact, max_batch_rows=random.choice((60, 1000)))
        died += apply_in_child(now, log, CRASHES[round_]) == signal.SIGKILL
        while (refused := refusal(now, log)) is not None:
            assert refused.where.table == f"{db}.uniques"
            assert refused.where.gtid == "g"
            decided += 1
            decide(
                now,
                refused,
                f"DELETE FROM {db}.uniques WHERE id = 9999",
                f"UPDATE {db}.decided SET n = n + 1",
            )
            died += apply_in_child(now, log, random.choice(CRASHES)) == signal.SIGKILL
        downstream.execute(f"DELETE FROM {db}.uniques WHERE id = 9999")
        assert_equal(downstream, model)
        assert_audited(downstream, db, len(log.logged))
    used = f"SELECT COUNT(*), COUNT(used_at) FROM tailrace.error_directives WHERE channel = '{db}'"
    assert downstream.execute(used) == [(decided, decided)]
    assert downstream.execute(f"SELECT n FROM {db}.decided") == [(decided,)]
    assert decided >= 2
    assert died >= 3


def test_a_refused_statement_stops_and_the_rest_is_applied_once_it_is_possible(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    model, log = Model(db, Random(1)), MemoryLog()
    structure = model.structure("uniques")
    log.add(*(insert(structure, {"id": n, "n": n, "s": None}) for n in range(40)))
    downstream.execute(f"INSERT INTO {db}.uniques VALUES (99, 17, NULL)")
    with pytest.raises(
        EventRefused,
        match=r"TR604.*Duplicate entry.*`id`=17.*some of the 4 parts of this batch are applied",
    ) as caught:
        apply_log(config, log)
    assert (caught.value.event.epoch, caught.value.event.seq) == (0, 17)
    [(before,)] = downstream.execute(f"SELECT COUNT(*) FROM {db}.uniques")
    assert before == 31
    with pytest.raises(EventRefused, match="TR604") as again:
        apply_log(replace(config, worker_count=1), log)
    assert again.value.event == caught.value.event
    downstream.execute(f"DELETE FROM {db}.uniques WHERE id = 99")
    apply_log(replace(config, worker_count=1), log)
    assert downstream.execute(f"SELECT COUNT(*), COUNT(DISTINCT n) FROM {db}.uniques") == [(40, 40)]
    assert_audited(downstream, db, 1)


def test_a_worker_of_a_fenced_consumer_writes_nothing(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    log = MemoryLog()
    structure = Model(db, Random(1)).structure("uniques")
    log.add(*(insert(structure, {"id": n, "n": n, "s": None}) for n in range(40)))

    def fenced(order: Any, parts: Any) -> Any:
        done = list(run_parts(order, parts[:2]))
        downstream.execute(
            f"UPDATE tailrace.relay_log_info SET fencing_token = fencing_token + 1000 WHERE Channel_name = '{db}'"
        )
        return done + list(run_parts(order, parts[2:]))

    with pytest.raises(DownstreamError, match="TR610"):
        apply_log(config, log, fenced)
    assert downstream.execute(f"SELECT COUNT(*) FROM {db}.uniques") == [(20,)]
    apply_log(config, log)
    assert downstream.execute(f"SELECT COUNT(*) FROM {db}.uniques") == [(40,)]
    assert_audited(downstream, db, 1)


def test_a_lost_worker_is_replaced_while_it_may_still_be_at_work(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    log = MemoryLog()
    structure = Model(db, Random(1)).structure("uniques")
    log.add(*(insert(structure, {"id": n, "n": n, "s": None}) for n in range(40)))
    late: list[Any] = []

    def losing(order: Any, parts: Any) -> Any:
        if not late:
            late.append((order, parts[1:]))
            list(run_parts(order, parts[:1]))
            raise RuntimeError("Python worker exited unexpectedly")
        # Whoever was lost goes on, and has an old token.
        codes = {outcome.error.code for outcome in run_parts(*late[0]) if outcome.error}
        assert codes == {"TR610"}
        return list(run_parts(order, parts))

    [made] = apply_log(config, log, losing)
    assert (made.parts, made.causality_groups, made.conflicts) == (4, 40, 0)
    assert downstream.execute(f"SELECT COUNT(*) FROM {db}.uniques") == [(40,)]
    workers = downstream.execute(
        f"SELECT Id, parts, rows_written FROM tailrace.worker_info WHERE Channel_name = '{db}' ORDER BY Id"
    )
    assert workers == [(number, 1, 10) for number in range(1, 5)]
    assert_audited(downstream, db, 1)


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_rows_without_other_unique_values_are_shared_by_their_keys(
    downstream: Database, db: str, config: ConsumerConfig, workers: int
) -> None:
    """Whatever the number of partitions; a crash between the parts leaves the rest to the next start."""
    log, structure = MemoryLog(), Model(db, Random(1)).structure("plain")
    now = replace(config, worker_count=workers, max_batch_rows=1000)
    log.add(*(insert(structure, {"id": n, "n": n, "s": "a"}) for n in range(90)))
    [made] = apply_log(now, log)
    assert (made.parts, made.causality_groups, made.conflicts) == (workers, 90, 0)
    log.add(
        *(update(structure, {"id": n, "n": n, "s": "a"}, {"id": n, "n": -n, "s": "b"}) for n in range(60))
    )
    log.add(*(delete(structure, {"id": n, "n": n, "s": "a"}) for n in range(60, 90)))
    assert apply_in_child(now, log, "worker.after_commit") == signal.SIGKILL
    [(ahead,)] = downstream.execute(
        f"SELECT COUNT(*) FROM tailrace.worker_info WHERE Channel_name = '{db}' AND ahead = 1"
    )
    assert ahead >= 1
    apply_log(replace(now, consistency="batch"), log)
    found = downstream.execute(f"SELECT id, n, s FROM {db}.plain ORDER BY id")
    assert found == [(n, -n, "b") for n in range(60)]
    assert_audited(downstream, db, 3)


def test_a_part_that_is_repeated_behind_its_commit_is_left_out(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    log = MemoryLog()
    structure = Model(db, Random(1)).structure("uniques")
    log.add(*(insert(structure, {"id": n, "n": n, "s": None}) for n in range(40)))

    def twice(order: Any, parts: Any) -> Any:
        list(run_parts(order, parts[:3]))
        return list(run_parts(order, parts))

    apply_log(config, log, twice)
    assert downstream.execute(f"SELECT COUNT(*) FROM {db}.uniques") == [(40,)]
    assert_audited(downstream, db, 1)


def test_the_servers_weights_keep_together_what_it_takes_for_equal(
    downstream: Database, db: str, config: ConsumerConfig
) -> None:
    collations = {"mysql": "utf8mb4_0900_ai_ci", "mariadb": "utf8mb4_uca1400_ai_ci"}
    downstream.execute(
        f"CREATE TABLE {db}.words (id INT PRIMARY KEY, s VARCHAR(60) COLLATE {collations[downstream.flavor]},"
        " t VARCHAR(60) COLLATE utf8mb4_lithuanian_ci, UNIQUE KEY (s), UNIQUE KEY (t))"
    )
    words = TableStructure(
        db, "words", (integer("id"), text("s", nullable=True), text("t", nullable=True)), ("id",)
    )
    log = MemoryLog()
    rows: list[dict[str, Any]] = [{"id": n, "s": f"café{n}", "t": None} for n in range(20)]
    rows += [{"id": n, "s": None, "t": f"{n}i"} for n in range(20, 40)]
    log.add(*(insert(words, row) for row in rows))
    # In one batch each word goes to another row, in another spelling of the same.
    moved = [
        {
            **row,
            "id": row["id"] + 100,
            "s": row["s"] and f"CAFE{row['id']}",
            "t": row["t"] and f"{row['id']}Y",
        }
        for row in rows
    ]
    log.add(
        *(delete(words, row) for row in rows),
        *(insert(words, row) for row in moved),
    )
    made = apply_log(replace(config, max_batch_rows=40), log)
    assert [one.causality_groups for one in made] == [40, 40]
    assert made[1].conflicts == 40
    assert made[1].parts == 4
    found = downstream.execute(f"SELECT id, s, t FROM {db}.words ORDER BY id")
    assert found == [(row["id"], row["s"], row["t"]) for row in moved]
