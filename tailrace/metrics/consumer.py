"""The consumer's metrics, from its counters and the end of the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from relay_store.layout.directory import file_number
from schemas.gtid.sets import flavor_of
from spark_consumer.job.progress import Counters
from tailrace.metrics.exposition import Sample
from tailrace.metrics.process import OPERATIONS, STANDS_STILL, Movement, Process
from tailrace.service.consume_progress import LogEnd
from tailrace.status.lag import transactions_behind


class ConsumerFacts:
    """The consumer's state.

    Attributes:
        end: returns the log's end.
    """

    def __init__(self, prefix: str, channel: str, counters: Counters) -> None:
        self._process, self._channel = Process("consumer", prefix, channel), channel
        self._counters, self._movement = counters, Movement()
        self.end: Callable[[], LogEnd] = LogEnd

    def is_ready(self) -> bool:
        """Whether the channel knows its position and the log's end, and has all of it, moves or is paused."""
        counters, end, now = self._counters, self.end(), time.monotonic()
        if counters.position is None or end.seen is None:
            return False
        stands_for = self._movement.stands_for((counters.batches, counters.position_epoch), now)
        is_idle = counters.in_hand is None and (
            end.epochs_behind(counters) == 0 or counters.paused is not None
        )
        return now - end.seen < STANDS_STILL and (is_idle or stands_for < STANDS_STILL)

    def samples(self) -> Iterator[Sample]:
        """Yield the metrics."""
        yield from self._process.samples(is_ready=self.is_ready())
        if self._counters.position is not None:
            yield from lag_samples(self._channel, self._counters, self.end(), time.time())
        yield from counter_samples(self._channel, self._counters)


def lag_samples(channel: str, counters: Counters, end: LogEnd, now: float) -> Iterator[Sample]:
    """Yield where the channel is and how far behind. Args: ``now``, seconds since 1970."""
    labels, position = (channel,), counters.position
    assert position is not None
    transactions = None
    if end.last is not None and (newest := end.last.executed_gtids):
        transactions = transactions_behind(newest, position.executed_gtids, flavor_of(newest))
    yield Sample("tailrace_channel_lag_seconds", end.lag_s(counters, now), labels)
    yield Sample("tailrace_channel_paused", counters.paused is not None, labels)
    yield Sample("tailrace_channel_lag_epochs", end.epochs_behind(counters), labels)
    yield Sample("tailrace_channel_lag_transactions", transactions, labels)
    yield Sample("tailrace_channel_complete_timestamp_seconds", counters.complete_ms / 1000 or None, labels)
    yield Sample("tailrace_channel_applied_epoch", position.epoch if position.epoch >= 0 else None, labels)
    if position.source_log:
        yield Sample("tailrace_channel_file_number", file_number(position.source_log), labels)
        yield Sample("tailrace_channel_position_bytes", position.source_pos, labels)
    age = max(0.0, now - counters.in_hand_since) if counters.in_hand is not None else 0.0
    yield Sample("tailrace_channel_batch_age_seconds", age, labels)


def counter_samples(channel: str, counters: Counters) -> Iterator[Sample]:
    """Yield the sums since the start."""
    labels, rows = (channel,), counters.row_counts
    yield Sample("tailrace_channel_epochs_total", counters.epochs, labels)
    yield Sample("tailrace_channel_batches_total", counters.batches, labels)
    for operation in OPERATIONS:
        yield Sample("tailrace_channel_rows_total", counters.operations[operation], (channel, operation))
    yield Sample("tailrace_channel_filtered_rows_total", rows.filtered + rows.expression_filtered, labels)
    yield Sample("tailrace_channel_statements_total", counters.statements, labels)
    yield Sample("tailrace_channel_saved_statements_total", rows.compacted + rows.merged, labels)
    yield Sample("tailrace_channel_ddl_total", counters.ddl, labels)
    for stage, seconds in (("read", counters.read_s), ("apply", counters.apply_s)):
        yield Sample("tailrace_channel_batch_seconds", seconds, (channel, stage), counters.batches)
