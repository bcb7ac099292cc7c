"""``tailrace.validation_run``: what a ``tailrace validate`` has proved that has not ended yet, so that another goes on.

Each run has a row for each table, and one with an empty ``table_name`` that names the process that writes. Another
process that goes on with the run puts its own name there; from then on the former writes nothing any more.
"""

from __future__ import annotations

from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.session import Session, transaction

TABLE = """
CREATE TABLE tailrace.validation_run (
  prefix VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  channel VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  run CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'digest of what is validated',
  table_name VARCHAR(140) NOT NULL COMMENT 'db.table of the downstream; empty: the run',
  state LONGTEXT NOT NULL COMMENT 'JSON: how far the table is proved; of the run: which process writes',
  written_at DATETIME(6) NOT NULL COMMENT 'UTC',
  PRIMARY KEY (prefix, channel, run, table_name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT='Tailrace: validations that have not ended'
"""
_RUN = "prefix = %s AND channel = %s AND run = %s"
_WRITE = "REPLACE INTO tailrace.validation_run VALUES (%s, %s, %s, %s, %s, UTC_TIMESTAMP(6))"


def take_over(session: Session, channel: ChannelKey, run: str, process: str, restart: bool) -> dict[str, str]:
    """Let a process write from now on; return what the former ones have written, by table. A restart removes it."""
    with transaction(session):
        session.run(_WRITE, (*channel, run, "", process))
        if restart:
            session.run(
                f"DELETE FROM tailrace.validation_run WHERE {_RUN} AND table_name <> ''", (*channel, run)
            )
    found = session.rows(
        f"SELECT table_name, state FROM tailrace.validation_run WHERE {_RUN} AND table_name <> ''",
        (*channel, run),
    )
    return {str(table): str(state) for table, state in found}


def write(session: Session, channel: ChannelKey, run: str, process: str, table: str, state: str) -> None:
    """Write a table's state, unless another process has taken the run over."""
    with transaction(session):
        if _is_ours(session, channel, run, process):
            session.run(_WRITE, (*channel, run, table, state))


def remove(session: Session, channel: ChannelKey, run: str, process: str) -> None:
    """Remove a run that has ended, unless another process has taken it over."""
    with transaction(session):
        if _is_ours(session, channel, run, process):
            session.run(f"DELETE FROM tailrace.validation_run WHERE {_RUN}", (*channel, run))


def _is_ours(session: Session, channel: ChannelKey, run: str, process: str) -> bool:
    sql = f"SELECT state FROM tailrace.validation_run WHERE {_RUN} AND table_name = '' FOR UPDATE"
    return bool(session.value(sql, (*channel, run)) == process)
