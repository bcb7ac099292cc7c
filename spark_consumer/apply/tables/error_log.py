"""The tables for a channel's last error and for an operator's decisions about events.

``tailrace.channel_errors`` has a row for a channel that ended with an error, until it applies something again.
``tailrace.error_directives`` has a row for each decision. A decision takes effect in the transaction of the data, and
again whenever its event is applied again after a rewind. It stays until the channel is removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from schemas.errors import DownstreamError, EventId, TailraceError, Where
from spark_consumer.apply.tables.position_store import IF_LAST_STARTED
from spark_consumer.plan.refusal import Event, EventRefused
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.session import Query, Session, rows_if_there

TABLES = {
    "channel_errors": """
CREATE TABLE tailrace.channel_errors (
  prefix VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  at DATETIME(6) NOT NULL COMMENT 'UTC',
  code VARCHAR(8) NOT NULL,
  what LONGTEXT NOT NULL,
  place LONGTEXT NOT NULL,
  hint LONGTEXT NOT NULL,
  statement LONGTEXT COMMENT 'refused statement, long values truncated',
  table_name TEXT,
  event LONGTEXT COMMENT 'JSON: the row change or DDL that was refused',
  PRIMARY KEY (prefix, channel)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='Tailrace: last error of each channel'
""",
    "error_directives": """
CREATE TABLE tailrace.error_directives (
  id BIGINT NOT NULL AUTO_INCREMENT,
  prefix VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  epoch BIGINT NOT NULL,
  seq BIGINT NOT NULL COMMENT 'number of the row within the epoch; -1: the DDL',
  gtid VARCHAR(255),
  digest BIGINT NOT NULL COMMENT 'CRC-32 of the record or of the text of the DDL',
  table_name TEXT COMMENT 'upstream table of the row',
  action VARCHAR(8) NOT NULL COMMENT 'skip or replace',
  statements LONGTEXT NOT NULL COMMENT 'JSON: replacement statements',
  refused LONGTEXT NOT NULL COMMENT 'refused statement, long values truncated',
  reason LONGTEXT NOT NULL COMMENT 'why it was refused',
  made_by VARCHAR(255) NOT NULL,
  made_at DATETIME(6) NOT NULL COMMENT 'UTC',
  used_at DATETIME(6) COMMENT 'UTC, when it was used last; NULL: not yet',
  PRIMARY KEY (id),
  KEY (prefix, channel, used_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='Tailrace: events left out or replaced'
""",
}


@dataclass(frozen=True)
class Directive:
    """A decision to leave an event out, or to run other statements instead.

    Attributes:
        id: the id of its row on the downstream.
        statements: the replacement statements; empty if the event is left out.
        used: whether it has taken effect before.
        table: the upstream's table of a row; None for a DDL.
    """

    id: int
    epoch: int
    seq: int
    gtid: str | None
    digest: int
    statements: tuple[str, ...]
    used: bool = False
    table: str | None = None

    @property
    def event(self) -> EventId:
        """The event of the decision."""
        return EventId(self.epoch, self.seq)

    def check(self, event: Event, table: str | None = None) -> None:
        """Raise if the directive is for a different event."""
        if (self.epoch, self.seq, self.gtid, self.digest) != event.identity:
            error = DownstreamError(
                "TR642",
                f"a directive of `tailrace error` for event {event.id} was made for a different event with this number:"
                f" gtid {self.gtid}",
                hint="the log was replaced since the directive was made; decide again",
            )
            raise EventRefused(error, event, table, "")


@dataclass(frozen=True)
class ChannelError:
    """The error with which a channel ended; ``event`` is set if a directive can be made for it."""

    at: str
    code: str
    what: str
    place: str
    hint: str
    statement: str | None
    table: str | None
    event: Event | None


def record(session: Session, channel: ChannelKey, token: int, error: TailraceError) -> None:
    """Record the error with which a channel has ended, unless another consumer has taken over."""
    event = error.event.as_dict() if isinstance(error, EventRefused) else None
    session.run(
        "REPLACE INTO tailrace.channel_errors SELECT %s, %s, UTC_TIMESTAMP(6), %s, %s, %s, %s, %s, %s, %s"
        + IF_LAST_STARTED,
        (
            *channel,
            error.code,
            error.message,
            str(error.where),
            error.advice,
            error.statement if isinstance(error, DownstreamError) else None,
            error.where.table,
            None if event is None else json.dumps(event),
            *channel,
            token,
        ),
    )


def read(session: Session, channel: ChannelKey) -> ChannelError | None:
    """Return the error with which the channel has ended; None if it has applied something since."""
    rows = session.rows(
        "SELECT CAST(at AS CHAR), code, what, place, hint, statement, table_name, event"
        " FROM tailrace.channel_errors WHERE prefix = %s AND channel = %s",
        channel,
    )
    if not rows:
        return None
    at, code, what, place, hint, statement, table, event = rows[0]
    found = Event(**json.loads(event)) if event else None
    return ChannelError(at, code, what, place, hint, statement, table, found)


def clear(session: Session, channel: ChannelKey) -> None:
    """Delete the channel's error, because it has applied something."""
    session.run("DELETE FROM tailrace.channel_errors WHERE prefix = %s AND channel = %s", channel)


def errors(query: Query, prefix: str) -> dict[str, dict[str, Any]]:
    """Return the errors with which channels have ended, by name.

    ``at`` is in seconds since 1970. ``event`` names the event for which a directive can be made; None if there is none.
    """
    names = ("code", "what", "where", "hint", "statement", "at", "event")
    rows = rows_if_there(
        query,
        "SELECT channel, code, what, place, hint, statement, UNIX_TIMESTAMP(at), event FROM tailrace.channel_errors"
        " WHERE prefix = %s",
        (prefix,),
    )
    return {
        name: dict(zip(names, (*rest, str(Event(**json.loads(event)).id) if event else None), strict=True))
        for name, *rest, event in rows
    }


def used_counts(query: Query, prefix: str) -> dict[str, int]:
    """Return how many directives have taken effect, by channel."""
    sql = (
        "SELECT channel, COUNT(*) FROM tailrace.error_directives WHERE prefix = %s AND used_at IS NOT NULL"
        " GROUP BY channel"
    )
    return {str(name): int(count) for name, count in rows_if_there(query, sql, (prefix,))}


def directives(session: Session, channel: ChannelKey) -> list[dict[str, Any]]:
    """Return all decisions about a channel's events, in the form of `tailrace error show --json`."""
    names = ("gtid", "action", "statements", "refused", "reason", "made_by", "made_at", "used_at")
    rows = session.rows(
        "SELECT epoch, seq, gtid, action, statements, refused, reason, made_by, CAST(made_at AS CHAR),"
        " CAST(used_at AS CHAR) FROM tailrace.error_directives WHERE prefix = %s AND channel = %s ORDER BY id",
        channel,
    )
    found = [
        {"event": str(EventId(epoch, seq)), **dict(zip(names, rest, strict=True))}
        for epoch, seq, *rest in rows
    ]
    return [one | {"statements": json.loads(one["statements"])} for one in found]


def decided(session: Session, channel: ChannelKey) -> dict[EventId, Directive]:
    """Return the decisions by event; the last one if an event has several."""
    rows = session.rows(
        "SELECT id, epoch, seq, gtid, digest, statements, used_at IS NOT NULL, table_name"
        " FROM tailrace.error_directives WHERE prefix = %s AND channel = %s ORDER BY id",
        channel,
    )
    return {
        EventId(epoch, seq): Directive(
            id_, epoch, seq, gtid, digest, tuple(json.loads(statements)), bool(used), table
        )
        for id_, epoch, seq, gtid, digest, statements, used, table in rows
    }


def add(
    session: Session, channel: ChannelKey, error: ChannelError, statements: Iterable[str], by: str
) -> None:
    """Store a decision for the event of an error, in the open transaction, replacing an earlier one."""
    event, chosen = error.event, tuple(statements)
    assert event is not None
    session.run(
        "DELETE FROM tailrace.error_directives WHERE prefix = %s AND channel = %s AND epoch = %s AND seq = %s"
        " AND used_at IS NULL",
        (*channel, event.epoch, event.seq),
    )
    session.run(
        "INSERT INTO tailrace.error_directives (prefix, channel, epoch, seq, gtid, digest, table_name, action,"
        " statements, refused, reason, made_by, made_at)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, UTC_TIMESTAMP(6))",
        (
            *channel,
            *event.identity,
            error.table,
            "replace" if chosen else "skip",
            json.dumps(chosen, ensure_ascii=False),
            error.statement or "",
            f"{error.code}: {error.what}",
            by[:255],
        ),
    )


def use(session: Session, directives: Iterable[Directive]) -> None:
    """Record that directives took effect, in the transaction of the data."""
    for one in directives:
        used = session.run(
            "UPDATE tailrace.error_directives SET used_at = UTC_TIMESTAMP(6) WHERE id = %s", (one.id,)
        )
        if used != 1 or session.value(_LATER, (one.id,)):
            raise DownstreamError(
                "TR642",
                f"the directive of `tailrace error` for event {one.event} was changed while it took effect",
                where=Where(epoch=one.epoch, gtid=one.gtid),
                hint="restart the consumer: it reads the current directives",
            )


_LATER = (
    "SELECT COUNT(*) FROM tailrace.error_directives this JOIN tailrace.error_directives later"
    " ON later.prefix = this.prefix AND later.channel = this.channel AND later.epoch = this.epoch"
    " AND later.seq = this.seq AND later.id > this.id WHERE this.id = %s"
)
