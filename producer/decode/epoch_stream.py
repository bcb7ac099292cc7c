"""Relay blocks in, epochs out: where each ends, by its limits, by its DDL, and where a recovery brought a channel."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from producer.decode.decode_rules import DecodeRules
from producer.decode.walk import PART_BYTES, EventDecoder
from producer.epochs.open_epoch import Now, SealedEpoch, seal
from producer.epochs.records import Records
from producer.structures.store import Structures
from relay_store.layout.directory import RelayPosition
from relay_store.read.reader import RelayBlock


class EpochStream:
    """Cuts what a decoder makes of a relay log into epochs.

    Args:
        structures: those that the decoder keeps up to date.
        begin: where reading begins.
        ends: places where an epoch ends whatever the limits say, even an empty one.

    Attributes:
        now: the time, as the caller knows it; told anew before each call and behind what one has yielded.
        here: up to here the relay log is decoded.
        sealed: where the last epoch ended.
    """

    def __init__(
        self,
        rules: DecodeRules,
        decoder: EventDecoder,
        structures: Structures,
        begin: RelayPosition,
        now: Now,
        ends: Collection[RelayPosition] = (),
    ) -> None:
        self._limits, self._folds = rules.limits, rules.tables.folds
        self.decoder, self._structures, self._ends = decoder, structures, ends
        self.now = now
        self.here = self.sealed = begin

    def take(self, block: RelayBlock) -> Iterator[Records | SealedEpoch]:
        """Decode a block.

        Yields epochs that are whole; and in front of each, of one that outgrows memory, its first records.

        Raises:
            DecodeError, RelayError: an event that cannot be replicated.
        """
        for part in self._parts(block):
            if self.decoder.groups.stopped:
                break
            yield from self._end_at(RelayPosition(part.subdir, part.file, part.pos))
            yield from self._take_part(part)
        yield from self._end_at(self.here)

    def take_whole(self) -> Records:
        """The open epoch's records at hand that belong to transactions that are whole."""
        return self.decoder.take_whole()

    def due(self) -> Iterator[SealedEpoch]:
        """The open epoch, if it is due by its age and stands at a transaction boundary."""
        if not self.decoder.in_group and self.decoder.epoch.is_due(self._limits, self.now):
            yield self._seal(self.here)

    def due_in(self) -> float | None:
        """Seconds until the open epoch is due; None while nothing is in it."""
        epoch = self.decoder.epoch
        return None if epoch.empty else epoch.due_in(self._limits, self.now)

    def rest(self) -> Iterator[SealedEpoch]:
        """The open epoch, if something is in it and it stands at a transaction boundary."""
        if not self.decoder.in_group and not self.decoder.epoch.empty:
            yield self._seal(self.here)

    def _parts(self, block: RelayBlock) -> Iterator[RelayBlock]:
        """The block, cut where an epoch has to end whatever the limits say."""
        here = sorted(
            e.pos - block.pos for e in self._ends if (e.subdir, e.file) == (block.subdir, block.file)
        )
        begin = 0
        for end in [*(at for at in here if 0 < at < len(block.data)), len(block.data)]:
            whole = end - begin == len(block.data)
            yield block if whole else block._replace(pos=block.pos + begin, data=block.data[begin:end])
            begin = end

    def _end_at(self, here: RelayPosition) -> Iterator[SealedEpoch]:
        """End the open epoch, even an empty one, where ``tailrace recover`` brought a channel."""
        if here in self._ends and here != self.sealed and not self.decoder.in_group:
            yield self._seal(here)

    def _take_part(self, block: RelayBlock) -> Iterator[Records | SealedEpoch]:
        decoder = self.decoder
        i, end = 0, len(block.data)
        while i < end and not decoder.groups.stopped:
            i = yield from decoder.run(block.data, i, block.pos, self.now)
            here = RelayPosition(block.subdir, block.file, block.pos + i)
            if decoder.in_group:
                if i < end:
                    # A DDL: what came before its group is an epoch of its own.
                    assert decoder.group_start is not None
                    yield self._seal(decoder.group_start)
            elif decoder.groups.stopped or decoder.epoch.is_due(self._limits, self.now):
                yield self._seal(here)
        self.here = RelayPosition(block.subdir, block.file, block.pos + i)
        epoch = decoder.epoch
        epoch.held += end
        if epoch.held >= PART_BYTES and epoch.records:
            yield epoch.take()

    def _seal(self, end: RelayPosition) -> SealedEpoch:
        ended = self.decoder.end_epoch(self.now)
        self.sealed = end
        return seal(
            ended,
            end,
            str(self.decoder.groups.tracker),
            self.decoder.prepared.snapshot(),
            self._structures.take_changes(),
            folds=self._folds,
        )
