"""Runs produce and consume as two processes for ``tailrace run``; if one fails, the other continues.

A child that was killed is started again, and so is one whose error may pass: an unreachable server, a lock, a full
disk. An error that needs an operator stops its child and is logged every minute. The mirror continues without the
consumer, because the upstream may purge its binlogs. In a bounded run any error stops both, so that the run ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType, MappingProxyType

import structlog

from tailrace.service.lifecycle import STOP, handle_signals, is_second_signal
from tailrace.service.report import REPORT_FD, ErrorReport, read_report

_log = structlog.get_logger()
_POLL_S = 0.1
_STEADY_S = 60.0
_LONGEST_PAUSE_S = 30.0
_REMIND_S = 60.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class RunningChild:
    """A running child.

    Attributes:
        report: returns the error that the child reported, after it has ended; None if it reported none.
    """

    process: subprocess.Popen[bytes]
    report: Callable[[], ErrorReport | None] = lambda: None


StartChild = Callable[[Sequence[str]], RunningChild]


def pause_before_restart(failures: int) -> float:
    """Return the seconds to wait before the next start, after this many quick failures."""
    return float(min(_LONGEST_PAUSE_S, 0.5 * 2 ** min(failures - 1, 10)))


@dataclass
class _Child:
    """One of the two commands and its state."""

    name: str
    arguments: Sequence[str]
    running: RunningChild | None = None
    started: float = 0.0
    failures: int = 0
    restart_at: float = 0.0
    code: int | None = None  # the exit code, if it is not started again
    error: ErrorReport | None = None  # an error that needs an operator
    remind_at: float = 0.0


@dataclass
class Supervisor:
    """Keeps the children running until they have finished or failed, or a signal arrives.

    Args:
        commands: name and arguments of each child, in the order of their start.
        start: starts one child.
        finished: called periodically with the names of the finished children; once it returns true, all are stopped.
        bounded: whether any error stops the run.
    """

    commands: Sequence[tuple[str, Sequence[str]]]
    start: StartChild
    finished: Callable[[frozenset[str]], bool] = lambda done: False
    bounded: bool = False
    _children: list[_Child] = field(default_factory=list)
    _signals: int = 0
    _signal: int = 0

    def run(self) -> int:
        """Run, and return the exit code: that of a failed child, else 0; 128 + its number after a second signal."""
        self._children = [_Child(name, arguments) for name, arguments in self.commands]
        with handle_signals(self._on_signal):
            try:
                return self._watch()
            finally:
                for child in self._children:
                    if child.running and child.running.process.poll() is None:
                        child.running.process.kill()
                        child.running.process.wait()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._signals or is_second_signal(number):
            self._signals += 1
            self._signal = number

    def _watch(self) -> int:
        stopping = False
        while any(child.code is None for child in self._children):
            for child in self._children:
                self._check_child(child, stopping)
            failed = self.bounded and any(child.code for child in self._children)
            done = frozenset(child.name for child in self._children if child.code == 0)
            if not stopping and (failed or self._signals or self.finished(done)):
                stopping = True
                self._stop()
            if self._signals > 1:
                return 128 + self._signal
            time.sleep(_POLL_S)
        return next((child.code for child in self._children if child.code), 0)

    def _stop(self) -> None:
        for child in self._children:
            if child.running and child.running.process.poll() is None:
                child.running.process.send_signal(STOP)

    def _check_child(self, child: _Child, stopping: bool) -> None:
        now = time.monotonic()
        if child.code is not None:
            self._remind(child, now)
        elif child.running is None:
            if stopping:
                child.code = 0
            elif now >= child.restart_at:
                child.running, child.started = self.start(child.arguments), now
                _log.info("child_started", child=child.name, pid=child.running.process.pid)
        elif (code := child.running.process.poll()) is not None:
            report, child.running = child.running.report(), None
            self._on_exit(child, code, report, now, stopping)

    def _on_exit(
        self, child: _Child, code: int, report: ErrorReport | None, now: float, stopping: bool
    ) -> None:
        if stopping or code == 0:
            child.code = max(code, 0)
            _log.info("child_ended", child=child.name, code=code)
            return
        if code > 0 and (self.bounded or report is None or not report.another_start_helps):
            child.code, child.error, child.remind_at = code, report, now
            self._remind(child, now)
            return
        child.failures = 1 if now - child.started > _STEADY_S else child.failures + 1
        child.restart_at = now + pause_before_restart(child.failures)
        wait = round(child.restart_at - now, 1)
        if code < 0 or report is None:
            name = signal.Signals(-code).name
            _log.warning(
                "child_killed", child=child.name, signal=name, restart_in_s=wait, supervisor=os.getpid()
            )
        else:
            _log.warning(
                "child_waits", child=child.name, code=report.code, waits_for=report.what, restart_in_s=wait
            )

    def _remind(self, child: _Child, now: float) -> None:
        """Log why a child is stopped, at once and then every minute."""
        if child.code == 0 or now < child.remind_at:
            return
        child.remind_at = now + _REMIND_S
        error = {} if child.error is None else child.error.fields()
        others = [other.name for other in self._children if other.code is None]
        _log.error("child_stands", child=child.name, exit_code=child.code, **error, others_go_on=others)


def start_child(
    arguments: Sequence[str], env: Mapping[str, str] = MappingProxyType({}), *, piped: bool = False
) -> RunningChild:
    """Start ``tailrace ARGUMENTS`` with this interpreter. The child ends with this process.

    Args:
        env: variables for its environment.
        piped: whether its stderr is a pipe, which the caller reads.

    The child has a session of its own, so that signals to our process group, such as a terminal's Ctrl-C, reach only
    this process, which stops the children. If this process dies, the kernel sends the child STOP.
    """
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "tailrace", *arguments],
            env={**os.environ, **env, REPORT_FD: str(writer)},
            stderr=subprocess.PIPE if piped else None,
            start_new_session=True,
            pass_fds=[writer],
            preexec_fn=_stopped_with(os.getpid()),
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    return RunningChild(process, lambda: _read(reader))


def _stopped_with(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, STOP)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def _read(fd: int) -> ErrorReport | None:
    try:
        return read_report(fd)
    finally:
        os.close(fd)
