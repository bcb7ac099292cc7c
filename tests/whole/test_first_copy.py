"""From a server with tables to a downstream with the same rows: a log that begins with a copy, while clients write.

The consumer runs without Spark. `tests/producer/copy` tests the log itself, `tests/spark_consumer/apply/test_copy.py`
how a copy is applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from producer.settings import CopySettings
from schemas.access.server_url import ServerUrl
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.rules.route import Route
from tests.support.applying.consuming import consume
from tests.support.epochs.producer_case import Case, producer_case
from tests.support.epochs.written_tables import TABLES, fill, writing

pytestmark = pytest.mark.servers

MODES: dict[str, dict[str, Any]] = {
    "batch": {},
    "workers": {"consistency": "worker"},
    "ordered": {"compact": False},
}


@pytest.fixture(scope="module", params=["mysql", "mariadb"])
def log(
    request: pytest.FixtureRequest, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    upstream = request.getfixturevalue(f"upstream_{request.param}")
    folder = tmp_path_factory.mktemp("first_copy")
    with producer_case(upstream, kafka.bootstrap, folder, start="copy") as made:
        fill(made)
        with writing(made, 5):
            made.catch_up(copy=CopySettings(chunk_rows=100))
        made.catch_up()
        yield made


@pytest.mark.parametrize("flavor", ["mysql", "mariadb"])
@pytest.mark.parametrize("mode", MODES)
def test_the_downstream_has_the_upstreams_rows(
    log: Case, downstream: Database, mode: str, tmp_path: Path
) -> None:
    name = f"{log.db}_{mode}"
    downstream.execute(f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    config = ConsumerConfig(
        log.config.bootstrap_servers,
        log.config.prefix,
        ServerUrl.parse(downstream.url("tailrace")),
        channel=name,
        checkpoint_dir=tmp_path,
        routes=(Route(log.db, name),),
        max_batch_rows=300,
    )
    consume(replace(config, **MODES[mode]))
    for table in TABLES:
        assert sorted(downstream.execute(f"SELECT * FROM {name}.{table}")) == sorted(
            log.sql(f"SELECT * FROM {table}")
        )
    downstream.execute(f"DROP DATABASE {name}")
