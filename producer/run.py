"""The producer process: the mirror in a thread of its own, the publisher in the caller's."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from producer.copy.progress import CopyProgress
from producer.epochs.open_epoch import EpochLimits, LogState
from producer.epochs.progress import PublishProgress
from producer.kafka.connection import ProducerStopped
from producer.kafka.epoch_log import EpochLog
from producer.mirror.loop import Mirror, MirrorProgress
from producer.mirror.purging import Purging
from producer.mirror.start import check_history, check_log, discard_unpublished
from producer.publish import Publisher
from producer.settings import CopySettings, RelaySettings, SkipRule, Start
from producer.upstream.connect import UpstreamInfo, describe
from producer.upstream.origins import Origins
from relay_store.layout import directory as layout
from relay_store.layout.directory import (
    Owner,
    RelayPosition,
    file_number,
    subdir_uuid,
    write_default_engine,
    write_lower_case_names,
)
from relay_store.purge.purge import PurgeRules
from relay_store.read.tail import RelayTail
from relay_store.write.writer import RelayWriter, create_and_lock
from schemas.access.kafka_security import OPEN, KafkaSecurity
from schemas.access.server_url import ServerUrl
from schemas.errors import ConfigError, UpstreamError
from schemas.gtid.sets import parse_gtid_set
from schemas.wire.epoch import EpochCommitted

log = structlog.get_logger()

_REPORT = 1.0  # seconds between progress reports
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
    start: Start
    relay: RelaySettings
    epoch: EpochLimits
    purge: PurgeRules
    bootstrap_servers: str
    prefix: str
    partitions: int
    copy: CopySettings = field(default_factory=CopySettings)
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
    """Both halves' counters and the relay log between them, for displays and logs.

    Attributes:
        copy: tells how far copies are; None before the epoch log is open.
    """

    mirror: MirrorProgress
    publish: PublishProgress
    relay: RelayWriter
    copy: Callable[[], CopyProgress | None]


#: makes the mirror into a relay log; the epoch log's last epoch tells where an empty one begins
MakeMirror = Callable[[UpstreamInfo, RelayWriter, EpochCommitted | None], Mirror]
#: makes the publisher of what is durable in the relay log; the event ends its waits for the upstream
MakePublisher = Callable[[UpstreamInfo, RelayTail, threading.Event], Publisher]


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


class Producer:
    """Mirrors and publishes. It is run once.

    Args:
        mirror, publisher: make these, once the upstream has described itself and the relay log is open.
    """

    def __init__(
        self,
        config: ProducerConfig,
        epoch_log: EpochLog,
        origins: Origins,
        purging: Purging,
        mirror: MakeMirror,
        publisher: MakePublisher,
    ) -> None:
        self._config, self._epoch_log, self._origins = config, epoch_log, origins
        self._purging, self._make_mirror, self._make_publisher = purging, mirror, publisher

    def run(
        self, stop: threading.Event, report: Callable[[ProducerProgress], None] = lambda state: None
    ) -> None:
        """Mirror and publish until ``stop`` is set or the configured end is reached.

        Args:
            report: called at once, then every second, and at the end.

        Raises:
            UpstreamError, RelayError, DecodeError, LogError: what stopped it; nothing is lost, and the next
            start goes on behind the last committed epoch.
        """
        ended = threading.Event()

        def leave() -> None:
            while not ended.is_set() and not stop.wait(0.2):
                pass
            if not ended.wait(_LEAVE):
                self._epoch_log.connection.stop_waiting.set()

        threading.Thread(target=leave, daemon=True).start()
        try:
            self._run(stop, report)
        except ProducerStopped as stopped:
            log.warning("epoch_left", reason=str(stopped), hint="the next start publishes it")
        finally:
            ended.set()

    def _run(self, stop: threading.Event, report: Callable[[ProducerProgress], None]) -> None:
        config = self._config
        info = describe(config.source)
        _check_stop(config, info)
        _check_server_id(config, info)
        relay, state = self._open_logs(info)
        write_lower_case_names(config.relay.dir, info.folds)
        write_default_engine(config.relay.dir, info.default_engine)
        # The mirror goes on while the publisher completes its epoch, so each has its own event.
        mirror_stop, publish_stop = threading.Event(), threading.Event()
        mirror = self._make_mirror(info, relay, state.last_epoch)
        publisher = self._make_publisher(info, relay.tail, publish_stop)
        progress = ProducerProgress(mirror.progress, publisher.progress, relay, lambda: publisher.copy)
        thread = _MirrorThread(mirror, mirror_stop)
        watch = threading.Thread(
            target=_watch, args=(stop, mirror_stop, publish_stop, lambda: report(progress)), daemon=True
        )
        thread.start()
        watch.start()
        self._purging.start()
        try:
            until = _caught_up(relay, info) if config.until_caught_up else None
            publisher.run(state, publish_stop, until, config.stop_at_gtid)
        finally:
            mirror_stop.set()
            thread.join()
            publish_stop.set()
            watch.join()
            self._purging.stop()
            relay.close()
        if thread.error is not None:
            raise thread.error

    def _open_logs(self, info: UpstreamInfo) -> tuple[RelayWriter, LogState]:
        """Become the one writer of both logs; returns the relay log and the state of the epoch log."""
        # Opening the epoch log fences whoever writes it: not before the relay directory is ours.
        root = self._config.relay.dir
        lock = create_and_lock(root)
        try:
            state = self._open_and_check_log(root, info)
        except BaseException:
            os.close(lock)
            raise
        return RelayWriter.open(root, lock), state

    def _open_and_check_log(self, root: Path, info: UpstreamInfo) -> LogState:
        """Become the epoch log's one writer, if it is this relay log's and this upstream's; returns its state."""
        config, epoch_log = self._config, self._epoch_log
        owner = layout.check_owner(root, config.prefix)
        last = epoch_log.connection.retry(epoch_log.topics.peek_last_epoch)
        check_log(root, owner, last)
        if last is not None:
            check_history(config.source, info, last, f"the epoch log of {config.prefix}")
        self._origins.begin(last.log_id if last is not None else "")
        # Whoever wrote it meanwhile writes no more.
        state = epoch_log.open()
        layout.write_owner(root, Owner(config.prefix, owner.log_id))
        if config.relay.relay_log_recovery and state.last_epoch is not None:
            discard_unpublished(root, info, state.last_epoch)
        return state


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
    report: Callable[[], None],
) -> None:
    """Pass a stop on to the publisher, and report progress, at once and then every second."""
    next_report = time.monotonic()
    while not publish_stop.is_set():
        if stop.wait(0.05) or mirror_stop.is_set():
            publish_stop.set()
        if time.monotonic() >= next_report:
            report()
            next_report = time.monotonic() + _REPORT
    report()
