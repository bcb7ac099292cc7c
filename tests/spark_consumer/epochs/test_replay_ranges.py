"""Ranges of the epoch log: from any transaction to any other, each of their rows once, none of any other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import ConfigError, LogError
from schemas.gtid.sets import parse_gtid_set
from schemas.wire.epoch import SchemaChanged, TableTouched
from spark_consumer.epochs.epoch_transactions import RowHeader, Transaction, epoch_part, transactions
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import BEFORE_ALL, LogPosition, Position, intersection
from spark_consumer.epochs.slices import LoggedEpoch, Slice
from spark_consumer.epochs.start import first_position, last_position
from spark_consumer.epochs.stop_condition import StopCondition
from spark_consumer.job.batches import slice_epochs
from tests.support.epochs.records import epoch_record

UUID = "00000000-0000-0000-0000-00000000cafe"
FLAVORS = ["mysql", "mariadb"]


@dataclass
class Log:
    """An epoch log in memory: epochs of transactions, each with so many rows; its n-th one commits in second n."""

    shape: list[list[int]]
    flavor: str = "mysql"
    first: int = 0

    def gtid(self, number: int) -> str:
        return f"{UUID}:{number}" if self.flavor == "mysql" else f"0-1-{number}"

    def executed(self, count: int) -> str:
        if not count:
            return ""
        return str(parse_gtid_set(f"{UUID}:1-{count}", "mysql")) if self.flavor == "mysql" else f"0-1-{count}"

    @property
    def bounds(self) -> list[int]:
        """How many transactions lie before each epoch, and before the log's end."""
        return [0, *accumulate(map(len, self.shape))]

    def all(self) -> list[LoggedEpoch]:
        made = [LoggedEpoch(epoch_record(0), 0)]
        for n, sizes in enumerate(self.shape):
            begin, end = self.bounds[n : n + 2]
            record = epoch_record(
                n + 1,
                rows=sum(sizes),
                executed=self.executed(end),
                transactions=len(sizes),
                tables=(TableTouched("d", "t", "f", sum(sizes), 0, 0),) if sum(sizes) else (),
            )
            record = replace(
                record,
                first_commit_ms=(begin + 1) * 1000,
                last_commit_ms=end * 1000,
                digest=sum(range(sum(sizes))),
            )
            made.append(LoggedEpoch(record, (n + 1) * 2))
        return made

    def transactions_of(self, logged: LoggedEpoch) -> list[Transaction]:
        sizes, begin = self.shape[logged.record.epoch - 1], self.bounds[logged.record.epoch - 1]
        heads: list[RowHeader] = []
        for n, size in enumerate(sizes, begin + 1):
            for _ in range(size):
                heads.append(RowHeader(len(heads), self.gtid(n), n * 1000, "f", "d", "t", 0, len(heads)))
        return transactions(reversed(heads))

    def rows(self, first: int, last: int) -> list[tuple[int, int]]:
        """Epoch and number of the rows of the transactions behind the ``first`` up to the ``last``."""
        found = []
        for n, sizes in enumerate(self.shape):
            at = 0
            for number, size in enumerate(sizes, self.bounds[n] + 1):
                if first < number <= last:
                    found += [(n + 1, at + i) for i in range(size)]
                at += size
        return found

    # as a LogReader
    def epochs(self, start: int | None = None) -> list[LoggedEpoch]:
        return cast(Any, iter(self.all()[self.first :]))

    def last_epoch(self) -> LoggedEpoch | None:
        return self.all()[-1]

    @property
    def reader(self) -> LogReader:
        return cast(LogReader, self)


def at(place: LogPosition) -> Position:
    return Position(
        place.epoch,
        place.offset,
        place.executed,
        1,
        -1,
        "",
        0,
        0,
        None,
        epoch_gtids=place.epoch_gtids,
        epoch_rows=place.rows,
    )


def apply(
    log: Log, position: Position, end: LogPosition | None, most: int = 5
) -> tuple[Position, list[tuple[int, int]], list[Slice]]:
    """Where a run ends, the rows that it applied, its slices; each slice begins where the one before ended."""
    fresh = [one for one in log.all() if one.record.epoch > position.epoch]
    pieces = slice_epochs(position, fresh, end, log.transactions_of, most, 1 << 30)
    rows: list[tuple[int, int]] = []
    for slice_ in pieces:
        assert not slice_.is_applied(position)
        assert slice_.is_next(position)
        repeat_until = position.repeat_until
        assert repeat_until is None or position.order < repeat_until.order
        for logged in slice_.epochs:
            window = slice_.window or (0, logged.record.rows)
            rows += [(logged.record.epoch, n) for n in range(*window)]
            assert logged.record.rows == window[1] - window[0]
            assert sum(t.inserts for t in logged.record.tables) == logged.record.rows
            assert logged.record.digest == sum(range(*window))
        position = slice_.position_after(position)
        if repeat_until is not None and position.order >= repeat_until.order:
            assert position.order == repeat_until.order
            position = replace(position, rewound_from=None)
        assert slice_.is_applied(position)
        assert not slice_.rows or not slice_.is_next(position)
    return position, rows, pieces


shapes = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=5)


@pytest.mark.parametrize("flavor", FLAVORS)
@given(shapes, st.data())
def test_any_range_of_gtids_is_applied_exactly_and_the_next_run_goes_on(
    flavor: str, shape: list[list[int]], data: st.DataObject
) -> None:
    log = Log(shape, flavor)
    count = log.bounds[-1]
    begin = data.draw(st.integers(0, count))
    until = data.draw(st.integers(max(begin, 1), count))
    first = (
        first_position(f"gtid:{log.executed(begin)}", log.reader, log.transactions_of)
        if begin
        else BEFORE_ALL
    )
    end = last_position(f"gtid:{log.executed(until)}", log.reader, log.transactions_of)
    position, rows, _ = apply(log, at(first), end)
    assert rows == log.rows(begin, until)
    assert position.executed_gtids == log.executed(until)
    assert StopCondition(end).reached(position)
    assert position.recovered is False
    # Once more to the same place: nothing. Without an end: the rest.
    assert apply(log, position, end)[1] == []
    position, rest, _ = apply(log, position, None)
    assert rest == log.rows(until, count)
    assert (position.executed_gtids, position.epoch_rows, position.epoch_gtids) == (
        log.executed(count),
        None,
        None,
    )


@given(shapes, st.data())
def test_times_are_half_open_so_ranges_join(shape: list[list[int]], data: st.DataObject) -> None:
    log = Log(shape)
    count = log.bounds[-1]
    moments = sorted(data.draw(st.lists(st.integers(1, count + 1), min_size=2, max_size=2)))
    texts = [f"time:1970-01-01T00:00:{second:02}Z" for second in moments]
    first, end = (
        first_position(texts[0], log.reader, log.transactions_of),
        last_position(texts[1], log.reader, log.transactions_of),
    )
    position, rows, _ = apply(log, at(first), end)
    assert rows == log.rows(moments[0] - 1, moments[1] - 1)
    assert apply(log, position, None)[1] == log.rows(moments[1] - 1, count)


@given(shapes, st.data())
def test_a_single_gtid_and_a_waiting_goal_end_behind_it(shape: list[list[int]], data: st.DataObject) -> None:
    log = Log(shape)
    number = data.draw(st.integers(1, log.bounds[-1]))
    end = last_position(f"gtid:{log.gtid(number)}", log.reader, log.transactions_of)
    position, rows, _ = apply(log, at(BEFORE_ALL), end)
    assert rows == log.rows(0, number)
    assert parse_gtid_set(position.executed_gtids, "mysql").contains(log.gtid(number))
    stop_condition = StopCondition(gtids=parse_gtid_set(log.executed(number), "mysql"))
    assert not stop_condition.reached(at(BEFORE_ALL))
    found = stop_condition.found(at(BEFORE_ALL), log.all(), log.transactions_of)
    assert found.end is not None
    position, waited, _ = apply(log, at(BEFORE_ALL), found.end)
    assert waited == rows
    assert found.reached(position)


@given(shapes, st.data())
def test_a_rewound_channel_is_level_exactly_where_it_was(shape: list[list[int]], data: st.DataObject) -> None:
    log = Log(shape)
    back, was, until = sorted(data.draw(st.lists(st.integers(1, log.bounds[-1]), min_size=3, max_size=3)))
    repeat_until = last_position(f"gtid:{log.executed(was)}", log.reader, log.transactions_of)
    target = first_position(f"gtid:{log.executed(back)}", log.reader, log.transactions_of)
    end = last_position(f"gtid:{log.executed(until)}", log.reader, log.transactions_of)
    begin = replace(
        at(target), rewound_from=repeat_until.to_json() if target.order < repeat_until.order else None
    )
    position, rows, pieces = apply(log, begin, end)
    assert rows == log.rows(back, until)
    assert position.rewound_from is None
    if begin.repeat_until:
        again = [slice_ for slice_ in pieces if slice_.order <= repeat_until.order]
        assert again[-1].order == repeat_until.order
    # Cut off in between, it goes on in the same way.
    half = last_position(f"gtid:{log.executed((back + was) // 2)}", log.reader, log.transactions_of)
    if begin.repeat_until and half.order < repeat_until.order:
        position, first, _ = apply(log, begin, half)
        assert position.repeat_until == repeat_until
        position, second, _ = apply(log, position, end)
        assert first + second == rows
        assert position.rewound_from is None


LOG = Log([[1, 2], [0, 3, 1], [2]])


@pytest.mark.parametrize(
    ("until", "error", "what"),
    [
        ("epoch:9", LogError, "TR572.*its last epoch is 3"),
        (f"gtid:{UUID}:1-99", LogError, f"TR572.*it lacks {UUID}:7-99"),
        ("gtid:11111111-0000-0000-0000-00000000cafe:1", LogError, "TR572.*it lacks 11111111"),
        ("time:9999-01-01T00:00:00Z", LogError, "TR572.*in the future"),
        ("time:1970-01-01T00:00:00", ConfigError, "TR560.*no time zone"),
        ("gtid:x:y", ConfigError, "TR560"),
        ("somewhere", ConfigError, "TR560"),
    ],
)
def test_an_end_that_is_not_in_the_log_stops(until: str, error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        last_position(until, LOG.reader, LOG.transactions_of)


@pytest.mark.parametrize(
    ("start", "what"),
    [
        ("epoch:1", "TR555"),
        (f"gtid:{UUID}:1", "TR555"),
        ("time:1970-01-01T00:00:01Z", "TR555"),
        ("earliest", "TR555"),
        ("epoch:0", "TR555"),
    ],
)
def test_a_begin_that_retention_deleted_stops(start: str, what: str) -> None:
    kept = replace(LOG, first=2)
    with pytest.raises(LogError, match=what):
        first_position(start, kept.reader, kept.transactions_of)


def test_a_begin_with_a_hole_stops_since_what_lies_in_it_would_be_left_out() -> None:
    with pytest.raises(LogError, match=f"TR561.*nearest one is gtid:{UUID}:1-2"):
        first_position(f"gtid:{UUID}:1-2:5", LOG.reader, LOG.transactions_of)
    with pytest.raises(LogError, match="TR561"):
        first_position(f"gtid:{UUID}:1-99", LOG.reader, LOG.transactions_of)


def test_an_end_with_a_hole_lies_behind_all_of_it() -> None:
    end = last_position(f"gtid:{UUID}:4", LOG.reader, LOG.transactions_of)
    position, rows, _ = apply(LOG, at(BEFORE_ALL), end)
    assert rows == LOG.rows(0, 4)
    # The transaction without rows that nobody named counts only once it has to.
    assert position.executed_gtids == f"{UUID}:1-2:4"
    position, rows, _ = apply(
        LOG, position, last_position(f"gtid:{UUID}:3-4", LOG.reader, LOG.transactions_of)
    )
    assert (rows, position.executed_gtids) == ([], f"{UUID}:1-4")
    # One without rows has its place by its number.
    position, rows, _ = apply(
        LOG, at(BEFORE_ALL), last_position(f"gtid:{UUID}:3", LOG.reader, LOG.transactions_of)
    )
    assert (rows, position.executed_gtids) == (LOG.rows(0, 2), f"{UUID}:1-3")


def test_transactions_without_gtids_are_not_told_apart() -> None:
    log = replace(LOG)
    anonymous = [Transaction(None, 4000, 3, 0, ()), Transaction(None, 5000, 1, 0, ())]
    with pytest.raises(LogError, match=r"TR559.*epoch:2"):
        last_position("time:1970-01-01T00:00:05Z", log.reader, lambda logged: anonymous)


def test_epochs_bound_ranges_whole_and_a_ddl_is_never_looked_into() -> None:
    end = last_position("epoch:2", LOG.reader, LOG.transactions_of)
    position, rows, pieces = apply(LOG, at(first_position("epoch:2", LOG.reader, LOG.transactions_of)), end)
    assert (rows, position.epoch) == (LOG.rows(2, 5), 2)
    assert all(slice_.window is None for slice_ in pieces)
    changed = SchemaChanged("DROP TABLE t", "d", "DROP TABLE", (), "mysql", 0)
    epochs = LOG.all()
    epochs[2] = LoggedEpoch(replace(epochs[2].record, ddl=changed), epochs[2].offset)
    log = cast(LogReader, type("L", (), {"epochs": staticmethod(lambda start=None: iter(epochs))})())
    assert first_position("time:1970-01-01T00:00:05Z", log, LOG.transactions_of).epoch == 1


def test_a_position_of_another_log_is_noticed() -> None:
    with pytest.raises(LogError, match="TR558"):
        epoch_part(LOG.all()[2], LOG.transactions_of(LOG.all()[2]), 1, 4)


def test_what_two_sets_have_in_common() -> None:
    one, other = parse_gtid_set("0-1-5,1-1-2", "mariadb"), parse_gtid_set("0-2-3,2-1-9", "mariadb")
    assert str(intersection(one, other)) == "0-2-3"
    one, other = parse_gtid_set(f"{UUID}:1-5:8", "mysql"), parse_gtid_set(f"{UUID}:4-9", "mysql")
    assert str(intersection(one, other)) == f"{UUID}:4-5:8"
