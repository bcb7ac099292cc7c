"""``tailrace run``: runs produce and consume under one supervisor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tailrace.commands.options import DEFAULT_CONFIG, ConfigFile, StopAtGtid, UntilCaughtUp, read_config

if TYPE_CHECKING:
    from tailrace.config.model import Config
    from tailrace.service.supervisor import StartChild

_LAST_LINES = 1.0  # seconds that a child's last lines are waited for


def run(
    config: ConfigFile = DEFAULT_CONFIG,
    until_caught_up: UntilCaughtUp = False,
    stop_at_gtid: StopAtGtid = None,
) -> None:
    """Run produce and consume, each in its own process.

    A process that is killed, or fails with an error that may pass, is started again. An error that needs an operator
    stops its process and is logged every minute; the other process continues. SIGTERM or Ctrl-C stops both.
    """
    from tailrace.config.positions import check_gtid_set
    from tailrace.service.supervisor import Supervisor

    loaded = read_config("run", config)
    _check_both_ends(loaded)
    commands = _commands(config, until_caught_up, check_gtid_set(stop_at_gtid))
    finished = _caught_up(loaded) if until_caught_up else (lambda done: False)
    bounded = until_caught_up or stop_at_gtid is not None
    with _children() as start:
        code = Supervisor(commands, start, finished, bounded).run()
    raise typer.Exit(code)


@contextmanager
def _children() -> Iterator[StartChild]:
    """Yield what starts a child: its log goes to stderr, or on a terminal into one panel for both."""
    from tailrace.service import logs
    from tailrace.service.progress import LINES_EVERY
    from tailrace.service.supervisor import RunningChild, start_child

    plain = {logs.NO_LIVE_DISPLAY: "1"}
    if not logs.may_draw():
        yield lambda arguments: start_child(arguments, plain)
        return
    from tailrace.service.panel import live_panel

    readers: list[threading.Thread] = []
    with live_panel("tailrace run") as panel:

        def start(arguments: Sequence[str]) -> RunningChild:
            child = start_child(arguments, {**plain, LINES_EVERY: "1"}, piped=True)
            lines = child.process.stderr
            assert lines is not None
            readers.append(threading.Thread(target=panel.lines_of, args=(lines, arguments[0]), daemon=True))
            readers[-1].start()
            return child

        yield start
        for reader in readers:
            reader.join(_LAST_LINES)


def _check_both_ends(config: Config) -> None:
    from tailrace.config.addresses import files_target, source_url, target_url

    source_url(config)
    if files_target(config) is None:
        target_url(config)


def _commands(config: Path, until_caught_up: bool, stop_at: str | None) -> list[tuple[str, list[str]]]:
    common = ["--config", str(config)]
    if stop_at:
        common += ["--stop-at-gtid", stop_at]
    # With its own --until-caught-up the consumer would stop at the end that the log has at its start: too early.
    return [
        ("produce", ["produce", *common, *(["--until-caught-up"] if until_caught_up else [])]),
        ("consume", ["consume", *common]),
    ]


def _caught_up(config: Config) -> Callable[[frozenset[str]], bool]:
    """Return a function: whether the producer has finished and the channel has applied its last epoch."""
    import time

    from tailrace.status.position import channel_epoch, last_epoch

    last = None
    next_look = 0.0

    def finished(done: frozenset[str]) -> bool:
        nonlocal last, next_look
        if "produce" not in done or time.monotonic() < next_look:
            return False
        next_look = time.monotonic() + 0.3
        if last is None:
            last = last_epoch(config)
        return last is not None and channel_epoch(config) >= last.epoch

    return finished
