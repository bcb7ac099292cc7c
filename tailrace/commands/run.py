"""``tailrace run``: runs produce and consume under one supervisor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tailrace.commands.options import DEFAULT_CONFIG, ConfigFile, StopAtGtid, UntilCaughtUp, read_config

if TYPE_CHECKING:
    from tailrace.config.model import Config


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
    from tailrace.service import logs
    from tailrace.service.supervisor import Supervisor, start_child

    loaded = read_config("run", config)
    _check_both_ends(loaded)
    commands = _commands(config, until_caught_up, check_gtid_set(stop_at_gtid))
    finished = _caught_up(loaded) if until_caught_up else (lambda done: False)
    # Two live displays would overwrite each other.
    plain = {logs.NO_LIVE_DISPLAY: "1"}
    bounded = until_caught_up or stop_at_gtid is not None
    supervisor = Supervisor(commands, lambda args: start_child(args, **plain), finished, bounded)
    raise typer.Exit(supervisor.run())


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
