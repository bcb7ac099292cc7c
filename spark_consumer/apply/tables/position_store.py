"""Reads, takes over and moves the channel's position on the downstream.

``tailrace.relay_log_info`` has one row for each channel of each prefix, with the columns of MySQL's
``slave_relay_log_info`` and ours. Only this module reads and writes its rows. They are written in the same transaction
as the data, so they always match it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from schemas.errors import DownstreamError, Where
from schemas.wire.epoch import EpochCommitted
from spark_consumer.apply.tables import nontransactional_info, worker_info
from spark_consumer.epochs.position import ChannelStart, Position
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.session import Query, Session, rows_if_there, transaction

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TABLE = """
CREATE TABLE tailrace.relay_log_info (
  Number_of_lines INT UNSIGNED NOT NULL,
  Relay_log_name TEXT,
  Relay_log_pos BIGINT UNSIGNED,
  Master_log_name TEXT,
  Master_log_pos BIGINT UNSIGNED,
  Sql_delay INT,
  Number_of_workers INT UNSIGNED,
  Id INT UNSIGNED,
  Channel_name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  prefix VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'prefix of the Kafka topics',
  log_id CHAR(36) COMMENT 'id of the log; a different log under this prefix is refused',
  executed_gtid_set LONGTEXT NOT NULL,
  epoch_gtid_set LONGTEXT COMMENT 'executed GTID set at the end of epoch, if more is applied',
  epoch BIGINT NOT NULL COMMENT 'the last epoch that is applied completely; -1: none',
  epoch_rows BIGINT COMMENT 'number of rows of the next epoch that are applied',
  epochs_offset BIGINT NOT NULL COMMENT 'offset of epoch in the epochs topic; -1: none',
  consistent TINYINT NOT NULL COMMENT '1: the last run ended normally; 0: running or interrupted',
  fencing_token BIGINT UNSIGNED NOT NULL COMMENT 'the consumer that started last; only it may write',
  structures_version BIGINT NOT NULL COMMENT 'last epoch with a new table structure',
  ledger_uuid CHAR(36) NOT NULL COMMENT 'source of the GTIDs that this channel writes under',
  ledger_domain INT UNSIGNED NOT NULL COMMENT 'the same for MariaDB',
  ledger_seq BIGINT UNSIGNED NOT NULL COMMENT 'the number of the last GTID used',
  xa_prepared LONGTEXT COMMENT 'JSON: prepared XA transactions, and their positions in the relay log',
  ddl_intent LONGTEXT COMMENT 'JSON: DDL in progress and its objects before it',
  online_tables LONGTEXT COMMENT 'JSON: tables of online schema changes that only the upstream has',
  rewound_from LONGTEXT COMMENT 'JSON: position before the rewind',
  began_at TEXT COMMENT '--from of the first run',
  began_behind LONGTEXT COMMENT 'what is before it: a GTID set, or a position in the upstream''s binlog',
  began_whole TINYINT COMMENT '1: nothing is missing before it; 0: unknown',
  origins LONGTEXT COMMENT 'ids of the servers and logs that its rows come from',
  copying TINYINT NOT NULL COMMENT '1: a copy of tables has not come to its end, so rows may be missing',
  is_new TINYINT NOT NULL COMMENT '1: it is a copy for new channels, with which the channel began',
  replicates LONGTEXT COMMENT 'JSON: patterns and routes of the last run',
  updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  PRIMARY KEY (prefix, Channel_name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='Tailrace, format 1: position per channel'
"""
#: columns, and the fields of ``Position`` that they hold
_FIELDS = {
    "epoch": "epoch",
    "epochs_offset": "epochs_offset",
    "executed_gtid_set": "executed_gtids",
    "fencing_token": "fencing_token",
    "structures_version": "structures_version",
    "ledger_uuid": "ledger_uuid",
    "ledger_domain": "ledger_domain",
    "ledger_seq": "ledger_seq",
    "ddl_intent": "ddl_intent",
    "Relay_log_name": "relay_log",
    "Relay_log_pos": "relay_pos",
    "Master_log_name": "source_log",
    "Master_log_pos": "source_pos",
    "epoch_gtid_set": "epoch_gtids",
    "xa_prepared": "xa_prepared",
    "epoch_rows": "epoch_rows",
    "rewound_from": "rewound_from",
    "online_tables": "online_tables",
    "log_id": "log_id",
    "origins": "origins",
    "copying": "copying",
    "is_new": "is_new",
}
_COLUMNS = ", ".join(_FIELDS)
_MOVED = [name for name in _FIELDS if name not in ("fencing_token", "ledger_uuid", "ledger_domain")]
_CREATED = [name for name in _FIELDS if name != "fencing_token"]
_MOVE = (
    f"UPDATE tailrace.relay_log_info SET {', '.join(f'{name} = %s' for name in _MOVED)}"
    " WHERE prefix = %s AND Channel_name = %s"
)
#: a run renews its token only after a failure; what it got in an unanswered COMMIT has to be told from another run's
_TOKENS_OF_A_RUN = 1000
_NEXT_RUN = f"fencing_token = fencing_token - MOD(fencing_token, {_TOKENS_OF_A_RUN}) + {_TOKENS_OF_A_RUN}"
_CREATE = (
    "INSERT IGNORE INTO tailrace.relay_log_info (Number_of_lines, Sql_delay, Number_of_workers, Id, consistent,"
    f" fencing_token, prefix, Channel_name, began_at, began_behind, began_whole, {', '.join(_CREATED)})"
    # A token that no consumer of an earlier channel of this name has.
    f" VALUES (%s, 0, 1, 1, 0, {_TOKENS_OF_A_RUN} * UNIX_TIMESTAMP(), %s, %s, %s, %s, %s,"
    f" {', '.join(['%s'] * len(_CREATED))})"
)
#: the columns of MySQL's table, which `tailrace status` shows
_MYSQLS = (
    "Number_of_lines",
    "Relay_log_name",
    "Relay_log_pos",
    "Master_log_name",
    "Master_log_pos",
    "Sql_delay",
    "Number_of_workers",
    "Id",
    "Channel_name",
)
_SHOWN = (
    f"SELECT prefix, UNIX_TIMESTAMP(updated_at), consistent, began_at, began_behind, began_whole, replicates,"
    f" {', '.join(_MYSQLS)}, {_COLUMNS} FROM tailrace.relay_log_info ORDER BY prefix, Channel_name"
)
#: the end of a statement that does nothing if another consumer has started; its values are key and token
IF_LAST_STARTED = (
    " FROM tailrace.relay_log_info WHERE prefix = %s AND Channel_name = %s AND fencing_token = %s"
)
# MySQL counts the fields of its own position the same way.
_NUMBER_OF_LINES = 9


@dataclass(frozen=True)
class ChannelRow:
    """A channel's complete row.

    Attributes:
        updated: when it was written last, in UTC.
        consistent: whether the last run ended normally.
        began_at: the ``--from`` of the first run.
        replicates: JSON of the scope of the last run; None before the first run.
        stored: MySQL's own columns by name.
    """

    key: ChannelKey
    updated: datetime
    consistent: bool
    began_at: str | None
    began_behind: str | None
    began_whole: bool
    replicates: str | None
    stored: Mapping[str, Any]
    position: Position

    @classmethod
    def of(cls, row: Sequence[Any]) -> ChannelRow:
        prefix, updated, consistent, began_at, began_behind, began_whole, replicates, *values = row
        stored = dict(zip(_MYSQLS, values, strict=False))
        return cls(
            ChannelKey(str(prefix), str(stored["Channel_name"])),
            _EPOCH + timedelta(microseconds=int(updated * 1_000_000)),
            bool(consistent),
            began_at,
            began_behind,
            bool(began_whole),
            replicates,
            stored,
            _position(values[len(_MYSQLS) :]),
        )


def all_channels(query: Query) -> list[ChannelRow]:
    """Return the channels that write to a server, in order; none if no consumer has ever run."""
    return [ChannelRow.of(row) for row in rows_if_there(query, _SHOWN)]


def scopes(session: Session) -> list[tuple[ChannelKey, str]]:
    """Return the scopes, as JSON, of the channels that have written to a server."""
    sql = "SELECT prefix, Channel_name, replicates FROM tailrace.relay_log_info WHERE replicates IS NOT NULL"
    return [(ChannelKey(prefix, name), replicates) for prefix, name, replicates in session.rows(sql)]


def began_at(session: Session, channel: ChannelKey) -> str | None:
    """Return the ``--from`` of the channel's first run; None if it is not known."""
    found = session.value(
        "SELECT began_at FROM tailrace.relay_log_info WHERE prefix = %s AND Channel_name = %s", channel
    )
    return None if found is None else str(found)


def read(
    session: Session, channel: ChannelKey, *, lock: bool = False, share: bool = False
) -> Position | None:
    """Return the channel's position; None if it has none.

    Args:
        lock: lock the row for writing (FOR UPDATE).
        share: lock it in share mode.
    """
    suffix = " FOR UPDATE" if lock else " LOCK IN SHARE MODE" if share else ""
    rows = session.rows(
        f"SELECT {_COLUMNS} FROM tailrace.relay_log_info WHERE prefix = %s AND Channel_name = %s{suffix}",
        channel,
    )
    return _position(rows[0]) if rows else None


def running_epoch(session: Session, channel: ChannelKey) -> int | None:
    """Return the channel's last epoch; None if it has none, or its last run has ended by itself."""
    found = session.value(
        "SELECT epoch FROM tailrace.relay_log_info WHERE prefix = %s AND Channel_name = %s AND consistent = 0",
        channel,
    )
    return None if found is None else int(found)


def create(
    session: Session, channel: ChannelKey, begin: ChannelStart, last: EpochCommitted | None = None
) -> None:
    """Create the first position of a channel, unless it has one. Everything before ``begin`` counts as applied.

    Args:
        last: the log's last epoch, which has the most recent origins.
    """
    first = Position.first(begin)
    if last is not None:
        first = replace(first, origins=" ".join(last.origins))
    made = session.run(
        _CREATE,
        (_NUMBER_OF_LINES, *channel, begin.start, begin.behind, begin.whole, *_values(first, _CREATED)),
    )
    if made:
        # They may be left from a channel whose row was deleted by hand.
        nontransactional_info.delete(session, channel)


def take_over(session: Session, channel: ChannelKey) -> Position:
    """Begin a run with its own fencing token, so an earlier consumer of the channel is fenced."""
    with transaction(session):
        session.run(
            f"UPDATE tailrace.relay_log_info SET {_NEXT_RUN}, consistent = 0"
            " WHERE prefix = %s AND Channel_name = %s",
            channel,
        )
        position = read(session, channel, lock=True)
    if position is None:
        raise DownstreamError("TR602", f"channel {channel} has lost its row in tailrace.relay_log_info")
    return position


def write_scope(session: Session, channel: ChannelKey, scope: str) -> None:
    """Store what the channel replicates, for checks by other pipelines."""
    session.run(
        "UPDATE tailrace.relay_log_info SET replicates = %s WHERE prefix = %s AND Channel_name = %s",
        (scope, *channel),
    )


def create_workers(session: Session, channel: ChannelKey, workers: int) -> None:
    """Create rows for the workers, and store their number in the channel's row."""
    worker_info.register_workers(session, channel, workers)
    session.run(
        "UPDATE tailrace.relay_log_info SET Number_of_workers = %s WHERE prefix = %s AND Channel_name = %s",
        (workers, *channel),
    )


def declare_ddl(session: Session, channel: ChannelKey, token: int, intent: str) -> None:
    """Record the DDL that is about to run, in a transaction of its own.

    Raises DownstreamError if another consumer has taken over.
    """
    with transaction(session):
        check_token(read(session, channel, lock=True), token, channel)
        session.run(
            "UPDATE tailrace.relay_log_info SET ddl_intent = %s WHERE prefix = %s AND Channel_name = %s",
            (intent, *channel),
        )


def note_ddl(session: Session, channel: ChannelKey, token: int, intent: str | None, ledger_seq: int) -> None:
    """Record the known state of a DDL that has failed, unless another consumer has started."""
    session.run(
        "UPDATE tailrace.relay_log_info SET ddl_intent = %s, ledger_seq = %s"
        " WHERE prefix = %s AND Channel_name = %s AND fencing_token = %s",
        (intent, ledger_seq, *channel, token),
    )


def renew_token(session: Session, channel: ChannelKey, token: int) -> int:
    """Get a new token for the same run, so that workers with an earlier one can no longer write.

    Raises DownstreamError if another consumer has taken over.
    """
    with transaction(session):
        found = check_run(read(session, channel, lock=True), token, channel)
        session.run(
            "UPDATE tailrace.relay_log_info SET fencing_token = fencing_token + 1"
            " WHERE prefix = %s AND Channel_name = %s",
            channel,
        )
    return found.fencing_token + 1


def forget_relay_log(session: Session, channel: ChannelKey) -> None:
    """Clear the relay log position; the epoch position is kept. Fences a running consumer."""
    session.run(
        f"UPDATE tailrace.relay_log_info SET Relay_log_name = NULL, Relay_log_pos = NULL, {_NEXT_RUN}"
        " WHERE prefix = %s AND Channel_name = %s",
        channel,
    )


def require_position(session: Session, channel: ChannelKey) -> Position:
    """Return the position of a channel. Raises DownstreamError if it has none."""
    found = read(session, channel)
    if found is None:
        raise unknown_channel(channel)
    return found


def unknown_channel(channel: ChannelKey) -> DownstreamError:
    """Return the error for an unknown channel."""
    return DownstreamError(
        "TR612",
        f"the downstream has no channel {channel}",
        hint="`tailrace channel list` shows the channels of [kafka] prefix and of other prefixes; the first"
        " `tailrace consume` creates one",
    )


def position_missing(channel: ChannelKey) -> DownstreamError:
    """Return the error for a channel whose position row is missing."""
    return DownstreamError(
        "TR611",
        f"the row of channel {channel} in tailrace.relay_log_info is gone",
        hint="restore it: the last applied epoch is in tailrace.applied_epochs; or remove the rest of the channel with"
        " `tailrace channel remove`, and start it again with --from",
    )


def check_token(found: Position | None, token: int, channel: ChannelKey) -> Position:
    """Return the locked position if this consumer may still write it. Raises DownstreamError."""
    if found is None:
        raise position_missing(channel)
    if found.fencing_token != token:
        raise DownstreamError(
            "TR610",
            f"another consumer of channel {channel} has started since"
            f" (token {found.fencing_token}, ours is {token})",
            where=Where(epoch=found.epoch),
            hint="run one consumer per channel; this one stops, and what it applied is recorded in the position",
        )
    return found


def check_run(found: Position | None, token: int, channel: ChannelKey) -> Position:
    """Return the locked position if it belongs to this run. Raises DownstreamError.

    Its token may be greater than ``token``: the run has renewed it, and the connection was lost before the answer.
    """
    if found is not None and found.fencing_token // _TOKENS_OF_A_RUN == token // _TOKENS_OF_A_RUN:
        return found
    return check_token(found, token, channel)


def set_consistent(session: Session, channel: ChannelKey, token: int) -> None:
    """Mark the channel as ended normally, if this token is still current."""
    session.run(
        "UPDATE tailrace.relay_log_info SET consistent = 1 WHERE prefix = %s AND Channel_name = %s"
        " AND fencing_token = %s AND (SELECT COUNT(*) FROM tailrace.worker_info"
        " WHERE prefix = %s AND Channel_name = %s AND ahead = 1) = 0",
        (*channel, token, *channel),
    )


def move(session: Session, channel: ChannelKey, to: Position) -> None:
    """Move the position, inside the open transaction; token and source of the ledger's numbers stay."""
    affected = session.run(_MOVE, (*_values(to, _MOVED), *channel))
    if affected != 1:
        raise DownstreamError("TR611", f"the position of channel {channel} was not written")


def _values(position: Position, columns: Sequence[str]) -> list[Any]:
    return [getattr(position, _FIELDS[name]) for name in columns]


def _position(row: Sequence[Any]) -> Position:
    fields = dict(zip(_FIELDS.values(), row, strict=True))
    return Position(**{**fields, "copying": bool(fields["copying"]), "is_new": bool(fields["is_new"])})
