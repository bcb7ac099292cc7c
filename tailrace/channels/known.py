"""The channels that targets know: where each stands, for `tailrace channel`, and how one is forgotten."""

from __future__ import annotations

import json
from typing import Any

import pymysql

from spark_consumer.apply import position_store as positions
from spark_consumer.epochs.log_position import Place
from spark_consumer.job.checkpoint import clear, in_use
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session, closing, connect, error_number
from tailrace import assemble as wiring
from tailrace.channels.files import files_channels
from tailrace.config.model import Config

Channel = dict[str, Any]
_NOT_THERE = (1049, 1146)  # no schema, no table
_SQL = (
    "SELECT Channel_name, prefix, log_id, epoch, epoch_rows, executed_gtid_set, consistent, rewound_from, began_at,"
    " DATE_FORMAT(updated_at, '%Y-%m-%dT%H:%i:%s.%f+00:00') FROM tailrace.relay_log_info ORDER BY prefix, Channel_name"
)


def listed(config: Config) -> list[Channel]:
    """The channels of all configured targets, other pipelines' too, and the configured ones that have not begun.

    Raises DownstreamError where a target cannot be reached.
    """
    each = {name: config.for_channel(name) for name in config.channel}
    found = [channel for one in wiring.targets(config) for channel in _of_target(one)]
    names = ("prefix", "channel", "target")
    known = {tuple(channel[name] for name in names) for channel in found}
    new = [
        dict(zip(names, (config.kafka.prefix, name, _target(one)), strict=True)) for name, one in each.items()
    ]
    return [*found, *({**one, "epoch": None} for one in new if tuple(one.values()) not in known)]


def _target(config: Config) -> str:
    files = wiring.files_target(config)
    return str(wiring.target_url(config)) if files is None else f"parquet:{files}"


def _of_target(config: Config) -> list[Channel]:
    if (files := wiring.files_target(config)) is not None:
        return files_channels(files)
    target = wiring.target_url(config)
    with closing(connect(target)) as session:
        return [_channel(str(target), row) for row in _rows(session)]


def _rows(session: Session) -> list[tuple[Any, ...]]:
    try:
        return session.rows(_SQL)
    except pymysql.MySQLError as error:
        if error_number(error) not in _NOT_THERE:
            raise
    return []


def _channel(target: str, row: tuple[Any, ...]) -> Channel:
    name, prefix, log_id, epoch, rows, gtids, consistent, rewound, began, updated = row
    return {
        "channel": name,
        "prefix": prefix,
        "log_id": log_id,
        "target": target,
        "epoch": epoch,
        "epoch_rows": rows,
        "gtids": gtids,
        "consistent": bool(consistent),
        "rewound_from": Place.from_json(rewound).shown if rewound else None,
        "began_at": began,
        "updated": updated,
    }


def shown(config: ConsumerConfig) -> Channel:
    """One channel, with its counters and last batches. Raises DownstreamError TR612 if the target has none."""
    key = config.key
    with closing(connect(config.target)) as session:
        for row in _rows(session):
            if ChannelKey(row[1], row[0]) == key:
                return _channel(str(config.target), row) | {
                    "checkpoint": str(config.channel_dir),
                    "counters": _counters(session, key),
                    "batches": _batches(session, key),
                }
    raise positions.unknown(key)


def _counters(session: Session, channel: ChannelKey) -> Channel:
    columns = ", ".join(positions.COUNTERS)
    try:
        rows = session.rows(
            f"SELECT {columns} FROM tailrace.channel_counters WHERE prefix = %s AND channel = %s", channel
        )
    except pymysql.MySQLError as error:
        if error_number(error) not in _NOT_THERE:
            raise
        rows = []
    return dict(zip(positions.COUNTERS, rows[0] if rows else [0] * len(positions.COUNTERS), strict=True))


def _batches(session: Session, channel: ChannelKey) -> list[Channel]:
    names = (
        "first_epoch",
        "last_epoch",
        "first_gtid",
        "last_gtid",
        "transactions",
        "inserts",
        "updates",
        "deletes",
    )
    rows = session.rows(
        f"SELECT {', '.join(names)}, ddl, DATE_FORMAT(applied_at, '%%Y-%%m-%%dT%%H:%%i:%%s.%%f+00:00')"
        " FROM tailrace.applied_epochs WHERE prefix = %s AND channel = %s ORDER BY applied_at DESC LIMIT 10",
        channel,
    )
    return [dict(zip((*names, "ddl", "applied"), row, strict=True)) for row in rows]


def remove(config: ConsumerConfig) -> None:
    """Forget a channel: position, audit rows, counters, checkpoint. Tables, relay log and topics stay.

    Raises DownstreamError: TR612 there is no such channel, TR614 its consumer runs here.
    """
    with in_use(config.channel_dir, alone=True), closing(connect(config.target)) as session:
        positions.install(session)
        if positions.read(session, config.key) is None and not positions.has_audit(session, config.key):
            raise positions.unknown(config.key)
        positions.forget(session, config.key)
        clear(config.channel_dir)


def as_json(value: object) -> str:
    """For ``--json``."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
