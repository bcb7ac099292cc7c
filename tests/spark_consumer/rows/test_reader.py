"""How a task of the executors reads ahead, and what it says when it fails."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Event

import pyarrow as pa
import pytest

from schemas.errors import DownstreamError
from spark_consumer.rows.reader import InvalidRecord, task
from spark_consumer.rows.results import SCHEMA, Result, RowTally, TaskFailure, decoded


def _run(read: object, then: object, numbers: int) -> list[Result]:
    made = task(read, then)(iter([pa.record_batch([pa.array(range(numbers))], ["id"])]))  # type: ignore[arg-type]
    return decoded(pa.Table.from_batches(made, SCHEMA))


def test_a_task_reads_the_next_number_while_it_works_on_one() -> None:
    begun = [Event() for _ in range(4)]

    def read(number: int) -> int:
        begun[number].set()
        return number * 10

    def then(number: int, found: int) -> Iterable[Result]:
        if number < 3:
            assert begun[number + 1].wait(60)
        assert number == 3 or not any(event.is_set() for event in begun[number + 2 :])
        yield RowTally(number, found)

    assert _run(read, then, 4) == [RowTally(number, number * 10) for number in range(4)]


@pytest.mark.parametrize("stage", ["read", "then"])
def test_a_failure_is_the_last_result_and_nothing_more_is_done(stage: str) -> None:
    done: list[int] = []

    def read(number: int) -> int:
        if (stage, number) == ("read", 1):
            raise ValueError("no row")
        return number

    def then(number: int, found: int) -> Iterable[Result]:
        if (stage, number) == ("then", 1):
            raise DownstreamError("TR604", "refused")
        done.append(number)
        yield RowTally(number, found)

    first, failure = _run(read, then, 4)
    assert first == RowTally(0, 0)
    assert isinstance(failure, TaskFailure)
    assert failure.task == 1
    assert type(failure.error) is (InvalidRecord if stage == "read" else DownstreamError)
    assert done == [0]
