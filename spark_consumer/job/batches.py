"""Applies epochs: divides them into slices, and reads each slice while the one before it commits.

The epochs are those of one of Spark's micro-batches, or those that this process reads itself (``direct.py``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import structlog

from schemas.crashpoints import reached
from schemas.errors import NOTHING_APPLIED, LogError, TailraceError, Where
from schemas.structure import TableStructure
from schemas.wire.log_records import EpochChain
from spark_consumer.epochs.epoch_transactions import epoch_part
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import LogPosition, Position, end_of_epoch, order_of
from spark_consumer.epochs.slices import (
    LoggedEpoch,
    PartSlice,
    Slice,
    as_channel_sees,
    contiguous_after,
    cut,
    growing,
)
from spark_consumer.epochs.start import TransactionsOf, not_in_log_error
from spark_consumer.epochs.stop_condition import StopCondition
from spark_consumer.epochs.tracker import TrackerOutput
from spark_consumer.job.progress import Counters
from spark_consumer.job.recovered import skip_recovered
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.sinks.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = structlog.get_logger()
# Number of offsets to read back at the start, to find the end of each partition's rows.
_LOOK_BACK = 100
#: how many times as large a slice of rows of copies may be; neither an executor nor the driver ever holds all of it
COPIED_TIMES = 12
_LOOK, _PAUSE_LOOK = 1.0, 0.2  # seconds between two looks whether the channel is paused; while it is

# With fewer rows, at the log's end, what arrives while they are written is rather taken together with what comes next.
_MANY_ROWS = 10_000

#: returns what has arrived behind the epochs of a batch, without waiting
Look = Callable[[], TrackerOutput | None]


class StopQuery(Exception):
    """Raised to end a batch: the run was stopped, its stop condition is reached, or Spark's batch has the turn."""


class BatchRunner:
    """Applies batches, in one thread at a time. Its error is stored in ``failure``."""

    def __init__(
        self,
        config: ConsumerConfig,
        sink: Sink[Any],
        log: LogReader,
        transactions_of: TransactionsOf,
        stop_condition: StopCondition,
        stop: threading.Event,
        counters: Counters,
    ) -> None:
        self._config, self._sink, self._log = config, sink, log
        self._transactions_of, self._stop_condition = transactions_of, stop_condition
        self._stop, self._counters = stop, counters
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="prepare")
        # The slice behind the last one that was applied, if it is read already.
        self._begun: tuple[Slice | None, Future[Any] | None] = None, None
        self._chain = EpochChain(config.epochs_topic)
        self._checked_epoch: int | None = None  # the last one in the chain
        self._next_look = 0.0  # whether the channel is paused
        self.failure: BaseException | None = None
        #: whether the stream or the tracker failed before the batch was read; then a new checkpoint may help
        self.failed_in_tracker = False
        #: the last micro-batch that was applied completely, -1 before the first
        self.finished = -1
        # Threads inside a batch: one applies, and Spark's may wait for its turn.
        self._inside: set[int] = set()
        self._turn = threading.Lock()
        #: set while Spark's batch waits for its turn: then the other thread does not continue with its next slice
        self.give_way = threading.Event()

    @property
    def position(self) -> Position:
        return self._sink.position

    @property
    def busy(self) -> bool:
        """Whether a batch is being applied, or about to be."""
        return bool(self._inside)

    @property
    def ended(self) -> bool:
        """Whether nothing may be applied any more."""
        return (
            self._stop.is_set()
            or self.failure is not None
            or self._stop_condition.reached(self._sink.position)
        )

    def reset(self) -> None:
        """Reset for a new query."""
        self.failure, self.failed_in_tracker, self.finished = None, False, -1
        self._begun = None, None

    def close(self) -> None:
        """Wait for the reader thread."""
        self._ahead.shutdown(wait=True, cancel_futures=True)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Apply one of Spark's micro-batches."""
        with self._noting_failure():
            # If a stop was requested before `busy` was set, this batch's jobs are cancelled.
            if self.ended:
                raise StopQuery
            with self._reading():
                output = TrackerOutput.of(frame.collect())
            position = self._sink.position.epochs_offset
            # A record that is no epoch has to be refused too.
            if output.broken or any(one.offset > position for one in output.epochs):
                self.give_way.set()
                with self._turn:
                    self.give_way.clear()
                    # The other thread may have ended the run.
                    if self.ended:
                        raise StopQuery
                    with self._reading():
                        output.refuse_unknown(self._sink.position.epoch)
                    self._run(output)
            reached("batch.before_return")
            self.finished = batch_id

    def apply(self, output: TrackerOutput, look: Look) -> None:
        """Apply epochs without Spark. Raises as a micro-batch does.

        Args:
            look: returns the next epochs, of which the first are read while the last ones of these are applied.
        """
        with self._noting_failure(), self._turn:
            output.refuse_unknown(self._sink.position.epoch)
            self._run(output, look)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # Another thread's failure is not the tracker's.
            self.failed_in_tracker = self.failure is None
            raise

    @contextmanager
    def _noting_failure(self) -> Iterator[None]:
        self._inside.add(threading.get_ident())
        try:
            yield
        except StopQuery:
            raise
        except BaseException as error:
            self.failure = self.failure or error
            raise
        finally:
            self._inside.discard(threading.get_ident())

    def _run(self, output: TrackerOutput, look: Look | None = None) -> None:
        output.refuse_broken(self._sink.position.epochs_offset)
        position, found = self._sink.position, output.epochs
        others = [one.record.log_id for one in found if position.log_id not in (None, one.record.log_id)]
        if others:
            raise not_in_log_error(position, f"the stream contains epochs of log {others[0]}")
        fresh = contiguous_after(position, found)
        self._check_chain(position, fresh)
        if position.recovered:
            position, fresh = skip_recovered(position, fresh)
            self._sink.move_to(position)
        if len(fresh) < len(found):
            _log.info("epochs_skipped", count=len(found) - len(fresh), position=position.epoch)
        self._check_names(fresh)
        fresh = as_channel_sees(fresh, is_new=position.is_new)
        self._stop_condition = self._stop_condition.found(position, fresh, self._transactions_of)
        slices = self._slices(position, fresh)
        if look is not None and self._begun[1] is None:
            slices = growing(slices)
        self._apply_all(slices, output.structures, look)
        # The stop condition is before this batch's end, so Spark must not record the batch as done.
        if fresh and self._sink.position.epoch < fresh[-1].record.epoch:
            raise StopQuery

    def _slices(self, position: Position, fresh: Sequence[LoggedEpoch]) -> list[Slice]:
        limits = self._config.max_batch_rows, self._config.max_batch_bytes
        copied = 1 if self._config.files is not None else COPIED_TIMES
        end = self._stop_condition.end
        return slice_epochs(position, fresh, end, self._transactions_of, *limits, copied=copied)

    def _check_names(self, fresh: Sequence[LoggedEpoch]) -> None:
        """Raise if upper-case patterns could no longer match."""
        first = next((one for one in fresh if one.record.names_in_lower_case), None)
        if first is not None and not self._config.upstream_lowers_names:
            raise LogError(
                "TR565",
                "the upstream's lower_case_table_names changed, or became known, after this run started",
                where=Where(epoch=first.record.epoch),
                hint="start the consumer again",
                another_start=True,
                applied=NOTHING_APPLIED,
            )

    def _check_chain(self, position: Position, fresh: Sequence[LoggedEpoch]) -> None:
        """Check that each epoch follows the one before it, also that of the run before. Raises LogError TR567."""
        if self._checked_epoch != position.epoch:
            self._chain = EpochChain(self._config.epochs_topic)
            begin = max(self._log.bounds()[0], position.epochs_offset - _LOOK_BACK)
            for logged in self._log.epochs(begin):
                if logged.offset > position.epochs_offset:
                    break
                self._chain.add(logged.record, logged.offset)
        for logged in fresh:
            self._chain.add(logged.record, logged.offset)
            self._checked_epoch = logged.record.epoch

    def _apply_all(
        self, slices: Sequence[Slice], structures: Mapping[str, TableStructure], look: Look | None
    ) -> None:
        for number, slice_ in enumerate(slices):
            if self.ended or self.give_way.is_set():
                raise StopQuery
            self._wait_while_paused()
            begin = time.monotonic()
            self._counters.begins(slice_)
            (begun, coming), self._begun = self._begun, (None, None)
            if coming is None or slice_ != begun:
                coming = self._start_reading(slice_, structures)
            prepared = coming.result()
            read_s = time.monotonic() - begin
            following = slices[number + 1] if number + 1 < len(slices) else None
            if following is None:
                following, structures = self._look_behind(slice_, structures, look)
            ahead = self._read_ahead(slice_, following, structures)
            applied = self._sink.apply(prepared)
            self._counters.applied(
                slice_, self._sink.position, applied, read_s, time.monotonic() - begin - read_s
            )
            self._begun = following, ahead

    def _look_behind(
        self, last: Slice, structures: Mapping[str, TableStructure], look: Look | None
    ) -> tuple[Slice | None, Mapping[str, TableStructure]]:
        """Return the slice that will be the first of the next batch, and the structures of both batches.

        Nothing depends on it: when it is its turn, the next batch is checked and divided as each other one.
        """
        output = look() if look is not None and last.rows >= _MANY_ROWS else None
        if output is None or output.unknown or output.broken:
            return None, structures
        with suppress(TailraceError):
            position = last.position_after(self._sink.position)
            fresh = contiguous_after(position, output.epochs)
            slices = self._slices(position, as_channel_sees(fresh, is_new=position.is_new))
            return (slices[0] if slices else None), {**structures, **output.structures}
        return None, structures

    def _read_ahead(
        self, slice_: Slice, following: Slice | None, structures: Mapping[str, TableStructure]
    ) -> Future[Any] | None:
        """Begin to read what follows a slice; an error is raised when it is its turn."""
        # Slices after a DDL are planned with the tables that the DDL has changed.
        if following is None or slice_.ddl is not None or following.ddl is not None:
            return None
        with suppress(TailraceError):
            return self._start_reading(following, structures)
        return None

    def _wait_while_paused(self) -> None:
        """Stand between two slices while an operator has paused the channel."""
        if time.monotonic() < self._next_look:
            return
        while (since := self._sink.paused_since()) is not None:
            self._counters.pauses(since)
            if self.ended or self.give_way.is_set():
                raise StopQuery
            self._stop.wait(_PAUSE_LOOK)
        self._counters.pauses(None)
        self._next_look = time.monotonic() + _LOOK

    def _start_reading(self, slice_: Slice, structures: Mapping[str, TableStructure]) -> Future[Any]:
        """Plan a slice now, and read its rows in the other thread."""
        return self._ahead.submit(self._sink.plan(slice_, structures))


def slice_epochs(
    position: Position,
    epochs: Sequence[LoggedEpoch],
    end: LogPosition | None,
    transactions_of: TransactionsOf,
    max_rows: int,
    max_bytes: int,
    copied: int = 1,
) -> list[Slice]:
    """Return the slices from a position to ``end``, or to the last epoch.

    After a rewind one of them ends at the position before the rewind. An epoch is divided only if one of these
    positions is inside it.

    Args:
        epochs: the epochs after the position's last complete one, without a gap.
        transactions_of: returns an epoch's transactions; called only for an epoch that is divided.
        copied: see ``cut``.
    """
    repeat_until = position.repeat_until
    slices: list[Slice] = []
    run: list[LoggedEpoch] = []
    for logged in epochs:
        begin, after = order_of(logged.record.epoch - 1, None), order_of(logged.record.epoch, None)
        if end is not None and end.order <= begin:
            break
        points = [point for point in (repeat_until, end) if point is not None and begin < point.order < after]
        stops = [point for point in points if end is None or point.order <= end.order]
        if stops or (not slices and not run and position.epoch_rows is not None):
            slices += cut(run, max_rows, max_bytes, copied)
            run = []
            whole = end is None or end.order >= after
            slices += _parts(position, logged, stops, whole, transactions_of)
            continue
        run.append(logged)
        if repeat_until is not None and repeat_until.order == after:
            slices += cut(run, max_rows, max_bytes, copied)
            run = []
    return [*slices, *cut(run, max_rows, max_bytes, copied)]


def _parts(
    position: Position,
    logged: LoggedEpoch,
    stops: Sequence[LogPosition],
    whole: bool,
    transactions_of: TransactionsOf,
) -> Iterator[Slice]:
    """Yield the parts of one epoch from the position, if it is inside it, to the last of the stops, or to its end."""
    found = transactions_of(logged)
    here = position.log_position if position.epoch + 1 == logged.record.epoch else None
    ends = sorted(stops, key=lambda point: point.order)
    if whole:
        ends.append(end_of_epoch(logged.record, logged.offset))
    for end in ends:
        if here is None or not end.reached(here.order, here.executed):
            start = (here and here.rows) or 0
            stop = logged.record.rows if end.rows is None else end.rows
            yield PartSlice((epoch_part(logged, found, start, stop),), start, end)
            here = end
