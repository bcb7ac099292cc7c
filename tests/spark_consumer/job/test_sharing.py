"""Executors get rows where that pays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.access.server_url import ServerUrl
from spark_consumer.job import run
from spark_consumer.rules.config import ConsumerConfig

CONFIG = ConsumerConfig("", "p", ServerUrl.parse("mysql://u@h/"), channel="c")
WORKERS = replace(CONFIG, consistency="worker", worker_count=4)
FILES = replace(CONFIG, files=Path("/files"))


@pytest.mark.parametrize(
    ("config", "master", "cores", "shared"),
    [
        (CONFIG, None, 16, False),
        (WORKERS, None, 3, False),
        (WORKERS, None, 4, True),
        (WORKERS, "local[2]", 2, False),
        (FILES, None, 2, False),
        (FILES, "local[*,4]", 4, True),
        (CONFIG, "spark://127.0.0.1:7077", 1, True),
    ],
)
def test_who_reads_rows(
    config: ConsumerConfig, master: str | None, cores: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []
    config = replace(config, spark_conf={"spark.master": master} if master else {})
    queries: Any = SimpleNamespace(_use_executors=used.append, _config=config)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cores)))
    spark: Any = object()
    run.Queries._share_rows(queries, spark)
    assert used == ([spark] if shared else [])
