"""How a long-running command ends: the first signal asks it to finish, a second one ends it at once."""

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
from tailrace.service.report import another_start_helps

#: how ``tailrace run`` tells its children to finish: beside a signal that came to all processes, it is no second one
STOP = signal.SIGUSR1
_MOMENT = 1.0  # seconds in which a signal to many processes has come to all
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, STOP)
_HINT = "; if it is gone for good, stop the producer: `tailrace recover` applies what the relay files hold"
_log = structlog.get_logger()


def run_until_signalled(work: Callable[[threading.Event], None]) -> None:
    """Run ``work(stop)`` and raise what it raises; signals set ``stop``.

    Behind a signal, what another start would find healed is a part of the stop and not raised: what was lost then need
    not come back first, and the same signal may have taken along what the work needs, a moment before it came here.

    The work runs in a thread of its own: signal handlers stay ours (PySpark takes SIGINT for itself where it
    is started in the main thread), and the main thread is always free to act on a second signal.
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
            and stop.wait(_MOMENT)
        ):
            _log.warning("stopped_with", reason=str(failure[0]))
            return
    if failure:
        raise failure[0]


@contextmanager
def handle_signals(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    """Handle every signal that may ask for an end, but for a hangup that is ignored, as by ``nohup``."""
    chosen = [n for n in _SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    previous = {number: signal.signal(number, handler) for number in chosen}
    try:
        yield
    finally:
        for number, one in previous.items():
            signal.signal(number, one)


def is_second_signal(number: int) -> bool:
    """Whether a signal behind the first one asks for more: a hangup comes beside others, from systemd for one."""
    return number in (signal.SIGINT, signal.SIGTERM)


class _Handler:
    """A second signal leaves without unwinding, since what hangs could hang there too."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._told = False  # by a signal that was not ``tailrace run``'s

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        if self._told and is_second_signal(number):
            os._exit(128 + number)
        self._told |= number != STOP
        if not self._stop.is_set():
            self._stop.set()
            _log.info("stopping", signal=signal.Signals(number).name, hint="a second signal ends it at once")


@contextmanager
def recovery_hinted(relay_dir: Path) -> Iterator[None]:
    """Add `tailrace recover` to the hint of an upstream or Kafka that cannot be reached, where there is a relay log."""
    from relay_store.layout.directory import INDEX_NAME

    try:
        yield
    except (UpstreamError, LogError) as error:
        if error.retryable and (relay_dir / INDEX_NAME).exists():
            error.hint += _HINT
        raise
