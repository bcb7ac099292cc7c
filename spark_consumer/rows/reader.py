"""Having the executors read and render a slice's rows, and finding out what it means if they cannot."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from schemas.errors import NOTHING_APPLIED, DownstreamError, LogError, Where
from schemas.wire.epoch import DIGEST_MODULUS, OffsetRange
from schemas.wire.log_records import FOREIGN, UNFIT, At, check_rows, no_record
from spark_consumer.epochs.fetch import Share, Silent, TopicReader, Unreadable, unreadable
from spark_consumer.epochs.slices import Slice
from spark_consumer.rows.render import UnevaluableRow, UnknownHeader
from spark_consumer.rows.results import SCHEMA_DDL, Failed, Result, Tally, decoded, encoded

# What a task holds at a time. Only a transaction larger than a slice usually is comes to more: its ranges are
# then read several times, rather than held whole by workers and by the JVM between them and the driver.
_TASK_ROWS = 100_000
# From here on it is looked whether there can be so many rows.
_MANY_SHARES = 20
_MOST_SHARES = 10_000

#: what is done with a range's keys and values
Work = Callable[[Sequence[bytes], Sequence[bytes]], Iterable[Result]]
#: the same with the reading of it
Results = Callable[[OffsetRange, Share], Iterable[Result]]


class DamagedRecord(Exception):
    """Some record of a range holds no row; the text says what reading it came to."""


def task(
    parts: tuple[tuple[OffsetRange, Share], ...], results: Results
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark runs over numbers of parts: the results of each.

    What nobody can read is a result too: Spark would try a task that fails again at once.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    yield from encoded(results(*parts[number]))
                except (UnknownHeader, UnevaluableRow, Unreadable, LogError) as error:
                    yield from encoded([Failed(number, error)])
                except UNFIT as error:
                    damaged = DamagedRecord(f"{type(error).__name__}: {error}"[:500])
                    yield from encoded([Failed(number, damaged)])

    return run


class SliceReader:
    """Reads offset ranges of a topic on the executors, one task each, or several where there are many rows."""

    def __init__(self, spark: SparkSession, source: TopicReader) -> None:
        self._spark, self.source = spark, source

    def run(self, ranges: Sequence[OffsetRange], work: Work) -> list[Result]:
        """The results of ``work`` over the keys and values of each range."""
        return self.run_over(ranges, partial(read_range, self.source, work))

    def run_over(
        self, ranges: Sequence[OffsetRange], results: Results, shares: int = 1, most: int | None = None
    ) -> list[Result]:
        """The same, where the reading is a part of the work.

        Args:
            shares: how many tasks divide the keys of a range among themselves; each reads it whole.
            most: rows that the ranges can have.
        """
        parts = tuple((part, Share(number, shares, most)) for part in ranges for number in range(shares))
        frame = self._spark.range(0, len(parts), 1, len(parts))
        return decoded(frame.mapInArrow(task(parts, results), SCHEMA_DDL).toArrow())

    def results(self, slice_: Slice, results: Results, work: Work) -> list[Result]:
        """The results of all ranges of a slice.

        Args:
            results: what reads a range, or a share of it, and works on its rows.
            work: what finds fault with a row that is none; asked row by row where ``results`` has failed.

        Raises:
            LogError: TR568, TR552 a record that is no row, or of no structure of the epochs; TR554 an epoch that
                cannot have its rows; TR557 Kafka does not answer; TR508 it lets nobody in.
            DownstreamError: TR634 a row that an expression has no sure result for.
            Unreadable: a range cannot be read.
        """
        for logged in slice_.epochs:
            check_rows(logged.record, logged.offset)
        if not slice_.ranges:
            return []
        shares = shares_of(slice_)
        if shares > _MANY_SHARES:
            for part in slice_.ranges:
                self.source.check_end(part)
        found = self.run_over(slice_.ranges, results, shares, slice_.rows)
        for one in found:
            if isinstance(one, Failed):
                raise self._meant(one.error, slice_, slice_.ranges[one.part // shares], work)
        return found

    def _meant(self, error: Exception, slice_: Slice, part: OffsetRange, work: Work) -> Exception:
        """What a task's error means."""
        match error:
            case Silent():
                return unreadable(error, slice_.where)
            case LogError():
                error.where = slice_.where
            case UnevaluableRow():
                return unevaluable(error, slice_.where)
            case UnknownHeader() | DamagedRecord():
                return self._fault(error, slice_, part, work)
        return error

    def _fault(self, error: Exception, slice_: Slice, part: OffsetRange, work: Work) -> Exception:
        """The error for the first record of a range that is no row."""
        offsets: list[int] = []
        keys, values = self.source.read(part, offsets=offsets)
        for key, value, offset in zip(keys, values, offsets, strict=True):
            at = At(self.source.topic, offset, part.partition)
            try:
                deque(work([key], [value]), 0)
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


def read_range(source: TopicReader, work: Work, part: OffsetRange, share: Share) -> Iterable[Result]:
    """Read a share of a range, and work on its rows."""
    return work(*source.read(part, share))


def shares_of(slice_: Slice) -> int:
    """How many tasks divide each range of a slice among themselves."""
    return min(_MOST_SHARES, max(1, -(-slice_.rows // (len(slice_.ranges) * _TASK_ROWS))))


def unevaluable(row: UnevaluableRow, where: Where) -> DownstreamError:
    """The error for a row of a slice that an expression has no sure result for."""
    return DownstreamError(
        "TR634",
        f"an expression of the expression-filter has no sure result for a row: {row.text}",
        where=Where(gtid=where.gtid, epoch=where.epoch, table=row.table),
        hint="change the expression, such as with COLLATE and a _bin collation, or where the row image lacks a"
        " column, binlog_row_image upstream",
        applied=NOTHING_APPLIED,
    )


def verify(slice_: Slice, results: Iterable[Result]) -> None:
    """Raise LogError TR554 unless the results are those of all the rows that the epochs say were written."""
    tallies = [one for one in results if isinstance(one, Tally)]
    rows = sum(one.rows for one in tallies)
    digest = sum(one.digest for one in tallies) % DIGEST_MODULUS
    if (rows, digest) != (slice_.rows, slice_.digest):
        raise LogError(
            "TR554",
            f"the rows topic does not hold what epochs {slice_.first.epoch} to {slice_.last.epoch} say:"
            f" {rows} rows of {slice_.rows}, digest {digest} for {slice_.digest}",
            where=slice_.where,
            hint="records were lost or changed",
            applied=NOTHING_APPLIED,
        )
