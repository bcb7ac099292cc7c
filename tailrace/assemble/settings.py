"""Makes the settings of the two processes from the configuration.

Functions that read single values from the configuration are in ``tailrace/config/``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from producer.settings import CopySettings, RelaySettings, SkipRule
from relay_store.purge.purge import PurgeRules
from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError
from tailrace.config.addresses import (
    files_target,
    kafka_security,
    server_channels,
    server_id,
    source_url,
    target_url,
)
from tailrace.config.channels import channel_config, server_channel
from tailrace.config.model import Config
from tailrace.config.positions import check_gtid_set

if TYPE_CHECKING:
    from producer.run import ProducerConfig
    from spark_consumer.rules.config import ConsumerConfig


def relay_readers(config: Config) -> tuple[str, ...]:
    """Return the reader names of the configuration's channels on servers.

    Folders of change files need no relay files, because `tailrace recover` does not support them.
    """
    from relay_store.layout.readers import channel_reader

    return tuple(channel_reader(name) for name in server_channels(config))


def followed_channels(config: Config) -> list[ConsumerConfig]:
    """Return the ``server_channels`` that have a complete login on this machine."""
    found = []
    for name in server_channels(config):
        try:
            found.append(server_channel(config, name))
        except ConfigError as error:
            # A machine that runs only the producer may not have the password file.
            structlog.get_logger().warning("channel_not_followed", channel=name, reason=str(error))
    return found


def skip_rules(config: Config) -> tuple[SkipRule, ...]:
    """Return the rules for events that the producer leaves out."""
    return tuple(rule.plain(SkipRule) for rule in config.skip)


def producer_config(
    config: Config, *, until_caught_up: bool = False, stop_at_gtid: str | None = None
) -> ProducerConfig:
    """Return the settings of ``tailrace produce``. Raises ConfigError."""
    from producer.epochs.open_epoch import EpochLimits
    from producer.run import ProducerConfig

    source = source_url(config)
    return ProducerConfig(
        source=source,
        server_id=server_id(config),
        start=config.source.start if config.source else "copy",
        relay=config.relay.plain(RelaySettings),
        copy=config.copies.plain(CopySettings),
        epoch=config.epoch.plain(EpochLimits),
        purge=config.purge.plain(PurgeRules),
        awaited_readers=relay_readers(config),
        bootstrap_servers=config.kafka.bootstrap_servers,
        kafka_security=kafka_security(config.kafka),
        prefix=config.kafka.prefix,
        partitions=config.kafka.partitions,
        include=config.tables.include,
        exclude=config.tables.exclude,
        skip=skip_rules(config),
        until_caught_up=until_caught_up,
        stop_at_gtid=check_gtid_set(stop_at_gtid),
        schema_registry_url=config.kafka.schema_registry_url,
        accounts=config.ddl.accounts == "apply",
    )


def origins(config: Config) -> Callable[[str], tuple[str, ...]]:
    """Return a function from the log's id to the origins of the upstream's rows; see ``producer.upstream.origins``."""
    from spark_consumer.rules.scope import Scope
    from tailrace.other_pipelines import origins_of

    source, scope = source_url(config), Scope(config.tables.include, config.tables.exclude)
    return lambda log_id: origins_of(source, scope, log_id)


def consumer_config(
    config: Config,
    *,
    channel: str | None = None,
    start: str | None = None,
    until: str | None = None,
    until_caught_up: bool = False,
    stop_at_gtid: str | None = None,
) -> ConsumerConfig:
    """Return the settings of ``tailrace consume``. Raises ConfigError."""
    from tailrace.artifacts.spark import class_archive, spark_jars

    channel = channel or config.consumer.channel
    own = config.for_channel(channel)
    files = files_target(own)
    return replace(
        channel_config(config, channel, target_url(own) if files is None else ServerUrl("files")),
        files=files,
        start=start,
        until=until,
        until_caught_up=until_caught_up,
        stop_at_gtid=check_gtid_set(stop_at_gtid),
        spark_conf=own.consumer.spark,
        jars=spark_jars(),
        class_archive=class_archive(),
    )
