"""The publisher: relay files → epochs in Kafka. It reads what is on disk, never the network.

It begins behind the last committed epoch, so that an interrupted one is simply written anew. While Kafka
takes one epoch in and a thread waits for that, the next one is decoded; at most one is under way.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from producer.decode.duplicate_filter import repetitions
from producer.decode.origins import Origins
from producer.decode.row_decoder import SchemaName
from producer.decode.skipping import SkipRule
from producer.decode.walk import SPILL_BYTES, EventDecoder
from producer.decode.xa import PreparedTransactions, needed_from
from producer.epochs.open_epoch import EpochLimits, OpenEpoch
from producer.epochs.records import Records
from producer.structures.store import Structures, Upstream
from producer.structures.upstream import Interrupted
from relay_store.layout.directory import RelayPosition, read_default_engine, subdir_uuid
from relay_store.layout.epoch_ends import read_epoch_ends
from relay_store.layout.locks import files_locked
from relay_store.layout.readers import Mark
from relay_store.read.reader import RelayBlock, RelayReader
from relay_store.read.start import initial_position, resume_position
from relay_store.read.tail import DurableTail
from schemas.ddl.engine import has_foreign_key
from schemas.errors import UpstreamError
from schemas.gtid.sets import Flavor, GtidSet, GtidTracker, parse_gtid_set
from schemas.tables import TableFilter
from schemas.wire.avro_schema import fingerprint_of
from schemas.wire.epoch import (
    EpochCommitted,
    OffsetRange,
    PreparedTransaction,
    SchemaChanged,
    StructureVersion,
)

log = structlog.get_logger()


#: the key of a tracked structure, and its record; None for one that is gone
TrackedRecord = tuple[bytes, bytes | None]


class Log(Protocol):
    """Where epochs go: ``EpochLog``, which says what each method does."""

    digest: int

    def open(self) -> None: ...

    def last_epoch(self) -> EpochCommitted | None: ...

    def versions(self) -> dict[tuple[str, str], str]: ...

    def begin(self) -> None: ...

    def write(self, records: Records) -> None: ...

    def tracked(self) -> dict[bytes, bytes]: ...

    def commit(
        self,
        epoch_with: Callable[[tuple[OffsetRange, ...]], EpochCommitted],
        tracked: tuple[TrackedRecord, ...] = (),
    ) -> EpochCommitted: ...

    def abort(self) -> None: ...


_POLL = 0.5  # seconds
_GC_THRESHOLD = 200_000  # objects
# Seconds. The thread that commits takes in a delivery report of each partition, and for each it waits so long for
# the interpreter while the next epoch is decoded: Python's own 5 ms made commits take three times as long.
_SWITCH = 0.0002
_PATIENCE = 5.0  # seconds that a stop waits for the rest of a transaction


@dataclass(frozen=True)
class _Begin:
    """Where to begin, from where on the relay log is needed for that, and what lies before."""

    position: RelayPosition
    needed: RelayPosition
    executed: GtidSet
    log_begins: str = ""


@dataclass
class PublishProgress:
    """Counters of this run; one thread writes, any thread may read.

    Attributes:
        read: up to here the relay log is decoded.
        waiting: first commit of each epoch that is sealed and not in Kafka, ms since 1970; 0 without a transaction.
        open_ms: of the oldest transaction behind them that was decoded; 0 without one.
    """

    rows: int = 0
    epochs: int = 0
    transactions: int = 0
    epoch: int = -1
    position: RelayPosition | None = None
    gtid: str | None = None
    executed_gtids: str = ""
    read: RelayPosition | None = None
    waiting: list[int] = field(default_factory=list)
    open_ms: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def lag_s(self, durable: RelayPosition | None, now: float) -> float | None:
        """Age of the oldest transaction in the relay log that is not in Kafka, seconds; 0 if there is none.

        Args:
            durable: the relay log's end.
            now: seconds since 1970.

        Returns None while nobody knows it: the relay log, or what is in it, was not read yet.
        """
        oldest = next(filter(None, (*self.waiting, self.open_ms)), None)
        if oldest is not None:
            return max(0.0, now - oldest / 1000)
        is_read = self.read is not None and durable is not None and self.read.order >= durable.order
        return 0.0 if is_read else None


class Publisher:
    """Publishes one relay log.

    Args:
        root: the relay directory.
        tail: the mirror's durable tail; None when nobody writes the relay log.
        mark: what keeps purges away from files that are not published yet; None where nothing is purged.
        schema_name: what names a structure's schema on the wire.
        accounts: whether statements on accounts are published.
        upstream: where structures are read that the log does not tell; None where there is no upstream.
        skip: what to pass over that cannot be replicated.
        began: called with the log's id once it has an epoch.
        origins: where the upstream's rows come from.
    """

    def __init__(
        self,
        epoch_log: Log,
        root: Path,
        tail: DurableTail | None,
        flavor: Flavor,
        tables: TableFilter,
        limits: EpochLimits,
        mark: Mark | None = None,
        schema_name: SchemaName = fingerprint_of,
        accounts: bool = False,
        upstream: Upstream | None = None,
        skip: Sequence[SkipRule] = (),
        began: Callable[[str], None] = lambda log_id: None,
        origins: Origins | None = None,
    ) -> None:
        self._upstream, self._skip = upstream, skip
        self._began, self._origins, self._log_id = began, origins or Origins(lambda log_id: ()), ""
        self._log, self._root, self._tail, self._mark = epoch_log, root, tail, mark
        self._schema_name, self._accounts = schema_name, accounts
        self._flavor, self._tables, self._limits = flavor, tables, limits
        self.progress = PublishProgress()
        #: set when a run ends: up to here everything is published or of no concern
        self.reached: RelayPosition | None = None
        self._committer = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._under_way: Future[None] | None = None
        self._in_transaction = False
        self._held = 0
        self._prepared = PreparedTransactions(root)
        self._ends: frozenset[RelayPosition] = frozenset()
        self._sealed: RelayPosition | None = None
        self._needed: RelayPosition | None = None

    def run(
        self,
        stop: threading.Event,
        until: Callable[[RelayPosition], bool] | None = None,
        stop_at_gtid: str | None = None,
    ) -> None:
        """Publish until ``stop``, until a position for which ``until`` holds, or behind a GTID set.

        Raises:
            DecodeError, RelayError, LogError.
        """
        self._log.open()
        last = self._log.last_epoch()
        self._structures = Structures(self._flavor, self._tables, self._log.tracked(), self._upstream)
        collections, switch = gc.get_threshold(), sys.getswitchinterval()
        # Records hold no cycles: to look for some would cost a tenth of the publisher's time.
        gc.set_threshold(_GC_THRESHOLD, *collections[1:])
        sys.setswitchinterval(_SWITCH)
        try:
            begin = self._begin(stop, last)
            if begin is not None:
                self._ends, self._sealed = read_epoch_ends(self._root), begin[0]
                self.progress.read = begin[0]
                self._follow(*begin, stop, until, stop_at_gtid)
                if self._mark is not None:
                    self._mark.flush()
        finally:
            gc.set_threshold(*collections)
            sys.setswitchinterval(switch)
            # Whatever ends the run, an epoch that Kafka is taking in is let through first.
            self._committer.shutdown(wait=True)
            committed = self._under_way is not None and self._under_way.exception() is None
            if self._in_transaction and not committed:
                self._log.abort()

    def _seed(self) -> None:
        """Read the structures once, early: the fewer DDL comes between their place and the rows the better.

        Not before it is known where to begin: DDL in front of that is never met.
        """
        try:
            if not self._structures.seeded:
                self._structures.seed()
        except UpstreamError as error:
            # With full metadata nobody needs them; without, the first table that lacks one says so.
            log.warning("structures_not_read", reason=str(error))
        except Interrupted:
            log.info("structures_not_read", reason="a stop")

    # -- where to begin --------------------------------------------------------------------------

    def _begin(
        self, stop: threading.Event, last: EpochCommitted | None
    ) -> tuple[RelayPosition, GtidTracker, int] | None:
        if last is None:
            found = self._wait_for_relay(stop, self._first)
            if found is None:
                return None
            self._seed()
            self._log_id = str(uuid.uuid4())
            self._write_first_epoch(found)
            self._origins.begin(self._log_id)
            self._began(self._log_id)
            return found.position, found.executed.tracker(), 1
        self._log_id = last.log_id
        self._began(self._log_id)
        executed = parse_gtid_set(last.executed_gtids, self._flavor)
        found = self._wait_for_relay(stop, lambda: self._resume(last, executed))
        if found is None:
            return None
        self._seed()
        self._prepared = PreparedTransactions(self._root, last.prepared)
        self.progress.epoch, self.progress.position = last.epoch, found.position
        self.progress.executed_gtids = last.executed_gtids
        log.info("publisher_resumes", epoch=last.epoch, position=str(found.position))
        return found.position, executed.tracker(), last.epoch + 1

    def _first(self) -> _Begin | None:
        found = initial_position(self._root, self._flavor)
        if found is None:
            return None
        return _Begin(found.position, found.position, found.executed, found.log_begins)

    def _resume(self, last: EpochCommitted, executed: GtidSet) -> _Begin | None:
        has_gtids = last.last_gtid is not None or not last.transactions
        place = last.relay_dir, last.source_file, last.source_pos
        here = resume_position(self._root, *place, executed, by_gtids=has_gtids)
        if here is None:
            return None
        if self._mark is None:
            return _Begin(here, here, executed)
        needed = needed_from(last)
        return _Begin(here, min(here, needed, key=lambda place: place.order), executed)

    def _wait_for_relay(self, stop: threading.Event, find: Callable[[], _Begin | None]) -> _Begin | None:
        """What `find` finds in the relay log, as soon as the mirror has come so far; None on a stop."""
        while not stop.is_set():
            if self._tail is None or self._tail.position is not None:
                with files_locked(self._root):
                    found = find()
                    if found is not None and self._mark is not None:
                        self._mark.begin(found.needed)
                if found is not None or self._tail is None:
                    return found
            time.sleep(0.02)
        return None

    def _write_first_epoch(self, begin: _Begin) -> None:
        """Epoch 0 holds nothing but the place where the log starts, and why there: it is decided once, for good."""
        self._log.begin()
        self._in_transaction = True
        epoch = OpenEpoch(0, log_begins=begin.log_begins)
        changes = self._structures.take_changes()
        self._commit(epoch, begin.position, str(begin.executed), (), 0, (), changes)
        self._in_transaction = False

    # -- following the relay log -----------------------------------------------------------------

    def _follow(
        self,
        position: RelayPosition,
        tracker: GtidTracker,
        number: int,
        stop: threading.Event,
        until: Callable[[RelayPosition], bool] | None,
        stop_at_gtid: str | None,
    ) -> None:
        decoder = EventDecoder(
            self._flavor,
            self._tables,
            self._limits,
            tracker,
            self._log.versions(),
            self._spill,
            self._prepared,
            self._schema_name,
            self._accounts,
            self._structures,
            self._skip,
            self._engine_of,
        )
        decoder.epoch = OpenEpoch(number)
        decoder.on_channels = self._origins.meet
        if stop_at_gtid is not None:
            wanted = parse_gtid_set(stop_at_gtid, self._flavor)
            decoder.stop_at = lambda: tracker.snapshot().contains(wanted)
            decoder.stopped = decoder.stop_at()
        reader = RelayReader(self._root, position, self._tail)
        try:
            self._read(reader, decoder, position, stop, until)
        finally:
            reader.close()

    def _read(
        self,
        reader: RelayReader,
        decoder: EventDecoder,
        here: RelayPosition,
        stop: threading.Event,
        until: Callable[[RelayPosition], bool] | None,
    ) -> None:
        patience: float | None = None
        entered = ""
        while not decoder.stopped and not (until and until(here) and not decoder.scanner.in_group):
            if stop.is_set():
                patience = patience or time.monotonic() + _PATIENCE
                if not decoder.scanner.in_group or time.monotonic() > patience:
                    break
            block = reader.read_block(0.0 if self._under_way else self._wait(decoder))
            if block is None:
                self._idle(decoder, here)
                if self._tail is None and not self._under_way:
                    break
                continue
            if entered != f"{block.subdir}/{block.file}":
                self._enter(reader, decoder, block, first=not entered)
                entered = f"{block.subdir}/{block.file}"
            for part in self._parts(block):
                if decoder.stopped:
                    break
                self._end_epoch_at(decoder, RelayPosition(part.subdir, part.file, part.pos))
                try:
                    here = self._take(decoder, part)
                except Interrupted:
                    # In the midst of a group: what it has brought so far is not sealed.
                    self._finish()
                    self.reached = self._sealed
                    return
            self.progress.read = here
            self._hand_over(decoder)
            self._end_epoch_at(decoder, here)
        if not decoder.scanner.in_group and not decoder.epoch.empty:
            self._seal(decoder, here)
        self._finish()
        self.reached = self._sealed if decoder.scanner.in_group else here

    def _enter(self, reader: RelayReader, decoder: EventDecoder, block: RelayBlock, *, first: bool) -> None:
        decoder.next_file(block.subdir, block.file)
        if first:
            here = RelayPosition(block.subdir, block.file, block.pos)
            decoder.repetitions = repetitions(decoder.tracker.snapshot(), here, self._root)
        if block.pos > 4:
            decoder.enter_file(reader.format_description(), block.subdir, block.file)

    def _wait(self, decoder: EventDecoder) -> float:
        """Seconds to wait for news before the open epoch has to be sealed."""
        if decoder.epoch.empty:
            return _POLL
        return min(_POLL, max(0.001, decoder.epoch.due_in(self._limits)))

    def _idle(self, decoder: EventDecoder, here: RelayPosition) -> None:
        """Nothing to read just now: complete what is under way, seal what is due."""
        self._origins.keep_up()
        self._finish()
        if not decoder.scanner.in_group and decoder.epoch.is_due(self._limits):
            self._seal(decoder, here)
            self._finish()
        if self._mark is not None:
            self._mark.keep_up()

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

    def _end_epoch_at(self, decoder: EventDecoder, here: RelayPosition) -> None:
        """End the open epoch, even an empty one, where ``tailrace recover`` brought a channel."""
        if here in self._ends and here != self._sealed and not decoder.scanner.in_group:
            self._seal(decoder, here)

    def _take(self, decoder: EventDecoder, block: RelayBlock) -> RelayPosition:
        """Decode a block, sealing epochs on the way; returns the position behind what was taken in."""
        i, end = 0, len(block.data)
        while i < end and not decoder.stopped:
            stopped_at = decoder.run(block.data, i, block.pos)
            here = RelayPosition(block.subdir, block.file, block.pos + stopped_at)
            if decoder.scanner.in_group:
                if stopped_at < end:
                    # A DDL: what came before its group is an epoch of its own.
                    assert decoder.group_start is not None
                    self._seal(decoder, decoder.group_start)
            elif decoder.stopped or decoder.epoch.is_due(self._limits):
                self._seal(decoder, here)
            i = stopped_at
        self.progress.open_ms = decoder.oldest_ms
        self._held += end
        if self._held >= SPILL_BYTES and decoder.epoch.records:
            self._spill(decoder.epoch)
        return RelayPosition(block.subdir, block.file, block.pos + i)

    # -- epochs ----------------------------------------------------------------------------------

    def _hand_over(self, decoder: EventDecoder) -> None:
        """Give Kafka the open epoch's whole transactions as soon as it has taken the epoch before in.

        So it works on an epoch while that is still being decoded, and its commit finds little left to send.
        """
        if self._under_way is not None and not self._under_way.done():
            return
        whole = decoder.whole_records
        if whole:
            self._finish()
            self._write(decoder.epoch, whole)

    def _engine_of(self, change: SchemaChanged) -> str | None:
        """The engine that a table of which CREATE TABLE names none has upstream: as it is now, else by the default."""
        default = read_default_engine(self._root)
        table = change.tables[0]
        found = self._upstream.engine((table.db, table.table)) if self._upstream else None
        # Somebody may have altered it since. Then the log alters it as well; but meanwhile its foreign keys act.
        if (
            found
            and default
            and has_foreign_key(change.statement, self._flavor, sql_mode=change.sql_mode or 0)
        ):
            return default
        return found or default

    def _spill(self, epoch: OpenEpoch) -> None:
        """Hand what is there of an epoch to Kafka, be it a part of a huge transaction."""
        self._finish()
        self._write(epoch, len(epoch.records))
        self._held = 0

    def _write(self, epoch: OpenEpoch, number: int) -> None:
        """Write the open epoch's first records, inside its Kafka transaction."""
        if not self._in_transaction:
            self._log.begin()
            self._in_transaction = True
        self._log.write(epoch.records.take(number))

    def _seal(self, decoder: EventDecoder, position: RelayPosition) -> None:
        """End the open epoch at ``position`` and begin the next; its commit may still be under way."""
        self._origins.keep_up()
        epoch, decoder.epoch = decoder.epoch, OpenEpoch(decoder.epoch.number + 1)
        self.progress.waiting.append(epoch.first_commit_ms)
        self.progress.open_ms = 0
        self._sealed = position
        self._spill(epoch)
        structures = tuple(epoch.structures.values())
        executed, digest, prepared = str(decoder.tracker), self._log.digest, decoder.prepared.snapshot()
        tracked = self._structures.take_changes()
        self._under_way = self._committer.submit(
            self._commit, epoch, position, executed, structures, digest, prepared, tracked
        )

    def _finish(self) -> None:
        """Wait until Kafka has the epoch that is under way."""
        if self._under_way is not None:
            self._under_way.result()
            self._under_way, self._in_transaction = None, False
            if self._mark is not None and self._needed is not None:
                self._mark.advance(self._needed)

    def _commit(
        self,
        epoch: OpenEpoch,
        position: RelayPosition,
        executed: str,
        structures: tuple[StructureVersion, ...],
        digest: int,
        prepared: tuple[PreparedTransaction, ...],
        tracked: tuple[TrackedRecord, ...],
    ) -> None:
        if self._tail is not None:
            self._tail.require(position)
        committed = self._log.commit(
            lambda ranges: EpochCommitted(
                epoch=epoch.number,
                first_gtid=epoch.first_gtid,
                last_gtid=epoch.last_gtid,
                executed_gtids=executed,
                source_id=subdir_uuid(position.subdir),
                source_file=position.upstream[0],
                source_pos=position.upstream[1],
                relay_dir=position.subdir,
                relay_file=position.file,
                relay_pos=position.pos,
                ranges=ranges,
                tables=epoch.tables_touched(),
                structures=structures,
                ddl=epoch.ddl,
                rows=epoch.seq,
                transactions=epoch.transactions,
                digest=digest,
                first_commit_ms=epoch.first_commit_ms,
                last_commit_ms=epoch.last_commit_ms,
                published_ms=time.time_ns() // 1_000_000,
                prepared=prepared,
                names_in_lower_case=self._tables.folds,
                skipped=epoch.events_skipped(),
                log_id=self._log_id,
                origins=self._origins.ids,
                log_begins=epoch.log_begins,
            ),
            tracked,
        )
        self._count(committed, position)

    def _count(self, epoch: EpochCommitted, position: RelayPosition) -> None:
        progress = self.progress
        progress.rows += epoch.rows
        progress.transactions += epoch.transactions
        progress.epochs += 1
        progress.epoch, progress.position = epoch.epoch, position
        progress.executed_gtids = epoch.executed_gtids
        progress.gtid = epoch.last_gtid
        # Epoch 0 was never open.
        del progress.waiting[:1]
        for passed in epoch.skipped:
            progress.skipped[f"{passed.db}.{passed.table} {passed.kind}"] += passed.events
        self._needed = needed_from(epoch)
