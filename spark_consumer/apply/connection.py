"""The connection on which a channel writes. It is opened again when it is lost, and broken to end a run."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pymysql
import structlog

from schemas.errors import DownstreamError
from schemas.tally import retried
from spark_consumer.apply.retry import RetryTimer
from spark_consumer.apply.write import refused_error, retry_time_exceeded
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.server_errors import is_passing, message_of
from spark_consumer.target.session import Session, Unreachable, closing, connect

_T = TypeVar("_T")
_log = structlog.get_logger()


class Connection:
    """The channel's connection, and other connections that are open for a short time.

    Attributes:
        session: the current connection; a new one after it was lost.
    """

    def __init__(self, config: ConsumerConfig, session: Session) -> None:
        self._target, self._retry_time = config.target, config.retry_time
        self.session = session
        self._others: list[Session] = []
        self._aborted = threading.Event()

    def with_retries(self, work: Callable[[], _T]) -> _T:
        """Run ``work`` on the connection; reconnect and retry after temporary errors.

        Raises:
            DownstreamError: it did not succeed within ``retry_time``, or a retry cannot help.
        """
        timer = RetryTimer(self._retry_time, self._aborted)
        while True:
            try:
                return work()
            except (pymysql.MySQLError, OSError) as error:
                if not is_passing(error):
                    raise refused_error(error) from error
                self._reconnect(timer, error)
            except Unreachable as error:
                # The server refused the other connection.
                if not error.retryable:
                    raise
                self._reconnect(timer, error.__cause__ or error)

    def _reconnect(self, timer: RetryTimer, reason: BaseException) -> None:
        """Reconnect, waiting if needed."""
        self.session.close()
        while timer.wait_for_retry():
            _log.warning("downstream_retry", attempt=timer.attempts, reason=message_of(reason))
            retried("downstream")
            try:
                self.session = connect(self._target)
                return
            except DownstreamError as error:
                if not error.retryable:
                    raise
                reason = error.__cause__ or error
        raise retry_time_exceeded(reason) from reason

    @contextlib.contextmanager
    def another(self) -> Iterator[Session]:
        """Open another connection for the block."""
        with closing(connect(self._target)) as other:
            self._others.append(other)
            try:
                yield other
            finally:
                self._others.remove(other)

    def abort(self) -> None:
        """End all waiting and break the open connections. Another thread calls this."""
        self._aborted.set()
        for session in (self.session, *self._others):
            session.cut()

    def close(self) -> None:
        self.session.close()
