"""What the log does not tell: each kind stops with its statement, and a [[skip]] rule passes over it and counts it."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from producer.run import ProducerProgress
from producer.settings import SkipRule
from schemas.errors import DecodeError
from tailrace.assemble.producer import producer
from tailrace.status.memory import ProducerMemory
from tests.support.epochs.producer_case import Case

pytestmark = pytest.mark.servers
_TABLE = "(id INT PRIMARY KEY, a INT DEFAULT 5, b INT, u INT UNIQUE)"
# Under MINIMAL: tables, what is lost, and why.
_MARIADB = [
    ("r", "REPLACE INTO r (id, b) VALUES (1, 2)", "does not log what a REPLACE sets to its default"),
    ("r", "REPLACE INTO r (id, u) VALUES (1, 9)", "does not log what a REPLACE sets to its default"),
    (
        "g",
        "INSERT INTO g (id, b) VALUES (1, 2) ON DUPLICATE KEY UPDATE b = 8",
        "does not log what triggers set",
    ),
]


def _until_caught_up(case: Case, *rules: SkipRule) -> dict[str, int]:
    """Run the producer; what ``tailrace status`` says that it has skipped."""
    seen: list[ProducerProgress] = []
    config = replace(case.config, until_caught_up=True, skip=rules)
    producer(config).run(threading.Event(), seen.append)
    memory = ProducerMemory(config)
    memory.state = seen[-1]
    skipped: dict[str, int] = memory.snapshot()["publisher"]["Skipped"]
    return skipped


def _rows(case: Case) -> list[tuple[str, str]]:
    return [(row.structure.table, row.op) for row in case.published().all_rows]


@pytest.mark.parametrize("flavor", ["mariadb"])
def test_what_mariadb_leaves_out_of_images_stops_or_is_counted(case: Case) -> None:
    plain = _TABLE.replace(", u INT UNIQUE", ", u INT")  # a second unique key makes it DELETE and INSERT
    case.sql(f"CREATE TABLE r {plain}", f"CREATE TABLE g {plain}",
             "CREATE TRIGGER tu BEFORE UPDATE ON g FOR EACH ROW SET NEW.a = NEW.b * 2",
             "INSERT INTO r VALUES (1, 1, 1, 1)", "INSERT INTO g VALUES (1, 1, 1, 1)")  # fmt: skip
    case.catch_up()
    before = _rows(case)
    least = "SET SESSION binlog_row_image = MINIMAL"
    for table, statement, why in _MARIADB:
        case.sql(least, statement, f"UPDATE {table} SET b = 77")
        with pytest.raises(DecodeError, match="TR413") as stopped:
            case.catch_up(skip=(SkipRule(case.db, table, ("statement",)), SkipRule("x", table, ("image",))))
        assert why in stopped.value.message
        assert statement in stopped.value.message
        assert stopped.value.where.table == f"{case.db}.{table}"
        assert _until_caught_up(case, SkipRule(case.db, table, ("image",))) == {f"{case.db}.{table} image": 1}
    # What follows goes on as if nothing were, and the log says what it lacks.
    updates = [table for table, op in _rows(case)[len(before) :] if op == "u"]
    assert updates == ["r", "r", "g"]
    skipped = [(s.table, s.kind, s.events) for epoch in case.published().epochs for s in epoch.skipped]
    assert skipped == [("r", "image", 1), ("r", "image", 1), ("g", "image", 1)]
    case.sql("SET SESSION binlog_annotate_row_events = OFF", least, "REPLACE INTO r (id, b) VALUES (1, 4)")
    assert _until_caught_up(case, SkipRule(case.db, "*", ("image",))) == {f"{case.db}.r image": 1}


def test_statements_and_rows_without_their_key_are_counted_by_table(case: Case) -> None:
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
