"""The publisher: relay files → epochs in Kafka.

Rows come from the relay files alone. The upstream is asked only for structures that the binlog does not describe.

It starts after the last committed epoch, so an interrupted epoch is written again. While a thread waits for the
commit of one epoch, the next one is decoded; at most one commit is in progress.
"""

from __future__ import annotations

import gc
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from producer.commit import Committer, EpochDestination
from producer.decode.decode_rules import DecodeRules
from producer.decode.epoch_stream import EpochStream
from producer.decode.event_decoder import EventDecoder
from producer.decode.nested_events import PreparedTransactions
from producer.epochs.open_epoch import LogState, Now, OpenEpoch, Records, SealedEpoch, seal
from producer.epochs.progress import PublishProgress
from producer.publish_start import (
    PublishStart,
    duplicates_after,
    find_start,
    prepared_in,
    read_structures_early,
)
from producer.structures.default_engine import DefaultEngine
from producer.structures.store import Structures, Upstream
from producer.upstream.origins import Origins
from producer.upstream.structures import Interrupted
from relay_store.layout.directory import RelayPosition
from relay_store.layout.epoch_ends import read_epoch_ends
from relay_store.layout.readers import Mark
from relay_store.read.reader import RelayBlock, RelayReader
from relay_store.read.tail import RelayTail
from schemas.gtid.sets import parse_gtid_set

log = structlog.get_logger()

_POLL = 0.5  # seconds
_GC_THRESHOLD = 200_000  # objects
# Seconds. The thread that commits takes in a delivery report of each partition, and for each it waits so long for
# the interpreter while the next epoch is decoded: Python's own 5 ms made commits take three times as long.
_SWITCH = 0.0002
_PATIENCE = 5.0  # seconds that a stop waits for the rest of a transaction

#: whether to stop at a position
Until = Callable[[RelayPosition], bool]


class Publisher:
    """Publishes one relay log.

    Args:
        root: the relay directory.
        tail: the relay log's tail; None when nobody writes the relay log.
        mark: what keeps purges away from files that are not published yet; None where nothing is purged.
        upstream: source of structures that the log does not contain; None without an upstream.
        began: called with the log's id once it has an epoch.
        origins: where the upstream's rows come from.

    Attributes:
        reached: set when a run ends; everything before it is published or irrelevant.
    """

    def __init__(
        self,
        epoch_log: EpochDestination,
        root: Path,
        tail: RelayTail | None,
        rules: DecodeRules,
        mark: Mark | None = None,
        upstream: Upstream | None = None,
        began: Callable[[str], None] = lambda log_id: None,
        origins: Origins | None = None,
    ) -> None:
        self._log, self._root, self._tail, self._mark = epoch_log, root, tail, mark
        self._rules, self._flavor = rules, rules.flavor
        self._upstream, self._began = upstream, began
        self._origins = origins or Origins(lambda log_id: ())
        self.progress = PublishProgress()
        self.reached: RelayPosition | None = None

    def run(
        self,
        state: LogState,
        stop: threading.Event,
        until: Until | None = None,
        stop_at_gtid: str | None = None,
    ) -> None:
        """Publish until ``stop``, until a position for which ``until`` holds, or behind a GTID set.

        Args:
            state: of the epoch log, which is open.

        Raises:
            DecodeError, RelayError, LogError.
        """
        last = state.last_epoch
        structures = Structures(self._flavor, self._rules.tables, state.tracked, self._upstream)
        log_id = str(uuid.uuid4()) if last is None else last.log_id
        committer = Committer(self._log, log_id, self._origins, self.progress, self._tail, self._mark)
        with _tuned_interpreter(), closing(committer):
            if last is not None:
                self._began(log_id)
            start = find_start(self._root, self._flavor, last, self._tail, self._mark, stop)
            if start is None:
                return
            read_structures_early(structures)
            if last is None:
                self._write_first_epoch(start, structures, committer)
                self._origins.begin(log_id)
                self._began(log_id)
            stream = self._stream(start, state, structures, stop_at_gtid)
            self._publish_until_end(stream, committer, stop, until)
            if self._mark is not None:
                self._mark.flush()

    def _write_first_epoch(self, start: PublishStart, structures: Structures, committer: Committer) -> None:
        """Write epoch 0, which only records the start position of the log and the reason for it; it never changes."""
        changes, folds = structures.take_changes(), self._rules.tables.folds
        epoch = OpenEpoch(0, opened=_now().monotonic)
        executed, log_begins = str(start.executed), start.log_begins
        committer.commit(
            seal(epoch, start.position, executed, tracked=changes, folds=folds, log_begins=log_begins)
        )
        committer.finish()

    def _stream(
        self, start: PublishStart, state: LogState, structures: Structures, stop_at_gtid: str | None
    ) -> EpochStream:
        """Return what decodes the relay log from its start position on."""
        last = state.last_epoch
        self.progress.resumes(start.position, last)
        if last is not None:
            log.info("publisher_resumes", epoch=last.epoch, position=str(start.position))
        rules = self._rules
        if stop_at_gtid is not None:
            rules = replace(rules, stop_behind=parse_gtid_set(stop_at_gtid, self._flavor))
        decoder = EventDecoder(
            rules,
            OpenEpoch(1 if last is None else last.epoch + 1, opened=_now().monotonic),
            start.executed.tracker(),
            state.versions,
            structures,
            PreparedTransactions(() if last is None else last.prepared),
            prepared_in(self._root),
            DefaultEngine(self._root, self._flavor, self._upstream),
        )
        return EpochStream(rules, decoder, structures, start.position, _now, read_epoch_ends(self._root))

    # -- following the relay log -----------------------------------------------------------------

    def _publish_until_end(
        self, stream: EpochStream, committer: Committer, stop: threading.Event, until: Until | None
    ) -> None:
        """Read, decode and commit up to the end."""
        is_over = _end_of_run(stream, stop, until)
        with closing(RelayReader(self._root, stream.here, self._tail)) as reader:
            try:
                while not is_over():
                    block = reader.read_block(0.0 if committer.is_under_way else _wait(stream))
                    if block is not None:
                        self._publish_block(block, reader, stream, committer)
                        continue
                    self._idle(stream, committer)
                    if self._tail is None:
                        break
            except Interrupted:
                # In the midst of a group: what it has brought so far is not sealed.
                committer.finish()
                self.reached = stream.sealed
                return
        _pass_on(stream.rest(), committer)
        committer.finish()
        self.reached = stream.sealed if stream.in_group else stream.here

    def _publish_block(
        self, block: RelayBlock, reader: RelayReader, stream: EpochStream, committer: Committer
    ) -> None:
        """Decode a block and commit the epochs it completes."""
        stream.enter(block, partial(duplicates_after, self._root), reader.format_description)
        _pass_on(stream.decode_block(block), committer)
        self.progress.decoded(stream.here, stream.oldest_ms)
        # Kafka gets the open epoch's whole transactions as soon as it has taken the epoch before in. So it works on
        # an epoch while that is still being decoded, and its commit finds little left to send.
        if not committer.is_waiting and (records := stream.hand_over_whole_transactions()):
            committer.write(records)

    def _idle(self, stream: EpochStream, committer: Committer) -> None:
        """Idle: finish a pending commit and seal a due epoch."""
        self._origins.refresh_if_due()
        committer.finish()
        _pass_on(stream.due(), committer)
        committer.finish()
        if self._mark is not None:
            self._mark.keep_up()


def _pass_on(parts: Iterable[Records | SealedEpoch], committer: Committer) -> None:
    """Write and commit what a stream yields, which may take a while."""
    for part in parts:
        if isinstance(part, SealedEpoch):
            committer.commit(part)
        else:
            committer.write(part)


def _now() -> Now:
    return Now(time.monotonic(), time.time_ns() // 1_000_000)


def _wait(stream: EpochStream) -> float:
    """Seconds to wait for news before the open epoch has to be sealed."""
    due = stream.due_in()
    return _POLL if due is None else min(_POLL, max(0.001, due))


def _end_of_run(stream: EpochStream, stop: threading.Event, until: Until | None) -> Callable[[], bool]:
    """Return a function that tells whether the run is over: its end is reached, or it was stopped a while ago."""
    deadline: float | None = None

    def is_over() -> bool:
        nonlocal deadline
        in_group = stream.in_group
        if stream.stopped or (until and until(stream.here) and not in_group):
            return True
        if not stop.is_set():
            return False
        deadline = deadline or time.monotonic() + _PATIENCE
        return not in_group or time.monotonic() > deadline

    return is_over


@contextmanager
def _tuned_interpreter() -> Iterator[None]:
    collections, switch = gc.get_threshold(), sys.getswitchinterval()
    # Records hold no cycles: to look for some would cost a tenth of the publisher's time.
    gc.set_threshold(_GC_THRESHOLD, *collections[1:])
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        gc.set_threshold(*collections)
        sys.setswitchinterval(switch)
