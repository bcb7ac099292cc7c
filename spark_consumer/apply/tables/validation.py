"""``tailrace.validation``: what ``tailrace validate --follow`` has proved, and which rows differ.

It has a row for each table of the downstream, as of its last validation in full and with what was found since. The row
with an empty ``table_name`` is the channel's: each change up to its position was looked at after it was applied.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.session import Query, Session, rows_if_there

TABLE = """
CREATE TABLE tailrace.validation (
  prefix VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  table_name VARCHAR(140) NOT NULL COMMENT 'db.table of the downstream; empty: the channel',
  verdict VARCHAR(10) NOT NULL COMMENT 'equal, different, pending or left out',
  row_count BIGINT NOT NULL COMMENT 'rows of the table; of the channel: changed rows that were looked at',
  different BIGINT NOT NULL COMMENT 'rows that are proved different',
  pending BIGINT NOT NULL COMMENT 'rows that are not decided yet',
  differences LONGTEXT NOT NULL COMMENT 'JSON: the first different rows',
  problem LONGTEXT NOT NULL COMMENT 'why the table as a whole is not equal, or not validated',
  log_id VARCHAR(64) NOT NULL,
  epoch BIGINT NOT NULL COMMENT 'of a table: the position at the start of its last validation in full',
  epochs_offset BIGINT NOT NULL,
  executed_gtid_set LONGTEXT NOT NULL,
  validated_at DATETIME(6) NOT NULL COMMENT 'UTC; of a table: the end of its last validation in full',
  PRIMARY KEY (prefix, channel, table_name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='Tailrace: what a validation has proved'
"""
_VALUES = (
    "table_name",
    "verdict",
    "row_count",
    "different",
    "pending",
    "differences",
    "problem",
    "log_id",
    "epoch",
    "epochs_offset",
    "executed_gtid_set",
)
_SELECT = (
    f"SELECT channel, UNIX_TIMESTAMP(validated_at), {', '.join(_VALUES)}"
    " FROM tailrace.validation WHERE prefix = %s"
)


@dataclass(frozen=True)
class ProvedPosition:
    """A position of the channel.

    Attributes:
        log_id: the id of the log; an epoch of another log has nothing to do with it.
        offset: the epoch's offset in the epochs topic.
        executed: the GTID set of everything up to it.
    """

    log_id: str
    epoch: int
    offset: int
    executed: str


@dataclass(frozen=True)
class Validated:
    """A row of the table: what is known of a table, or of the channel (``table`` is empty).

    Attributes:
        at: when, in seconds since 1970.
    """

    table: str
    verdict: str
    rows: int
    different: int
    pending: int
    differences: tuple[str, ...]
    problem: str
    position: ProvedPosition
    at: float

    @classmethod
    def of(cls, at: Any, *values: Any) -> Validated:
        """Return the row from its time and the columns."""
        table, verdict, rows, different, pending, differences, problem, *position = values
        shown = tuple(json.loads(differences))
        return cls(
            table, verdict, rows, different, pending, shown, problem, ProvedPosition(*position), float(at)
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for ``status --json``, without position and time."""
        names = ("table", "verdict", "rows", "different", "pending", "differences", "problem")
        return {name: getattr(self, name) for name in names}


def write(session: Session, channel: ChannelKey, found: Validated) -> None:
    """Write a row."""
    position = found.position
    session.run(
        f"REPLACE INTO tailrace.validation (prefix, channel, validated_at, {', '.join(_VALUES)})"
        f" VALUES (%s, %s, FROM_UNIXTIME(%s), {', '.join(['%s'] * len(_VALUES))})",
        (
            *channel,
            f"{found.at:.6f}",
            found.table,
            found.verdict,
            found.rows,
            found.different,
            found.pending,
            json.dumps(found.differences, ensure_ascii=False),
            found.problem,
            position.log_id,
            position.epoch,
            position.offset,
            position.executed,
        ),
    )


def remove(session: Session, channel: ChannelKey, tables: Iterable[str]) -> None:
    """Remove the rows of tables that are no longer there."""
    for table in tables:
        session.run(
            "DELETE FROM tailrace.validation WHERE prefix = %s AND channel = %s AND table_name = %s",
            (*channel, table),
        )


def read(query: Query, prefix: str) -> dict[str, dict[str, Validated]]:
    """Return all rows by channel and table; none if the table does not exist."""
    found: dict[str, dict[str, Validated]] = {}
    for channel, at, *values in rows_if_there(query, _SELECT, (prefix,)):
        found.setdefault(channel, {})[str(values[0])] = Validated.of(at, *values)
    return found
