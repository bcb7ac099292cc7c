"""Reads the last epoch of the log and the last epoch that a channel has applied."""

from __future__ import annotations

from functools import partial

from schemas.wire.epoch import EpochCommitted
from spark_consumer.apply.tables import position_store
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.config import LogAddress
from tailrace import probe_kafka, servers
from tailrace.channels.files import files_channels
from tailrace.config.addresses import files_target, log_address, target_url
from tailrace.config.model import Config


def last_epoch(config: Config) -> EpochCommitted | None:
    """Return the last committed epoch; None if the log is empty or does not exist. Raises LogError."""
    log = log_address(config.kafka)
    if not log_exists(log):
        return None
    from spark_consumer.epochs.log_reader import LogReader

    found = LogReader(log).last_epoch()
    return found.record if found else None


def log_exists(log: LogAddress) -> bool:
    """Return whether the producer has created its topics. Raises the errors of ``probe_kafka.brokers``."""
    _, found = probe_kafka.brokers(log.bootstrap_servers, log.kafka_security)
    return log.epochs_topic in found.topics


def channel_epoch(config: Config) -> int:
    """Return the last epoch that the configuration's channel has applied, -1 if none. Raises DownstreamError."""
    if (files := files_target(config)) is not None:
        channels = files_channels(files)
        return int(channels[0]["epoch"]) if channels else -1
    with servers.asking(target_url(config), "downstream") as connection:
        key = ChannelKey(config.kafka.prefix, config.consumer.channel)
        found = position_store.all_channels(partial(servers.rows, connection))
        return next((row.position.epoch for row in found if row.key == key), -1)
