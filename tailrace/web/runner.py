"""Runs actions as child processes of ours, records them, and keeps the end of what they say."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog

from schemas.errors import ConfigError, TailraceError
from tailrace.service.logs import NO_LIVE_DISPLAY
from tailrace.service.report import REPORT_FD, ErrorReport, read_report
from tailrace.web.actions import Action, Values
from tailrace.web.record import ActionRecord

_AT_ONCE = 4
_KEPT = 20
_OUTPUT = 16 << 10  # bytes of a command's output that are kept
_log = structlog.get_logger()


@dataclass
class Run:
    """An action that was begun.

    Attributes:
        by: how the caller proved that it may: ``token`` or ``session``; ``address`` is the caller's.
        at, ended: seconds since 1970.
        state: ``running``, ``done`` or ``failed``.
        error: the command's error with code, what, where and hint, if it reported one.
        output: the end of what it wrote.
    """

    id: str
    action: str
    fields: dict[str, str]
    by: str
    address: str
    at: float
    state: str = "running"
    ended: float | None = None
    exit_code: int | None = None
    error: dict[str, str] | None = None
    output: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


class Runner:
    """The actions of this process.

    Args:
        config: the configuration's file, for the commands.
        program: what the arguments of a command follow.
    """

    def __init__(
        self, config: Path, record: ActionRecord, program: Sequence[str] = (sys.executable, "-m", "tailrace")
    ) -> None:
        self.record = record
        self._config, self._program = config, program
        self._runs: dict[str, Run] = {}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def begin(self, action: Action, values: Values, by: str, address: str) -> Run:
        """Record an action and start it. Raises ConfigError: TR161 wrong fields, TR162 no record, TR165 too many."""
        arguments = action.arguments(values)
        run = Run(secrets.token_hex(8), action.name, dict(values), by, address, time.time())
        with self._lock:
            if sum(one.state == "running" for one in self._runs.values()) >= _AT_ONCE:
                raise ConfigError(
                    "TR165",
                    f"{_AT_ONCE} actions are running",
                    hint="wait until one of them ends; nothing was done",
                )
            self._runs[run.id] = run
            for old in [one.id for one in self._runs.values() if one.state != "running"][:-_KEPT]:
                del self._runs[old]
        try:
            self.record.add(run.as_dict())
        except TailraceError:
            del self._runs[run.id]
            raise
        _log.info("action_begun", action=run.action, id=run.id, by=by, address=address)
        given = values[action.stdin] if action.stdin else ""
        threading.Thread(target=self._run, args=(run, arguments, given), name=f"action {run.id}").start()
        return run

    def get(self, run_id: str) -> Run | None:
        """Return an action of this process; None if there is none with this id."""
        return self._runs.get(run_id)

    def last(self, count: int) -> list[dict[str, Any]]:
        """Return the last actions, the newest first, those of earlier processes too."""
        here = {run.id: run.as_dict() for run in self._runs.values()}
        return [here.get(line["id"]) or _unfinished(line) for line in self.record.last(count)]

    def close(self) -> None:
        """Ask the commands that still run to end."""
        for child in list(self._children.values()):
            child.terminate()

    def _run(self, run: Run, arguments: list[str], given: str) -> None:
        try:
            code, error = self._wait(run, arguments, given)
        except (OSError, ValueError) as failure:
            code, error = 1, None
            run.output = str(failure)
        run.exit_code, run.ended = code, time.time()
        run.error = error.fields() if error is not None else None
        run.state = "failed" if code else "done"
        _log.info("action_ended", action=run.action, id=run.id, exit_code=code)
        try:
            self.record.add(run.as_dict())
        except TailraceError as failure:
            _log.error("action_not_recorded", id=run.id, reason=str(failure))

    def _wait(self, run: Run, arguments: list[str], given: str) -> tuple[int, ErrorReport | None]:
        """Run a command to its end; return its exit code and its error."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        try:
            with os.fdopen(writer, "wb"):
                child = self._start(arguments, writer)
            self._children[run.id] = child
            assert child.stdin is not None
            assert child.stdout is not None
            with child:
                with suppress(BrokenPipeError):
                    child.stdin.write(given.encode())
                    child.stdin.close()
                kept = b""
                while part := os.read(child.stdout.fileno(), 1 << 14):
                    kept = (kept + part)[-_OUTPUT:]
                    run.output = kept.decode(errors="replace")
            return child.returncode, read_report(reader)
        finally:
            self._children.pop(run.id, None)
            os.close(reader)

    def _start(self, arguments: list[str], writer: int) -> subprocess.Popen[bytes]:
        split = arguments.index("--") if "--" in arguments else len(arguments)
        command = [*self._program, *arguments[:split], "--config", str(self._config), *arguments[split:]]
        return subprocess.Popen(
            command,
            env={**os.environ, NO_LIVE_DISPLAY: "1", REPORT_FD: str(writer)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # A Ctrl-C is for the page, which asks the command to end in order.
            start_new_session=True,
            pass_fds=[writer],
        )


def _unfinished(line: dict[str, Any]) -> dict[str, Any]:
    """Return an action of an earlier process; of one that was cut nobody knows how it ended."""
    return line | {"state": "unknown"} if line.get("state") == "running" else line
