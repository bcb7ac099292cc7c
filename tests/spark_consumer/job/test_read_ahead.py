"""What a batch reads before it is its turn: the slice behind the one that is being written, also of the next batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from schemas.wire.epoch import SchemaChanged
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import LoggedEpoch, Slice
from spark_consumer.epochs.stop_condition import StopCondition
from spark_consumer.epochs.tracker import TrackerOutput
from spark_consumer.job import direct
from spark_consumer.job.batches import BatchRunner, StopQuery
from spark_consumer.job.progress import Counters
from spark_consumer.plan.counters import NOTHING_COUNTED, Applied
from spark_consumer.rules.config import ConsumerConfig
from tests.support.epochs.records import epoch_record

DROPPED = SchemaChanged("DROP TABLE t", "d", "DROP TABLE", (), "mysql", 0)


class NotingSink:
    """A sink that writes nothing, and notes what it was asked for."""

    def __init__(self) -> None:
        self.position = Position(-1, -1, "", 1, -1, "", 0, 0, None)
        self.asked: list[str] = []
        self.refused: set[int] = set()

    def plan(self, slice_: Slice, structures: object) -> Callable[[], Slice]:
        self.asked.append(f"plan {slice_.first.epoch}")
        if slice_.first.epoch in self.refused:
            raise DownstreamError("TR999", "no")
        return lambda: slice_

    def apply(self, slice_: Slice) -> Applied:
        self.asked.append(f"apply {slice_.first.epoch}")
        slice_.check_next(self.position)
        self.position = slice_.position_after(self.position)
        return Applied(1, NOTHING_COUNTED)

    def paused_since(self) -> None:
        return None


@pytest.fixture
def sink() -> NotingSink:
    return NotingSink()


@pytest.fixture
def runner(sink: NotingSink) -> Iterator[BatchRunner]:
    log = SimpleNamespace(bounds=lambda: (0, 0), epochs=lambda begin: [])
    config = replace(ConsumerConfig("b", "p", ServerUrl("h")), max_batch_rows=20_000)
    parts: Any = (config, sink, log, SimpleNamespace(), StopCondition(), threading.Event(), Counters())
    made = BatchRunner(*parts)
    yield made
    made.close()


def batch(*numbers: int, ddl: int = -1, rows: int = 15_000) -> TrackerOutput:
    """Epochs, as they are without ``rows`` slices of their own."""
    epochs = [
        LoggedEpoch(epoch_record(one, rows=rows, ddl=DROPPED if one == ddl else None), one) for one in numbers
    ]
    return TrackerOutput(epochs, {}, [], [])


def nothing() -> None:
    return None


def test_the_next_batch_is_read_before_the_last_slice_is_written(
    runner: BatchRunner, sink: NotingSink
) -> None:
    first, second = batch(0, 1), batch(2, 3)
    runner.apply(first, lambda: second)
    assert sink.asked == ["plan 0", "plan 1", "apply 0", "plan 2", "apply 1"]
    runner.apply(second, nothing)
    assert sink.asked[5:] == ["plan 3", "apply 2", "apply 3"]


def test_what_was_read_is_left_if_the_batch_is_divided_otherwise(
    runner: BatchRunner, sink: NotingSink
) -> None:
    """More has arrived, and a slice has more epochs now."""
    runner.apply(batch(0), lambda: batch(1, rows=2))
    runner.apply(batch(1, 2, rows=2), nothing)
    assert sink.asked == ["plan 0", "plan 1", "apply 0", "plan 1", "apply 1"]
    assert sink.position.epoch == 2


def test_behind_few_rows_nothing_is_read(runner: BatchRunner, sink: NotingSink) -> None:
    """What arrives meanwhile is taken together."""
    runner.apply(batch(0, rows=9000), lambda: batch(1))
    assert sink.asked == ["plan 0", "apply 0"]


def test_what_others_have_written_meanwhile_is_not_written_again(
    runner: BatchRunner, sink: NotingSink
) -> None:
    second = batch(1, 2)
    runner.apply(batch(0), lambda: second)
    sink.position = Slice((second.epochs[0],)).position_after(sink.position)
    runner.apply(second, nothing)
    assert sink.asked == ["plan 0", "plan 1", "apply 0", "plan 2", "apply 2"]


@pytest.mark.parametrize("ddl", [0, 1])
def test_nothing_is_planned_across_a_ddl(runner: BatchRunner, sink: NotingSink, ddl: int) -> None:
    second = batch(1, ddl=ddl)
    runner.apply(batch(0, ddl=ddl), lambda: second)
    runner.apply(second, nothing)
    assert sink.asked == ["plan 0", "apply 0", "plan 1", "apply 1"]


@pytest.mark.parametrize("numbers", [(0, 1), (0,)])
def test_an_error_waits_for_its_turn(runner: BatchRunner, sink: NotingSink, numbers: tuple[int, ...]) -> None:
    """What comes before it is applied, in the same batch or in the one before."""

    def both() -> None:
        runner.apply(batch(*numbers), lambda: second)
        runner.apply(second, nothing)

    sink.refused, second = {1}, batch(1)
    with pytest.raises(DownstreamError, match="TR999"):
        both()
    assert sink.asked == ["plan 0", "plan 1", "apply 0", "plan 1"]
    assert sink.position.epoch == 0


@pytest.mark.parametrize("wrong", [batch(2), TrackerOutput([], {}, [], [SimpleNamespace()])])
def test_what_is_wrong_behind_a_batch_does_not_hold_it_up(
    runner: BatchRunner, sink: NotingSink, wrong: TrackerOutput
) -> None:
    runner.apply(batch(0), lambda: wrong)
    assert sink.asked == ["plan 0", "apply 0"]


def test_sparks_turn_comes_before_what_was_read(runner: BatchRunner, sink: NotingSink) -> None:
    second = batch(1)
    runner.apply(batch(0), lambda: second)
    runner.give_way.set()
    with pytest.raises(StopQuery):
        runner.apply(second, nothing)
    runner.give_way.clear()
    runner.apply(second, nothing)
    assert sink.asked == ["plan 0", "plan 1", "apply 0", "apply 1"]
    assert sink.position.epoch == 1


def test_slices_grow_while_nothing_is_being_written(
    monkeypatch: pytest.MonkeyPatch, runner: BatchRunner, sink: NotingSink
) -> None:
    monkeypatch.setattr("spark_consumer.epochs.slices._FIRST_ROWS", 6000)
    first, second = batch(*range(10), rows=3000), batch(*range(10, 20), rows=3000)
    runner.apply(first, lambda: second)
    assert [one for one in sink.asked if "apply" in one] == ["apply 0", "apply 2", "apply 6"]
    runner.apply(second, nothing)
    assert [one for one in sink.asked[7:] if "apply" in one] == ["apply 10", "apply 16"]


@pytest.mark.parametrize(("rows", "is_shown"), [(200_000, True), (200_001, False)])
def test_a_transaction_that_executors_share_is_not_shown_before_its_turn(
    monkeypatch: pytest.MonkeyPatch, rows: int, is_shown: bool
) -> None:
    batches, applied = [batch(0), batch(1, rows=rows)], []
    position = Position(-1, -1, "", 1, -1, "", 0, 0, None)
    runner = SimpleNamespace(ended=False, give_way=threading.Event(), position=position, failure=None)

    def apply(output: TrackerOutput, look: Callable[[], TrackerOutput | None]) -> None:
        applied.append((output, look(), look()))
        # Spark has applied what was left to it.
        runner.position, runner.ended = replace(position, epochs_offset=1), not batches

    @contextmanager
    def following(offset: int) -> Iterator[Callable[..., list[TrackerOutput]]]:
        yield lambda most, wait: [batches.pop(0)] if batches else []

    runner.apply = apply
    monkeypatch.setattr(direct, "tracked", lambda versions, records, topic: records)
    monkeypatch.setattr(TrackerOutput, "of", staticmethod(lambda found: found[0]))
    monkeypatch.setattr(direct, "resume_offset", lambda position, log: 0)
    log: Any = SimpleNamespace(structures=lambda epoch: [], following=following, connected=nullcontext)
    first, second = batches
    one = direct.DirectBatches(ConsumerConfig("b", "p", ServerUrl("h")), cast("BatchRunner", runner), log)
    one._follow()
    assert applied[0] == (first, *((second, second) if is_shown else (None, None)))
