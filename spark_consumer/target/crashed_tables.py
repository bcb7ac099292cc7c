"""Tables without transactions (MyISAM, Aria) whose server was killed while it wrote to them.

MariaDB repairs them when it opens them, MySQL only with ``myisam_recover_options``. Their files hold every change that
the server had confirmed. An unconfirmed change may have left half a row, or a row without its keys.
"""

from __future__ import annotations

import pymysql

from schemas.errors import DownstreamError, Where
from schemas.quote import quoted
from schemas.tables import QualifiedName
from spark_consumer.target.server_errors import message_of
from spark_consumer.target.session import Session


def check_order(session: Session, name: QualifiedName, where: Where) -> None:
    """Check a table that its server did not close.

    Raises:
        DownstreamError: TR663, its files are damaged.
        pymysql.MySQLError
    """
    *_, kind, state = session.rows(f"CHECK TABLE {quoted(*name)} FAST")[-1]
    if str(kind).lower() == "error":
        raise crashed(name, str(state), where)


def crashed(name: QualifiedName, said: str | pymysql.MySQLError, where: Where) -> DownstreamError:
    """Return the error for a table whose files are damaged."""
    table = quoted(*name)
    return DownstreamError(
        "TR663",
        f"the table {'.'.join(name)} is marked as crashed since its server was killed:"
        f" {said if isinstance(said, str) else message_of(said)}",
        where=where,
        hint=f"run REPAIR TABLE {table} on the downstream, then start again: the consumer checks the interrupted"
        " change. With myisam_recover_options = BACKUP the server repairs such tables by itself",
    )
