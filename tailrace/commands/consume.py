"""``tailrace consume``: applies the epoch log to the downstream."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from tailrace.commands.options import (
    DEFAULT_CONFIG,
    Channel,
    ConfigFile,
    StopAtGtid,
    UntilCaughtUp,
    read_config,
)

if TYPE_CHECKING:
    from schemas.compiled.code import CompiledCode
    from spark_consumer.job.starting import StartingSpark
    from spark_consumer.rules.config import ConsumerConfig
    from tailrace.config.model import Config

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="earliest|epoch:N|gtid:SET|time:RFC3339",
        help="Where a channel without a position starts; default: earliest.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="now|epoch:N|gtid:SET|time:RFC3339",
        help="Stop exactly at this position of the log: after the epoch or GTID set, before the time.",
    ),
]

_CHECK_HOLDS = 5.0  # seconds
# Seconds that a producer needs which starts at the same time. It should not have to share its cores with a JVM's start.
_PRODUCERS_START = 5.0


def consume(
    config: ConfigFile = DEFAULT_CONFIG,
    channel: Channel = None,
    start: From = None,
    until: Until = None,
    until_caught_up: UntilCaughtUp = False,
    stop_at_gtid: StopAtGtid = None,
) -> None:
    """Apply the epochs from Kafka to the downstream, exactly once.

    SIGTERM or Ctrl-C stops after the current batch, or cancels the batch after consumer.pause-time; exit code 0. A
    second signal stops at once. In both cases nothing is lost or applied twice.
    """
    from tailrace.assemble.settings import consumer_config
    from tailrace.config.positions import check_position
    from tailrace.service.last_error import error_kept
    from tailrace.service.lifecycle import recovery_hinted, run_until_signalled

    loaded = read_config("consume", config, warn=True)
    settings = consumer_config(
        loaded,
        channel=channel,
        start=None if start is None else check_position(start, "--from"),
        until=None if until is None else check_position(until, "--until", "now"),
        until_caught_up=until_caught_up,
        stop_at_gtid=stop_at_gtid,
    )
    with error_kept(settings.channel_dir), recovery_hinted(loaded.relay.dir):
        run_until_signalled(lambda stop: _run(loaded, settings, stop))


def _run(config: Config, settings: ConsumerConfig, stop: threading.Event) -> None:
    from spark_consumer.job.starting import running_spark
    from tailrace.probe_kafka import probe

    probe(settings.bootstrap_servers, settings.kafka_security)
    if stop.is_set():
        return
    with running_spark(settings) as spark:
        from spark_consumer.job.progress import Counters
        from tailrace.assemble.consumer import consumer, consumers_code
        from tailrace.channels.relay_marks import keep_registered
        from tailrace.config.addresses import metrics_address
        from tailrace.metrics.consumer import ConsumerFacts
        from tailrace.metrics.listener import serve_metrics
        from tailrace.preflight.gate import check_consumer
        from tailrace.service.consume_progress import show_progress
        from tailrace.service.last_error import forget_error
        from tailrace.service.status_socket import CONSUMER, serve_status
        from tailrace.status.memory import ConsumerMemory

        counters = Counters()
        facts = ConsumerFacts(settings.prefix, settings.channel, counters)
        check_consumer(config, settings.channel)
        checked = time.monotonic()

        def check_again() -> None:
            # Much may have changed while the consumer waited for the log or for a server.
            if time.monotonic() - checked > _CHECK_HOLDS:
                check_consumer(config, settings.channel)
            forget_error(settings.channel_dir)

        code = consumers_code()
        address = metrics_address(config, settings.channel)
        with serve_metrics(config, address, settings.channel_dir, facts):
            # Producer and consumer may start in any order; only a bounded run does not wait for the log.
            bounded = settings.until_caught_up or settings.until
            if not bounded and not _wait_for_log(settings, spark, code, stop):
                return

            memory = ConsumerMemory(settings.channel, counters)
            live = serve_status(settings.channel_dir, CONSUMER, memory.snapshot)
            # `recover` does not support folders of change files, so no relay files are kept for them.
            needs = nullcontext() if settings.files else keep_registered(settings, config.relay.dir, counters)
            with show_progress(settings, counters) as ends, needs, live:
                facts.end = lambda: ends.end
                consumer(settings, spark, counters, check_again, code).run(stop)


def _wait_for_log(
    settings: ConsumerConfig, spark: StartingSpark, code: CompiledCode, stop: threading.Event
) -> bool:
    """Wait until the log has its first epoch, while Spark starts. Return false if stopped before."""
    import structlog

    from schemas.errors import LogError
    from spark_consumer.apply.retry import RetryTimer
    from spark_consumer.epochs.log_reader import LogReader
    from tailrace.assemble.sink import make_tables
    from tailrace.service.systemd_notify import Watchdog, tell_status
    from tailrace.status.position import log_exists

    logged = False
    begin = time.monotonic()
    watchdog = Watchdog(0.0)
    timer = RetryTimer(settings.retry_time, stop)
    while not stop.is_set():
        if logged:
            watchdog.look(None, is_due=False)
        try:
            if log_exists(settings) and LogReader(settings).bounds()[1] > 0:
                return True
        except LogError as error:
            if not timer.wait_for_retry():
                if stop.is_set():
                    break
                raise
            structlog.get_logger().warning("start_retry", attempt=timer.attempts, reason=str(error))
            continue
        if not logged:
            structlog.get_logger().info("waiting_for_producer", topic=settings.epochs_topic)
            tell_status("waiting for the producer's first epoch")
            logged = True
            # A new channel's tables take a while, and so does the producer's start. A new log begins with a backlog.
            code.begin()
            make_tables(settings)
        if time.monotonic() - begin > _PRODUCERS_START:
            spark()  # raises an error of its settings, too
        stop.wait(0.1)
    return False
