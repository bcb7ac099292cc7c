"""Turns relay blocks into epochs. An epoch ends at its limits, at a DDL, and where a recovery stopped a channel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from producer.decode.decode_rules import DecodeRules
from producer.decode.duplicate_filter import DuplicateFilter
from producer.decode.event_decoder import CopiedRows, EventDecoder, Stop
from producer.decode.plain_groups import PlainGroups
from producer.epochs.open_epoch import Now, Records, SealedEpoch, TrackedRecord, seal
from producer.structures.store import BinlogPosition, ReadPosition, Structures
from relay_store.layout.directory import RelayPosition
from relay_store.read.reader import RelayBlock
from schemas.binlog.framing import FIRST_POSITION
from schemas.ddl.table_definition import TableDefinition
from schemas.gtid.sets import GtidSet
from schemas.tables import QualifiedName
from schemas.wire.epoch import CompleteCopy, CopyStep, SchemaChanged


class EpochStream:
    """Cuts what a decoder makes of a relay log into epochs.

    Args:
        structures: those that the decoder keeps up to date.
        begin: where reading begins.
        clock: tells the time.
        ends: positions where an epoch ends whatever the limits say, even an empty one.
        incomplete: the tables of which rows may be missing downstream.
        is_awaited: whether something waits for the open epoch to end at a position.
        end_position: where an epoch has to end, even an empty one; None: nowhere.
        copying: whether something is left to copy that all channels apply.
        new_channels: what new channels lack of tables, as in ``TableTouched``.
        complete_ms: until when the log is complete at the beginning, as in an epoch's record.

    Attributes:
        has_stop: whether it is to stop behind a GTID set.
        here: up to here the relay log is decoded.
        sealed: where the last epoch ended.
    """

    def __init__(
        self,
        rules: DecodeRules,
        decoder: EventDecoder,
        structures: Structures,
        begin: RelayPosition,
        clock: Callable[[], Now],
        ends: Collection[RelayPosition] = (),
        incomplete: Callable[[], Collection[QualifiedName]] = tuple,
        is_awaited: Callable[[BinlogPosition], bool] = lambda position: False,
        end_position: Callable[[], BinlogPosition | None] = lambda: None,
        copying: Callable[[], bool] = lambda: False,
        new_channels: Callable[[], Mapping[QualifiedName, str]] = dict,
        complete_ms: int = 0,
    ) -> None:
        self._limits, self._folds = rules.limits, rules.tables.folds
        self.has_stop = rules.stop_behind is not None
        self._decoder, self._state = decoder, decoder.state
        self._structures, self._clock, self._ends = structures, clock, ends
        self._incomplete, self._is_awaited, self._end_position = incomplete, is_awaited, end_position
        self._copying, self._new_channels = copying, new_channels
        self._complete_ms = complete_ms
        self.here = self.sealed = begin

    @property
    def in_group(self) -> bool:
        """Whether it stands within a transaction group."""
        return self._state.in_group

    def use(self, plain: PlainGroups) -> None:
        """Let this decode what is plain."""
        self._decoder.plain = plain

    @property
    def stopped(self) -> bool:
        """Whether the GTID set is executed behind which to stop."""
        return self._state.groups.stopped

    @property
    def is_between_epochs(self) -> bool:
        """Whether nothing is in the open epoch, so that another one may be inserted."""
        return not self.in_group and self._state.epoch.empty

    @property
    def binlog_position(self) -> BinlogPosition:
        """Where the last epoch ended, or an epoch would end if one was inserted."""
        return ReadPosition(self._end, self._state.groups.tracker).binlog_position

    @property
    def _end(self) -> RelayPosition:
        # A group is open behind the end if it begins with a DDL.
        return self.sealed if self.in_group else max(self.sealed, self.here, key=lambda end: end.order)

    @property
    def oldest_ms(self) -> int:
        """When the open epoch's first transaction, or the open group, was committed, ms; 0 if nothing is open."""
        state, group = self._state, self._state.groups.transaction
        is_open = state.in_group and not group.is_passed_over
        return state.epoch.first_commit_ms or (group.commit_ms if is_open else 0)

    def enter(
        self,
        block: RelayBlock,
        duplicates_after: Callable[[GtidSet, RelayPosition], DuplicateFilter],
        format_description: Callable[[], bytes],
    ) -> None:
        """Enter a block's file, if it is another one than the last block's.

        Args:
            duplicates_after: tells which transactions from a position on were published before, given what is
                executed; asked for the first block.
            format_description: reads the file's first event; asked if the block begins behind it.

        Raises:
            DecodeError: TR415, the file before ended within a transaction too large to take back.
        """
        state, file = self._state, self._state.file
        if (block.subdir, block.file) == (file.subdir, file.name):
            return
        self._decoder.leave_file_for(block.subdir, block.file)
        if not file.name:
            begin = RelayPosition(block.subdir, block.file, block.pos)
            state.groups.resume(duplicates_after(state.groups.tracker.snapshot(), begin))
        if block.pos > FIRST_POSITION:
            self._decoder.read_format(format_description(), block.subdir, block.file)

    def decode_block(self, block: RelayBlock) -> Iterator[Records | SealedEpoch]:
        """Decode a block of the file that was entered.

        Yields complete epochs; if an epoch is too large for memory, its first records before it.

        Raises:
            DecodeError, RelayError: an event that cannot be replicated.
        """
        for part in self._cut_at_epoch_ends(block):
            if self.stopped:
                break
            yield from self._end_at(RelayPosition(part.subdir, part.file, part.pos))
            yield from self._decode_part(part)
        yield from self._end_at(self.here)

    def hand_over_whole_transactions(self) -> Records:
        """Take the records of completed transactions out of the open epoch."""
        state = self._state
        return state.epoch.hand_over_before(
            state.groups.transaction.first if state.in_group else state.epoch.seq
        )

    def due(self) -> Iterator[SealedEpoch]:
        """The open epoch, if it is due by its age and stands at a transaction boundary."""
        if self._is_due():
            yield self._seal(self.here)

    def heard_nothing(self, end: RelayPosition, ms: int) -> Iterator[SealedEpoch]:
        """An empty epoch that says until when the log is complete, if the last one was a while ago.

        Args:
            end: the upstream had nothing behind it, at ``ms`` since 1970.
        """
        age = self._clock().monotonic - self._state.epoch.opened
        is_read = self.here.order >= end.order and self.is_between_epochs
        if is_read and ms > self._complete_ms and age >= self._limits.quiet:
            self._complete_ms = ms
            yield self._seal(self.here)

    def due_in(self) -> float | None:
        """Seconds until the open epoch is due; None while nothing is in it."""
        epoch = self._state.epoch
        return None if epoch.empty else epoch.due_in(self._limits, self._clock())

    def rest(self) -> Iterator[SealedEpoch]:
        """The open epoch, if something is in it and it stands at a transaction boundary."""
        if not self.in_group and not self._state.epoch.empty:
            yield self._seal(self.here)

    def insert(
        self,
        copy: CopyStep | None = None,
        tracked: tuple[TrackedRecord, ...] = (),
        ddl: SchemaChanged | None = None,
        definition: TableDefinition | None = None,
        rows: CopiedRows | None = None,
        complete: CompleteCopy | None = None,
        *,
        for_new: bool = False,
    ) -> SealedEpoch:
        """An epoch that the relay log does not have, behind the last one; nothing is in the open one.

        Args:
            copy: the step of a table's copy that it is.
            tracked: records that change with it.
            ddl: its DDL.
            definition: what the DDL makes of its table.
            rows: its rows.
            complete: where a complete copy begins or ends.
            for_new: whether it is of a copy for new channels.
        """
        if ddl is not None:
            self._decoder.add_ddl(ddl, definition)
        if rows is not None:
            self._decoder.add_copied(rows, self._end)
        else:
            self._decoder.look_up_tables()
        return self._seal(self._end, copy, tracked, complete, for_new=for_new)

    def _cut_at_epoch_ends(self, block: RelayBlock) -> Iterator[RelayBlock]:
        """The block, cut where an epoch has to end whatever the limits say."""
        ends = sorted(
            e.pos - block.pos for e in self._ends if (e.subdir, e.file) == (block.subdir, block.file)
        )
        begin = 0
        for end in [*(at for at in ends if 0 < at < len(block.data)), len(block.data)]:
            whole = end - begin == len(block.data)
            yield block if whole else block._replace(pos=block.pos + begin, data=block.data[begin:end])
            begin = end

    def _end_at(self, here: RelayPosition) -> Iterator[SealedEpoch]:
        """End the open epoch, even an empty one, where ``tailrace recover`` brought a channel."""
        if here in self._ends and here != self.sealed and not self.in_group:
            yield self._seal(here)

    def _decode_part(self, block: RelayBlock) -> Iterator[Records | SealedEpoch]:
        i, end = 0, len(block.data)
        while i < end and not self.stopped:
            here = RelayPosition(block.subdir, block.file, block.pos + i)
            awaited = self._is_awaited(ReadPosition(here, self._state.groups.tracker).binlog_position)
            limit = self._limit(here, end - i) + i
            plain = not (limit < end or awaited or self.has_stop)
            data = block.data if limit == end else block.data[:limit]
            i, stop = yield from self._decoder.run(
                data, i, block.pos, self._clock(), ends=awaited, plain=plain
            )
            here = RelayPosition(block.subdir, block.file, block.pos + i)
            if stop is Stop.DDL_WAITS:
                yield self._seal(self._state.group_start)
            elif stop is Stop.EPOCH_ENDS or self._is_due() or self._ends_at(here):
                yield self._seal(here)
        self.here = RelayPosition(block.subdir, block.file, block.pos + i)
        yield from self._state.epoch.hold(end)

    def _limit(self, here: RelayPosition, size: int) -> int:
        """How many of so many bytes may be decoded at once: there, or before, an epoch has to end."""
        end, begin = self._end_position(), ReadPosition(here, self._state.groups.tracker).binlog_position
        if end is None or end[:2] != begin[:2] or not begin.pos < end.pos:
            return size
        return min(size, end.pos - begin.pos)

    def _ends_at(self, here: RelayPosition) -> bool:
        """Whether an epoch has to end at a transaction boundary, even an empty one."""
        position = ReadPosition(here, self._state.groups.tracker).binlog_position
        return not self.in_group and position == self._end_position()

    def _is_due(self) -> bool:
        """Whether the open epoch is due and stands at a transaction boundary."""
        return not self.in_group and self._state.epoch.is_due(self._limits, self._clock())

    def _seal(
        self,
        end: RelayPosition,
        copy: CopyStep | None = None,
        tracked: tuple[TrackedRecord, ...] = (),
        complete: CompleteCopy | None = None,
        *,
        for_new: bool = False,
    ) -> SealedEpoch:
        now = self._clock()
        ended = self._decoder.end_epoch(now)
        self.sealed = end
        # A commit time is by the upstream's clock, which may be ahead.
        self._complete_ms = max(self._complete_ms, min(ended.last_commit_ms, now.unix_ms))
        return seal(
            ended,
            end,
            str(self._state.groups.tracker),
            self._decoder.prepared.snapshot(),
            (*self._structures.take_changes(), *tracked),
            folds=self._folds,
            incomplete=self._incomplete(),
            copy=copy,
            copying=self._copying(),
            complete=complete,
            new_channels=self._new_channels(),
            for_new=for_new,
            complete_ms=self._complete_ms,
        )
