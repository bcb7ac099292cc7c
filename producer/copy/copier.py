"""The threads that read the upstream for copies."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import structlog

from producer.copy.cascades import Cascades
from producer.copy.copies import Answer, ChunkRead, Copies, NothingFound, TableFound, TablesFound, Work
from producer.copy.table_lock import NotVisible
from producer.copy.throttle import Throttle
from producer.copy.upstream_reader import NeedsHold, UpstreamReader
from producer.copy.window import NO_LIMIT, Channel, CopyWindow, weight
from producer.epochs.open_epoch import SealedEpoch
from producer.settings import CopySettings
from producer.upstream.connect import LoginRefused
from schemas.access.server_url import ServerUrl
from schemas.errors import TailraceError
from schemas.tables import TableFilter
from schemas.wire.epoch import EpochCommitted

log = structlog.get_logger()

_IDLE = 0.5  # seconds
_RETRY = 1.0
_LOOK, _PAUSE = 0.1, 0.05  # at the channels' positions; while there is no room
_INCOMPLETE = "no new channel can begin with this copy, because it lacks the table"


class Copier:
    """Reads what the copies of a log need.

    Args:
        tables: those that are replicated.
        channels: those that apply the log, as far as they are known.
    """

    def __init__(
        self,
        source: ServerUrl,
        tables: TableFilter,
        settings: CopySettings,
        channels: Sequence[Channel] = (),
    ) -> None:
        self._source, self._tables, self._settings = source, tables, settings
        self._throttle = Throttle(source, settings)
        self._channels, self._window = channels, CopyWindow([channel.name for channel in channels])
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._copies: Copies | None = None
        self.error: BaseException | None = None

    def start(self, copies: Copies) -> None:
        """Begin to read."""
        self._copies = copies
        self._threads = [
            threading.Thread(target=self._run, args=(copies,), name=f"copy-{number}", daemon=True)
            for number in range(self._settings.connections)
        ]
        for thread in self._threads:
            thread.start()
        for channel in self._channels:
            threading.Thread(
                target=self._follow, args=(channel, copies), name=f"follow-{channel.name}", daemon=True
            ).start()

    def stop(self) -> None:
        """Stop reading. Returns when all connections are closed."""
        self._stop.set()
        if self._copies is not None:
            self._copies.wake()
        for thread in self._threads:
            thread.join()
        self._throttle.close()

    @property
    def every(self) -> float:
        """Seconds from one complete copy for new channels to the next; 0: none are made."""
        return self._settings.every

    @property
    def paused(self) -> str | None:
        """Why nothing is read just now; None if that is not so."""
        channel = self._window.held_by
        waiting = f"channel {channel} has not applied yet what was copied before" if channel else None
        return self._throttle.paused or waiting

    def wrote(self, epoch: SealedEpoch) -> None:
        """An epoch of a copy was written into the log."""
        record = epoch.record
        if self._channels:
            self._window.wrote(record.epoch, record.rows, sum(map(len, epoch.records.values)))

    def wrote_changes(self, epoch: EpochCommitted) -> None:
        """An epoch of the upstream's transactions was written into the log."""
        if epoch.rows or epoch.ddl is not None:
            self._window.changed()

    def check(self) -> None:
        """Raise what stopped a thread."""
        if self.error is not None:
            raise self.error

    def _run(self, copies: Copies) -> None:
        try:
            self._read(copies)
        except BaseException as error:
            self.error = error

    def _read(self, copies: Copies) -> None:
        reader = UpstreamReader(self._source, self._tables, self._settings)
        try:
            while not self._stop.is_set():
                if copies.are_running:
                    self._throttle.wait(self._stop)
                work = copies.next_work(_IDLE)
                if work is None:
                    continue
                is_chunk = work.is_begun and any(work.name)
                most = self._window.take(weight(*copies.waiting)) if is_chunk else NO_LIMIT
                if not most:
                    # It is asked for again, with a later boundary.
                    copies.give_up(work)
                    self._stop.wait(_PAUSE)
                    continue
                try:
                    answer = reader.read(work, most)
                except NeedsHold as needed:
                    self._read_held(reader, work, needed.cascades, copies)
                except NotVisible:
                    copies.give_up(work)
                except TailraceError as error:
                    if self._is_dropped(work, copies, error):
                        continue
                    copies.give_up(work)
                    if not error.retryable or isinstance(error, LoginRefused):
                        raise
                    log.warning("copy_waits_for_upstream", table=".".join(work.name), reason=error.message)
                    self._stop.wait(_RETRY)
                else:
                    if isinstance(answer, ChunkRead):
                        self._throttle.has_read(len(answer.keys))
                    elif isinstance(answer, TablesFound):
                        for name, reason in answer.refused.items():
                            log.error(
                                "table_not_copied", table=".".join(name), reason=reason, hint=_INCOMPLETE
                            )
                    copies.hand_in(answer, self._stop)
                finally:
                    self._window.give_back(most)
        finally:
            reader.close()

    def _follow(self, channel: Channel, copies: Copies) -> None:
        """Look where a channel is, as long as something is copied."""
        while not self._stop.is_set():
            if copies.are_running:
                epoch = channel.epoch()
                self._window.applied(channel.name, epoch)
                self._stop.wait(_IDLE if epoch is None else _LOOK)
            else:
                channel.close()
                self._window.forget(channel.name)
                self._stop.wait(_IDLE)
        channel.close()

    def _read_held(self, reader: UpstreamReader, work: Work, cascades: Cascades, copies: Copies) -> None:
        """Read a table, with the others of its circle, while the publisher stands still."""
        held = copies.hold(work, cascades, self._stop)
        if not held:
            return
        try:
            reader.read_held(held, copies, self._stop)
        except NotVisible:
            copies.break_off(work)
        except TailraceError as error:
            if self._is_dropped(work, copies, error):
                return
            copies.break_off(work)
            if not error.retryable or isinstance(error, LoginRefused):
                raise
            log.warning("copy_waits_for_upstream", table=".".join(work.name), reason=error.message)
            self._stop.wait(_RETRY)

    def _is_dropped(self, work: Work, copies: Copies, error: TailraceError) -> bool:
        """Whether what cannot be copied again need not be, since readers have it; its copy is dropped then."""
        if error.retryable or not copies.can_be_dropped(work):
            return False
        visible, reason = work.base.position, error.message
        answer: Answer
        if any(work.name):
            log.error("table_not_copied", table=".".join(work.name), reason=reason, hint=error.hint)
            answer = TableFound(work=work, visible=visible, ddl=None, refused=reason)
        else:
            log.error("nothing_copied", reason=reason, hint=error.hint)
            answer = NothingFound(work=work, visible=visible)
        copies.hand_in(answer, self._stop)
        return True
