"""What the page keeps and draws: looks, parts that hang, charts, structures that differ, searches, all as values."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from schemas.errors import ConfigError, LogError
from schemas.wire.epoch import EpochCommitted, SchemaChanged
from spark_consumer.epochs.slices import LoggedEpoch
from spark_consumer.rules.config import LogAddress
from tailrace.reader import Row
from tailrace.web import passing
from tailrace.web.charts import WIDTH, lags, throughput
from tailrace.web.lookup import MOST_FOUND, Search, difference, parse_key
from tailrace.web.parts import LimitedReads
from tailrace.web.river import channels, seconds, size, stations
from tailrace.web.watch import ChannelPoint, Point, Watch, rates
from tests.support.epochs.records import epoch_record
from tests.support.pages import reports


def test_a_part_that_hangs_hides_no_other_and_is_read_once() -> None:
    let_go, reads = threading.Event(), []

    def hanging() -> dict[str, Any]:
        reads.append(1)
        let_go.wait(60)
        return {"server": "back"}

    def away() -> dict[str, Any]:
        raise LogError("TR500", "away")

    read = LimitedReads(limit=1.0)
    for _ in range(2):
        found = read({"upstream": lambda: {"server": "here"}, "kafka": away, "downstream": hanging})
        assert found["upstream"] == {"server": "here"}
        assert (found["kafka"]["error"]["code"], found["downstream"]["error"]["code"]) == ("TR500", "TR163")
    assert len(reads) == 1
    let_go.set()
    assert read({"downstream": hanging}) == {"downstream": {"server": "back"}}


def test_a_look_that_fails_leaves_what_was_seen() -> None:
    looks: list[Any] = [reports.at_rest(), ValueError("no such thing"), reports.not_reached()]

    def look() -> Any:
        if isinstance(found := looks.pop(0), Exception):
            raise found
        return found

    watch = Watch(look, lambda: (12, [{"epoch": 7}]))
    watch.look_once()
    first = watch.seen
    assert (first.problem, first.epochs, first.points[-1].published) == ("", [{"epoch": 7}], 12)
    watch.look_once()
    assert (watch.seen.problem, watch.seen.report) == ("the last look failed: ValueError", first.report)
    watch.look_once()
    assert (watch.seen.problem, watch.seen.points[-1].published, len(watch.seen.points)) == ("", None, 2)


def test_rates_are_known_only_between_two_known_numbers() -> None:
    points = [(0.0, 0), (5.0, 50), (10.0, None), (15.0, 70), (20.0, 10), (400.0, 99), (405.0, 99)]
    assert rates(points) == [
        (5.0, 10.0),
        (10.0, None),
        (15.0, None),
        (20.0, None),
        (400.0, None),
        (405.0, 0.0),
    ]


def test_charts_draw_the_last_hour_and_say_it() -> None:
    points = [
        Point(1000.0 + 5 * i, None if i == 50 else 500 * i, {"main": ChannelPoint(float(i % 7), 400 * i)})
        for i in range(100)
    ]
    chart = throughput(points, now=points[-1].at)
    published, main = chart.lines
    assert (chart.top, len(published.paths), len(main.paths)) == ("100 rows/s", 2, 1)
    assert published.paths[-1].split()[-1].startswith(f"{WIDTH:.1f},")
    assert main.text == "now 80.0 rows/s, at most 80.0 rows/s"
    [lag] = lags(points, now=points[-1].at).lines
    assert (lag.number, lag.text) == (main.number, "now 1.0 s, at most 6.0 s")
    assert lags([], 0.0).lines == ()
    later = throughput(points, now=points[-1].at + 7200)
    assert [line.paths for line in later.lines] == [(), ()]


def test_a_paused_channel_that_an_error_has_stopped_is_in_trouble() -> None:
    report = reports.in_trouble()
    report["downstream"]["channels"][0]["paused"] = "2026-11-18T11:00:00.000+00:00"
    assert [(one.state, one.word) for one in channels(report)] == [("trouble", "stopped by an error")]


def test_stations_say_what_each_part_does() -> None:
    words = {
        "at_rest": ["reached, 9.7.0", "connected", "reached", "running, waits for more"],
        "in_trouble": ["not reached", "reconnecting", "reached", "stopped by an error"],
        "not_reached": ["reached, 9.7.0", "no producer runs on this machine", "not reached", "not reached"],
    }
    for name, expected in words.items():
        report = getattr(reports, name)()
        assert [one.word for one in (*stations(report, reports.NOW), *channels(report))] == expected
    load = channels(reports.under_load())
    assert [(one.name, one.state, one.word) for one in load] == [
        ("main", "good", "applying"),
        ("lake", "waiting", "paused since 2026-11-18 11:00:00 UTC"),
    ]
    # A consumer runs, and its downstream is away.
    report = reports.not_reached()
    memory = {"state": "applying", "epoch": 9}
    report["downstream"]["channels"] = [{"channel": "main", "stored": None, "memory": memory, "lag": {}}]
    assert [one.word for one in channels(report)] == ["applying", "not reached"]


def test_numbers_for_people() -> None:
    assert [seconds(value) for value in (0.04, 119, 600, 9000)] == ["0.0 s", "119.0 s", "10 min", "2.5 h"]
    assert [size(value) for value in (0, 1023, 4096, 5 << 40)] == ["0 B", "1,023 B", "4 KiB", "5.0 TiB"]


def test_keys_are_lines_of_columns_and_values() -> None:
    assert parse_key(" id = 7\n\nname=a=b ") == {"id": "7", "name": "a=b"}
    for wrong in ("7", "=7"):
        with pytest.raises(ConfigError, match="TR164"):
            parse_key(wrong)


def test_structures_differ_by_columns_their_order_and_the_key() -> None:
    def structure(key: str, *columns: str) -> dict[str, Any]:
        parts = [column.split() for column in columns]
        found = [{"name": name, "type": kind, "nullable": False, "charset": ""} for name, kind in parts]
        return {"key": [key], "columns": found}

    first, second = structure("id", "id int", "a int", "b int"), structure("b", "b bigint", "id int", "c int")
    assert difference(first, first) == []
    assert difference(first, second) == [
        {"name": "a", "at": "int NOT NULL", "until": None},
        {"name": "b", "at": "int NOT NULL", "until": "bigint NOT NULL"},
        {"name": "c", "at": None, "until": "int NOT NULL"},
        {"name": "(order of columns)", "at": "id, b", "until": "b, id"},
        {"name": "(primary key)", "at": "id", "until": "b"},
    ]


class Log:
    """Has so many changes of row 7 in each epoch."""

    def __init__(self, **changes: int) -> None:
        self._changes = {int(name[1:]): count for name, count in changes.items()}

    def find(
        self, epochs: list[EpochCommitted], wanted: Any, wanted_key: Any, stop: threading.Event
    ) -> Iterator[Row]:
        assert wanted("shop", "t")
        assert not wanted("shop", "other")
        for epoch in epochs:
            for seq in range(self._changes.get(epoch.epoch, 0)):
                source = {"epoch": epoch.epoch, "seq": seq, "gtid": None, "file": "f", "pos": 4, "ts_ms": 0}
                assert not wanted_key({"id": 8})
                if wanted_key({"id": 7}):
                    yield Row("u", "shop", "t", {"id": 7}, {"id": 7}, {"id": 7}, source, 0, 0, 0)


def _take(*runs: Sequence[int], stopped_in: int = 0, **changes: int) -> tuple[list[Any], Any, list[Any]]:
    """Search in runs of epochs. Return where each ended, what was cut, and the epochs of what was found."""
    search = Search(("shop", "t"), {"id": "7"}, threading.Event())
    ends = []
    for number, run in enumerate(runs, 1):
        if number == stopped_in:
            search.stop.set()
        ends.append(search.take(Log(**changes), [epoch_record(epoch) for epoch in run]))  # type: ignore[arg-type]
    result = search.result(None)
    return ends, result["cut"], [change["epoch"] for change in result["changes"]]


def test_a_search_finds_the_newest_first_and_ends_between_epochs() -> None:
    assert _take([9, 8], [7], e9=1, e8=2, e7=1) == ([None, None], None, [9, 8, 8, 7])
    assert _take([9, 8, 7], e9=30, e8=30, e7=1) == ([9], None, [9] * 30)
    assert _take([9], [8], e9=30, e8=30) == ([None, 8], None, [9] * 30 + [8] * 30)
    # One epoch alone has too many.
    assert _take([9, 8], e9=MOST_FOUND + 1) == ([9], (9, 9), [9] * MOST_FOUND)


def test_a_search_without_time_keeps_whole_runs_but_for_the_first() -> None:
    assert _take([9], [8, 7], stopped_in=2, e9=1, e8=1) == ([None, 9], None, [9])
    assert _take([9, 8], stopped_in=1, e9=1, e8=1) == ([8], (8, 9), [9, 8])


QUIET = replace(epoch_record(0), complete_ms=1)


class Topic:
    """Stands for a reader of the epochs topic, whose epochs have every second offset."""

    epochs_there: ClassVar[list[EpochCommitted]] = []

    def __init__(self, log: Any) -> None:
        pass

    def bounds(self) -> tuple[int, int]:
        return 0, 2 * len(self.epochs_there)

    def epochs(self, start: int) -> Iterator[LoggedEpoch]:
        for number, record in enumerate(self.epochs_there):
            if 2 * number >= start:
                yield LoggedEpoch(record, 2 * number)


def test_epochs_that_pass_are_counted_and_shown_if_they_have_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "LogReader", Topic)
    ddl = SchemaChanged("CREATE USER a IDENTIFIED BY 'secret'", "", "CREATE USER", (), "mysql", 0)
    monkeypatch.setattr(Topic, "epochs_there", [QUIET, epoch_record(1, rows=5, transactions=1)])
    epochs = passing.PassingEpochs(LogAddress("unused", "shop"))
    epochs.read()
    assert ([one["epoch"] for one in epochs.last(9)], epochs.rows) == ([1], 0)
    Topic.epochs_there += [
        replace(QUIET, epoch=2),
        epoch_record(3, ddl=ddl),
        epoch_record(4, rows=7, transactions=2),
    ]
    for _ in range(2):
        epochs.read()
        assert ([one["epoch"] for one in epochs.last(2)], epochs.rows) == ([4, 3], 7)
    assert "secret" not in str(epochs.last(9))
    # The topic was created again.
    monkeypatch.setattr(Topic, "epochs_there", [epoch_record(0, rows=1, transactions=1)])
    epochs.read()
    assert ([one["epoch"] for one in epochs.last(9)], epochs.rows) == ([0], 7)
