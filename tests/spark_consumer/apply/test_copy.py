"""Copies of tables in the log on real servers: in the end the upstream's rows, whatever changed and died meanwhile."""

from __future__ import annotations

import signal
from dataclasses import replace
from random import Random

import pytest

from compose.databases import Database
from schemas.access.server_url import ServerUrl
from spark_consumer.rules.config import ConsumerConfig
from tests.support.applying.copying import COPIED, Copier
from tests.support.applying.model import TABLES, Model
from tests.support.applying.parts import apply_in_child
from tests.support.names import own_name

pytestmark = pytest.mark.servers

CRASHES = ("ddl.before", "ddl.after", "apply.before_commit", "apply.after_commit", "worker.after_commit", "")


@pytest.fixture
def db(request: pytest.FixtureRequest, downstream: Database) -> str:
    """A database and channel of the test's own."""
    name = own_name("y_", request)
    downstream.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
    return name


@pytest.fixture
def config(downstream: Database, db: str) -> ConsumerConfig:
    return ConsumerConfig("", "p", ServerUrl.parse(downstream.url("tailrace")), channel=db, retry_time=5)


def create_tables(server: Database, db: str, *tables: str) -> None:
    server.execute(
        f"USE {db}",
        "SET foreign_key_checks = 0",
        *(f"CREATE TABLE {table} {TABLES[table]}" for table in tables),
    )


def check_rows(server: Database, copier: Copier) -> None:
    """Check that tables of which a copy runs have some of the upstream's rows, and the others all."""
    for table, rows in copier.states[copier.published].items():
        columns = [column.name for column in copier.model.structure(table).columns]
        wanted = sorted((tuple(row[name] for name in columns) for row in rows), key=repr)
        found = sorted(
            server.execute(f"SELECT {', '.join(columns)} FROM {copier.model.db}.{table}"), key=repr
        )
        if table in copier.running:
            assert set(found) <= set(wanted), table
        else:
            assert found == wanted, table


@pytest.mark.parametrize("seed", range(3))
def test_random_copies_end_equal_whatever_is_killed(
    downstream: Database, db: str, config: ConsumerConfig, seed: int
) -> None:
    random = Random(seed)
    model = Model(db, random)
    for _ in range(8):
        model.run(20)
    model.tables |= {"head": [], "tail": []}
    copier = Copier(model, random)
    create_tables(downstream, db, "head", "tail", *random.sample(COPIED, 3))
    for table in random.sample(COPIED, len(COPIED)):
        copier.begin(table, again=False)
    died = 0
    for _ in range(8):
        copier.some_steps(20)
        for crash in (random.choice(CRASHES), ""):
            now = replace(
                config,
                consistency=random.choice(("batch", "worker")),
                worker_count=random.choice((2, 4)),
                compact=random.random() < 0.7,
                max_batch_rows=random.choice((1, 10, 30, 1000)),
                statement_rows=random.choice((1, 3, 2000)),
            )
            code = apply_in_child(now, copier.log, crash)
            assert code == 0 or (crash and code == signal.SIGKILL), (crash, now)
            died += code == signal.SIGKILL
        check_rows(downstream, copier)
    copier.finish()
    assert apply_in_child(config, copier.log, "") == 0
    check_rows(downstream, copier)
    assert died >= 2
