"""Slices: runs of whole epochs, or parts of one epoch, that move the position in one downstream transaction each.

While a table is being copied, rows of it may be missing downstream. The epochs say so, each for the tables that it
touches (``TableTouched.incomplete``), so a slice alone tells which of its tables are incomplete.

A copy for new channels concerns only a channel that began with it. ``as_channel_sees`` makes of an epoch what a channel
applies of it: the others pass over the copy's epochs, which then are without rows and DDL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, count

from schemas.errors import LogError, Where
from schemas.tables import QualifiedName
from schemas.wire.epoch import (
    ABSENT,
    DIGEST_MODULUS,
    END,
    INCOMPLETE,
    EpochCommitted,
    OffsetRange,
    RowRun,
    SchemaChanged,
    TableTouched,
)
from schemas.wire.log_records import FOREIGN, missing
from spark_consumer.epochs.position import BEFORE_ALL, LogPosition, Position, order_of

# A chunk of a copy counts as so many bytes.
_CHUNK_BYTES = 16 << 20
_FIRST_ROWS = 20_000


@dataclass(frozen=True)
class LoggedEpoch:
    """An epoch and its offset in the epochs topic."""

    record: EpochCommitted
    offset: int


@dataclass(frozen=True)
class Slice:
    """Consecutive epochs. A DDL's epoch is a slice of its own, and the DDL runs before its rows."""

    epochs: tuple[LoggedEpoch, ...]

    @property
    def first(self) -> EpochCommitted:
        return self.epochs[0].record

    @property
    def last(self) -> EpochCommitted:
        return self.epochs[-1].record

    @property
    def ddl(self) -> SchemaChanged | None:
        return self.first.ddl

    @property
    def rows(self) -> int:
        return sum(logged.record.rows for logged in self.epochs)

    @property
    def digest(self) -> int:
        return sum(logged.record.digest for logged in self.epochs) % DIGEST_MODULUS

    @property
    def skipped(self) -> int:
        """The number of events that the producer's [[skip]] rules have left out in these epochs."""
        whole = self.epochs if self.order == order_of(self.last.epoch, None) else ()
        return sum(passed.events for logged in whole for passed in logged.record.skipped)

    @property
    def where(self) -> Where:
        return Where(gtid=self.last.last_gtid, epoch=self.first.epoch)

    @cached_property
    def fingerprints(self) -> frozenset[str]:
        """Fingerprints of the structures that the rows were written with."""
        return frozenset(table.fingerprint for table in self.touched)

    @property
    def touched(self) -> Iterator[TableTouched]:
        """The numbers of its rows, by epoch and table."""
        return (table for logged in self.epochs for table in logged.record.tables)

    @cached_property
    def incomplete(self) -> frozenset[QualifiedName]:
        """The upstream's tables of which rows may be missing downstream, because a copy of them runs."""
        return frozenset((table.db, table.table) for table in self.touched if table.incomplete)

    @cached_property
    def absent(self) -> frozenset[QualifiedName]:
        """The upstream's tables that a new channel does not have yet; it passes over their changes."""
        return frozenset((table.db, table.table) for table in self.touched if table.new_channels == ABSENT)

    @cached_property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """For each partition the range from the first epoch's start to the last epoch's end.

        Other records in the range are transaction markers and aborted records, which a read_committed reader skips.
        """
        bounds: dict[int, tuple[int, int]] = {}
        for logged in self.epochs:
            for part in logged.record.ranges:
                if part.end > part.start:
                    start = bounds.get(part.partition, (part.start, 0))[0]
                    bounds[part.partition] = (start, part.end)
        return tuple(OffsetRange(partition, *bounds[partition]) for partition in sorted(bounds))

    @property
    def each_epoch(self) -> list[Slice]:
        """Its epochs as slices of their own."""
        return [Slice((logged,)) for logged in self.epochs]

    @property
    def runs(self) -> list[Slice]:
        """The runs of its rows, if it is an epoch with a large transaction."""
        if len(self.epochs) > 1:
            return []
        starts = accumulate((run.rows for run in self.first.runs), initial=0)
        return [
            RunSlice(self.epochs, run, start) for run, start in zip(self.first.runs, starts, strict=False)
        ]

    @property
    def is_copied(self) -> bool:
        """Whether its rows are all rows of copies, so that nothing changes between them."""
        return all(logged.record.copy is not None for logged in self.epochs)

    @property
    def window(self) -> tuple[int, int] | None:
        """The numbers of the epoch's rows that belong to the slice; None for all rows of its epochs."""
        return None

    @property
    def order(self) -> tuple[int, int]:
        """The sort key of the slice's end among positions."""
        return order_of(self.last.epoch, None)

    def holds(self, epoch: int) -> bool:
        """Whether an epoch of the log, or a part of it, belongs to the slice."""
        return self.first.epoch <= epoch <= self.last.epoch

    def is_applied(self, position: Position) -> bool:
        """Whether the position is at the slice's end or after it."""
        return position.epoch >= self.last.epoch

    def is_next(self, position: Position) -> bool:
        """Whether the slice starts at the position."""
        return position.epoch + 1 == self.first.epoch and position.epoch_gtids is None

    def check_next(self, position: Position) -> None:
        """Raise LogError if the slice does not start at the position."""
        if not self.is_next(position):
            raise not_next(position, self.first.epoch, self.where)

    def position_after(self, before: Position) -> Position:
        """Return the position at the slice's end."""
        is_new = before.is_new and not any(logged.record.ends_copy for logged in self.epochs)
        end = replace(before, is_new=is_new).at_end_of(self.last)
        return replace(position_after(end, self.epochs), epoch_gtids=None, epoch_rows=None)

    def audit_epochs(self, number: int) -> list[EpochCommitted]:
        """Return the epochs for the audit row, if the slice is applied under this ledger number."""
        del number
        return [logged.record for logged in self.epochs]


@dataclass(frozen=True)
class PartSlice(Slice):
    """Some transactions of one epoch; the epoch's record is cut down to them (``epoch_transactions``).

    Attributes:
        start: the number of the epoch's rows before it.
        end: the position after it.
    """

    start: int = 0
    end: LogPosition = BEFORE_ALL

    @property
    def order(self) -> tuple[int, int]:
        return self.end.order

    @property
    def window(self) -> tuple[int, int] | None:
        # No row comes after the epoch's end.
        stop = self.end.rows
        return self.start, self.start + self.rows if stop is None else stop

    def is_applied(self, position: Position) -> bool:
        return self.end.reached(position.order, position.executed_gtids)

    def is_next(self, position: Position) -> bool:
        here = (position.epoch + 1, position.epoch_rows or 0)
        return here == (self.first.epoch, self.start) and not position.recovered

    def position_after(self, before: Position) -> Position:
        if self.end.rows is None:
            return super().position_after(before)
        return replace(
            before,
            executed_gtids=self.end.executed,
            epoch_gtids=before.gtids_of_epoch,
            epoch_rows=self.end.rows,
        )

    def audit_epochs(self, number: int) -> list[EpochCommitted]:
        return [replace(self.last, executed_gtids=self.end.executed)]


@dataclass(frozen=True)
class RunSlice(Slice):
    """A run of an epoch's rows, which does not move the position.

    Attributes:
        start: the number of the epoch's rows before it.
    """

    run: RowRun
    start: int

    @property
    def rows(self) -> int:
        return self.run.rows

    @property
    def digest(self) -> int:
        return self.run.digest

    @cached_property
    def ranges(self) -> tuple[OffsetRange, ...]:
        return self.run.ranges

    @property
    def window(self) -> tuple[int, int] | None:
        return self.start, self.start + self.rows


@dataclass(frozen=True)
class RelaySlice(Slice):
    """One epoch that ``tailrace recover`` made from the relay log.

    It moves the position in the upstream's log. The position in the epoch log stays, and the epochs with the same
    transactions are skipped later.

    Attributes:
        begin: the position's ``relay_log`` and ``relay_pos`` before the slice.
    """

    begin: tuple[str | None, int | None] = (None, None)

    @property
    def where(self) -> Where:
        return Where(
            self.last.last_gtid, f"{self.last.relay_dir}/{self.last.relay_file}", self.last.relay_pos
        )

    def is_applied(self, position: Position) -> bool:
        end = position.at_end_of(self.last)
        return (position.relay_log, position.relay_pos) == (end.relay_log, end.relay_pos)

    def is_next(self, position: Position) -> bool:
        return (position.relay_log, position.relay_pos) == self.begin

    def position_after(self, before: Position) -> Position:
        return replace(before.at_end_of(self.last), epoch_gtids=before.gtids_of_epoch)

    def audit_epochs(self, number: int) -> list[EpochCommitted]:
        # A negative number that decreases each time; no epoch of the log has one.
        return [replace(self.last, epoch=-number)]


def not_next(position: Position, epoch: int, where: Where) -> LogError:
    """Return the error for a batch that does not start at the position."""
    return LogError(
        "TR551",
        f"the position is epoch {position.epoch}, but the batch starts with epoch {epoch}",
        where=where,
        hint="restart the consumer: it continues from its position",
        another_start=True,
    )


def position_after(position: Position, epochs: Sequence[LoggedEpoch]) -> Position:
    """Return the position with only its position in the epoch log moved after these epochs."""
    brought = [logged.record.epoch for logged in epochs if logged.record.structures]
    last = epochs[-1]
    return replace(
        position,
        epoch=last.record.epoch,
        epochs_offset=last.offset,
        structures_version=max(brought, default=position.structures_version),
    )


def contiguous_after(position: Position, found: Iterable[LoggedEpoch]) -> list[LoggedEpoch]:
    """Return the epochs after a position, in order. Epochs before it, which Spark may deliver again, are dropped.

    Raises LogError: TR551, there is a gap; TR567, a number occurs twice.
    """
    fresh = [logged for logged in found if logged.offset > position.epochs_offset]
    fresh.sort(key=lambda logged: logged.offset)
    for expected, logged in enumerate(fresh, position.epoch + 1):
        if logged.record.epoch > expected:
            raise missing(expected, logged.record.epoch)
        if logged.record.epoch < expected:
            raise LogError(
                "TR567",
                f"duplicate epoch {logged.record.epoch} at offset {logged.offset} of the epochs topic",
                where=Where(epoch=logged.record.epoch),
                hint=FOREIGN,
            )
    return fresh


def as_channel_sees(epochs: Iterable[LoggedEpoch], *, is_new: bool) -> list[LoggedEpoch]:
    """Return what a channel applies of epochs.

    Args:
        is_new: whether it began with the copy for new channels that runs at the first of them.
    """
    found = []
    for logged in epochs:
        record = logged.record
        found.append(replace(logged, record=_as_new(record) if is_new else _as_whole(record)))
        is_new = is_new and not record.ends_copy
    return found


def _as_new(record: EpochCommitted) -> EpochCommitted:
    tables = (
        replace(table, incomplete=True, new_channels="") if table.new_channels == INCOMPLETE else table
        for table in record.tables
    )
    return replace(record, tables=tuple(tables), for_new_channels=False)


def _as_whole(record: EpochCommitted) -> EpochCommitted:
    if record.for_new_channels:
        return replace(record, ranges=(), runs=(), tables=(), ddl=None, rows=0, digest=0, copy=None)
    if any(table.new_channels for table in record.tables):
        return replace(record, tables=tuple(replace(table, new_channels="") for table in record.tables))
    return record


def cut(epochs: Sequence[LoggedEpoch], max_rows: int, max_bytes: int, copied: int = 1) -> Iterator[Slice]:
    """Yield slices with at most this many rows and bytes of binlog. A larger epoch or a DDL epoch is a slice by itself.

    So is the start of a table's copy, which is a DDL. The end of a copy ends a slice: what comes after it is applied
    strictly again. Epochs of copies and others do not share a slice, so the rows of copies can be written in any order.

    An epoch that is passed over ends its slice, unless others follow that are passed over too: its rows are in none of
    the slice's ranges.

    The limit of bytes is needed because a slice is in memory until it is applied, and its rows may be large. Rows of
    copies are no bytes of binlog, and the log does not say how large they are: most chunks have about 8 MB, and none
    has many more than 32 MB.

    Args:
        copied: a slice of rows of copies may be so many times as large.
    """
    taken: list[LoggedEpoch] = []
    rows = size = 0
    before: EpochCommitted | None = None
    for logged in epochs:
        alone = logged.record.ddl is not None
        length, before = _bytes(before, logged.record), logged.record
        other = bool(taken) and (
            (taken[-1].record.copy is None) != (logged.record.copy is None)
            or (taken[-1].record.for_new_channels and not logged.record.for_new_channels)
        )
        times = 1 if logged.record.copy is None else copied
        full = rows + logged.record.rows > max_rows * times or size + length > max_bytes * times
        if taken and (alone or other or full):
            yield Slice(tuple(taken))
            taken, rows, size = [], 0, 0
        if alone:
            yield Slice((logged,))
            continue
        taken.append(logged)
        rows += logged.record.rows
        size += length
        if logged.record.copy is not None and logged.record.copy.step == END:
            yield Slice(tuple(taken))
            taken, rows, size = [], 0, 0
    if taken:
        yield Slice(tuple(taken))


def growing(slices: Sequence[Slice]) -> list[Slice]:
    """Return slices of which the first one is divided into small ones that grow.

    While nothing is being written, they are written after less reading, and each is read while others are written.
    """
    if not slices or slices[0].is_copied or len(slices[0].epochs) == 1:
        return list(slices)
    return [*divided(slices[0].epochs, (_FIRST_ROWS << number for number in count())), *slices[1:]]


def divided(epochs: Iterable[LoggedEpoch], limits: Iterator[int]) -> list[Slice]:
    """Divide epochs into slices, each with at most the next limit's rows; a larger epoch is one by itself."""
    found: list[Slice] = []
    taken: list[LoggedEpoch] = []
    rows, most = 0, next(limits)
    for logged in epochs:
        if taken and rows + logged.record.rows > most:
            found.append(Slice(tuple(taken)))
            taken, rows, most = [], 0, next(limits)
        taken.append(logged)
        rows += logged.record.rows
    return [*found, Slice(tuple(taken))] if taken else found


def _bytes(before: EpochCommitted | None, epoch: EpochCommitted) -> int:
    """Return the bytes of binlog of an epoch; in a new file only those in that file; 0 for the first epoch."""
    if epoch.copy is not None and epoch.rows:
        return _CHUNK_BYTES
    if before is None:
        return 0
    same = (before.relay_dir, before.relay_file) == (epoch.relay_dir, epoch.relay_file)
    return epoch.relay_pos - before.relay_pos if same else epoch.relay_pos
