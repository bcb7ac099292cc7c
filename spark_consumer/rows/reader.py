"""Reads and processes a slice's rows in tasks, and explains why rows cannot be read."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain

from schemas.compiled.code import CompiledCode
from schemas.errors import DownstreamError, LogError, TailraceError
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
from spark_consumer.rows.results import Result, TaskFailure
from spark_consumer.rows.slice_rows import RangeRows, RunWork, SliceRows, Work, runs_of

# The rows that a task holds at a time. Only a transaction larger than a usual slice has more. Then several tasks read
# each of its ranges, so that neither a worker nor the JVM has to hold the whole range.
_TASK_ROWS = 100_000
# From this number of them on, check first whether the range can have so many rows.
_MANY_TASKS = 20
_MOST_TASKS = 10_000
_FEW_ROWS = 10_000
_MOST_THREADS = 4

#: the work of a task by its number, from 0
Process = Callable[[int], Iterable[Result]]
#: runs so many tasks, at most so many at a time, and returns their results; it ends with the first failure, as a result
RunTasks = Callable[[int, int, Process], list[Result]]


class InvalidRecord(Exception):
    """A record in the range is not a row. The message is the decoding error."""


def outcomes(process: Process, numbers: Iterable[int]) -> Iterator[Result]:
    """Yield the results of tasks; a failure is the last one."""
    for number in numbers:
        try:
            yield from process(number)
        except (UnknownHeader, RangeReadError, LogError, DownstreamError) as error:
            yield TaskFailure(number, error)
            return
        except UNFIT as error:
            yield TaskFailure(number, InvalidRecord(f"{type(error).__name__}: {error}"[:500]))
            return


# Rendering is the interpreter's work: side by side the threads would only wait for each other, for each function that
# is made for a table. And all runs would be rendered first, and then all be written: with this one is written while the
# next is rendered.
_rendering = threading.Lock()
# They wait for Kafka and the downstream side by side, each with connections of its own.
_threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="task")


def in_this_process(numbers: int, most: int, process: Process) -> list[Result]:
    """Run tasks in threads of this process, where executors would share them."""
    side_by_side = min(numbers, most, _MOST_THREADS)
    if side_by_side == 1:
        return list(outcomes(process, range(numbers)))
    # Each takes the next one.
    coming = iter(range(numbers))
    found = _threads.map(lambda _: list(outcomes(process, coming)), range(side_by_side))
    return [result for results in list(found) for result in results]


class Executors:
    """Runs tasks on Spark's executors; in this process, as long as there are none."""

    def __init__(self) -> None:
        self._run: RunTasks | None = None

    def use(self, run: RunTasks) -> None:
        """From now on run tasks with ``spark_consumer.rows.executors.on_executors``."""
        self._run = run

    def __call__(self, numbers: int, most: int, process: Process, *, waits: bool) -> list[Result]:
        """Run tasks, as ``RunTasks``.

        Args:
            waits: whether a task waits for servers most of the time.
        """
        if self._run is not None:
            return self._run(numbers, most, process)
        # Rows are the interpreter's work: four threads needed a fifth more of it for them, and twice the memory.
        return in_this_process(numbers, most if waits else 1, process)


def read_range(source: TopicReader, part: OffsetRange, share: KeySubset, *, with_offsets: bool) -> RangeRows:
    """Read a share of a range."""
    offsets: list[int] = []
    keys, values = source.read(part, share, offsets if with_offsets else None)
    return RangeRows(keys, values, part.partition, offsets)


def read_together(source: TopicReader, parts: Sequence[tuple[OffsetRange, KeySubset]]) -> RangeRows:
    """Read shares of ranges side by side, as if they were one range."""
    found = list(_threads.map(lambda one: source.read(*one), parts))
    keys, values = (list(chain.from_iterable(lists)) for lists in zip(*found, strict=True))
    return RangeRows(keys, values)


def worked(work: Work, found: Iterable[RangeRows]) -> Iterator[Result]:
    """Yield the results of ``work``, which other threads do not do meanwhile.

    A task refers to this function and not to the lock, because a task is pickled for the executors.
    """
    with _rendering:
        for rows in found:
            yield from work(rows)


class SliceReader(SliceRows):
    """Reads offset ranges of a topic, each in one task, or in several if it has many rows.

    A slice of few rows is read in this process: executors would only add what a Spark job costs.

    Args:
        log: finds out whether rows that cannot be read were deleted.
        code: compiled code, which is loaded with the first slice of many rows.
    """

    def __init__(self, executors: Executors, source: TopicReader, log: LogReader, code: CompiledCode) -> None:
        self._executors, self._source, self._log, self._code = executors, source, log, code

    def expect(self, slice_: Slice) -> None:
        if slice_.rows > _FEW_ROWS:
            self._code.begin()

    def results(self, slice_: Slice, work: Work, *, with_offsets: bool = False) -> list[Result]:
        """Return the results of ``work`` for all rows of a slice.

        Raises:
            LogError: TR568, a record is not a row; TR552, its structure is not one of the epochs'; TR554, the rows do
                not match the epochs; TR555, retention has deleted rows; TR557, Kafka does not respond; TR508, Kafka
                refuses the login; TR556, Spark has failed.
            DownstreamError: TR634, an expression cannot be evaluated exactly for a row.
        """
        if not slice_.ranges:
            return []
        count = tasks_of_range(slice_)
        parts = [
            (part, KeySubset(number, count, slice_.rows)) for part in slice_.ranges for number in range(count)
        ]
        # A table's few rows are to be in few statements.
        groups = [parts] if slice_.rows <= _FEW_ROWS and not with_offsets else [[part] for part in parts]
        source = self._source

        def process(number: int) -> Iterable[Result]:
            group = groups[number]
            if len(group) > 1:
                return worked(work, [read_together(source, group)])
            return worked(work, [read_range(source, *group[0], with_offsets=with_offsets)])

        with self._explained(slice_):
            if count > _MANY_TASKS:
                for part in slice_.ranges:
                    source.check_end(part)
            found = self._run(slice_, len(groups), len(groups), process, waits=False)
            if isinstance(found, TaskFailure):
                ranges = [part for part, _ in groups[found.task]]
                raise self._meant(found.error, slice_, ranges, work)
            return found

    def results_of_runs(self, slice_: Slice, most: int, work: Work, then: RunWork) -> list[Result]:
        source, runs = self._source, runs_of(slice_)

        def process(number: int) -> Iterable[Result]:
            run = runs[number]
            every = KeySubset(0, 1, run.rows)
            found = [read_range(source, part, every, with_offsets=False) for part in run.ranges]
            return then(run, list(worked(work, found)))

        with self._explained(slice_):
            found = self._run(slice_, len(runs), most, process, waits=True)
            if isinstance(found, TaskFailure):
                raise self._meant(found.error, slice_, runs[found.task].ranges, work)
            return found

    @contextmanager
    def _explained(self, slice_: Slice) -> Iterator[None]:
        try:
            yield
        except TailraceError:
            raise
        except Exception as error:
            raise explain(error, slice_, self._log) from error

    def _run(
        self, slice_: Slice, numbers: int, most: int, process: Process, *, waits: bool
    ) -> list[Result] | TaskFailure:
        """Run tasks that read rows of the slice; return their results, or the first failure."""
        for logged in slice_.epochs:
            check_rows(logged.record, logged.offset)
        if slice_.rows <= _FEW_ROWS:
            found = in_this_process(numbers, most, process)
        else:
            self._code.load()
            found = self._executors(numbers, most, process, waits=waits)
        return next((one for one in found if isinstance(one, TaskFailure)), found)

    def _meant(self, error: Exception, slice_: Slice, parts: Sequence[OffsetRange], work: Work) -> Exception:
        """Return the error to raise for the error of a task that has read these ranges."""
        match error:
            case NoResponse():
                return read_error(error, slice_.where)
            case LogError():
                return error.but(where=slice_.where)
            case UnknownHeader() | InvalidRecord():
                found = (self._fault(slice_, part, work) for part in parts)
                return next((fault for fault in found if fault is not None), error)
        return error

    def _fault(self, slice_: Slice, part: OffsetRange, work: Work) -> LogError | None:
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
        return None


def tasks_of_range(slice_: Slice) -> int:
    """Return the number of tasks that share each range of a slice."""
    return min(_MOST_TASKS, max(1, -(-slice_.rows // (len(slice_.ranges) * _TASK_ROWS))))
