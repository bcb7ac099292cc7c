"""The producer process: the mirror in a thread of its own, the publisher in the caller's."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import structlog

from producer.decode.decode_rules import DecodeRules
from producer.epochs.open_epoch import EpochLimits, LogState
from producer.epochs.progress import PublishProgress
from producer.kafka.connection import ProducerStopped
from producer.kafka.epoch_log import EpochLog
from producer.kafka.registry import SchemaRegistry
from producer.mirror.loop import Mirror, MirrorProgress
from producer.mirror.purging import Purging
from producer.mirror.start import MirrorStart, check_history, check_log, discard_unpublished
from producer.publish import Publisher
from producer.settings import RelaySettings, SkipRule
from producer.upstream.connect import UpstreamInfo, describe
from producer.upstream.origins import Origins, ReadOrigins
from producer.upstream.structures import UpstreamStructures
from relay_store.layout import directory as layout
from relay_store.layout.directory import (
    Owner,
    RelayPosition,
    file_number,
    subdir_uuid,
    write_default_engine,
    write_lower_case_names,
)
from relay_store.layout.readers import PUBLISHER, Mark
from relay_store.purge.purge import PurgeRules
from relay_store.write.writer import RelayWriter, create_and_lock
from schemas.access.kafka_security import OPEN, KafkaSecurity
from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError, UpstreamError
from schemas.gtid.sets import parse_gtid_set
from schemas.tables import TableFilter
from schemas.wire.avro_schema import fingerprint_of

log = structlog.get_logger()

_REPORT = 1.0  # seconds between progress reports
# Seconds to wait for Kafka before an error is reported; less in a bounded run, for which somebody waits.
_PATIENCE, _BOUNDED_PATIENCE = 600.0, 120.0
# A Kafka transaction may be open meanwhile, which the broker ends after ten minutes: the commit has to be in time.
_REGISTRY_PATIENCE = 540.0
_LEAVE = 10.0  # seconds behind a stop after which a Kafka that is away is waited for no longer


@dataclass(frozen=True)
class ProducerConfig:
    """What ``tailrace produce`` needs: sections of the configuration, and what one run is told.

    Attributes:
        until_caught_up: stop once everything that was upstream at the start is published.
        stop_at_gtid: stop exactly behind this GTID set.
        awaited_readers: of the relay log, by name; they need all of it until they register.
        accounts: whether statements on accounts, which may hold passwords, are published.
        kafka_security: what Kafka asks for.
        schema_registry_url: its ids name the rows' schemas; it may hold a password.
    """

    source: ServerUrl
    server_id: int
    start: Literal["earliest", "current"]
    relay: RelaySettings
    epoch: EpochLimits
    purge: PurgeRules
    bootstrap_servers: str
    prefix: str
    partitions: int
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    skip: tuple[SkipRule, ...] = ()
    awaited_readers: tuple[str, ...] = ()
    until_caught_up: bool = False
    stop_at_gtid: str | None = None
    accounts: bool = False
    schema_registry_url: str | None = field(default=None, repr=False)
    kafka_security: KafkaSecurity = OPEN


@dataclass(frozen=True)
class ProducerProgress:
    """Both halves' counters and the relay log between them, for displays and logs."""

    mirror: MirrorProgress
    publish: PublishProgress
    relay: RelayWriter


class _MirrorThread(threading.Thread):
    """Runs the mirror; its error stops the publisher and is raised in the caller."""

    def __init__(self, mirror: Mirror, stop: threading.Event) -> None:
        super().__init__(name="mirror", daemon=True)
        self._mirror, self._stop_event = mirror, stop
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._mirror.run(self._stop_event)
        except BaseException as error:
            self.error = error
            self._stop_event.set()
        finally:
            self._mirror.relay.tail.close()


def run_producer(
    config: ProducerConfig,
    stop: threading.Event,
    progress: Callable[[ProducerProgress], None] | None = None,
    look: ReadOrigins = lambda log_id: (),
) -> None:
    """Mirror and publish until ``stop`` is set or the configured end is reached.

    Args:
        look: returns the ids of the servers and logs that the upstream's rows originate from.

    Raises:
        UpstreamError, RelayError, DecodeError, LogError: what stopped it; nothing is lost, and the next
        start goes on behind the last committed epoch.
    """
    epoch_log = EpochLog(
        config.bootstrap_servers,
        config.prefix,
        config.partitions,
        config.kafka_security,
        _BOUNDED_PATIENCE if config.until_caught_up else _PATIENCE,
    )
    ended = threading.Event()

    def leave() -> None:
        while not ended.is_set() and not stop.wait(0.2):
            pass
        if not ended.wait(_LEAVE):
            epoch_log.connection.stop_waiting.set()

    threading.Thread(target=leave, daemon=True).start()
    try:
        _run(config, stop, progress, epoch_log, Origins(look))
    except ProducerStopped as stopped:
        log.warning("epoch_left", reason=str(stopped), hint="the next start publishes it")
    finally:
        ended.set()


def _run(
    config: ProducerConfig,
    stop: threading.Event,
    progress: Callable[[ProducerProgress], None] | None,
    epoch_log: EpochLog,
    origins: Origins,
) -> None:
    info = describe(config.source)
    _check_stop(config, info)
    _check_server_id(config, info)
    relay, state = _open_logs(config, info, epoch_log, origins)
    tables = TableFilter(config.include, config.exclude, folds=info.folds)
    root = config.relay.dir
    write_lower_case_names(root, info.folds)
    write_default_engine(root, info.default_engine)
    purging = Purging(root, config.purge, config.awaited_readers)
    mirror = Mirror(
        config.source,
        relay,
        config.relay,
        server_id=config.server_id,
        start=MirrorStart(
            config.relay.relay_binlog_gtid,
            config.relay.relay_binlog_name,
            config.start,
            state.last_epoch,
            tables,
        ),
        make_room=purging.purge,
    )
    # The mirror goes on while the publisher completes its epoch, so each has its own event.
    mirror_stop, publish_stop = threading.Event(), threading.Event()
    publisher = Publisher(
        epoch_log,
        root,
        relay.tail,
        _rules(config, info, tables, epoch_log),
        Mark(root, PUBLISHER),
        UpstreamStructures(config.source, info.flavor, tables, root, relay.tail, publish_stop),
        lambda log_id: layout.write_owner(root, Owner(config.prefix, log_id)),
        origins,
    )
    thread = _MirrorThread(mirror, mirror_stop)
    watch = threading.Thread(
        target=_watch,
        args=(
            stop,
            mirror_stop,
            publish_stop,
            ProducerProgress(mirror.progress, publisher.progress, relay),
            progress,
        ),
        daemon=True,
    )
    thread.start()
    watch.start()
    purging.start()
    try:
        until = _caught_up(relay, info) if config.until_caught_up else None
        publisher.run(state, publish_stop, until, config.stop_at_gtid)
    finally:
        mirror_stop.set()
        thread.join()
        publish_stop.set()
        watch.join()
        purging.stop()
        relay.close()
    if thread.error is not None:
        raise thread.error


def _open_logs(
    config: ProducerConfig, info: UpstreamInfo, epoch_log: EpochLog, origins: Origins
) -> tuple[RelayWriter, LogState]:
    """Become the one writer of both logs; returns the relay log and the state of the epoch log."""
    # Opening the epoch log fences whoever writes it: not before the relay directory is ours.
    lock = create_and_lock(config.relay.dir)
    try:
        state = _open_and_check_log(config, info, epoch_log, origins)
    except BaseException:
        os.close(lock)
        raise
    return RelayWriter.open(config.relay.dir, lock), state


def _open_and_check_log(
    config: ProducerConfig, info: UpstreamInfo, epoch_log: EpochLog, origins: Origins
) -> LogState:
    """Become the epoch log's one writer, if it is this relay log's and this upstream's; returns its state."""
    owner = layout.check_owner(config.relay.dir, config.prefix)
    last = epoch_log.connection.retry(epoch_log.topics.peek_last_epoch)
    check_log(config.relay.dir, owner, last)
    if last is not None:
        check_history(config.source, info, last, f"the epoch log of {config.prefix}")
    origins.begin(last.log_id if last is not None else "")
    # Whoever wrote it meanwhile writes no more.
    state = epoch_log.open()
    layout.write_owner(config.relay.dir, Owner(config.prefix, owner.log_id))
    if config.relay.relay_log_recovery and state.last_epoch is not None:
        discard_unpublished(config.relay.dir, info, state.last_epoch)
    return state


def _rules(
    config: ProducerConfig, info: UpstreamInfo, tables: TableFilter, epoch_log: EpochLog
) -> DecodeRules:
    """What of the binlog becomes records."""
    patience = _BOUNDED_PATIENCE if config.until_caught_up else _REGISTRY_PATIENCE
    schema_name = fingerprint_of
    if config.schema_registry_url:
        kafka, structures = epoch_log.connection, epoch_log.topics.structures
        schema_name = SchemaRegistry(
            config.schema_registry_url, partial(kafka.retry, structures), patience, kafka.stop_waiting
        ).schema_id
    return DecodeRules(
        info.flavor,
        tables,
        config.epoch,
        config.accounts,
        tuple(rule.in_lower_case() if info.folds else rule for rule in config.skip),
        schema_name,
    )


def _caught_up(relay: RelayWriter, info: UpstreamInfo) -> Callable[[RelayPosition], bool]:
    """Whether a position is behind all that the upstream had when it described itself."""

    def is_behind(here: RelayPosition) -> bool:
        # Files of different servers cannot be compared: the relay log must have come to this one.
        if here.subdir != relay.subdir or subdir_uuid(here.subdir) != info.server_uuid:
            return False
        file, position = here.upstream
        return (file_number(file), position) >= (file_number(info.file), info.position)

    return is_behind


def _check_server_id(config: ProducerConfig, info: UpstreamInfo) -> None:
    if config.server_id == info.server_id:
        raise UpstreamError(
            "TR210",
            f"server-id {config.server_id} is that of {config.source} itself",
            hint="set [source] server-id to a number that no server and no other replica has",
        )


def _check_stop(config: ProducerConfig, info: UpstreamInfo) -> None:
    try:
        parse_gtid_set(config.stop_at_gtid or "", info.flavor)
    except ValueError as error:
        kind = "MariaDB" if info.flavor == "mariadb" else "MySQL"
        raise ConfigError(
            "TR110", f"--stop-at-gtid is no GTID set of {config.source}, a {kind} server: {error}"
        ) from error


def _watch(
    stop: threading.Event,
    mirror_stop: threading.Event,
    publish_stop: threading.Event,
    state: ProducerProgress,
    report: Callable[[ProducerProgress], None] | None,
) -> None:
    """Pass a stop on to the publisher, and report progress, at once and then every second."""
    next_report = time.monotonic()
    while not publish_stop.is_set():
        if stop.wait(0.05) or mirror_stop.is_set():
            publish_stop.set()
        if report is not None and time.monotonic() >= next_report:
            report(state)
            next_report = time.monotonic() + _REPORT
    if report is not None:
        report(state)
