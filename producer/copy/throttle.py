"""Holds the readers of copies back: while the upstream or its replicas are busy, and to a number of rows a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pymysql
import structlog
from pymysql.connections import Connection

from producer.settings import CopySettings, replica_url
from producer.upstream.connect import LoginRefused, connect, upstream_errors
from schemas.access.server_url import ServerUrl
from schemas.errors import TailraceError

log = structlog.get_logger()

_LOOK_EVERY = 1.0  # seconds
_TIMEOUT = 5  # seconds


class Throttle:
    """What all readers of a log's copies ask before they read on.

    Args:
        clock: seconds, monotonic.

    Attributes:
        paused: why they may not just now; None if they may.
    """

    def __init__(
        self, source: ServerUrl, settings: CopySettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._settings, self._source = settings, _Server(source)
        self._replicas = [_Server(replica_url(source, address)) for address in settings.replicas]
        self._next_look = self._next_read = 0.0
        self._lock = threading.Lock()
        self.paused: str | None = None

    def wait(self, stop: threading.Event) -> None:
        """Wait until rows may be read, or ``stop`` is set. Raises UpstreamError TR202."""
        while not stop.is_set():
            with self._lock:
                self._look()
                is_paused, seconds = self.paused is not None, self._next_read - self._clock()
            if is_paused:
                stop.wait(_LOOK_EVERY)
            elif seconds <= 0:
                return
            else:
                stop.wait(seconds)

    def has_read(self, rows: int) -> None:
        """Rows were read; the next ones are read after the time that these may take."""
        if self._settings.max_rows_per_s:
            with self._lock:
                begin = max(self._next_read, self._clock())
                self._next_read = begin + rows / self._settings.max_rows_per_s

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for server in (self._source, *self._replicas):
                server.close()

    def _look(self) -> None:
        """Ask the servers how busy they are, if that was not done just now."""
        if self._clock() < self._next_look:
            return
        reason = self._busy()
        if reason is not None and self.paused is None:
            log.warning("copy_paused", reason=reason)
        elif reason is None and self.paused is not None:
            log.info("copy_continues")
        self.paused = reason
        self._next_look = self._clock() + _LOOK_EVERY

    def _busy(self) -> str | None:
        """Why nothing is to be read; None if nothing is in the way."""
        most, longest = self._settings.max_threads_running, self._settings.max_replica_lag
        try:
            if most and (running := self._source.threads_running()) > most:
                return f"{running} threads are running upstream, and max-threads-running is {most}"
            for replica in self._replicas:
                lag = replica.seconds_behind()
                if lag is None:
                    return f"{replica.url} does not replicate"
                if lag > longest:
                    return f"{replica.url} is {lag} s behind, and max-replica-lag is {longest:g} s"
        except LoginRefused:
            raise
        except TailraceError as error:
            return error.message
        return None


class _Server:
    """A server that is asked again and again how busy it is."""

    def __init__(self, url: ServerUrl) -> None:
        self.url = url
        self._connection: Connection[Any] | None = None

    def threads_running(self) -> int:
        """Return the number of connections that execute something, this one among them. Raises UpstreamError."""
        return int(self._ask("SHOW GLOBAL STATUS LIKE 'Threads_running'")[0]["Value"])

    def seconds_behind(self) -> int | None:
        """Return how far a replica is behind; None if it does not replicate. Raises UpstreamError."""
        rows = self._ask("SHOW REPLICA STATUS")
        # The column's last word differs between servers.
        lags = [row[name] for row in rows for name in row if name.startswith("Seconds_Behind_")]
        return None if not lags or None in lags else max(map(int, lags))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(pymysql.err.MySQLError, OSError):
                self._connection.close()
            self._connection = None

    def _ask(self, sql: str) -> list[dict[str, Any]]:
        try:
            with upstream_errors(self.url):
                if self._connection is None:
                    self._connection = connect(self.url, connect_timeout=_TIMEOUT, read_timeout=_TIMEOUT)
                with self._connection.cursor() as cursor:
                    cursor.execute(sql)
                    names = [column[0] for column in cursor.description or ()]
                    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except TailraceError:
            self.close()
            raise
