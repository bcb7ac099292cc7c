"""The channel's position on the downstream: its tables, and reading, taking over and moving it.

``tailrace.relay_log_info`` holds MySQL's own ``slave_relay_log_info`` columns and ours, one row a channel.
It is written in the transaction of the data it speaks of, so it is true whatever happens.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.epoch import DIGEST_MODULUS, EpochCommitted
from schemas.errors import DownstreamError, Where
from spark_consumer.session import Session

_TABLES = {
    "relay_log_info": """
CREATE TABLE tailrace.relay_log_info (
  Number_of_lines INT UNSIGNED NOT NULL,
  Relay_log_name TEXT,
  Relay_log_pos BIGINT UNSIGNED,
  Master_log_name TEXT,
  Master_log_pos BIGINT UNSIGNED,
  Sql_delay INT,
  Number_of_workers INT UNSIGNED,
  Id INT UNSIGNED,
  Channel_name VARCHAR(64) NOT NULL,
  executed_gtid_set LONGTEXT NOT NULL,
  epoch BIGINT NOT NULL COMMENT 'the last epoch applied, -1 before the first',
  epochs_offset BIGINT NOT NULL COMMENT 'its offset in the epochs topic, -1 before the first',
  consistent TINYINT NOT NULL COMMENT '1: the tables equal the upstream as it was at this position',
  fencing_token BIGINT UNSIGNED NOT NULL COMMENT 'the consumer that started last; only it may write',
  structures_version BIGINT NOT NULL COMMENT 'the last epoch that brought a table structure',
  ledger_uuid CHAR(36) NOT NULL COMMENT 'source of the GTIDs that this channel writes under',
  ledger_domain INT UNSIGNED NOT NULL COMMENT 'the same for MariaDB',
  ledger_seq BIGINT UNSIGNED NOT NULL COMMENT 'the number of the last GTID used',
  ddl_intent LONGTEXT COMMENT 'a DDL about to run, where no GTID can prove that it did',
  updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  PRIMARY KEY (Channel_name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='Tailrace: what is applied, per channel'
""",
    "applied_epochs": """
CREATE TABLE tailrace.applied_epochs (
  channel VARCHAR(64) NOT NULL,
  first_epoch BIGINT NOT NULL,
  last_epoch BIGINT NOT NULL,
  first_gtid VARCHAR(255),
  last_gtid VARCHAR(255),
  executed_gtid_set LONGTEXT NOT NULL,
  transactions BIGINT NOT NULL,
  offsets LONGTEXT NOT NULL COMMENT 'JSON: partition of the rows topic to [start, end)',
  inserts BIGINT NOT NULL,
  updates BIGINT NOT NULL,
  deletes BIGINT NOT NULL,
  statements BIGINT NOT NULL,
  digest BIGINT NOT NULL,
  ddl LONGTEXT,
  first_commit_at DATETIME(3) COMMENT 'upstream commit time of the first transaction, UTC',
  last_commit_at DATETIME(3) COMMENT 'and of the last one',
  applied_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (channel, first_epoch)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='Tailrace: one row a batch'
""",
}
_COLUMNS = (
    "epoch, epochs_offset, executed_gtid_set, fencing_token, structures_version,"
    " ledger_uuid, ledger_domain, ledger_seq, ddl_intent"
)
# MySQL counts the fields of its own position the same way.
_NUMBER_OF_LINES = 9


@dataclass(frozen=True)
class Position:
    """Where a channel stands; every field is as of the last commit."""

    epoch: int
    epochs_offset: int
    executed_gtids: str
    fencing_token: int
    structures_version: int
    ledger_uuid: str
    ledger_domain: int
    ledger_seq: int
    ddl_intent: str | None


def install(session: Session) -> None:
    """Create the schema and tables that are missing; no DDL at all if they are there."""
    found = {
        name
        for (name,) in session.rows(
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'tailrace'"
        )
    }
    for table, statement in _TABLES.items():
        if table not in found:
            session.execute("CREATE DATABASE IF NOT EXISTS tailrace")
            session.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))


def read(session: Session, channel: str, *, lock: bool = False) -> Position | None:
    """The channel's position; ``lock`` waits for whoever is writing it and keeps others from doing so."""
    suffix = " FOR UPDATE" if lock else ""
    rows = session.rows(
        f"SELECT {_COLUMNS} FROM tailrace.relay_log_info WHERE Channel_name = %s{suffix}", (channel,)
    )
    return Position(*rows[0]) if rows else None


def create(session: Session, channel: str, *, epoch: int, epochs_offset: int, gtids: str) -> None:
    """The first position of a channel: ``epoch`` counts as applied. Nothing happens if there is one."""
    ledger = str(uuid.uuid4())
    # Domain 0 is everybody's default, so it is never ours.
    domain = (zlib.crc32(ledger.encode()) or 1) & 0xFFFFFFFF
    session.run(
        "INSERT IGNORE INTO tailrace.relay_log_info (Number_of_lines, Sql_delay, Number_of_workers, Id,"
        " Channel_name, executed_gtid_set, epoch, epochs_offset, consistent, fencing_token,"
        " structures_version, ledger_uuid, ledger_domain, ledger_seq)"
        " VALUES (%s, 0, 1, 1, %s, %s, %s, %s, 1, 0, -1, %s, %s, 0)",
        (_NUMBER_OF_LINES, channel, gtids, epoch, epochs_offset, ledger, domain),
    )


def take_over(session: Session, channel: str) -> Position:
    """Make this consumer the channel's only writer: its predecessor finds a token that is not its own."""
    session.execute("BEGIN")
    session.run(
        "UPDATE tailrace.relay_log_info SET fencing_token = fencing_token + 1 WHERE Channel_name = %s",
        (channel,),
    )
    position = read(session, channel, lock=True)
    session.execute("COMMIT")
    if position is None:
        raise DownstreamError("TR602", f"channel {channel} has lost its row in tailrace.relay_log_info")
    return position


def check_token(found: Position | None, token: int, channel: str) -> Position:
    """The position as found under lock, if this consumer may still write it."""
    if found is None:
        raise DownstreamError(
            "TR611",
            f"the row of channel {channel} in tailrace.relay_log_info is gone",
            hint="restore it, or start the channel anew with --from",
        )
    if found.fencing_token != token:
        raise DownstreamError(
            "TR610",
            f"another consumer of channel {channel} has started since"
            f" (token {found.fencing_token}, ours is {token})",
            where=Where(epoch=found.epoch),
            hint="run one consumer per channel; this one stops, and what it wrote is in the position",
        )
    return found


def move(
    session: Session, channel: str, last: EpochCommitted, offset: int, seq: int, structures: int
) -> None:
    """Move the position to the end of ``last``, inside the open transaction."""
    affected = session.run(
        "UPDATE tailrace.relay_log_info SET Relay_log_name = %s, Relay_log_pos = %s, Master_log_name = %s,"
        " Master_log_pos = %s, executed_gtid_set = %s, epoch = %s, epochs_offset = %s, consistent = 1,"
        " structures_version = %s, ledger_seq = %s, ddl_intent = NULL WHERE Channel_name = %s",
        (
            f"{last.relay_dir}/{last.relay_file}",
            last.relay_pos,
            last.source_file,
            last.source_pos,
            last.executed_gtids,
            last.epoch,
            offset,
            structures,
            seq,
            channel,
        ),
    )
    if affected != 1:
        raise DownstreamError("TR611", f"the position of channel {channel} was not written")


def audit(session: Session, channel: str, epochs: Sequence[EpochCommitted], statements: int) -> None:
    """One audit row for a batch of epochs, inside the open transaction."""
    first, last = epochs[0], epochs[-1]
    ranges: dict[int, list[int]] = {}
    for epoch in epochs:
        for part in epoch.ranges:
            ranges.setdefault(part.partition, [part.start, part.end])[1] = part.end
    touched = [table for epoch in epochs for table in epoch.tables]
    gtids = [gtid for epoch in epochs for gtid in (epoch.first_gtid, epoch.last_gtid) if gtid]
    session.run(
        "INSERT INTO tailrace.applied_epochs VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s,"
        " FROM_UNIXTIME(%s), FROM_UNIXTIME(%s), UTC_TIMESTAMP(6))",
        (
            channel,
            first.epoch,
            last.epoch,
            gtids[0] if gtids else None,
            gtids[-1] if gtids else None,
            last.executed_gtids,
            sum(epoch.transactions for epoch in epochs),
            json.dumps(ranges),
            sum(table.inserts for table in touched),
            sum(table.updates for table in touched),
            sum(table.deletes for table in touched),
            statements,
            sum(epoch.digest for epoch in epochs) % DIGEST_MODULUS,
            "; ".join(epoch.ddl.statement for epoch in epochs if epoch.ddl) or None,
            # a decimal keeps the milliseconds
            f"{first.first_commit_ms / 1000:.3f}",
            f"{last.last_commit_ms / 1000:.3f}",
        ),
    )
