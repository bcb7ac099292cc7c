"""Statements logged as text: each stops, and [[skip]] rules pass over it and count it in the log and for status."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from producer.run import ProducerProgress, run_producer
from producer.skipping import SkipRule
from schemas.errors import DecodeError
from tailrace.status.memory import ProducerMemory
from tests.support.producer_case import Case

pytestmark = pytest.mark.servers
_TABLE = "(id INT PRIMARY KEY, a INT DEFAULT 5, b INT, u INT UNIQUE)"


def _until_caught_up(case: Case, *rules: SkipRule) -> dict[str, int]:
    """Run the producer; what ``tailrace status`` says that it has skipped."""
    seen: list[ProducerProgress] = []
    config = replace(case.config, until_caught_up=True, skip=rules)
    run_producer(config, threading.Event(), seen.append)
    memory = ProducerMemory(config)
    memory.state = seen[-1]
    skipped: dict[str, int] = memory.snapshot()["publisher"]["Skipped"]
    return skipped


def _rows(case: Case) -> list[tuple[str, str]]:
    return [(row.structure.table, row.op) for row in case.published().all_rows]


def test_statements_are_counted_by_table(case: Case) -> None:
    case.sql(f"CREATE TABLE r {_TABLE}", "CREATE TABLE k (a INT, b INT)")
    text = "SET SESSION binlog_format = 'STATEMENT'"
    case.sql(text, "INSERT INTO r VALUES (1, 1, 1, 1), (2, 2, 2, 2)", "UPDATE r SET b = 3", "DELETE FROM k")
    with pytest.raises(DecodeError, match="TR409"):
        case.catch_up(skip=(SkipRule(case.db, "k", ("statement",)), SkipRule(case.db, "r", ("image",))))
    case.sql("INSERT INTO k VALUES (1, 1)")
    assert _until_caught_up(case, SkipRule(case.db, "*", ("statement", "image"))) == {
        f"{case.db}.k statement": 1,
        f"{case.db}.r statement": 2,
    }
    assert _rows(case) == [("k", "c")]
    skipped: dict[str, int] = {}
    for one in (s for epoch in case.published().epochs for s in epoch.skipped):
        skipped[one.table] = skipped.get(one.table, 0) + one.events
    assert skipped == {"r": 2, "k": 1}
