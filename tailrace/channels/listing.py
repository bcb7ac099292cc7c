"""Lists, shows and removes channels for `tailrace channel`."""

from __future__ import annotations

from typing import Any

from spark_consumer.apply.tables import audit, channel_pauses, channel_tables, position_store
from spark_consumer.apply.tables.position_store import ChannelRow
from spark_consumer.job.checkpoint import clear, in_use
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import closing, connect
from tailrace.channels.files import files_channels
from tailrace.config.addresses import files_target, target_url, targets
from tailrace.config.model import Config

Channel = dict[str, Any]

_LISTED = (
    "channel",
    "prefix",
    "target",
    "log_id",
    "epoch",
    "epoch_rows",
    "gtids",
    "consistent",
    "rewound_from",
    "began_at",
    "updated",
    "paused",
)


def list_channels(config: Config) -> list[Channel]:
    """Return the channels on all configured targets, and configured channels that have not started yet.

    Channels of other pipelines are included. Raises DownstreamError if a target cannot be reached.
    """
    each = {name: config.for_channel(name) for name in config.channel}
    found = [channel for one in targets(config) for channel in _of_target(one)]
    names = ("prefix", "channel", "target")
    known = {tuple(channel[name] for name in names) for channel in found}
    new = [
        dict(zip(names, (config.kafka.prefix, name, _target(one)), strict=True)) for name, one in each.items()
    ]
    return [
        *found,
        *(dict.fromkeys(_LISTED) | one for one in new if tuple(one.values()) not in known),
    ]


def _target(config: Config) -> str:
    files = files_target(config)
    return str(target_url(config)) if files is None else f"parquet:{files}"


def _of_target(config: Config) -> list[Channel]:
    if (files := files_target(config)) is not None:
        return files_channels(files)
    target = target_url(config)
    with closing(connect(target)) as session:
        paused = channel_pauses.all_pauses(session.rows)
        rows = position_store.all_channels(session.rows)
        return [_channel(str(target), row) | {"paused": paused.get(row.key)} for row in rows]


def _channel(target: str, row: ChannelRow) -> Channel:
    position = row.position
    return {
        "channel": row.key.name,
        "prefix": row.key.prefix,
        "log_id": position.log_id,
        "target": target,
        "epoch": position.epoch,
        "epoch_rows": position.epoch_rows,
        "gtids": position.executed_gtids,
        "consistent": row.consistent,
        "rewound_from": position.repeat_until.shown if position.repeat_until else None,
        "began_at": row.began_at,
        "updated": row.updated.isoformat(timespec="microseconds"),
    }


def show_channel(config: ConsumerConfig) -> Channel:
    """Return a channel with its counters and last batches. Raises DownstreamError TR612 if it does not exist."""
    key = config.key
    with closing(connect(config.target)) as session:
        for row in position_store.all_channels(session.rows):
            if row.key == key:
                counters = audit.counters(session.rows, key.prefix)
                return _channel(str(config.target), row) | {
                    "paused": channel_pauses.since(session, key),
                    "checkpoint": str(config.channel_dir),
                    "counters": counters.get(key.name, dict.fromkeys(audit.COUNTERS, 0)),
                    "batches": audit.batches(session, key),
                }
    raise position_store.unknown_channel(key)


def remove_channel(config: ConsumerConfig) -> None:
    """Remove a channel's position, audit rows, counters and checkpoint. Tables, relay log and topics stay.

    Raises DownstreamError: TR612, there is no such channel; TR614, its consumer is running on this machine.
    """
    with in_use(config.channel_dir, alone=True), closing(connect(config.target)) as session:
        channel_tables.install(session)
        if position_store.read(session, config.key) is None and not audit.exists(session, config.key):
            raise position_store.unknown_channel(config.key)
        channel_tables.forget(session, config.key)
        clear(config.channel_dir)
