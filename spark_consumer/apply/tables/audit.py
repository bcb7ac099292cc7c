"""What a channel has done: a row of ``tailrace.applied_epochs`` for each batch, and counters that only grow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.wire.epoch import DIGEST_MODULUS, EpochCommitted
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.session import Query, Session, rows_if_there

TABLES = {
    "applied_epochs": """
CREATE TABLE tailrace.applied_epochs (
  prefix VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  first_epoch BIGINT NOT NULL COMMENT 'negative: part of an epoch, repetition, or applied by tailrace recover',
  last_epoch BIGINT NOT NULL,
  first_gtid VARCHAR(255),
  last_gtid VARCHAR(255),
  executed_gtid_set LONGTEXT NOT NULL,
  transactions BIGINT NOT NULL,
  offsets LONGTEXT NOT NULL COMMENT 'JSON: partition of the rows topic to [start, end)',
  inserts BIGINT NOT NULL,
  updates BIGINT NOT NULL,
  deletes BIGINT NOT NULL,
  copied BIGINT NOT NULL COMMENT 'rows that copies read',
  statements BIGINT NOT NULL,
  digest BIGINT NOT NULL,
  ddl LONGTEXT,
  ddl_left_out VARCHAR(100) COMMENT 'why the DDL was not run, or run differently',
  first_commit_at DATETIME(3) COMMENT 'upstream commit time of the first transaction, UTC',
  last_commit_at DATETIME(3) COMMENT 'upstream commit time of the last transaction, UTC',
  applied_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (prefix, channel, first_epoch)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='Tailrace: one row for each slice'
""",
    "channel_counters": """
CREATE TABLE tailrace.channel_counters (
  prefix VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  row_changes BIGINT NOT NULL COMMENT 'changes that were read and verified since the channel started',
  filtered BIGINT NOT NULL COMMENT 'changes left out because of their table or kind of event',
  routed BIGINT NOT NULL COMMENT 'changes applied to a table with another name',
  expression_filtered BIGINT NOT NULL COMMENT 'changes left out because of their values',
  compacted BIGINT NOT NULL COMMENT 'changes replaced by another change of the same row',
  merged BIGINT NOT NULL COMMENT 'changes added to the statement of another change',
  causality_groups BIGINT NOT NULL DEFAULT 0 COMMENT 'groups of conflicting rows that workers wrote',
  conflicts BIGINT NOT NULL DEFAULT 0 COMMENT 'rows added to a group that another row started',
  parts BIGINT NOT NULL DEFAULT 0 COMMENT 'transactions of workers',
  statements BIGINT NOT NULL,
  ddl_applied BIGINT NOT NULL DEFAULT 0 COMMENT 'DDL applied',
  ddl_left_out BIGINT NOT NULL DEFAULT 0 COMMENT 'DDL of which nothing was run',
  ddl_ignored BIGINT NOT NULL DEFAULT 0 COMMENT 'DDL left out because of [ddl]',
  ddl_passed_over BIGINT NOT NULL DEFAULT 0 COMMENT 'DDL not run because the merged table already had the change',
  skipped BIGINT NOT NULL DEFAULT 0 COMMENT 'events that the producer skipped because of its [[skip]] rules',
  PRIMARY KEY (prefix, channel)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='Tailrace: counters of each channel'
""",
}
COUNTERS = (
    "row_changes",
    "filtered",
    "routed",
    "expression_filtered",
    "compacted",
    "causality_groups",
    "conflicts",
    "parts",
    "merged",
    "statements",
    "ddl_applied",
    "ddl_left_out",
    "ddl_ignored",
    "ddl_passed_over",
    "skipped",
)
_BATCH = (
    "first_epoch",
    "last_epoch",
    "first_gtid",
    "last_gtid",
    "transactions",
    "inserts",
    "updates",
    "deletes",
    "copied",
    "ddl",
)


def exists(session: Session, channel: ChannelKey) -> bool:
    """Whether a channel has ever applied anything: ``channel_tables.forget`` leaves nothing of it."""
    sql = "SELECT MAX(first_epoch) FROM tailrace.applied_epochs WHERE prefix = %s AND channel = %s"
    return session.value(sql, channel) is not None


def batches(session: Session, channel: ChannelKey) -> list[dict[str, Any]]:
    """The last ten batches of a channel, the newest first."""
    rows = session.rows(
        f"SELECT {', '.join(_BATCH)}, DATE_FORMAT(applied_at, '%%Y-%%m-%%dT%%H:%%i:%%s.%%f+00:00')"
        " FROM tailrace.applied_epochs WHERE prefix = %s AND channel = %s ORDER BY applied_at DESC LIMIT 10",
        channel,
    )
    return [dict(zip((*_BATCH, "applied"), row, strict=True)) for row in rows]


def last_commits(query: Query, prefix: str) -> dict[str, float]:
    """When the last transaction that a channel applied was committed upstream, seconds since 1970, by its name."""
    rows = rows_if_there(
        query,
        "SELECT a.channel, UNIX_TIMESTAMP(a.last_commit_at) FROM tailrace.applied_epochs a JOIN"
        " (SELECT prefix, channel, MAX(first_epoch) AS first_epoch FROM tailrace.applied_epochs WHERE prefix = %s"
        " GROUP BY prefix, channel) last USING (prefix, channel, first_epoch)",
        (prefix,),
    )
    return {name: float(moment) for name, moment in rows if moment is not None}


def counters(query: Query, prefix: str) -> dict[str, dict[str, int]]:
    """What each stage did, by channel; none where a consumer is about to make the table."""
    sql = f"SELECT channel, {', '.join(COUNTERS)} FROM tailrace.channel_counters WHERE prefix = %s"
    rows = rows_if_there(query, sql, (prefix,))
    return {row[0]: dict(zip(COUNTERS, row[1:], strict=True)) for row in rows}


def record(
    session: Session,
    channel: ChannelKey,
    epochs: Sequence[EpochCommitted],
    statements: int,
    first_epoch: int | None = None,
    ddl_left_out: Sequence[str] = (),
) -> None:
    """One row for a batch of epochs, inside the open transaction, under the first one's number or another.

    Args:
        ddl_left_out: why the batch's DDL was not run as it is.
    """
    first, last = epochs[0], epochs[-1]
    ranges: dict[int, list[int]] = {}
    for epoch in epochs:
        for part in epoch.ranges:
            ranges.setdefault(part.partition, [part.start, part.end])[1] = part.end
    touched = [table for epoch in epochs for table in epoch.tables]
    gtids = [gtid for epoch in epochs for gtid in (epoch.first_gtid, epoch.last_gtid) if gtid]
    session.run(
        "INSERT INTO tailrace.applied_epochs VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,"
        " %s, FROM_UNIXTIME(%s), FROM_UNIXTIME(%s), UTC_TIMESTAMP(6))",
        (
            *channel,
            first.epoch if first_epoch is None else first_epoch,
            last.epoch,
            gtids[0] if gtids else None,
            gtids[-1] if gtids else None,
            last.executed_gtids,
            sum(epoch.transactions for epoch in epochs),
            json.dumps(ranges),
            sum(table.inserts for table in touched),
            sum(table.updates for table in touched),
            sum(table.deletes for table in touched),
            sum(table.reads for table in touched),
            statements,
            sum(epoch.digest for epoch in epochs) % DIGEST_MODULUS,
            "; ".join(epoch.ddl.shown for epoch in epochs if epoch.ddl) or None,
            ", ".join(ddl_left_out) or None,
            # a decimal keeps the milliseconds
            f"{first.first_commit_ms / 1000:.3f}",
            f"{last.last_commit_ms / 1000:.3f}",
        ),
    )


def count(session: Session, channel: ChannelKey, numbers: Mapping[str, int]) -> None:
    """Add to the channel's counters, named as ``COUNTERS``, inside the open transaction."""
    values = tuple(numbers.get(name, 0) for name in COUNTERS)
    added = ", ".join(f"{name} = {name} + %s" for name in COUNTERS)
    if not session.run(
        f"UPDATE tailrace.channel_counters SET {added} WHERE prefix = %s AND channel = %s",
        (*values, *channel),
    ):
        places = ", ".join(["%s"] * (len(COUNTERS) + 2))
        session.run(
            f"INSERT INTO tailrace.channel_counters (prefix, channel, {', '.join(COUNTERS)}) VALUES ({places})",
            (*channel, *values),
        )
