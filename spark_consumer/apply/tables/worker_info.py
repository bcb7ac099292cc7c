"""``tailrace.worker_info``: the progress of each worker of a channel, in the format of MySQL's ``slave_worker_info``.

A worker's row is written in the transaction of its part. Until the position's own transaction the worker is ahead: its
rows are applied, and the position has not moved. The columns have the same meaning as in MySQL: Relay_log and
Master_log are the end of the worker's last part, Checkpoint is the position of the whole channel, and the bitmap has
the rows that are applied after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schemas.errors import DownstreamError
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.session import Query, Session, rows_if_there

TABLE = """
CREATE TABLE tailrace.worker_info (
  Id INT UNSIGNED NOT NULL,
  Relay_log_name TEXT,
  Relay_log_pos BIGINT UNSIGNED,
  Master_log_name TEXT,
  Master_log_pos BIGINT UNSIGNED,
  Checkpoint_relay_log_name TEXT,
  Checkpoint_relay_log_pos BIGINT UNSIGNED,
  Checkpoint_master_log_name TEXT,
  Checkpoint_master_log_pos BIGINT UNSIGNED,
  Checkpoint_seqno BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'ledger number of its last transaction',
  Checkpoint_group_size INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'parts of its last slice',
  Checkpoint_group_bitmap LONGBLOB COMMENT 'if ahead is 1: the offsets of the rows that it has applied',
  Channel_name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  prefix VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  ahead TINYINT NOT NULL DEFAULT 0 COMMENT '1: its part is applied, but the position has not moved yet',
  slice CHAR(32) NOT NULL DEFAULT '' COMMENT 'id of its last slice',
  first_epoch BIGINT,
  last_epoch BIGINT,
  compact TINYINT NOT NULL DEFAULT 1 COMMENT 'whether the slice was compacted',
  parts BIGINT NOT NULL DEFAULT 0 COMMENT 'parts applied since the channel was created',
  rows_written BIGINT NOT NULL DEFAULT 0,
  statements BIGINT NOT NULL DEFAULT 0,
  updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  PRIMARY KEY (prefix, Channel_name, Id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='Tailrace: one row per worker'
"""
_COUNTS = ("Id", "parts", "rows_written", "statements", "ahead")


@dataclass(frozen=True)
class UnfinishedPart:
    """A worker that is ahead of the channel's position.

    Attributes:
        slice_id: the id of its part's slice.
        parts: the number of parts of the slice; each has a number of the ledger, in the order of the workers.
        compact: whether the slice was compacted; then its missing rows must be compacted too.
        applied: the applied rows; see ``bitmap``.
    """

    slice_id: str
    first_epoch: int
    last_epoch: int
    parts: int
    compact: bool
    applied: bytes


def register_workers(session: Session, channel: ChannelKey, workers: int) -> None:
    """Create rows for this many workers."""
    for number in range(1, workers + 1 if workers > 1 else 1):
        session.run(
            "INSERT IGNORE INTO tailrace.worker_info (prefix, Channel_name, Id) VALUES (%s, %s, %s)",
            (*channel, number),
        )


def counts(query: Query, prefix: str) -> dict[str, list[dict[str, Any]]]:
    """Return the counts of each worker, by channel; none if the table does not exist yet."""
    names = ", ".join(_COUNTS)
    sql = (
        f"SELECT Channel_name, {names} FROM tailrace.worker_info WHERE prefix = %s ORDER BY Channel_name, Id"
    )
    found: dict[str, list[dict[str, Any]]] = {}
    for channel, *values in rows_if_there(query, sql, (prefix,)):
        found.setdefault(channel, []).append(dict(zip(_COUNTS, values, strict=True)))
    return found


def ahead(session: Session, channel: ChannelKey) -> list[UnfinishedPart]:
    """Return the workers that are ahead of the position."""
    rows = session.rows(
        "SELECT slice, first_epoch, last_epoch, Checkpoint_group_size, compact, Checkpoint_group_bitmap"
        " FROM tailrace.worker_info WHERE prefix = %s AND Channel_name = %s AND ahead = 1 ORDER BY Id",
        channel,
    )
    return [
        UnfinishedPart(slice_id, first, last, parts, bool(compact), bits)
        for slice_id, first, last, parts, compact, bits in rows
    ]


def slices_ahead(session: Session, channel: ChannelKey) -> list[tuple[int, str]]:
    """Return number and slice of each worker that is ahead."""
    return [
        (int(number), str(name))
        for number, name in session.rows(
            "SELECT Id, slice FROM tailrace.worker_info WHERE prefix = %s AND Channel_name = %s AND ahead = 1",
            channel,
        )
    ]


def mark_caught_up(session: Session, channel: ChannelKey) -> None:
    """Mark all workers as caught up, in the transaction that moves the position."""
    session.run(
        "UPDATE tailrace.worker_info SET ahead = 0, Checkpoint_group_bitmap = NULL,"
        " Checkpoint_relay_log_name = Relay_log_name, Checkpoint_relay_log_pos = Relay_log_pos,"
        " Checkpoint_master_log_name = Master_log_name, Checkpoint_master_log_pos = Master_log_pos"
        " WHERE prefix = %s AND Channel_name = %s AND ahead = 1",
        channel,
    )


def partly_applied(channel: ChannelKey) -> DownstreamError:
    """Return the error for a slice that is applied in part."""
    return DownstreamError(
        "TR660",
        f"a slice of channel {channel} is applied in part: some of its workers are ahead of its position",
        hint="start `tailrace consume`: it applies the rest first",
    )
