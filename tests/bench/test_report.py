"""What the benchmark reads from the consumer's log, and how its JSON file grows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.drain import Drained, query_seconds
from bench.meter import Usage
from bench.report import BacklogResult, Result, write_merged
from schemas.errors import StackError


def _result(seconds: float = 10.0) -> BacklogResult:
    usage = {
        "drain.produce": Usage(2.0, 100.0),
        "drain.consume": Usage(20.0, 1400.0),
        "drain.kafka": Usage(9.0, 600.0),
    }
    return BacklogResult(Drained(1000, seconds, 4.5, usage), 25.0, Usage(9.0, 600.0), equal=True)


def test_a_backlog_counts_both_processes_cpu_and_the_consumers_memory() -> None:
    assert _result().as_dict() == {
        "rows": 1000,
        "drain_rows_per_s": 100.0,
        "replica_rows_per_s": 40.0,
        "ratio": 2.5,
        "start_s": 4.5,
        "cpu_seconds": 22.0,
        "peak_rss_mb": 1400.0,
        "equal": True,
    }


def test_debezium_is_named_only_if_it_was_measured() -> None:
    assert "debezium_rows_per_s" not in _result().as_dict()
    assert replace(_result(), debezium=50.0).as_dict()["debezium_rows_per_s"] == 20.0


def test_one_backlog_leaves_the_rest_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "out" / "latest.json"
    write_merged(file, Result(rows=5, equal=True, hot=_result()).as_dict())
    write_merged(file, {"backlogs": {"json": _result(20).as_dict()}})
    write_merged(file, {"backlogs": {"json": _result(50).as_dict()}})
    found = json.loads(file.read_text())
    assert (found["rows"], found["equal"]) == (5, True)
    assert {name: entry["ratio"] for name, entry in found["backlogs"].items()} == {"hot": 2.5, "json": 0.5}
    write_merged(file, Result(rows=6).as_dict())
    found = json.loads(file.read_text())
    assert (found["rows"], list(found["backlogs"])) == (6, ["hot", "json"])


def _log(folder: Path, *entries: tuple[int, str]) -> Path:
    file = folder / "consume.log"
    lines = [json.dumps({"event": name, "timestamp": f"2026-11-23T10:00:{s:02}Z"}) for s, name in entries]
    file.write_text("\n".join(["WARNING: not JSON", *lines]))
    return file


@pytest.mark.parametrize("first", ["applies_directly", "tracker_seeded"])
def test_a_consumer_begins_before_spark_or_with_it(tmp_path: Path, first: str) -> None:
    batches = ((5, "batch_applied"), (9, "tracker_seeded"), (12, "batch_applied"))
    assert query_seconds(_log(tmp_path, (2, first), *batches)) == 10.0


def test_a_log_without_batches_is_no_measurement(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="TR724"):
        query_seconds(_log(tmp_path, (2, "tracker_seeded")))
