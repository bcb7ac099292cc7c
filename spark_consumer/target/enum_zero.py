"""Writes an ENUM's index 0, the value of an invalid member, which a server in strict mode refuses.

Such values exist where an upstream runs without strict mode or with INSERT IGNORE. The session leaves strict mode for
one statement, and every warning of it must be about an ENUM column: no other value may change on its way.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

import pymysql

from schemas.structure import TableStructure
from spark_consumer.target.session import SQL_MODE, Session

TRUNCATED = 1265
_COLUMN = re.compile(r"[^']*'(.+)' at row \d+", re.DOTALL)
_LAX = SQL_MODE.replace("STRICT_ALL_TABLES,", "")


def write_zeros(session: Session, run: Callable[[], int], structure: TableStructure) -> int | None:
    """Run a statement that was refused with ``TRUNCATED`` again, without strict mode.

    Args:
        run: runs it, and returns the number of affected rows.

    Returns the number of affected rows; None if the refusal stands, and then the caller has to roll back.
    Raises pymysql.MySQLError.
    """
    enums = {
        column.name.lower() for column in structure.columns if column.sql_type.lower().startswith("enum")
    }
    if not enums:
        return None
    session.execute(f"SET SESSION sql_mode = '{_LAX}', max_error_count = 65535")
    try:
        affected = run()
        warnings = session.rows("SHOW WARNINGS")
        count = int(session.value("SELECT @@warning_count"))
    finally:
        with contextlib.suppress(pymysql.MySQLError, OSError):
            session.execute(f"SET SESSION sql_mode = '{SQL_MODE}', max_error_count = DEFAULT")
    return affected if len(warnings) == count and all(_is_zero(one, enums) for one in warnings) else None


def _is_zero(warning: tuple[object, ...], enums: set[str]) -> bool:
    _, code, message = warning
    column = _COLUMN.fullmatch(str(message))
    return code == TRUNCATED and column is not None and column[1].lower() in enums
