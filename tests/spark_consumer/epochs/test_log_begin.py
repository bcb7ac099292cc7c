"""Where a channel begins and goes on, in logs of which some or all is deleted, or that were made anew."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from schemas.access.server_url import ServerUrl
from schemas.errors import LogError
from schemas.wire.epoch import COPY, EPOCH_KEY, ORIGIN, CompleteCopy, EpochCommitted
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import LogPosition, Position
from spark_consumer.epochs.start import channel_start, first_position, resume_offset
from spark_consumer.rules.config import ConsumerConfig
from tests.support.epochs.records import SOURCE, epoch_record

UUID = "00000000-0000-0000-0000-00000000cafe"
CONFIG = ConsumerConfig("nobody:1", "p", ServerUrl("unused"))


@dataclass
class Log(LogReader):
    """The epochs topic: each epoch and a marker; what lies before ``low`` is deleted."""

    records: list[EpochCommitted]
    low: int = 0
    first_offset: int = 0
    more: int = field(default=0)  # offsets at the end without a record
    first_rows: bool = True  # no rows are deleted

    def __post_init__(self) -> None:
        super().__init__(CONFIG)

    def has_first_rows(self) -> bool:
        return self.first_rows

    def bounds(self) -> tuple[int, int]:
        return self.low, self.first_offset + 2 * len(self.records) + self.more

    def _records(
        self, topic: str, start: int | None = None
    ) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        begin = self.low if start is None else start
        assert self.low <= begin <= self.bounds()[1], "the broker would refuse it"
        for n, record in enumerate(self.records):
            if (offset := self.first_offset + 2 * n) >= begin:
                yield offset, EPOCH_KEY, record.encode()


def executed(count: int) -> str:
    return f"{UUID}:1-{count}" if count else ""


def epochs(count: int, gtids: bool = True, log_begins: str | None = ORIGIN) -> list[EpochCommitted]:
    """Epoch 0 and so many with a transaction each, committed in the second of their number."""
    made = [replace(epoch_record(0), log_begins=log_begins)]
    for n in range(1, count + 1):
        record = epoch_record(n, transactions=1, executed=executed(n) if gtids else "")
        made.append(replace(record, first_commit_ms=n * 1000, last_commit_ms=n * 1000))
    return made


def at(record: EpochCommitted, offset: int) -> Position:
    """The position behind an epoch."""
    begin = Position(record.epoch, offset, "", 1, -1, "", 0, 0, None)
    return begin.at_end_of(record)


# -- the first start -------------------------------------------------------------------------------


def no_inside(logged: object) -> tuple[()]:
    return ()


@pytest.mark.parametrize("start", ["earliest", "epoch:0", "epoch:1", "time:1970-01-01T00:00:01Z"])
def test_a_begin_that_was_deleted_is_no_begin(start: str) -> None:
    with pytest.raises(
        LogError, match=r"(?s)TR555: the log starts with epoch 2.*--from epoch:3 starts there"
    ):
        first_position(start, Log(epochs(5), low=4), no_inside)


@pytest.mark.parametrize("start", ["earliest", "epoch:1", f"gtid:{UUID}:1", "time:1970-01-01T00:00:01Z"])
def test_a_log_whose_epochs_are_all_deleted_is_none_that_is_empty(start: str) -> None:
    with pytest.raises(LogError, match=r"TR555: topic p\.epochs has no epochs"):
        first_position(start, Log([], low=12, more=12), no_inside)
    with pytest.raises(LogError, match="TR566") as caught:
        first_position(start, Log([]), no_inside)
    assert caught.value.retryable


def test_a_time_before_what_is_kept_stops_also_where_an_epoch_without_transactions_is_kept() -> None:
    """Such an epoch says nothing of the times of those before it."""
    made = epochs(5)
    made[2] = replace(made[2], transactions=0, first_commit_ms=0, last_commit_ms=0)
    kept = Log(made[2:], low=4, first_offset=4)
    for second in (1, 2, 3):
        with pytest.raises(LogError, match="TR555: the log starts with epoch"):
            first_position(f"time:1970-01-01T00:00:0{second}Z", kept, no_inside)
    assert first_position("time:1970-01-01T00:00:04Z", kept, no_inside) == LogPosition(3, 6, executed(3))
    alone = Log(made[2:3], low=4, first_offset=4)
    with pytest.raises(LogError, match=r"TR555: .*it may start after this time"):
        first_position("time:1970-01-01T00:00:09Z", alone, no_inside)


@pytest.mark.parametrize(
    ("start", "log_begins", "whole"),
    [
        (None, ORIGIN, True),
        ("earliest", ORIGIN, True),
        ("epoch:1", ORIGIN, True),
        ("epoch:2", ORIGIN, False),
        ("time:1970-01-01T00:00:02Z", ORIGIN, False),
        (f"gtid:{UUID}:1-2", ORIGIN, True),
        (None, COPY, True),
        ("epoch:2", COPY, False),
        (None, "source.start is current", False),
        (None, None, False),
        (f"gtid:{UUID}:1-2", "source.start is current", True),
    ],
)
def test_what_is_known_of_a_begin(start: str | None, log_begins: str | None, whole: bool) -> None:
    log = Log(epochs(5, log_begins=log_begins))
    begin = channel_start(replace(CONFIG, start=start), log)
    assert begin.whole is whole
    position = Position.first(begin)
    # A channel that has applied nothing has a place in the relay log all the same.
    assert (position.relay_log, position.relay_pos) == (
        f"{SOURCE}.000001/mysql-bin.000001",
        1000 + max(begin.log_position.epoch, 0),
    )
    assert (position.epoch, position.executed_gtids) == (
        begin.log_position.epoch,
        begin.log_position.executed,
    )
    assert position.source_log is None
    assert resume_offset(position, log) == max(0, 2 * begin.log_position.epoch + 1)


def with_copies(*steps: tuple[int, str, bool], log_begins: str | None = None) -> list[EpochCommitted]:
    """Epochs, some of which begin or end complete copies: their number, the copy, and whether it ended."""
    made = epochs(9, log_begins=log_begins)
    for number, copy, ended in steps:
        complete = CompleteCopy(f"{copy * 8}-0000-0000-0000-000000000000", ended)
        made[number] = replace(made[number], transactions=0, rows=0, tables=(), complete=complete)
    return made


@pytest.mark.parametrize(
    ("steps", "low", "begin"),
    [
        # It begins after the last DDL in its midst; the older one counts.
        ([(3, "a", False), (4, "a", False), (5, "a", True), (6, "b", False), (8, "b", True)], 2, 4),
        ([(3, "a", False), (5, "a", True), (6, "b", False), (8, "b", True)], 4, 6),
        ([(3, "a", False), (6, "b", False), (8, "b", True)], 2, 6),
        ([(3, "a", False), (5, "a", True), (6, "b", False)], 4, None),
        ([(3, "a", False)], 0, 0),
        ([], 1, None),
    ],
)
def test_a_new_channel_begins_with_a_complete_copy(
    steps: list[tuple[int, str, bool]], low: int, begin: int | None
) -> None:
    log = Log(with_copies(*steps)[low:], low=2 * low, first_offset=2 * low)
    if begin is None:
        with pytest.raises(LogError, match=r"TR555.*tailrace copy --all"):
            channel_start(CONFIG, log)
        return
    found = channel_start(CONFIG, log)
    assert found.whole is (begin > 0)
    assert not Position.first(found).is_new
    for_new = [replace(one, for_new_channels=one.complete is not None) for one in log.records]
    assert Position.first(channel_start(CONFIG, replace(log, records=for_new))).is_new is (begin > 0)
    assert found.log_position.epoch == (begin or -1)
    assert resume_offset(Position.first(found), log) == (2 * begin + 1 if begin else 0)
    whole = with_copies(*steps, log_begins=ORIGIN)
    assert channel_start(CONFIG, Log(whole)).log_position.epoch == -1
    without_rows = channel_start(CONFIG, Log(whole, first_rows=False)).log_position.epoch
    ended = [number for number, name, _ in steps if (name, True) in {step[1:] for step in steps}]
    assert (without_rows >= 0) is bool(ended)


# -- going on --------------------------------------------------------------------------------------


def test_a_channel_goes_on_while_the_next_epoch_is_kept() -> None:
    made = epochs(5)
    position = at(made[2], 4)
    assert resume_offset(position, Log(made)) == 5
    assert resume_offset(position, Log(made, low=4)) == 5
    assert resume_offset(position, Log(made[3:], low=6, first_offset=6)) == 6
    assert resume_offset(at(made[5], 10), Log(made)) == 11


@pytest.mark.parametrize(
    ("log", "what"),
    [
        (Log(epochs(5)[4:], low=8, first_offset=8), "TR555: epoch 3 is needed, and .* starts with epoch 4"),
        (Log([], low=12, first_offset=12), "TR555: epoch 3 is needed, and the epochs topic is empty"),
        # Made anew, and not so long yet; as long; longer, and its first epochs deleted again.
        (Log(epochs(1)), "TR558: .* its last offset is 3"),
        (Log([]), "TR558: .* its last offset is -1"),
        (Log(epochs(5, gtids=False)), "TR558: .* that offset has epoch 2"),
        (Log(epochs(9)[1:3], low=20, first_offset=20), "TR558: .* it starts at offset 20 with epoch 1"),
        (Log(epochs(9, gtids=False)[3:], low=20, first_offset=20), "TR558: .* it starts at offset 20 with epoch 3"),
    ],
)  # fmt: skip
def test_a_log_that_lacks_the_next_epoch_or_is_another_one_stops(log: Log, what: str) -> None:
    with pytest.raises(LogError, match=what):
        resume_offset(at(epochs(5)[2], 4), log)


def test_without_gtids_the_upstreams_place_tells_another_log() -> None:
    made = epochs(5, gtids=False)
    assert resume_offset(at(made[2], 4), Log(made)) == 5
    places = [(record, record.source_pos + 7) for record in made]
    anew = [replace(record, source_pos=pos, relay_pos=pos) for record, pos in places]
    with pytest.raises(LogError, match=r"TR558: .* the upstream's mysql-bin\.000001:1009"):
        resume_offset(at(made[2], 4), Log(anew))


def test_a_channel_from_before_the_first_epoch_needs_it() -> None:
    before = Position(-1, -1, "", 1, -1, "", 0, 0, None)
    assert resume_offset(before, Log(epochs(3))) == 0
    assert resume_offset(before, Log([])) == 0
    for log in (Log(epochs(5), low=4), Log([], low=4, first_offset=4)):
        with pytest.raises(LogError, match="TR555: epoch 0 is needed"):
            resume_offset(before, log)
