"""The fixture of this folder: channels between two servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from compose.kafka import Kafka
from tests.support.applying.validated import Channel
from tests.support.epochs.source_log import source_log

Make = Callable[..., Channel]


@pytest.fixture
def channel(request: pytest.FixtureRequest, kafka: Kafka, tmp_path: Path) -> Iterator[Make]:
    """``channel(upstream, downstream)`` makes a channel between two flavors."""
    logs: list[Any] = []
    made: list[Channel] = []

    def make(
        up: str, down: str, consistency: Literal["batch", "worker"] = "batch", route: str = ""
    ) -> Channel:
        upstream = request.getfixturevalue(f"upstream_{up}")
        downstream = request.getfixturevalue(f"downstream_{down}")
        logs.append(source_log(upstream, kafka.bootstrap, tmp_path))
        log = logs[-1].__enter__()
        downstream.execute(f"DROP DATABASE IF EXISTS {route or log.db}")
        # The log begins behind the statement that made the upstream's database.
        downstream.execute(f"CREATE DATABASE {route or log.db} CHARACTER SET utf8mb4")
        made.append(Channel(log, downstream, tmp_path, consistency, route))
        return made[-1]

    yield make
    for one in made:
        one.downstream.execute(f"DROP DATABASE IF EXISTS {one.there}")
    for each in logs:
        each.__exit__(None, None, None)
