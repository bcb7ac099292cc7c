"""All tables of the schema ``tailrace`` on the downstream: made together, and a channel is forgotten in all of them."""

from __future__ import annotations

import re

from schemas.state_format import refuse_newer
from spark_consumer.apply.tables import (
    audit,
    channel_pauses,
    error_log,
    nontransactional_info,
    position_store,
    validation,
    validation_run,
    worker_info,
)
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.session import Session, transaction

_TABLES = {
    "worker_info": worker_info.TABLE,
    "nontransactional_info": nontransactional_info.TABLE,
    "relay_log_info": position_store.TABLE,
    **audit.TABLES,
    **error_log.TABLES,
    "channel_pauses": channel_pauses.TABLE,
    "validation": validation.TABLE,
    "validation_run": validation_run.TABLE,
}


#: the version of the format of these tables, in the comment of ``relay_log_info``
FORMAT = 1
_FORMAT_IN_COMMENT = re.compile(r"format (\d+)")


def install(session: Session) -> None:
    """Create the schema and tables that are missing; no DDL at all if they are there.

    Raises TailraceError TR191 if a newer release has made them.
    """
    found = session.rows(
        "SELECT TABLE_NAME, TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'tailrace'"
    )
    tables = {str(name): str(comment) for name, comment in found}
    stored = _FORMAT_IN_COMMENT.search(tables.get("relay_log_info", ""))
    refuse_newer("the downstream's schema tailrace", int(stored[1]) if stored else 1, FORMAT)
    missing = [statement for table, statement in _TABLES.items() if table not in tables]
    if missing:
        session.execute("CREATE DATABASE IF NOT EXISTS tailrace")
    for statement in missing:
        session.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))


def forget(session: Session, channel: ChannelKey) -> None:
    """Forget the channel, its audit rows and counters, as if it had never been. Call after ``install``."""
    with transaction(session):
        for table, statement in _TABLES.items():
            # Where the columns are MySQL's own, so is the name of this one.
            column = "Channel_name" if "Channel_name" in statement else "channel"
            session.run(f"DELETE FROM tailrace.{table} WHERE prefix = %s AND {column} = %s", channel)
