"""Mirrors the upstream's binlog into the relay log, byte for byte.

One step: receive what is there, check each event (checksum, and that it begins exactly where our file
ends), append, and sync when the upstream has nothing more to send or enough bytes wait. Events that the dump
thread creates (artificial ROTATE and FORMAT_DESCRIPTION, heartbeats) are processed but not written.

A full disk is a pause: the relay log goes back to what relay.meta vouches for, and once there is room the
rest is fetched again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from producer.mirror.intake import Intake
from producer.mirror.start import EARLIEST, MirrorStart, open_relay
from producer.settings import RelaySettings
from producer.upstream.connect import UpstreamInfo
from producer.upstream.dump import DumpStream
from relay_store.layout.directory import DiskFull, file_number
from relay_store.layout.pauses import PauseSwitch
from relay_store.write.writer import RelayWriter
from schemas import tally
from schemas.access.server_url import ServerUrl
from schemas.binlog.framing import FIRST_POSITION
from schemas.compiled.code import CompiledCode, Folder, no_folder
from schemas.errors import RelayError, TailraceError

_POLL = 0.5  # seconds: how long a stop may take
_PAUSE = 0.005  # seconds without data after which to sync
_BACKOFF = (1, 2, 4, 8, 16, 30)  # seconds
_FULL_RETRY = 3.0  # seconds between two tries to write to a full disk
_MAX_START = 2**32 - 1  # the protocol's positions are 32 bits wide

_log = structlog.get_logger()


@dataclass
class MirrorProgress:
    """Counters of this run; one thread writes, any thread may read.

    Attributes:
        last_error, last_error_at: error that ended the last connection; kept after reconnecting; seconds since 1970.
        heard_at: when the upstream last sent anything, a heartbeat at least; seconds since 1970.
        upstream: server information from the last connection.
    """

    bytes: int = 0
    events: int = 0
    reconnects: int = 0
    connected: bool = False
    paused: str | None = None  # reason for a temporary pause
    is_paused_by_operator: bool = False
    last_error: TailraceError | None = None
    last_error_at: float | None = None
    heard_at: float | None = None
    upstream: UpstreamInfo | None = None

    def connects(self, upstream: UpstreamInfo) -> None:
        """A connection is open."""
        self.connected, self.upstream = True, upstream

    def heard(self, at: float, size: int, events: int) -> None:
        """So many bytes and events were appended since the last call; ``at`` as ``heard_at``."""
        self.heard_at = at
        self.bytes += size
        self.events += events

    def pauses(self, why: str) -> None:
        """Nothing can be written for now."""
        self.paused = why

    def stands(self, why: str | None) -> None:
        """An operator has paused the mirror; None: what was the reason before is the reason again."""
        self.connected, self.paused, self.is_paused_by_operator = False, why, why is not None

    def resumes(self) -> bool:
        """Something was written. Returns whether that was not possible before."""
        was_paused, self.paused = self.paused is not None, None
        return was_paused

    def lost(self) -> None:
        """The connection was lost, and will be tried again."""
        self.reconnects += 1
        tally.RETRIES["upstream"] += 1

    def failed(self, error: TailraceError) -> None:
        """The connection is over."""
        self.connected = False
        tally.ERRORS[error.code] += 1
        self.last_error, self.last_error_at = error, time.time()


class Mirror:
    """Keeps one relay log equal to one upstream's binlog.

    Args:
        url: the upstream.
        relay: the open relay log.
        settings: the fields of ``[relay]``.
        server_id: of this replica.
        start: where an empty relay log begins.
        make_room: called while the disk is full; whether it deleted anything.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        url: ServerUrl,
        relay: RelayWriter,
        settings: RelaySettings,
        *,
        server_id: int,
        start: MirrorStart = EARLIEST,
        make_room: Callable[[], bool] = bool,
        clock: Callable[[], float] = time.monotonic,
        compiled: Folder = no_folder,
    ) -> None:
        self.url = url
        self.relay = relay
        self.progress = MirrorProgress()
        self._server_id = server_id
        self._start = start
        self._settings = settings
        self._make_room = make_room
        self._clock = clock
        self._code = CompiledCode("mirror", compiled)
        self._paused_since = PauseSwitch(relay.root, "mirror")

    def run(self, stop: threading.Event, until: tuple[str, int] | None = None) -> None:
        """Mirror until `stop`, or until the upstream's file and position `until` are on disk.

        Raises UpstreamError and RelayError that a retry cannot heal; lost connections are retried, and so is
        a full disk.
        """
        failures = 0
        while not stop.is_set():
            received = self.progress.bytes
            try:
                self._wait_while_paused(stop)
                if self._mirror_one_connection(stop, until):
                    return
            except DiskFull as error:
                self.progress.failed(error)
                self._wait_for_room(error, stop)
            except TailraceError as error:
                self.progress.failed(error)
                if not error.retryable or isinstance(error, RelayError):
                    raise
                failures = 0 if self.progress.bytes > received else failures
                delay = _BACKOFF[min(failures, len(_BACKOFF) - 1)]
                failures += 1
                self.progress.lost()
                _log.warning("upstream_lost", error=str(error), retry_in_s=delay)
                if self._show_what_is_here(stop):
                    stop.wait(delay)

    def _wait_while_paused(self, stop: threading.Event) -> None:
        """Stand behind the last whole group while an operator has paused the mirror."""
        since = self._paused_since()
        if since is None:
            return
        self._show_what_is_here(stop)
        before = self.progress.paused
        self.progress.stands(f"since {since}, with `tailrace pause mirror`")
        _log.info("mirror_paused", since=since, remedy="tailrace resume mirror")
        while self._paused_since() is not None and not stop.wait(_POLL):
            pass
        self.progress.stands(before)
        if not stop.is_set():
            _log.info("mirror_continues")

    def _show_what_is_here(self, stop: threading.Event) -> bool:
        """Sync, so that readers see all that was received. Returns False if the disk is full."""
        try:
            self.relay.sync()
        except DiskFull as error:
            self._wait_for_room(error, stop)
            return False
        return True

    def _wait_for_room(self, error: TailraceError, stop: threading.Event) -> None:
        if self.progress.paused is None:
            _log.warning("mirror_paused", error=str(error), retry_every_s=_FULL_RETRY)
        self.progress.pauses(f"disk full, {error.message}")
        if not self._make_room():
            stop.wait(_FULL_RETRY)

    def reached(self, file: str, position: int) -> bool:
        """Whether the upstream's `file` is on disk here up to `position`."""
        tail = self.relay.tail.position
        if tail is None:
            return False
        name, here = tail.upstream
        return (file_number(name), here) >= (file_number(file), position)

    def _mirror_one_connection(self, stop: threading.Event, until: tuple[str, int] | None) -> bool:
        """Run one connection. Returns True when `until` is reached, False on `stop` or a pause."""
        if self.progress.paused is None:
            self.relay.cut_back()
        else:
            self.relay.recover()
        info, begin, gtids = open_relay(self.url, self.relay, self._start)
        if until and self.reached(*until):
            return True
        # Beyond what can be asked for, stream the file from its start and pass over what is here.
        file, position = begin.upstream
        asked = position if position <= _MAX_START else FIRST_POSITION
        intake = Intake(self.relay, gtids.tracker(), asked, self._settings, self._clock, self._code)
        intake.begin()
        stream = DumpStream.open(self.url, info, file, asked, self._server_id)
        self.progress.connects(info)
        if self.progress.paused is None:
            _log.info(
                "mirror_connected",
                upstream=str(self.url),
                begin=str(begin),
                version=info.version,
                tls=stream.tls or None,
            )
        try:
            while not stop.is_set() and self._paused_since() is None:
                self._step(stream, intake)
                if until and self.reached(*until):
                    return True
        finally:
            stream.close()
        return False

    def _step(self, stream: DumpStream, intake: Intake) -> None:
        """Receive once, append, and sync if it is time."""
        events, size, heartbeats = intake.events, intake.bytes, intake.heartbeats
        taken = stream.read(_PAUSE if intake.wants_sync else _POLL, intake.take)
        self.progress.heard(stream.heard_at, intake.bytes - size, intake.events - events)
        self._code.read(intake.bytes - size)
        if intake.sync_due(stream.has_more) or (intake.wants_sync and not taken):
            intake.sync()
            if self.progress.resumes():
                _log.info("mirror_resumed")
        elif not taken:
            self.relay.flush_meta()
        # The upstream sends a heartbeat when it has nothing else, so the relay log is complete up to now.
        shown = self.relay.tail.position
        if intake.heartbeats > heartbeats and shown and intake.is_shown and stream.is_drained:
            self.relay.tail.heard = shown, int(stream.heard_at * 1000)
