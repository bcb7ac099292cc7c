"""Locks a table for a moment, so that everything that was written to it is committed and visible."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any

import pymysql
from pymysql.connections import Connection

from producer.upstream.connect import connect, query
from schemas.access.server_url import ServerUrl
from schemas.quote import quoted
from schemas.tables import QualifiedName

# Seconds that a lock is waited for. Meanwhile the table's writers wait too, behind whoever uses it.
_PATIENCE = 0.2
_LONGEST = 86400  # seconds of a read, in which the connection that has the lock says nothing
_INTERRUPTED = 1317


class NotVisible(Exception):
    """What was asked for cannot be read just now."""


class TableLock:
    """``LOCK TABLES … READ`` of some tables on a connection of its own; given back when the block ends, or earlier.

    Raises:
        NotVisible: others use the table; nothing is locked.
        UpstreamError, pymysql.MySQLError: the server cannot be reached, or refuses.
    """

    def __init__(self, url: ServerUrl, names: Iterable[QualifiedName]) -> None:
        self._url, self._names = url, names
        self._connection: Connection[Any] | None = None

    def __enter__(self) -> TableLock:
        connection = self._connection = connect(self._url)
        killer = threading.Timer(_PATIENCE, self._kill, (connection.thread_id(),))  # type: ignore[no-untyped-call]
        killer.start()
        try:
            query(connection, f"SET SESSION wait_timeout = {_LONGEST}")
            query(connection, "LOCK TABLES " + ", ".join(f"{quoted(*name)} READ" for name in self._names))
        except pymysql.err.MySQLError as error:
            connection.close()
            if error.args and error.args[0] == _INTERRUPTED:
                raise NotVisible from error
            raise
        finally:
            killer.cancel()
            killer.join()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(NotVisible):
            self.release()

    def release(self) -> None:
        """Give the lock back, if that was not done before. Raises NotVisible if it was lost: somebody killed it."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            query(connection, "UNLOCK TABLES")
        except (pymysql.err.MySQLError, OSError) as error:
            raise NotVisible from error
        finally:
            with suppress(pymysql.err.MySQLError, OSError):
                connection.close()

    def _kill(self, number: int) -> None:
        with suppress(Exception):
            other = connect(self._url)
            try:
                query(other, f"KILL QUERY {number}")
            finally:
                other.close()
