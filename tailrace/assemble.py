"""The composition root: a configuration becomes the two processes' own settings, here and nowhere else."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from producer.decode.skipping import SkipRule
from producer.settings import RelaySettings
from relay_store.purge.purge import PurgeRules
from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError
from spark_consumer.rules.ddl_options import DdlOptions
from spark_consumer.rules.event_filter import EventRule
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.route import Route
from tailrace.config.file import kafka_security, server_url
from tailrace.config.model import FILES, Config
from tailrace.config.start_point import check_gtid_set

if TYPE_CHECKING:
    from producer.run import ProducerConfig
    from spark_consumer.rules.config import ConsumerConfig


def source_url(config: Config) -> ServerUrl:
    """The upstream's address with its password. Raises ConfigError if there is none."""
    if config.source is None:
        raise _missing("source")
    return server_url(config.source)


def target_url(config: Config) -> ServerUrl:
    """The downstream's address with its password. Raises ConfigError if there is none, or it is no server."""
    if config.target is None:
        raise _missing("target")
    if files_target(config) is not None:
        raise ConfigError(
            "TR107",
            f"this needs a server, and [target] is a folder of change files: {config.target.url}",
            hint="name a channel whose target is a server, if there is one; a folder is begun anew by emptying it",
        )
    return server_url(config.target)


def files_target(config: Config) -> Path | None:
    """The folder of change files that is the target; None if it is a server."""
    url = config.target.url if config.target is not None else ""
    return Path(url.removeprefix(FILES)) if url.startswith(FILES) else None


def targets(config: Config) -> list[Config]:
    """A configuration for each target, the common one first; a channel's own only if no other has it."""
    own = [config.for_channel(name) for name, said in config.channel.items() if said.target is not None]
    found: dict[str, Config] = {}
    for one in [config, *own] if config.target is not None or not own else own:
        found.setdefault(one.target.url if one.target is not None else "", one)
    return list(found.values())


def channels_of(config: Config, target: Config) -> list[ConsumerConfig]:
    """The channels that write to one of the ``targets``, those that have not begun too."""
    names = dict.fromkeys([config.consumer.channel, *config.channel])
    found = {name: config.for_channel(name).target for name in names}
    here = [name for name, one in found.items() if one is not None and one == target.target]
    return [channel_rules(config, name) for name in here]


def channel_rules(config: Config, name: str) -> ConsumerConfig:
    """A channel's settings but for its target."""
    return _channel_config(config, name, lambda _: ServerUrl("unused"))


def relay_readers(config: Config) -> tuple[str, ...]:
    """The names under which the configuration's channels read the relay log, as far as their targets are servers.

    Change files have no use for it, since `tailrace recover` cannot go on with them.
    """
    from relay_store.layout.readers import channel_reader

    return tuple(channel_reader(name) for name in server_channels(config))


def followed_channels(config: Config) -> list[ConsumerConfig]:
    """Those of the ``server_channels`` whose targets this machine can log in to."""
    found = []
    for name in server_channels(config):
        try:
            found.append(recovery_config(config, name))
        except ConfigError as error:
            # A machine that only produces may lack the password file.
            structlog.get_logger().warning("channel_not_followed", channel=name, reason=str(error))
    return found


def server_channels(config: Config) -> list[str]:
    """The channels of the configuration whose targets are servers: those with a section, and the default one."""
    names = dict.fromkeys([config.consumer.channel, *config.channel])
    own = {name: config.for_channel(name) for name in names}
    return [name for name, one in own.items() if one.target is not None and files_target(one) is None]


def server_id(config: Config) -> int:
    """The replica's id: as configured, else one that stays the same for this host and prefix."""
    if config.source is not None and config.source.server_id is not None:
        return config.source.server_id
    name = f"{socket.gethostname()}/{config.kafka.prefix}".encode()
    # The upper half of the range: people number their servers from below.
    return (1 << 31) | zlib.crc32(name) >> 1


def skip_rules(config: Config) -> tuple[SkipRule, ...]:
    """What the producer passes over."""
    return tuple(rule.plain(SkipRule) for rule in config.skip)


def producer_config(
    config: Config, *, until_caught_up: bool = False, stop_at_gtid: str | None = None
) -> ProducerConfig:
    """What ``tailrace produce`` runs with."""
    from producer.epochs.open_epoch import EpochLimits
    from producer.run import ProducerConfig

    source = source_url(config)
    return ProducerConfig(
        source=source,
        server_id=server_id(config),
        start=config.source.start if config.source else "earliest",
        relay=config.relay.plain(RelaySettings),
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
    """Where the upstream's rows come from, see ``producer.upstream.origins``."""
    from spark_consumer.rules.scope import Scope
    from tailrace.neighbors import origins_of

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
    """What ``tailrace consume`` runs with."""
    from tailrace.artifacts.spark import class_archive, spark_jars

    channel = channel or config.consumer.channel
    files = files_target(config.for_channel(channel))
    return replace(
        _channel_config(config, channel, target_url if files is None else lambda _: ServerUrl("files")),
        files=files,
        start=start,
        until=until,
        until_caught_up=until_caught_up,
        stop_at_gtid=check_gtid_set(stop_at_gtid),
        spark_conf=config.for_channel(channel).consumer.spark,
        jars=spark_jars(),
        class_archive=class_archive(),
    )


def recovery_config(config: Config, channel: str | None = None) -> ConsumerConfig:
    """What ``tailrace recover`` applies with: the consumer's settings, less those of a run and of Spark."""
    return _channel_config(config, channel or config.consumer.channel, target_url)


def _channel_config(config: Config, name: str, target: Callable[[Config], ServerUrl]) -> ConsumerConfig:
    from spark_consumer.rules.config import ConsumerConfig

    config = config.for_channel(name)
    return ConsumerConfig(
        bootstrap_servers=config.kafka.bootstrap_servers,
        kafka_security=kafka_security(config.kafka),
        prefix=config.kafka.prefix,
        target=target(config),
        **_consumer_settings(config, name),
        include=config.tables.include,
        exclude=config.tables.exclude,
        filters=tuple(rule.plain(EventRule) for rule in config.filters),
        routes=tuple(rule.plain(Route) for rule in config.routes),
        expressions=tuple(rule.plain(ExpressionRule) for rule in config.expression_filter),
        ddl=config.ddl.plain(DdlOptions),
    )


def _consumer_settings(config: Config, channel: str) -> dict[str, Any]:
    from spark_consumer.rules.config import ConsumerSettings

    found = {field.name: getattr(config.consumer, field.name) for field in fields(ConsumerSettings)}
    return found | {"channel": channel}


def _missing(section: str) -> ConfigError:
    return ConfigError(
        "TR103",
        f"[{section}] url is missing",
        hint=f"add it to the file, or set TAILRACE_{section.upper()}_URL",
    )
