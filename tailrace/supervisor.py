"""``tailrace run``: produce and consume as two processes, each brought back if a signal kills it.

A child that ends by itself with an error has said why, and a restart would only say it again: then both
stop, and the supervisor ends with that child's exit code.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType

import structlog

_log = structlog.get_logger()
_POLL_S = 0.1
_STEADY_S = 60.0
_LONGEST_PAUSE_S = 30.0

Start = Callable[[Sequence[str]], "subprocess.Popen[bytes]"]


def pause_before_restart(deaths: int) -> float:
    """Seconds to wait before the next start, after this many deaths in short order."""
    return float(min(_LONGEST_PAUSE_S, 0.5 * 2 ** min(deaths - 1, 10)))


@dataclass
class _Child:
    """One of the two commands, and how it has fared."""

    name: str
    arguments: Sequence[str]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    deaths: int = 0
    restart_at: float = 0.0
    code: int | None = None  # of an end that is final


@dataclass
class Supervisor:
    """Keeps the children running until they are done, fail, or a signal comes.

    Args:
        commands: name and arguments of each child, in the order of their start.
        start: starts one child.
        finished: asked now and then; once true, the children are told to stop.
    """

    commands: Sequence[tuple[str, Sequence[str]]]
    start: Start
    finished: Callable[[frozenset[str]], bool] = lambda done: False
    _children: list[_Child] = field(default_factory=list)
    _signals: int = 0
    _signal: int = 0

    def run(self) -> int:
        """The exit code: a failed child's, else 0; 130 or 143 after a second signal."""
        self._children = [_Child(name, arguments) for name, arguments in self.commands]
        previous = {n: signal.signal(n, self._on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
        try:
            return self._watch()
        finally:
            for child in self._children:
                if child.process and child.process.poll() is None:
                    child.process.kill()
                    child.process.wait()
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._signal = number

    def _watch(self) -> int:
        told = 0
        stopping = False
        while any(child.code is None for child in self._children):
            for child in self._children:
                self._look_after(child, stopping)
            failed = any(child.code for child in self._children)
            done = frozenset(child.name for child in self._children if child.code == 0)
            if not stopping and (failed or self._signals or self.finished(done)):
                stopping = True
                self._tell(signal.SIGTERM)
                told = 1
            if self._signals > told:
                told = self._signals
                self._tell(signal.SIGTERM)
                if self._signals > 1:
                    return 128 + self._signal
            time.sleep(_POLL_S)
        return next((child.code for child in self._children if child.code), 0)

    def _tell(self, number: int) -> None:
        for child in self._children:
            if child.process and child.process.poll() is None:
                child.process.send_signal(number)

    def _look_after(self, child: _Child, stopping: bool) -> None:
        if child.code is not None:
            return
        now = time.monotonic()
        if child.process is None:
            if stopping:
                child.code = 0
            elif now >= child.restart_at:
                child.process, child.started = self.start(child.arguments), now
                _log.info("child_started", child=child.name, pid=child.process.pid)
            return
        code = child.process.poll()
        if code is None:
            return
        child.process = None
        if code >= 0 or stopping:
            child.code = max(code, 0)
            _log.info("child_ended", child=child.name, code=code)
            return
        child.deaths = 1 if now - child.started > _STEADY_S else child.deaths + 1
        child.restart_at = now + pause_before_restart(child.deaths)
        _log.warning(
            "child_killed",
            child=child.name,
            signal=signal.Signals(-code).name,
            restart_in_s=round(child.restart_at - now, 1),
            supervisor=os.getpid(),
        )
