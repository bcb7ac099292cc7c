"""``tailrace.channel_pauses`` has a row for each channel that an operator has paused. Its consumer looks there."""

from __future__ import annotations

from datetime import UTC, datetime

from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.session import Query, Session, rows_if_there

TABLE = """
CREATE TABLE tailrace.channel_pauses (
  prefix VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  since DATETIME(3) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (prefix, channel)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='Tailrace: channels that apply nothing for now'
"""


def since(session: Session, channel: ChannelKey) -> str | None:
    """Return since when a channel is paused, in UTC; None if it is not."""
    sql = "SELECT since FROM tailrace.channel_pauses WHERE prefix = %s AND channel = %s"
    found = session.value(sql, channel)
    return None if found is None else _text(found)


def all_pauses(query: Query) -> dict[ChannelKey, str]:
    """Return since when channels are paused; nothing for those that are not."""
    rows = rows_if_there(query, "SELECT prefix, channel, since FROM tailrace.channel_pauses", ())
    return {ChannelKey(prefix, name): _text(at) for prefix, name, at in rows}


def pause(session: Session, channel: ChannelKey) -> None:
    """Pause a channel, unless it is paused."""
    session.run("INSERT IGNORE INTO tailrace.channel_pauses VALUES (%s, %s, UTC_TIMESTAMP(3))", channel)


def resume(session: Session, channel: ChannelKey) -> None:
    """Let a channel apply again."""
    session.run("DELETE FROM tailrace.channel_pauses WHERE prefix = %s AND channel = %s", channel)


def _text(at: datetime) -> str:
    return at.replace(tzinfo=UTC).isoformat(timespec="milliseconds")
