"""Validates a channel, and has different tables copied again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from threading import Event

import structlog

from producer.upstream.connect import describe
from schemas.errors import TailraceError, UpstreamError
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.target.session import connect
from tailrace.config.addresses import log_address, source_url, target_url
from tailrace.config.channels import server_channel
from tailrace.config.model import Config
from tailrace.reader.log import EpochReader
from tailrace.validate.follower import Follower
from tailrace.validate.history import History
from tailrace.validate.result import Report
from tailrace.validate.saved_run import SavedRun
from tailrace.validate.servers import Servers
from tailrace.validate.validator import Progress, Validator

#: asks the producer for copies of upstream tables, ``db.table``
AskForCopy = Callable[[Sequence[str]], object]

#: seconds to wait for the channel to pass a position
PATIENCE = 60.0
# Rows that are not decided are looked at again soon.
_PATIENCE_OF_FOLLOW = 10.0
_LOOK = 0.5  # seconds between two looks at a copy
_RETRY = 5.0  # seconds

_log = structlog.get_logger()


def validate(
    config: Config,
    channel: str | None = None,
    tables: Sequence[str] = (),
    where: str = "",
    max_rows_per_s: int = 0,
    progress: Progress | None = None,
    patience: float = PATIENCE,
    repair: AskForCopy | None = None,
    restart: bool = False,
) -> Report:
    """Prove the rows of a channel's tables equal, while both servers are written to and the channel runs.

    Goes on with a run for the same tables, rows and rules that was interrupted.

    Args:
        tables: patterns of upstream tables, as in ``[tables]``; default: all that the channel replicates.
        where: a condition on the rows, for both servers.
        max_rows_per_s: rows read from the upstream per second; 0 is no limit.
        patience: seconds to wait for a channel that does not move.
        repair: asks for copies of tables with different rows, which are validated again afterwards.
        restart: whether to begin anew.

    Raises UpstreamError, DownstreamError or LogError when a part cannot be read.
    """
    started = time.monotonic()
    channel = channel or config.consumer.channel
    rules = server_channel(config, channel)
    config = config.for_channel(channel)
    log = log_address(config.kafka)
    with (
        closing(Servers(source_url(config), target_url(config), rules.key, patience)) as servers,
        closing(connect(target_url(config))) as session,
        EpochReader(log.bootstrap_servers, log.prefix, log.kafka_security) as reader,
    ):
        servers.check_gtids()
        history = History(LogReader(log), reader)
        _check_source(config, history)
        with servers.reading("downstream"):
            what = (
                tuple(tables),
                where,
                rules.include,
                rules.exclude,
                rules.filters,
                rules.routes,
                rules.expressions,
            )
            saved = SavedRun(session, rules.key, what, restart)
        show = progress or (lambda report: None)
        run = Validator(servers, history, rules, where, max_rows_per_s, show, saved=saved)
        run.report.position = servers.position().executed
        run.begin(tables)
        for name in run.names:
            run.table(name)
        if repair is not None:
            _repair(run, servers, history, repair, patience)
        with servers.reading("downstream"):
            saved.remove()
        run.report.until = servers.position().executed
        run.report.seconds = time.monotonic() - started
        return run.report


def follow(
    config: Config,
    channel: str | None,
    stop: Event,
    every: float | None = None,
    max_rows_per_s: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Validate until ``stop`` is set: the rows that each epoch changes, and each table in full once in a time.

    What is proved is in ``tailrace.validation``, from which another run goes on. An unreachable server is waited for.

    Args:
        every: seconds between two validations of a table in full; default: ``[validate] every``.
    """
    every = config.validation.every if every is None else every
    channel = channel or config.consumer.channel
    rules = server_channel(config, channel)
    config = config.for_channel(channel)
    log = log_address(config.kafka)
    while True:
        try:
            with (
                closing(
                    Servers(
                        source_url(config),
                        target_url(config),
                        rules.key,
                        _PATIENCE_OF_FOLLOW,
                        _PATIENCE_OF_FOLLOW,
                    )
                ) as servers,
                closing(connect(target_url(config))) as session,
                EpochReader(log.bootstrap_servers, log.prefix, log.kafka_security) as reader,
            ):
                servers.check_gtids()
                history = History(LogReader(log), reader)
                _check_source(config, history)
                follower = Follower(
                    servers,
                    history,
                    rules,
                    session,
                    every,
                    max_rows_per_s,
                    stop,
                    progress or (lambda report: None),
                )
                follower.run()
                return follower.report
        except TailraceError as error:
            if not error.retryable:
                raise
            _log.warning("start_retry", reason=str(error))
            if stop.wait(_RETRY):
                return Report()


def _repair(run: Validator, servers: Servers, history: History, ask: AskForCopy, patience: float) -> None:
    """Have tables with different rows copied again, and validate them when the channel has the copies."""
    different = {table.table: table for table in run.report.tables if table.different}
    wanted = {name: run.repairable(name) for name in different}
    for name, found in wanted.items():
        if isinstance(found, str):
            different[name].problem = f"not repaired: {found}"
    sources = {name: found for name, found in wanted.items() if not isinstance(found, str)}
    if not sources:
        return
    last = history.end()
    ask([".".join(source) for source in sources.values()])
    moved, seen = time.monotonic(), None
    waiting = dict(sources)
    while waiting and time.monotonic() < moved + patience:
        position = servers.position()
        for name, source in list(waiting.items()):
            if history.was_copied(source, last, position.epoch):
                del waiting[name]
                run.again(different[name])
        if seen != (seen := (history.end(), position)):
            moved = time.monotonic()
        run.show()
        time.sleep(_LOOK)
    for name in waiting:
        different[name].problem = "its copy was asked for, and the channel does not have it yet"


def _check_source(config: Config, history: History) -> None:
    """Raise UpstreamError if the log comes from another server: positions of the two cannot be ordered."""
    upstream, logged = describe(source_url(config)).server_uuid, history.source_id()
    if logged not in (None, upstream):
        raise UpstreamError(
            "TR203",
            f"the log's last epoch comes from the server {logged}, and [source] url is {upstream}",
            hint="validate when the producer has published something of this server",
        )
