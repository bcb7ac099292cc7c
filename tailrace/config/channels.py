"""Makes the consumer's settings of a channel from the configuration."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from schemas.access.server_url import ServerUrl
from spark_consumer.rules.config import ConsumerConfig, ConsumerSettings
from spark_consumer.rules.ddl_options import DdlOptions
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.route import Route
from tailrace.config.addresses import kafka_security, target_url
from tailrace.config.model import Config


def server_channel(config: Config, name: str | None = None) -> ConsumerConfig:
    """Return the settings of a channel whose target is a server, without those of a run and of Spark.

    Raises ConfigError.
    """
    name = name or config.consumer.channel
    return channel_config(config, name, target_url(config.for_channel(name)))


def channels_of(config: Config, target: Config) -> list[ConsumerConfig]:
    """Return the configured channels that write to the same target as the configuration ``target``."""
    names = dict.fromkeys([config.consumer.channel, *config.channel])
    found = {name: config.for_channel(name).target for name in names}
    names_of = [name for name, one in found.items() if one is not None and one == target.target]
    return [channel_rules(config, name) for name in names_of]


def channel_rules(config: Config, name: str) -> ConsumerConfig:
    """Return a channel's settings with a placeholder for its target."""
    return channel_config(config, name, ServerUrl("unused"))


def channel_config(config: Config, name: str, target: ServerUrl) -> ConsumerConfig:
    """Return a channel's settings with the address of a target."""
    config = config.for_channel(name)
    return ConsumerConfig(
        bootstrap_servers=config.kafka.bootstrap_servers,
        kafka_security=kafka_security(config.kafka),
        prefix=config.kafka.prefix,
        target=target,
        **_consumer_settings(config, name),
        include=config.tables.include,
        exclude=config.tables.exclude,
        filters=tuple(rule.plain(EventRule) for rule in config.filters),
        routes=tuple(rule.plain(Route) for rule in config.routes),
        expressions=tuple(rule.plain(ExpressionRule) for rule in config.expression_filter),
        ddl=config.ddl.plain(DdlOptions),
    )


def _consumer_settings(config: Config, channel: str) -> dict[str, Any]:
    found = {field.name: getattr(config.consumer, field.name) for field in fields(ConsumerSettings)}
    return found | {"channel": channel}
