"""``tailrace recover``: applies the relay files to the downstream, without upstream and Kafka."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tailrace.commands.options import DEFAULT_CONFIG, Channel, ConfigFile, read_config

if TYPE_CHECKING:
    from tailrace.config.model import Config


def recover(config: ConfigFile = DEFAULT_CONFIG, channel: Channel = None) -> None:
    """Apply the relay files to the downstream, exactly once, if upstream and Kafka are lost.

    It starts at the channel's position and ends at the last complete transaction in the files. Stop the producer
    first. A running consumer of the channel is fenced off. Afterwards start produce and consume as usual.
    """
    from tailrace.service.lifecycle import run_until_signalled

    settings = read_config("recover", config, warn=True)
    run_until_signalled(lambda stop: _run(settings, channel, stop))


def _run(config: Config, channel: str | None, stop: threading.Event) -> None:
    import structlog

    from tailrace.assemble.recovery import recovery
    from tailrace.recover.progress import show_progress

    channel = channel or config.consumer.channel
    with show_progress(channel, config.relay.dir) as watch:
        done = recovery(config, channel).run(stop, watch)
    event = "recovered" if done.begin != done.end else "nothing_to_recover"
    structlog.get_logger().info(
        "recovery_stopped" if stop.is_set() else event,
        channel=channel,
        transactions=done.transactions,
        rows=done.rows,
        begin=str(done.begin),
        end=str(done.end),
        gtids=done.gtids,
    )
