"""What a task of the executors says when it fails, and how a slice's epochs are divided among tasks."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import DownstreamError
from spark_consumer.epochs.slices import LoggedEpoch, Slice
from spark_consumer.rows.executors import SCHEMA, decoded, task
from spark_consumer.rows.reader import InvalidRecord
from spark_consumer.rows.results import Result, RowTally, TaskFailure
from spark_consumer.rows.slice_rows import runs_of
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
