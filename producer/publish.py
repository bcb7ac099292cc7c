"""The publisher: relay files → epochs in Kafka.

Rows come from the relay files alone. The upstream is asked only for structures that the binlog does not describe.

It starts after the last committed epoch, so an interrupted epoch is written again. While a thread waits for the
commit of one epoch, the next one is decoded; at most one commit is in progress.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from producer.commit import Committer, EpochDestination
from producer.copy.copier import Copier
from producer.copy.copies import Boundary, Copies
from producer.copy.epochs import copy_epochs
from producer.copy.progress import CopyProgress
from producer.copy.requests import Requests
from producer.copy.state import (
    COMPLETED_KEY,
    PLAN_KEY,
    REPLICATED_KEY,
    CompleteCopies,
    Plan,
    Replicated,
    Step,
)
from producer.decode import documents
from producer.decode.decode_rules import DecodeRules, LeftOut
from producer.decode.epoch_stream import EpochStream
from producer.decode.event_decoder import EventDecoder
from producer.decode.nested_events import PreparedTransactions
from producer.epochs.open_epoch import LogState, Now, OpenEpoch, Records, SealedEpoch, TrackedRecord, seal
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
from schemas.binlog.compiled.calls import WholeEvents
from schemas.compiled.code import CompiledCode, Folder, no_folder
from schemas.gtid.sets import parse_gtid_set
from schemas.interpreter import tuned_interpreter
from schemas.tables import TableFilter
from schemas.wire.epoch import COPY, ORIGIN

if TYPE_CHECKING:
    from schemas.compiled.library import Library

log = structlog.get_logger()

_POLL, _COPY_POLL = 0.5, 0.005  # seconds
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
        copier: reads tables that are copied; None if nothing can be copied.
        compiled: returns the folder of the compiled code, which decodes a backlog.
        paused_since: tells since when an operator has paused publishing; None while it is not paused.

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
        copier: Copier | None = None,
        compiled: Folder = no_folder,
        paused_since: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._compiled, self._paused_since = compiled, paused_since
        self._log, self._root, self._tail, self._mark = epoch_log, root, tail, mark
        self._rules, self._flavor = rules, rules.flavor
        self._upstream, self._began, self._copier = upstream, began, copier
        self._origins = origins or Origins(lambda log_id: ())
        self.progress = PublishProgress()
        self.reached: RelayPosition | None = None
        self._copies: Copies | None = None

    @property
    def copy(self) -> CopyProgress | None:
        """How far copies are; None before the log is open. Any thread may ask."""
        copies = self._copies
        paused = None if self._copier is None else self._copier.paused
        return None if copies is None else CopyProgress.of(copies.plan, copies.tables, paused)

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
        with tuned_interpreter(), closing(committer):
            if last is not None:
                self._began(log_id)
            start = find_start(self._root, self._flavor, last, self._tail, self._mark, stop)
            if start is None:
                return
            read_structures_early(structures)
            if last is None:
                state = self._write_first_epoch(start, state, structures, committer)
                self._origins.begin(log_id)
                self._began(log_id)
            else:
                log.info("publisher_resumes", epoch=last.epoch, position=str(start.position))
            last = state.last_epoch
            assert last is not None
            copies = self._copies = Copies(state.tracked, state.versions.keys(), Boundary.after(last))
            stream = self._stream(start, state, structures, copies, stop_at_gtid)
            with _reading(self._copier, copies):
                output = _Output(stream, committer, copies, self._copier, Requests(self._root), stop)
                self._publish_until_end(output, stop, until)
            if self._mark is not None:
                self._mark.flush()

    def _write_first_epoch(
        self, start: PublishStart, state: LogState, structures: Structures, committer: Committer
    ) -> LogState:
        """Write epoch 0, which only records the start position of the log and the reason for it; it never changes.

        Returns:
            the log's state behind it.
        """
        tables = self._rules.tables
        records = {REPLICATED_KEY: Replicated(tables.include, tables.exclude).encode()}
        if start.log_begins == COPY:
            records[PLAN_KEY] = Plan(str(uuid.uuid4())).encode()
        if start.log_begins in (COPY, ORIGIN):
            # New channels can begin here, so nothing is to be copied for them yet.
            records[COMPLETED_KEY] = CompleteCopies(asked=_now().unix_ms).encode()
        changes = (*structures.take_changes(), *records.items())
        epoch = OpenEpoch(0, opened=_now().monotonic)
        first = seal(
            epoch,
            start.position,
            str(start.executed),
            tracked=changes,
            folds=tables.folds,
            log_begins=start.log_begins,
            copying=PLAN_KEY in records,
        )
        committer.commit(first)
        committer.finish()
        return replace(state, last_epoch=first.record, tracked=records)

    def _stream(
        self,
        start: PublishStart,
        state: LogState,
        structures: Structures,
        copies: Copies,
        stop_at_gtid: str | None,
    ) -> EpochStream:
        """Return what decodes the relay log from its start position on."""
        last = state.last_epoch
        assert last is not None
        self.progress.resumes(start.position, last)
        rules = self._rules
        if stop_at_gtid is not None:
            rules = replace(rules, stop_behind=parse_gtid_set(stop_at_gtid, self._flavor))
        decoder = EventDecoder(
            rules,
            OpenEpoch(last.epoch + 1, opened=_now().monotonic),
            start.executed.tracker(),
            state.versions,
            structures,
            PreparedTransactions(last.prepared),
            prepared_in(self._root),
            DefaultEngine(self._root, self._flavor, self._upstream),
            LeftOut(copies.leaves_out_rows, copies.leaves_out_ddl),
        )
        ends = read_epoch_ends(self._root)
        return EpochStream(
            rules,
            decoder,
            structures,
            start.position,
            _now,
            ends,
            lambda: copies.incomplete,
            copies.is_due,
            lambda: copies.end_position,
            lambda: copies.copying,
            lambda: copies.new_channels,
            last.complete_ms,
        )

    # -- following the relay log -----------------------------------------------------------------

    def _publish_until_end(self, output: _Output, stop: threading.Event, until: Until | None) -> None:
        """Read, decode and commit up to the end."""
        stream, committer = output.stream, output.committer
        is_over = _end_of_run(output, stop, until)
        code = CompiledCode("publisher", self._compiled)
        with closing(RelayReader(self._root, stream.here, self._tail)) as reader:
            try:
                output.begin(self._rules.tables)
                while not is_over():
                    if not stream.in_group and (since := self._paused_since()) is not None:
                        self._stand(output, since, stop, is_over)
                        continue
                    block = reader.read_block(0.0 if committer.is_under_way else output.wait())
                    code.read(0 if block is None else len(block.data))
                    if code.library is not None and reader.whole_events is None:
                        self._use(code.library, reader, stream)
                    if block is not None:
                        self._publish_block(block, reader, output)
                        continue
                    self._idle(output)
                    if self._tail is None:
                        break
            except Interrupted:
                # In the midst of a group: what it has brought so far is not sealed.
                committer.finish()
                self.reached = stream.sealed
                return
        output.pass_on(stream.rest())
        committer.finish()
        self.reached = stream.sealed if stream.in_group else stream.here

    def _use(self, library: Library, reader: RelayReader, stream: EpochStream) -> None:
        """Let compiled code do most of the work."""
        from producer.decode.compiled.documents import CompiledDocuments
        from producer.decode.compiled.groups import CompiledGroups

        documents.use(CompiledDocuments(library).text)
        reader.whole_events = WholeEvents(library)
        # Where a GTID set ends the run, each group is looked at in order.
        if not stream.has_stop:
            stream.use(CompiledGroups(self._flavor, library))

    def _publish_block(self, block: RelayBlock, reader: RelayReader, output: _Output) -> None:
        """Decode a block and commit the epochs it completes."""
        stream = output.stream
        stream.enter(block, partial(duplicates_after, self._root), reader.format_description)
        output.pass_on(stream.decode_block(block))
        self.progress.decoded(stream.here, stream.oldest_ms)
        # Kafka gets the open epoch's whole transactions as soon as it has taken the epoch before in. So it works on
        # an epoch while that is still being decoded, and its commit finds little left to send.
        if not output.committer.is_waiting and (records := stream.hand_over_whole_transactions()):
            output.pass_on((records,))

    def _stand(self, output: _Output, since: str, stop: threading.Event, is_over: Callable[[], bool]) -> None:
        """Commit what is open, and publish nothing while an operator has paused publishing."""
        output.pass_on(output.stream.rest())
        output.committer.finish()
        self.progress.paused = since
        log.info(
            "publishing_paused", since=since, epoch=self.progress.epoch, remedy="tailrace resume publishing"
        )
        while self._paused_since() is not None and not is_over():
            if self._mark is not None:
                self._mark.keep_up()
            stop.wait(_POLL)
        self.progress.paused = None
        if not stop.is_set():
            log.info("publishing_continues", epoch=self.progress.epoch)

    def _idle(self, output: _Output) -> None:
        """Idle: finish a pending commit, and seal a due epoch."""
        self._origins.refresh_if_due()
        output.committer.finish()
        output.pass_on(output.stream.due())
        if self._tail is not None and (heard := self._tail.heard) is not None:
            output.pass_on(output.stream.heard_nothing(*heard))
        output.pass_on_copies()
        output.committer.finish()
        if self._mark is not None:
            self._mark.keep_up()


class _Output:
    """Where a stream's epochs go, and those of copies between them."""

    def __init__(
        self,
        stream: EpochStream,
        committer: Committer,
        copies: Copies,
        copier: Copier | None,
        requests: Requests,
        stop: threading.Event,
    ) -> None:
        self.stream, self.committer = stream, committer
        self.copies, self._copier, self._requests, self._stop = copies, copier, requests, stop

    def begin(self, tables: TableFilter) -> None:
        """Commit what is new with these tables, and what waits of copies, before anything is decoded."""
        if self._copier is not None:
            self._commit_records(self.copies.replicates(tables))
        self._commit_copies()

    def pass_on(self, parts: Iterable[Records | SealedEpoch]) -> None:
        """Write and commit what the stream yields, which may take a while."""
        copies, committer = self.copies, self.committer
        for part in parts:
            if isinstance(part, SealedEpoch):
                copies.note(part.records)
                committer.commit(copies.ended(part))
                if self._copier is not None:
                    self._copier.wrote_changes(part.record)
                self._commit_copies()
            else:
                copies.note(part)
                committer.write(part)

    def pass_on_copies(self) -> None:
        """Commit what waits of copies, if nothing is in the open epoch."""
        if self.stream.is_between_epochs:
            self._commit_copies()

    def wait(self) -> float:
        """Seconds to wait for news before the open epoch has to be sealed, or readers may have something."""
        due = self.stream.due_in()
        longest = _COPY_POLL if self.copies.are_running else _POLL
        return longest if due is None else min(longest, max(0.001, due))

    def _commit_copies(self) -> None:
        """Commit what waits of copies, and stand still here for as long as a reader needs it.

        Raises:
            Interrupted: the producer was stopped meanwhile.
        """
        while self._copier is not None:
            self._copier.check()
            self._take_request()
            self._repeat_copy(self._copier.every)
            for epoch in copy_epochs(self.copies, self.stream):
                self.committer.commit(epoch)
                self._copier.wrote(epoch)
            if not self.copies.stands_at(self.stream.binlog_position):
                return
            if self._stop.is_set():
                raise Interrupted
            self.committer.finish()
            self.copies.await_answer(_COPY_POLL)

    def _commit_records(self, records: tuple[TrackedRecord, ...]) -> None:
        """Commit what changes of the copies, behind the last epoch."""
        if records:
            epoch = self.stream.insert(tracked=records)
            self.copies.written(epoch.record)
            self.committer.commit(epoch)
            self.committer.finish()

    def _take_request(self) -> None:
        """Write into the log what an operator asks for; the request goes once it is there."""
        request = self._requests.waiting()
        if request is None or (records := self.copies.requested(request, _now().unix_ms)) is None:
            return
        self._commit_records(records)
        self._requests.taken(request)
        tables = self.copies.tables
        goes_on = sorted(".".join(name) for name in tables if tables[name].step is not Step.DONE)
        if request.cancel:
            log.warning("copies_cancelled", goes_on=goes_on)
        else:
            log.info("copy_requested", copy=request.copy, tables=request.tables or "all")

    def _repeat_copy(self, every: float) -> None:
        """Begin a copy for new channels, if one is wanted every so many seconds and is due."""
        if every and (records := self.copies.repeated(every, _now().unix_ms)):
            self._commit_records(records)
            log.info("copy_for_new_channels_begins")


@contextmanager
def _reading(copier: Copier | None, copies: Copies) -> Iterator[None]:
    """The copier reads what the copies need."""
    if copier is None:
        yield
        return
    copier.start(copies)
    try:
        yield
    finally:
        copier.stop()


def _now() -> Now:
    return Now(time.monotonic(), time.time_ns() // 1_000_000)


def _end_of_run(output: _Output, stop: threading.Event, until: Until | None) -> Callable[[], bool]:
    """Return a function that tells whether the run is over: its end is reached, or it was stopped a while ago."""
    deadline: float | None = None
    stream, copies = output.stream, output.copies

    def is_over() -> bool:
        nonlocal deadline
        in_group = stream.in_group
        if stream.stopped or (until and until(stream.here) and not in_group and not copies.are_running):
            return True
        if not stop.is_set():
            return False
        deadline = deadline or time.monotonic() + _PATIENCE
        return not in_group or time.monotonic() > deadline

    return is_over
