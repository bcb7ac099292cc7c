"""``tailrace produce``: mirrors the upstream's binlog and publishes it to Kafka."""

from __future__ import annotations

import time
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING

from tailrace.commands.options import DEFAULT_CONFIG, ConfigFile, StopAtGtid, UntilCaughtUp, read_config

if TYPE_CHECKING:
    from producer.run import ProducerConfig, ProducerProgress
    from tailrace.config.model import Config


def produce(
    config: ConfigFile = DEFAULT_CONFIG,
    until_caught_up: UntilCaughtUp = False,
    stop_at_gtid: StopAtGtid = None,
) -> None:
    """Mirror the upstream's binlog into relay files and publish it to Kafka in epochs.

    SIGTERM or Ctrl-C stops after the current epoch, with exit code 0. A second signal stops at once. In both cases
    nothing is lost: the next start continues after the last committed epoch.
    """
    from tailrace.assemble.settings import producer_config
    from tailrace.service.last_error import error_kept
    from tailrace.service.lifecycle import run_until_signalled

    loaded = read_config("produce", config, warn=True)
    settings = producer_config(loaded, until_caught_up=until_caught_up, stop_at_gtid=stop_at_gtid)
    with error_kept(settings.relay.dir):
        run_until_signalled(lambda stop: _run(loaded, settings, stop))


def _run(config: Config, settings: ProducerConfig, stop: Event) -> None:
    from tailrace.assemble.producer import producer
    from tailrace.assemble.settings import followed_channels, origins
    from tailrace.channels.applied import AppliedEpoch
    from tailrace.channels.relay_marks import follow_channels
    from tailrace.config.addresses import metrics_address
    from tailrace.metrics.listener import serve_metrics
    from tailrace.metrics.producer import ProducerFacts
    from tailrace.preflight.gate import check_producer
    from tailrace.probe_kafka import probe
    from tailrace.service.copy_progress import CopyMeter, describe_copy
    from tailrace.service.last_error import forget_error
    from tailrace.service.lifecycle import recovery_hinted
    from tailrace.service.produce_progress import STANDSTILL_S, UpstreamBacklog, is_publishing_due
    from tailrace.service.progress import progress_display
    from tailrace.service.status_socket import PRODUCER, serve_status
    from tailrace.service.systemd_notify import Watchdog
    from tailrace.status.memory import ProducerMemory

    probe(settings.bootstrap_servers, settings.kafka_security)
    check_producer(config)
    memory = ProducerMemory(settings)
    followed = followed_channels(config)
    marks = follow_channels(followed, settings.relay.dir)
    live = serve_status(settings.relay.dir, PRODUCER, memory.snapshot)
    backlog, meter, watchdog = UpstreamBacklog(settings.source), CopyMeter(), Watchdog(STANDSTILL_S)
    facts = ProducerFacts(settings.prefix, settings.relay.dir, lambda: backlog.end)
    metrics = serve_metrics(config, metrics_address(config), settings.relay.dir, facts)
    with (
        recovery_hinted(settings.relay.dir),
        progress_display("produce") as show,
        live,
        metrics,
        marks as facts.channels,
    ):

        def report(state: ProducerProgress) -> None:
            if memory.state is None:
                forget_error(settings.relay.dir)
            copy = meter.part(state.copy(), time.monotonic())
            memory.state = facts.state = state
            memory.copy = facts.copy = copy
            watchdog.look(
                (state.publish.read, state.publish.epoch), is_due=is_publishing_due(state, time.time())
            )
            shown = describe_copy(copy) if copy is not None and copy["running"] else ""
            show(replace(backlog.snapshot(state), copy=shown))

        channels = [AppliedEpoch(channel) for channel in followed]
        producer(settings, origins(config), channels).run(stop, report)
