"""Tables without transactions (MyISAM, Aria) whose server was killed while it wrote to them.

MariaDB puts them in order when it opens them, MySQL only with ``myisam_recover_options``. What was answered before the
kill is in their files; of the change that was not, a row may be there by half, or without its keys.
"""

from __future__ import annotations

import pymysql

from schemas.errors import DownstreamError, Where
from schemas.quote import quoted
from schemas.tables import QualifiedName
from spark_consumer.target.server_errors import message_of
from spark_consumer.target.session import Session


def check_order(session: Session, name: QualifiedName, where: Where) -> None:
    """Look through a table that its server did not close.

    Raises:
        DownstreamError: TR663 its files are not in order.
        pymysql.MySQLError
    """
    *_, kind, state = session.rows(f"CHECK TABLE {quoted(*name)} FAST")[-1]
    if str(kind).lower() == "error":
        raise crashed(name, str(state), where)


def crashed(name: QualifiedName, said: str | pymysql.MySQLError, where: Where) -> DownstreamError:
    """The error for a table whose files are not in order."""
    table = quoted(*name)
    return DownstreamError(
        "TR663",
        f"{'.'.join(name)} was left crashed when its server was killed:"
        f" {said if isinstance(said, str) else message_of(said)}",
        where=where,
        hint=f"REPAIR TABLE {table} on the downstream, then start again: the change that it was in the midst of is made"
        " sure of. With myisam_recover_options = BACKUP there the server does that by itself",
    )
