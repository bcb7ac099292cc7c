"""Reads and processes a slice's rows on the executors, and explains why rows cannot be read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from schemas.errors import LogError, TailraceError
from schemas.wire.epoch import OffsetRange
from schemas.wire.log_records import FOREIGN, UNFIT, At, check_rows, no_record
from spark_consumer.epochs.fetch import (
    ALL_KEYS,
    KeySubset,
    NoResponse,
    RangeReadError,
    TopicReader,
    read_error,
)
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.slices import Slice
from spark_consumer.rows.failures import explain
from spark_consumer.rows.render import UnevaluableRow, UnknownHeader
from spark_consumer.rows.results import SCHEMA_DDL, Result, TaskFailure, decoded, encoded
from spark_consumer.rows.slice_rows import RangeRows, SliceRows, Work

# The rows that a task holds at a time. Only a transaction larger than a usual slice has more. Then several tasks read
# each of its ranges, so that neither a worker nor the JVM has to hold the whole range.
_TASK_ROWS = 100_000
# From this number of shares on, check first whether the range can have so many rows.
_MANY_SHARES = 20
_MOST_SHARES = 10_000

#: the function of one Spark job
ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
#: runs such a function in this many tasks; returns an Arrow table of all their results
RunTasks = Callable[[int, ArrowFunction], Any]


class InvalidRecord(Exception):
    """A record in the range is not a row. The message is the decoding error."""


def task(
    parts: Sequence[tuple[OffsetRange, KeySubset]],
    read: Callable[[OffsetRange, KeySubset], RangeRows],
    work: Work,
) -> ArrowFunction:
    """Return the function that Spark runs in each task; its input is the numbers of parts, its output their results.

    Read failures are results too, because Spark would retry a failed task immediately.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    yield from encoded(work(read(*parts[number])))
                except (UnknownHeader, UnevaluableRow, RangeReadError, LogError) as error:
                    yield from encoded([TaskFailure(number, error)])
                except UNFIT as error:
                    damaged = InvalidRecord(f"{type(error).__name__}: {error}"[:500])
                    yield from encoded([TaskFailure(number, damaged)])

    return run


def on_executors(spark: SparkSession) -> RunTasks:
    """Return a function that runs tasks in Spark's Python workers."""

    def run(tasks: int, function: ArrowFunction) -> Any:
        return spark.range(0, tasks, 1, tasks).mapInArrow(function, SCHEMA_DDL).toArrow()

    return run


def read_range(source: TopicReader, part: OffsetRange, share: KeySubset, *, with_offsets: bool) -> RangeRows:
    """Read a share of a range."""
    offsets: list[int] = []
    keys, values = source.read(part, share, offsets if with_offsets else None)
    return RangeRows(keys, values, part.partition, offsets)


class SliceReader(SliceRows):
    """Reads offset ranges of a topic, each in one task, or in several if it has many rows.

    Args:
        run_tasks: see ``on_executors``.
        log: finds out whether rows that cannot be read were deleted.
    """

    def __init__(self, run_tasks: RunTasks, source: TopicReader, log: LogReader) -> None:
        self._run_tasks, self._source, self._log = run_tasks, source, log

    def results(self, slice_: Slice, work: Work, *, with_offsets: bool = False) -> list[Result]:
        """Return the results of ``work`` for all rows of a slice.

        Raises:
            LogError: TR568, a record is not a row; TR552, its structure is not one of the epochs'; TR554, the rows do
                not match the epochs; TR555, retention has deleted rows; TR557, Kafka does not respond; TR508, Kafka
                refuses the login; TR556, Spark has failed.
            DownstreamError: TR634, an expression cannot be evaluated exactly for a row.
        """
        try:
            return self._results(slice_, work, with_offsets)
        except TailraceError:
            raise
        except Exception as error:
            raise explain(error, slice_, self._log) from error

    def _results(self, slice_: Slice, work: Work, with_offsets: bool) -> list[Result]:
        for logged in slice_.epochs:
            check_rows(logged.record, logged.offset)
        if not slice_.ranges:
            return []
        shares = shares_of(slice_)
        if shares > _MANY_SHARES:
            for part in slice_.ranges:
                self._source.check_end(part)
        parts = [
            (part, KeySubset(number, shares, slice_.rows))
            for part in slice_.ranges
            for number in range(shares)
        ]
        read = partial(read_range, self._source, with_offsets=with_offsets)
        found = decoded(self._run_tasks(len(parts), task(parts, read, work)))
        for one in found:
            if isinstance(one, TaskFailure):
                raise self._meant(one.error, slice_, parts[one.task][0], work)
        return found

    def _meant(self, error: Exception, slice_: Slice, part: OffsetRange, work: Work) -> Exception:
        """Return the error to raise for a task's error."""
        match error:
            case NoResponse():
                return read_error(error, slice_.where)
            case LogError():
                return error.but(where=slice_.where)
            case UnknownHeader() | InvalidRecord():
                return self._fault(error, slice_, part, work)
        return error

    def _fault(self, error: Exception, slice_: Slice, part: OffsetRange, work: Work) -> Exception:
        """Find the first record of a range that is not a row, by processing single rows, and return its error."""
        rows = read_range(self._source, part, ALL_KEYS, with_offsets=True)
        for key, value, offset in zip(rows.keys, rows.values, rows.offsets, strict=True):
            at = At(self._source.topic, offset, part.partition)
            try:
                deque(work(RangeRows([key], [value], part.partition, [offset])), 0)
            except UnknownHeader as unknown:
                return LogError(
                    "TR552",
                    f"{at}: the row's header {unknown.args[0].hex()} is not the fingerprint of a structure of its"
                    " epochs",
                    where=slice_.where,
                    hint=FOREIGN,
                )
            except UnevaluableRow:
                continue
            except UNFIT as reason:
                return no_record(at, "the record is not a row", reason, slice_.where)
        return error


def shares_of(slice_: Slice) -> int:
    """Return the number of tasks that share each range of a slice."""
    return min(_MOST_SHARES, max(1, -(-slice_.rows // (len(slice_.ranges) * _TASK_ROWS))))
