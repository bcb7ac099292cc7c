"""Reads the last epoch of the log and the last epoch that a channel has applied."""

from __future__ import annotations

from functools import partial

from schemas.access.kafka_security import OPEN, KafkaSecurity
from schemas.wire.epoch import EpochCommitted
from spark_consumer.apply.tables import position_store
from spark_consumer.rules.channel import ChannelKey
from tailrace import probe_kafka, servers
from tailrace.channels.files import files_channels
from tailrace.config.addresses import files_target, kafka_security, log_address, target_url
from tailrace.config.model import Config


def last_epoch(config: Config) -> EpochCommitted | None:
    """Return the last committed epoch; None if the log is empty or does not exist. Raises LogError."""
    if not log_exists(config.kafka.bootstrap_servers, config.kafka.prefix, kafka_security(config.kafka)):
        return None
    from spark_consumer.epochs.log_reader import LogReader

    found = LogReader(log_address(config.kafka)).last_epoch()
    return found.record if found else None


def log_exists(servers: str, prefix: str, security: KafkaSecurity = OPEN) -> bool:
    """Return whether the producer has created its topics. Raises the errors of ``probe_kafka.brokers``."""
    _, found = probe_kafka.brokers(servers, security)
    return f"{prefix}.epochs" in found.topics


def last_logged_epoch(config: Config) -> int | None:
    """Return the number of the last committed epoch; None if there is none."""
    last = last_epoch(config)
    return last.epoch if last else None


def channel_epoch(config: Config, channel: str | None = None) -> int:
    """Return the last epoch that the channel has applied, -1 if none. Raises DownstreamError."""
    if (files := files_target(config)) is not None:
        channels = files_channels(files)
        return int(channels[0]["epoch"]) if channels else -1
    with servers.asking(target_url(config), "downstream") as connection:
        key = ChannelKey(config.kafka.prefix, channel or config.consumer.channel)
        found = position_store.all_channels(partial(servers.rows, connection))
        return next((row.position.epoch for row in found if row.key == key), -1)
