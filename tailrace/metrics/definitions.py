"""All metrics: name, type, labels and meaning. docs/METRICS.md has the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "summary"]


@dataclass(frozen=True)
class Metric:
    """A metric. A counter begins with each start of its process; a summary is a count and a sum.

    Attributes:
        name: as Prometheus shows it; of a summary without ``_count`` and ``_sum``.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


_CHANNEL = ("channel",)

EVERY_PROCESS = (
    Metric(
        "tailrace_info",
        "gauge",
        "always 1; the labels say what the process is",
        ("process", "prefix", "channel", "version"),
    ),
    Metric("tailrace_ready", "gauge", "1 if /readyz answers ready, else 0"),
    Metric("tailrace_start_time_seconds", "gauge", "when the process began, seconds since 1970"),
    Metric(
        "tailrace_memory_bytes",
        "gauge",
        "resident memory of the process and all processes below it; shared pages count once for each",
        ("program",),
    ),
    Metric("tailrace_retries_total", "counter", "attempts that were repeated", ("waits_for",)),
    Metric("tailrace_errors_total", "counter", "errors after which the process went on", ("code",)),
)
PRODUCER = (
    Metric("tailrace_upstream_connected", "gauge", "1 while the upstream sends its binlog, else 0"),
    Metric(
        "tailrace_upstream_heard_timestamp_seconds",
        "gauge",
        "when the upstream sent anything last, a heartbeat at least",
    ),
    Metric("tailrace_upstream_file_number", "gauge", "number of the upstream's last binlog file"),
    Metric("tailrace_upstream_position_bytes", "gauge", "size of the upstream's last binlog file"),
    Metric("tailrace_mirrored_file_number", "gauge", "number of the binlog file that is being mirrored"),
    Metric("tailrace_mirrored_position_bytes", "gauge", "up to where that file is mirrored"),
    Metric("tailrace_mirrored_bytes_total", "counter", "bytes of binlog that were received"),
    Metric("tailrace_mirrored_events_total", "counter", "events of the binlog that were received"),
    Metric("tailrace_paused", "gauge", "1 while an operator has paused the part, else 0", ("part",)),
    Metric("tailrace_relay_disk_full", "gauge", "1 while the mirror waits for room on the disk, else 0"),
    Metric("tailrace_relay_free_bytes", "gauge", "what is left of the disk with the relay log"),
    Metric("tailrace_relay_disk_bytes", "gauge", "size of that disk"),
    Metric("tailrace_published_epoch", "gauge", "number of the last epoch in Kafka"),
    Metric("tailrace_published_epochs_total", "counter", "epochs that were published"),
    Metric("tailrace_published_transactions_total", "counter", "upstream transactions that were published"),
    Metric(
        "tailrace_published_rows_total",
        "counter",
        "rows that were published: insert, update, delete, and copy",
        ("operation",),
    ),
    Metric("tailrace_kafka_commit_seconds", "summary", "how long the commits of epochs took"),
    Metric(
        "tailrace_kafka_commit_pending_seconds", "gauge", "age of the commit that is under way; 0 without one"
    ),
    Metric(
        "tailrace_unpublished_seconds",
        "gauge",
        "age of the oldest transaction in the relay log that is not in Kafka; 0 if there is none",
    ),
    Metric(
        "tailrace_complete_timestamp_seconds",
        "gauge",
        "the log in Kafka has everything that was committed upstream before this time",
    ),
    Metric(
        "tailrace_followed_channel_epoch",
        "gauge",
        "the last epoch that a configured channel has applied, as its downstream says, also while no consumer runs",
        _CHANNEL,
    ),
    Metric(
        "tailrace_followed_channel_transactions",
        "gauge",
        "transactions in Kafka that it has not applied",
        _CHANNEL,
    ),
    Metric("tailrace_skipped_events_total", "counter", "events that [[skip]] rules left out"),
    Metric("tailrace_copy_running", "gauge", "1 while tables are copied, else 0"),
    Metric("tailrace_copy_tables", "gauge", "tables of the copy"),
    Metric("tailrace_copy_tables_done", "gauge", "those of them whose copies are complete in the log"),
    Metric("tailrace_copy_rows", "gauge", "copied rows in the log"),
    Metric("tailrace_copy_rows_estimated", "gauge", "rows to copy, as the upstream estimates"),
)
CONSUMER = (
    Metric(
        "tailrace_channel_lag_seconds", "gauge", "age of the oldest transaction that is not applied", _CHANNEL
    ),
    Metric("tailrace_channel_lag_epochs", "gauge", "epochs in Kafka that are not applied", _CHANNEL),
    Metric(
        "tailrace_channel_lag_transactions", "gauge", "transactions in Kafka that are not applied", _CHANNEL
    ),
    Metric(
        "tailrace_channel_complete_timestamp_seconds",
        "gauge",
        "everything that was committed upstream before this time is applied",
        _CHANNEL,
    ),
    Metric(
        "tailrace_channel_paused", "gauge", "1 while an operator has paused the channel, else 0", _CHANNEL
    ),
    Metric("tailrace_channel_applied_epoch", "gauge", "number of the last epoch that is applied", _CHANNEL),
    Metric(
        "tailrace_channel_file_number",
        "gauge",
        "number of the upstream's binlog file that is applied",
        _CHANNEL,
    ),
    Metric("tailrace_channel_position_bytes", "gauge", "up to where that file is applied", _CHANNEL),
    Metric("tailrace_channel_epochs_total", "counter", "epochs that were applied", _CHANNEL),
    Metric("tailrace_channel_batches_total", "counter", "batches that were applied", _CHANNEL),
    Metric(
        "tailrace_channel_rows_total",
        "counter",
        "rows of the applied epochs: insert, update, delete, and copy",
        (*_CHANNEL, "operation"),
    ),
    Metric(
        "tailrace_channel_filtered_rows_total", "counter", "those that the channel's rules left out", _CHANNEL
    ),
    Metric("tailrace_channel_statements_total", "counter", "statements that were run", _CHANNEL),
    Metric(
        "tailrace_channel_saved_statements_total",
        "counter",
        "statements that compacting and merging rows has saved",
        _CHANNEL,
    ),
    Metric("tailrace_channel_ddl_total", "counter", "epochs of a DDL that were applied", _CHANNEL),
    Metric(
        "tailrace_channel_batch_seconds",
        "summary",
        "how long batches took: read is the wait for their rows, apply is the downstream",
        (*_CHANNEL, "stage"),
    ),
    Metric(
        "tailrace_channel_batch_age_seconds",
        "gauge",
        "age of the batch that is being applied; 0 without one",
        _CHANNEL,
    ),
)
VALIDATOR = (
    Metric("tailrace_validation_tables", "gauge", "tables by what is known of them", (*_CHANNEL, "verdict")),
    Metric("tailrace_validation_rows", "gauge", "rows that were read of them upstream", _CHANNEL),
    Metric("tailrace_validation_rows_estimated", "gauge", "their rows, as the upstream estimates", _CHANNEL),
    Metric("tailrace_validation_different_rows", "gauge", "rows that differ", _CHANNEL),
    Metric("tailrace_validation_pending_rows", "gauge", "rows that are not decided", _CHANNEL),
)
ALL = {one.name: one for group in (EVERY_PROCESS, PRODUCER, CONSUMER, VALIDATOR) for one in group}
