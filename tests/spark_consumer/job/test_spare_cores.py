"""Executors get rows if they have cores that the consumer's own process does not need."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_consumer.job import run


@pytest.mark.parametrize(
    ("master", "cores", "shared"),
    [
        ("local[*,4]", 2, False),
        ("local[2]", 3, False),
        ("local[*,4]", 4, True),
        ("spark://127.0.0.1:7077", 1, True),
    ],
)
def test_who_reads_rows(master: str, cores: int, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Any] = []
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    queries: Any = SimpleNamespace(_use_executors=used.append)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(cores)))
    run.Queries._share_rows(queries, spark)
    assert used == ([spark] if shared else [])
