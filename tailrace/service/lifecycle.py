"""Ends long-running commands: the first signal asks the command to finish, a second one ends it at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import structlog

from schemas.errors import LogError, UpstreamError
from tailrace.service.logs import show_cursor
from tailrace.service.report import another_start_helps
from tailrace.service.systemd_notify import tell_stopping

#: the signal with which ``tailrace run`` stops its children; it never counts as a second signal
STOP = signal.SIGUSR1
_SIGNAL_DELAY = 1.0  # seconds until a signal to several processes has reached all of them
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, STOP)
_HINT = "; if it is lost for good, stop the producer and apply the relay files with `tailrace recover`"
_log = structlog.get_logger()


def run_until_signalled(work: Callable[[threading.Event], None]) -> None:
    """Run ``work(stop)`` and raise its error; signals set ``stop``.

    After a signal, an error that another start would not have is logged, not raised: the same signal may
    have stopped a server that the work needs.

    The work runs in a thread of its own, so that the main thread can always handle a second signal, and PySpark does
    not replace the handler of SIGINT.
    """
    stop = threading.Event()
    failure: list[BaseException] = []

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:
            failure.append(error)

    with handle_signals(_Handler(stop)):
        thread = threading.Thread(target=run, name="work", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.2)
        if (
            failure
            and isinstance(failure[0], Exception)
            and another_start_helps(failure[0])
            and stop.wait(_SIGNAL_DELAY)
        ):
            _log.warning("stopped_with", reason=str(failure[0]))
            return
    if failure:
        raise failure[0]


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Handle all signals that ask a command to end, except a hangup that is ignored, as with ``nohup``."""
    chosen = [n for n in _SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handler) for number in chosen}
    try:
        yield
    finally:
        for number, one in previous.items():
            signal.signal(number, one)


def is_second_signal(number: int) -> bool:
    """Return whether a later signal counts as a second one. A hangup does not: systemd sends it with others."""
    return number in (signal.SIGINT, signal.SIGTERM)


class _Handler:
    """Sets ``stop`` at the first signal. A second one exits at once, without cleanup that could hang too."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._signalled = False  # by another signal than STOP

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        if self._signalled and is_second_signal(number):
            show_cursor()
            os._exit(128 + number)
        self._signalled |= number != STOP
        if not self._stop.is_set():
            self._stop.set()
            tell_stopping()
            _log.info(
                "stopping",
                signal=signal.Signals(number).name,
                hint="a second signal ends the command at once",
            )


@contextmanager
def recovery_hinted(relay_dir: Path) -> Iterator[None]:
    """Add `tailrace recover` to the hint if upstream or Kafka cannot be reached and there is a relay log."""
    from relay_store.layout.directory import INDEX_NAME

    try:
        yield
    except (UpstreamError, LogError) as error:
        if not error.retryable or not (relay_dir / INDEX_NAME).exists():
            raise
        raise error.but(hint=error.hint + _HINT) from error
