"""What the processes tell about themselves, from their counters."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from producer.epochs.progress import PublishProgress
from producer.mirror.loop import MirrorProgress
from relay_store.layout.directory import RelayPosition
from schemas import tally
from schemas.errors import UpstreamError
from schemas.wire.epoch import TableTouched
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import LoggedEpoch, Slice
from spark_consumer.job.progress import Counters
from spark_consumer.plan.counters import Applied, RowCounts
from tailrace.metrics.consumer import ConsumerFacts
from tailrace.metrics.exposition import Sample
from tailrace.metrics.memory import memory_by_program
from tailrace.metrics.producer import ProducerFacts, mirror_samples
from tailrace.metrics.validator import ValidatorFacts
from tailrace.service.consume_progress import LogEnd
from tailrace.validate.result import Report, TableReport
from tests.support.epochs.records import epoch_record

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
TABLES = (TableTouched("d", "t", "00", 3, 2, 1, reads=4), TableTouched("d", "u", "01", 10, 0, 0))


def _values(samples: Iterable[Sample]) -> dict[str, float]:
    found = {f"{one.name}{list(one.labels) or ''}": one for one in samples if one.value is not None}
    return {name: one.value for name, one in found.items() if one.value is not None}


def _position(pos: int) -> RelayPosition:
    return RelayPosition(f"{UUID}.000001", "binlog.000002", pos)


def _producer(tmp_path: Path, *, heard_s: float = 0.0) -> tuple[ProducerFacts, Any]:
    mirror, publish = MirrorProgress(), PublishProgress()
    relay = SimpleNamespace(position=_position(700), tail=SimpleNamespace(position=_position(700)))
    facts = ProducerFacts("shop", tmp_path, lambda: (2, 900))
    facts.state = SimpleNamespace(mirror=mirror, publish=publish, relay=relay)  # type: ignore[assignment]
    mirror.connected = True
    mirror.heard(time.time() - heard_s, 500, 7)
    publish.read = _position(700)
    return facts, facts.state


def test_a_producer_that_has_all_is_ready(tmp_path: Path) -> None:
    assert not ProducerFacts("shop", tmp_path, lambda: None).is_ready(), "it is starting"
    facts, state = _producer(tmp_path)
    assert facts.is_ready()
    state.publish.committed(
        replace(epoch_record(5, rows=20, transactions=2, tables=TABLES), complete_ms=9_000)
    )
    found = _values(facts.samples())
    assert found["tailrace_published_epoch"] == 5
    assert {
        op: found[f"tailrace_published_rows_total['{op}']"] for op in ("insert", "update", "delete", "copy")
    } == {
        "insert": 13,
        "update": 2,
        "delete": 1,
        "copy": 4,
    }
    assert found["tailrace_complete_timestamp_seconds"] == 9.0
    assert (found["tailrace_mirrored_file_number"], found["tailrace_mirrored_position_bytes"]) == (2, 700)
    assert (found["tailrace_upstream_file_number"], found["tailrace_upstream_position_bytes"]) == (2, 900)
    assert 0 < found["tailrace_relay_free_bytes"] < found["tailrace_relay_disk_bytes"]
    assert found["tailrace_memory_bytes['python']"] > 1 << 20
    assert found["tailrace_ready"] == 1


def test_the_mirrors_place_is_upstream_even_if_nobody_has_looked_since() -> None:
    found = _values(mirror_samples(MirrorProgress(), _position(700), (1, 9_999)))
    assert (found["tailrace_upstream_file_number"], found["tailrace_upstream_position_bytes"]) == (2, 700)


def test_what_makes_a_producer_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "ERRORS", Counter())
    facts, state = _producer(tmp_path)
    state.mirror.pauses("disk full")
    assert not facts.is_ready()
    found = _values(facts.samples())
    assert (found["tailrace_relay_disk_full"], found["tailrace_paused['mirror']"]) == (1, 0)
    state.mirror.stands("an operator's wish")
    assert facts.is_ready()
    found = _values(facts.samples())
    assert (found["tailrace_relay_disk_full"], found["tailrace_paused['mirror']"]) == (0, 1)
    facts, state = _producer(tmp_path)
    state.mirror.failed(UpstreamError("TR201", "lost"))
    assert not facts.is_ready()
    assert _values(facts.samples())["tailrace_errors_total['TR201']"] == 1
    assert not _producer(tmp_path, heard_s=16)[0].is_ready()


def test_a_producer_that_is_behind_is_ready_while_it_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, state = _producer(tmp_path)
    state.publish.open_ms = 1
    assert facts.is_ready(), "nobody has asked before"
    begin = time.monotonic()
    monkeypatch.setattr("tailrace.metrics.producer.time.monotonic", lambda: begin + 61)
    assert not facts.is_ready()
    state.publish.paused = "today"
    assert facts.is_ready()
    state.publish.paused = None
    state.publish.epochs += 1
    assert facts.is_ready()


def _consumer(epoch: int, last: int) -> tuple[ConsumerFacts, Counters]:
    counters = Counters()
    facts = ConsumerFacts("shop", "main", counters)
    assert not facts.is_ready(), "it is starting"
    counters.at(Position(epoch, 2 * epoch, f"{UUID}:1-{epoch}", 1, -1, "", 0, 0, None))
    record = replace(epoch_record(last, executed=f"{UUID}:1-{last}"), complete_ms=int(time.time() * 1000))
    end = LogEnd(record, 0 if epoch == last else 60_000, time.monotonic())
    facts.end = lambda: end
    return facts, counters


def test_a_consumers_counters() -> None:
    facts, counters = _consumer(5, 9)
    record = replace(epoch_record(6, rows=20, transactions=3, tables=TABLES), complete_ms=7_000)
    slice_ = Slice((LoggedEpoch(record, 12),))
    counters.begins(slice_)
    assert counters.position is not None
    position = replace(
        counters.position, epoch=6, executed_gtids=f"{UUID}:1-6", source_log="b.000004", source_pos=77
    )
    counters.applied(slice_, position, Applied(4, RowCounts(filtered=2, compacted=5, merged=6)), 1.5, 0.5)
    found = {
        name.removeprefix("tailrace_channel_"): value for name, value in _values(facts.samples()).items()
    }
    assert found["lag_epochs['main']"] == found["lag_transactions['main']"] == 3
    assert (found["file_number['main']"], found["position_bytes['main']"]) == (4, 77)
    assert found["rows_total['main', 'insert']"] == 13
    assert found["saved_statements_total['main']"] == 11
    assert found["batch_seconds['main', 'read']"] == 1.5
    assert found["batch_age_seconds['main']"] == 0
    assert found["lag_seconds['main']"] == pytest.approx(time.time() - 60, abs=5)


def test_a_consumer_is_ready_if_it_has_all_or_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    facts, _ = _consumer(9, 9)
    assert facts.is_ready()
    assert _values(facts.samples())["tailrace_channel_lag_seconds['main']"] == 0.0
    facts, counters = _consumer(5, 9)
    assert facts.is_ready(), "nobody has asked before"
    begin = time.monotonic()
    monkeypatch.setattr("tailrace.metrics.consumer.time.monotonic", lambda: begin + 61)
    assert not facts.is_ready()
    end = replace(facts.end(), seen=begin + 61)
    facts.end = lambda: end
    counters.batches += 1
    assert facts.is_ready()
    end = replace(end, seen=begin)
    assert not facts.is_ready(), "nobody knows the log's end"


def test_a_validation() -> None:
    facts = ValidatorFacts("shop", "main")
    assert not facts.is_ready()
    different = TableReport("d.t", rows=5, differing={(1,): "1"})  # type: ignore[dict-item]
    facts.note(Report(rows_estimated=9, by_name={"d.t": different, "d.u": TableReport("d.u", rows=2)}))
    found = _values(facts.samples())
    assert facts.is_ready()
    assert found["tailrace_validation_tables['main', 'different']"] == 1
    assert found["tailrace_validation_tables['main', 'equal']"] == 1
    assert (
        found["tailrace_validation_rows['main']"],
        found["tailrace_validation_different_rows['main']"],
    ) == (7, 1)


def test_memory_is_that_of_all_processes_below(tmp_path: Path) -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    for pid, parent, program, pages in ((1, 0, "init", 9), (5, 1, "python", 10), (6, 5, "a) (b", 20), (7, 6, "java", 3),
                                        (8, 5, "python", 1), (9, 1, "other", 5)):  # fmt: skip
        (tmp_path / str(pid)).mkdir()
        fields = ["S", str(parent), *["0"] * 19, str(pages), *["0"] * 20]
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({program}) {' '.join(fields)}\n")
    (tmp_path / "10").mkdir()
    found = memory_by_program(5, tmp_path)
    assert found == {"python": 11 * page, "a) (b": 20 * page, "java": 3 * page}
