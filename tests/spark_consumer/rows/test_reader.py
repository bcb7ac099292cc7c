"""What a task of the executors says when it fails, and how a slice's epochs are divided among tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from schemas.compiled.code import CompiledCode, no_folder
from schemas.errors import DownstreamError, LogError
from schemas.wire.epoch import OffsetRange, TableTouched
from spark_consumer.epochs.fetch import ALL_KEYS, KeySubset, TopicReader
from spark_consumer.epochs.slices import LoggedEpoch, Slice
from spark_consumer.rows.executors import SCHEMA, decoded, task
from spark_consumer.rows.reader import Executors, InvalidRecord, Process, SliceReader
from spark_consumer.rows.render import tally
from spark_consumer.rows.results import Result, RowTally, TaskFailure
from spark_consumer.rows.slice_rows import RangeRows, runs_of
from tests.support.epochs.records import epoch_record


@pytest.mark.parametrize(("error", "kind"), [(ValueError, InvalidRecord), (DownstreamError, DownstreamError)])
def test_a_failure_is_the_last_result_and_nothing_more_is_done(
    error: type[Exception], kind: type[Exception]
) -> None:
    done: list[int] = []

    def process(number: int) -> Iterable[Result]:
        if number == 1:
            raise error("TR604", "refused")
        done.append(number)
        yield RowTally(number, 0)

    batches = task(process)(iter([pa.record_batch([pa.array(range(4))], ["id"])]))
    first, failure = decoded(pa.Table.from_batches(batches, SCHEMA))
    assert first == RowTally(0, 0)
    assert isinstance(failure, TaskFailure)
    assert failure.task == 1
    assert type(failure.error) is kind
    assert done == [0]


@given(rows=st.lists(st.integers(0, 60_000), min_size=1, max_size=40))
def test_runs_are_all_epochs_in_their_order(rows: list[int]) -> None:
    epochs = tuple(LoggedEpoch(epoch_record(at, rows=count), at) for at, count in enumerate(rows))
    runs = runs_of(Slice(epochs))
    assert tuple(logged for run in runs for logged in run.epochs) == epochs
    assert all(run.rows <= 50_000 or len(run.epochs) == 1 for run in runs)
    # Two that follow each other are never small enough to be one.
    for left, right in pairwise(runs):
        assert left.rows + right.first.rows > 50_000


class _Rows(TopicReader):
    """Has one row in each range."""

    def read(
        self, offset_range: OffsetRange, subset: KeySubset = ALL_KEYS, offsets: list[int] | None = None
    ) -> tuple[list[bytes], list[bytes]]:
        if offsets is not None:
            offsets.append(offset_range.start)
        return [b"key"], [b"value %d" % offset_range.partition]


def _work(rows: RangeRows) -> Iterable[Result]:
    yield tally(rows.values)


def _then(run: Slice, results: Sequence[Result]) -> Iterable[Result]:
    yield from results


def test_tasks_can_be_sent_to_executors() -> None:
    """Spark pickles them, with all that they refer to."""

    def sent(numbers: int, most: int, process: Process) -> list[Result]:
        del most
        there = cloudpickle.loads(cloudpickle.dumps(process))
        return [result for number in range(numbers) for result in there(number)]

    executors = Executors()
    executors.use(sent)
    log: Any = None
    reader = SliceReader(executors, _Rows("h:1", "rows", "g"), log, CompiledCode("test", no_folder))
    ranges = tuple(OffsetRange(partition, 0, 10_000) for partition in range(2))
    tables = (TableTouched("d", "t", "0", 20_000, 0, 0),)
    slice_ = Slice((LoggedEpoch(epoch_record(1, rows=20_000, ranges=ranges, tables=tables), 1),))
    wanted = [tally([b"value %d" % partition]) for partition in range(2)]
    assert reader.results(slice_, _work) == wanted
    assert reader.results_of_runs(slice_, 2, _work, _then) == wanted


@pytest.mark.parametrize("rows", [10_000, 10_001])
def test_few_rows_of_all_ranges_are_worked_on_together(rows: int) -> None:
    """So a table's rows are in as few statements as possible."""
    log: Any = None
    reader = SliceReader(Executors(), _Rows("h:1", "rows", "g"), log, CompiledCode("test", no_folder))
    ranges = tuple(OffsetRange(partition, 0, rows) for partition in range(5))
    tables = (TableTouched("d", "t", "0", rows, 0, 0),)
    slice_ = Slice((LoggedEpoch(epoch_record(1, rows=rows, ranges=ranges, tables=tables), 1),))
    values = [b"value %d" % partition for partition in range(5)]
    together = [tally(values)] if rows == 10_000 else [tally([value]) for value in values]
    assert reader.results(slice_, _work) == together
    # Offsets are those of one partition.
    assert reader.results(slice_, _work, with_offsets=True) == [tally([value]) for value in values]


def test_a_record_that_is_no_row_is_found_among_those_read_together() -> None:
    def refuses(rows: RangeRows) -> Iterable[Result]:
        if b"value 3" in rows.values:
            raise ValueError("not a row")
        yield tally(rows.values)

    log: Any = None
    reader = SliceReader(Executors(), _Rows("h:1", "rows", "g"), log, CompiledCode("test", no_folder))
    ranges = tuple(OffsetRange(partition, 7, 8) for partition in range(5))
    tables = (TableTouched("d", "t", "0", 5, 0, 0),)
    slice_ = Slice((LoggedEpoch(epoch_record(1, rows=5, ranges=ranges, tables=tables), 1),))
    with pytest.raises(LogError, match=r"rows, partition 3, offset 7: the record is not a row"):
        reader.results(slice_, refuses)
