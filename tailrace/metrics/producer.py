"""The producer's metrics, from the counters of its mirror and its publisher."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from producer.epochs.progress import PublishProgress
from producer.mirror.loop import MirrorProgress
from producer.run import ProducerProgress
from relay_store.layout.directory import RelayPosition, file_number
from schemas.gtid.sets import flavor_of
from spark_consumer.epochs.position import Position
from tailrace.channels.relay_marks import ChannelMark
from tailrace.metrics.exposition import Sample
from tailrace.metrics.process import OPERATIONS, STANDS_STILL, Movement, Process
from tailrace.status.lag import transactions_behind

# Seconds without a heartbeat of the upstream, which sends one a second.
_SILENCE = 15.0


class ProducerFacts:
    """The producer's state.

    Args:
        root: the relay directory.
        upstream_end: returns number and size of the upstream's last binlog file; None if unknown.

    Attributes:
        state: None until the producer sets it.
        copy: how far copies are, as in ``tailrace status``; None while it is not known.
        channels: those of the configuration.
    """

    def __init__(self, prefix: str, root: Path, upstream_end: Callable[[], tuple[int, int] | None]) -> None:
        self._process, self._root, self._upstream_end = Process("producer", prefix), root, upstream_end
        self._movement = Movement()
        self.state: ProducerProgress | None = None
        self.copy: dict[str, Any] | None = None
        self.channels: Sequence[ChannelMark] = ()

    def is_ready(self) -> bool:
        """Whether the upstream sends its binlog, and all of it is in Kafka, or more of it than a minute ago.

        What an operator has paused does not count.
        """
        state = self.state
        if state is None:
            return False
        mirror, publish = state.mirror, state.publish
        stands_for = self._movement.stands_for((publish.epochs, publish.read), time.monotonic())
        is_heard = mirror.heard_at is not None and time.time() - mirror.heard_at < _SILENCE
        has_all = publish.lag_s(state.relay.tail.position, time.time()) == 0.0
        moves = has_all or stands_for < STANDS_STILL or publish.paused is not None
        is_connected = mirror.connected and mirror.paused is None and is_heard
        return (is_connected or mirror.is_paused_by_operator) and moves

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics."""
        yield from self._process.samples(is_ready=self.is_ready())
        yield from self._disk()
        if (state := self.state) is not None:
            yield from mirror_samples(state.mirror, state.relay.position, self._upstream_end())
            yield from publisher_samples(state.publish, state.relay.tail.position)
            for channel in self.channels:
                yield from followed_samples(channel.name, channel.position, state.publish.executed_gtids)
        yield from copy_samples(self.copy or {})

    def _disk(self) -> Iterator[Sample]:
        with suppress(OSError):
            disk = shutil.disk_usage(self._root)
            yield Sample("tailrace_relay_free_bytes", disk.free)
            yield Sample("tailrace_relay_disk_bytes", disk.total)


def mirror_samples(
    mirror: MirrorProgress, here: RelayPosition | None, end: tuple[int, int] | None
) -> Iterator[Sample]:
    """Yield the mirror's metrics.

    Args:
        here: where it is.
        end: number and size of the upstream's last binlog file; None if unknown.
    """
    yield Sample("tailrace_upstream_connected", mirror.connected)
    yield Sample("tailrace_upstream_heard_timestamp_seconds", mirror.heard_at)
    yield Sample("tailrace_mirrored_bytes_total", mirror.bytes)
    yield Sample("tailrace_mirrored_events_total", mirror.events)
    yield Sample("tailrace_paused", mirror.is_paused_by_operator, ("mirror",))
    is_full = mirror.paused is not None and not mirror.is_paused_by_operator
    yield Sample("tailrace_relay_disk_full", is_full)
    if here is not None:
        file, position = here.upstream
        yield Sample("tailrace_mirrored_file_number", file_number(file))
        yield Sample("tailrace_mirrored_position_bytes", position)
        # What the mirror has is upstream, and this was looked up a few seconds ago.
        end = end and max(end, (file_number(file), position))
    if end is not None:
        yield Sample("tailrace_upstream_file_number", end[0])
        yield Sample("tailrace_upstream_position_bytes", end[1])


def publisher_samples(publish: PublishProgress, durable: RelayPosition | None) -> Iterator[Sample]:
    """Yield the publisher's metrics. Args: ``durable``, the relay log's end."""
    yield Sample("tailrace_published_epoch", publish.epoch if publish.epoch >= 0 else None)
    yield Sample("tailrace_published_epochs_total", publish.epochs)
    yield Sample("tailrace_published_transactions_total", publish.transactions)
    for operation in OPERATIONS:
        yield Sample("tailrace_published_rows_total", publish.operations[operation], (operation,))
    yield Sample("tailrace_kafka_commit_seconds", publish.commit_s, count=publish.epochs)
    began = publish.commit_began
    yield Sample(
        "tailrace_kafka_commit_pending_seconds", 0 if began is None else max(0.0, time.monotonic() - began)
    )
    yield Sample("tailrace_unpublished_seconds", publish.lag_s(durable, time.time()))
    yield Sample("tailrace_complete_timestamp_seconds", publish.complete_ms / 1000 or None)
    yield Sample("tailrace_paused", publish.paused is not None, ("publish",))
    yield Sample("tailrace_skipped_events_total", publish.skipped.total())


def followed_samples(channel: str, position: Position | None, published: str) -> Iterator[Sample]:
    """Yield how far a channel is.

    Args:
        position: of the channel; None if unknown.
        published: the GTIDs in Kafka.
    """
    if position is not None and position.epoch >= 0:
        yield Sample("tailrace_followed_channel_epoch", position.epoch, (channel,))
        if published:
            behind = transactions_behind(published, position.executed_gtids, flavor_of(published))
            yield Sample("tailrace_followed_channel_transactions", behind, (channel,))


def copy_samples(copy: dict[str, Any]) -> Iterator[Sample]:
    """Yield the metrics of copies. Args: ``copy``, as in ``tailrace status``."""
    yield Sample("tailrace_copy_running", bool(copy.get("running")))
    yield Sample("tailrace_copy_tables", copy.get("tables_total"))
    yield Sample("tailrace_copy_tables_done", copy.get("tables_done"))
    yield Sample("tailrace_copy_rows", copy.get("rows_done"))
    yield Sample("tailrace_copy_rows_estimated", copy.get("rows_estimated"))
