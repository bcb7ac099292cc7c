"""Constructs the producer: mirror, publisher, and the epoch log between it and Kafka."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

from producer.copy.copier import Copier
from producer.copy.window import Channel
from producer.decode.decode_rules import DecodeRules
from producer.kafka.epoch_log import EpochLog
from producer.kafka.registry import SchemaRegistry
from producer.mirror.loop import Mirror
from producer.mirror.purging import Purging
from producer.mirror.start import MirrorStart
from producer.publish import Publisher
from producer.run import Producer, ProducerConfig
from producer.upstream.connect import UpstreamInfo
from producer.upstream.origins import Origins, ReadOrigins
from producer.upstream.structures import UpstreamStructures
from relay_store.layout.directory import Owner, write_owner
from relay_store.layout.pauses import PauseSwitch
from relay_store.layout.readers import PUBLISHER, Mark
from relay_store.read.tail import RelayTail
from relay_store.write.writer import RelayWriter
from schemas.tables import TableFilter
from schemas.wire.avro_schema import fingerprint_of
from schemas.wire.epoch import EpochCommitted
from tailrace.artifacts.compiled import compiled_code

# Seconds to wait for Kafka before an error is reported; less in a bounded run, for which somebody waits.
_PATIENCE, _BOUNDED_PATIENCE = 600.0, 120.0
# A Kafka transaction may be open meanwhile, which the broker ends after ten minutes: the commit has to be in time.
_REGISTRY_PATIENCE = 540.0


def producer(
    config: ProducerConfig, look: ReadOrigins = lambda log_id: (), channels: Sequence[Channel] = ()
) -> Producer:
    """Return the producer.

    Args:
        look: returns the ids of the servers and logs that the upstream's rows originate from.
        channels: those that copies wait for.
    """
    root, relay_settings = config.relay.dir, config.relay
    patience = _BOUNDED_PATIENCE if config.until_caught_up else _PATIENCE
    epoch_log = EpochLog(
        config.bootstrap_servers, config.prefix, config.partitions, config.kafka_security, patience
    )
    origins, purging = Origins(look), Purging(root, config.purge, config.awaited_readers)

    def tables(info: UpstreamInfo) -> TableFilter:
        return TableFilter(config.include, config.exclude, folds=info.folds)

    def mirror(info: UpstreamInfo, relay: RelayWriter, last: EpochCommitted | None) -> Mirror:
        gtids, file = relay_settings.relay_binlog_gtid, relay_settings.relay_binlog_name
        return Mirror(
            config.source,
            relay,
            relay_settings,
            server_id=config.server_id,
            start=MirrorStart(gtids, file, config.start, last, tables(info)),
            make_room=purging.purge,
            compiled=compiled_code,
        )

    def publisher(info: UpstreamInfo, tail: RelayTail, stop: threading.Event) -> Publisher:
        schema_name = fingerprint_of
        if url := config.schema_registry_url:
            patience = _BOUNDED_PATIENCE if config.until_caught_up else _REGISTRY_PATIENCE
            kafka = epoch_log.connection
            logged = partial(kafka.retry, epoch_log.topics.structures)
            schema_name = SchemaRegistry(url, logged, patience, kafka.stop_waiting).schema_id
        skip = tuple(rule.in_lower_case() if info.folds else rule for rule in config.skip)
        return Publisher(
            epoch_log,
            root,
            tail,
            DecodeRules(info.flavor, tables(info), config.epoch, config.accounts, skip, schema_name),
            Mark(root, PUBLISHER),
            UpstreamStructures(config.source, info.flavor, tables(info), root, tail, stop),
            lambda log_id: write_owner(root, Owner(config.prefix, log_id)),
            origins,
            Copier(config.source, tables(info), config.copy, channels),
            compiled_code,
            PauseSwitch(root, "publishing"),
        )

    return Producer(config, epoch_log, origins, purging, mirror, publisher)
