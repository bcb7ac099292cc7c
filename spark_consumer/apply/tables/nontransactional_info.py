"""``tailrace.nontransactional_info``: the progress of tables without transactions that are ahead of the position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from schemas.tables import QualifiedName
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.session import Session

TABLE = """
CREATE TABLE tailrace.nontransactional_info (
  Channel_name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  prefix VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  table_schema VARCHAR(64) NOT NULL,
  table_name VARCHAR(64) NOT NULL,
  gtid VARCHAR(255) COMMENT 'GTID of the first row in doubt; earlier rows are present',
  file VARCHAR(255) COMMENT 'upstream binlog file; NULL: that row is the first one after the position',
  pos BIGINT UNSIGNED COMMENT 'start of its event in the file',
  number BIGINT UNSIGNED COMMENT 'number of the row within its event; of a copy: epoch and number',
  in_doubt INT UNSIGNED NOT NULL COMMENT 'number of rows in doubt, from that row on',
  updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  PRIMARY KEY (prefix, Channel_name, table_schema, table_name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
  COMMENT='Tailrace: non-transactional tables ahead of their channel'
"""


class RowPosition(NamedTuple):
    """The position of a table's row upstream: its transaction, its event, and its number among the table's rows."""

    gtid: str | None
    file: str
    pos: int
    number: int


@dataclass(frozen=True)
class TableMark:
    """The progress of a table: all rows before ``place`` are applied, and ``rows`` rows from it on may be.

    Attributes:
        place: None if it is the channel's position.
    """

    place: RowPosition | None
    rows: int


def read(session: Session, channel: ChannelKey) -> dict[QualifiedName, TableMark]:
    """Return the marks of a channel; none if no table is ahead of its position."""
    rows = session.rows(
        "SELECT table_schema, table_name, gtid, file, pos, number, in_doubt FROM tailrace.nontransactional_info"
        " WHERE prefix = %s AND Channel_name = %s",
        channel,
    )
    return {
        (db, table): TableMark(None if file is None else RowPosition(gtid, file, pos, number), count)
        for db, table, gtid, file, pos, number, count in rows
    }


def write(session: Session, channel: ChannelKey, table: QualifiedName, mark: TableMark) -> None:
    """Set the mark of a table."""
    session.run(
        "REPLACE INTO tailrace.nontransactional_info (prefix, Channel_name, table_schema, table_name, gtid, file, pos,"
        " number, in_doubt) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (*channel, *table, *(mark.place or (None,) * 4), mark.rows),
    )


def delete(session: Session, channel: ChannelKey) -> None:
    """Remove all marks of a channel."""
    session.run("DELETE FROM tailrace.nontransactional_info WHERE prefix = %s AND Channel_name = %s", channel)
