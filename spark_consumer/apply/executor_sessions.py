"""The downstream connections of workers in this process, which are kept from task to task and opened again when lost.

The process is one of Spark's Python workers, or the consumer's own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import NamedTuple

import pymysql

from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from spark_consumer.apply.retry import RetryTimer
from spark_consumer.apply.write import refused_error, retry_time_exceeded
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.server_errors import is_passing
from spark_consumer.target.session import Session, Unreachable, connect


class WorkerKey(NamedTuple):
    """Whose connection it is.

    Attributes:
        number: the worker of slices in parts, from 1; for rows of copies the thread's, as a negative number.
    """

    target: ServerUrl
    channel: ChannelKey
    number: int

    def __hash__(self) -> int:
        return hash((str(self.target), self.channel, self.number))


_sessions: dict[WorkerKey, Session] = {}
#: set to end the retries of a channel's workers in this process
_ends: dict[tuple[str, ChannelKey], threading.Event] = {}


def abort(target: ServerUrl, channel: ChannelKey) -> None:
    """End all waiting of a channel's workers in this process, and break their connections, from another thread."""
    if (end := _ends.pop((str(target), channel), None)) is not None:
        end.set()
    for key in _of(target, channel):
        if (session := _sessions.get(key)) is not None:
            session.cut()


def close(target: ServerUrl, channel: ChannelKey) -> None:
    """Close the connections of a channel's workers in this process, once none is at work."""
    _ends.pop((str(target), channel), None)
    for key in _of(target, channel):
        _forget(key)


def _of(target: ServerUrl, channel: ChannelKey) -> list[WorkerKey]:
    return [key for key in list(_sessions) if key[:2] == (target, channel)]


def with_session(
    key: WorkerKey,
    retry_time: float,
    work: Callable[[Session], None],
    has_happened: Callable[[Session], bool] = lambda session: False,
) -> None:
    """Run ``work``; with a new connection after temporary errors.

    Args:
        retry_time: seconds.
        has_happened: whether an earlier attempt has done the work, asked after an error that is not temporary. MySQL
            silently skips most of a transaction whose GTID is already executed.

    Raises:
        DownstreamError: it did not succeed within ``retry_time``, or a retry cannot help.
    """
    end = _ends.setdefault((str(key.target), key.channel), threading.Event())
    timer = RetryTimer(retry_time, end)
    while True:
        try:
            work(_session(key))
            return
        except (pymysql.MySQLError, OSError) as error:
            _forget(key)
            if not is_passing(error):
                raise refused_error(error) from error
            reason: BaseException = error
        except DownstreamError as error:
            _forget(key)
            if not (isinstance(error, Unreachable) and error.retryable):
                with contextlib.suppress(pymysql.MySQLError, OSError):
                    if has_happened(_session(key)):
                        return
                raise
            reason = error.__cause__ or error
        if not timer.wait_for_retry():
            raise retry_time_exceeded(reason) from reason


def _session(key: WorkerKey) -> Session:
    if (found := _sessions.get(key)) is None:
        found = _sessions[key] = connect(key.target)
    return found


def _forget(key: WorkerKey) -> None:
    if (session := _sessions.pop(key, None)) is not None:
        session.close()
