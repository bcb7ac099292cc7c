"""A slice's rows, read from Kafka and worked on by the executors, and what it means if they cannot be read."""

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
from spark_consumer.epochs.fetch import ALL_KEYS, KeySubset, Silent, TopicReader, Unreadable, unreadable
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.slices import Slice
from spark_consumer.rows.failures import explain
from spark_consumer.rows.render import UnevaluableRow, UnknownHeader
from spark_consumer.rows.results import SCHEMA_DDL, Result, TaskFailure, decoded, encoded
from spark_consumer.rows.slice_rows import RangeRows, SliceRows, Work

# What a task holds at a time. Only a transaction larger than a slice usually is comes to more: its ranges are
# then read several times, rather than held whole by workers and by the JVM between them and the driver.
_TASK_ROWS = 100_000
# From here on it is looked whether there can be so many rows.
_MANY_SHARES = 20
_MOST_SHARES = 10_000

#: the function of one Spark job
ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
#: runs such a function over the numbers of so many tasks; the Arrow table of all that they return
RunTasks = Callable[[int, ArrowFunction], Any]


class InvalidRecord(Exception):
    """A record in the range is not a row; the message has the decoding error."""


def task(
    parts: Sequence[tuple[OffsetRange, KeySubset]],
    read: Callable[[OffsetRange, KeySubset], RangeRows],
    work: Work,
) -> ArrowFunction:
    """The function that Spark runs over numbers of parts: the results of each.

    Read failures are returned as results, because Spark would retry a failing task immediately.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    yield from encoded(work(read(*parts[number])))
                except (UnknownHeader, UnevaluableRow, Unreadable, LogError) as error:
                    yield from encoded([TaskFailure(number, error)])
                except UNFIT as error:
                    damaged = InvalidRecord(f"{type(error).__name__}: {error}"[:500])
                    yield from encoded([TaskFailure(number, damaged)])

    return run


def on_executors(spark: SparkSession) -> RunTasks:
    """Runs tasks in Spark's Python workers."""

    def run(tasks: int, function: ArrowFunction) -> Any:
        return spark.range(0, tasks, 1, tasks).mapInArrow(function, SCHEMA_DDL).toArrow()

    return run


def read_range(source: TopicReader, part: OffsetRange, share: KeySubset, *, with_offsets: bool) -> RangeRows:
    """A share of a range."""
    offsets: list[int] = []
    keys, values = source.read(part, share, offsets if with_offsets else None)
    return RangeRows(keys, values, part.partition, offsets)


class SliceReader(SliceRows):
    """Reads offset ranges of a topic, one task each, or several where there are many rows.

    Args:
        run_tasks: see ``on_executors``.
        log: says whether rows that cannot be read were deleted.
    """

    def __init__(self, run_tasks: RunTasks, source: TopicReader, log: LogReader) -> None:
        self._run_tasks, self._source, self._log = run_tasks, source, log

    def results(self, slice_: Slice, work: Work, *, with_offsets: bool = False) -> list[Result]:
        """The results of ``work`` over all rows of a slice.

        Raises:
            LogError: TR568, TR552 a record that is no row, or of no structure of the epochs; TR554 an epoch that
                cannot have its rows; TR555 retention has deleted some; TR557 Kafka does not answer; TR508 it lets
                nobody in; TR556 Spark has failed.
            DownstreamError: TR634 a row that an expression has no sure result for.
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
        """What a task's error means."""
        match error:
            case Silent():
                return unreadable(error, slice_.where)
            case LogError():
                error.where = slice_.where
            case UnknownHeader() | InvalidRecord():
                return self._fault(error, slice_, part, work)
        return error

    def _fault(self, error: Exception, slice_: Slice, part: OffsetRange, work: Work) -> Exception:
        """The error for the first record of a range that is no row: the work is done row by row."""
        rows = read_range(self._source, part, ALL_KEYS, with_offsets=True)
        for key, value, offset in zip(rows.keys, rows.values, rows.offsets, strict=True):
            at = At(self._source.topic, offset, part.partition)
            try:
                deque(work(RangeRows([key], [value], part.partition, [offset])), 0)
            except UnknownHeader as unknown:
                return LogError(
                    "TR552",
                    f"{at}: the row's header {unknown.args[0].hex()} names no structure that its epochs name",
                    where=slice_.where,
                    hint=FOREIGN,
                )
            except UnevaluableRow:
                continue
            except UNFIT as reason:
                return no_record(at, "the record holds no row", reason, slice_.where)
        return error


def shares_of(slice_: Slice) -> int:
    """How many tasks divide each range of a slice among themselves."""
    return min(_MOST_SHARES, max(1, -(-slice_.rows // (len(slice_.ranges) * _TASK_ROWS))))
