"""What tests of the commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compose.databases import Database
from compose.kafka import Kafka
from tests.support.processes.operator import DB, Operator


@pytest.fixture
def operator(server: Callable[..., Database], kafka: Kafka, tmp_path: Path) -> Iterator[Operator]:
    """An operator of MariaDB upstream and MySQL downstream, with a table of its own."""
    up = server("mariadb", role="upstream", server_id=411)
    down = server("mysql", role="downstream", server_id=412)
    up.execute(f"CREATE DATABASE {DB}", f"CREATE TABLE {DB}.t (id INT PRIMARY KEY, v VARCHAR(20))")
    found = Operator(tmp_path, up, down, kafka)
    yield found
    found.close()
