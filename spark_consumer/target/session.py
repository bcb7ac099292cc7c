"""The connection to the downstream: how it is opened, and the session that our SQL text is valid in."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pymysql
from pymysql.constants import CLIENT

from schemas.access.server_login import connect as open_connection
from schemas.access.server_login import login_hint
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError
from spark_consumer.target.server_errors import error_number as error_number
from spark_consumer.target.server_errors import is_lost as is_lost
from spark_consumer.target.server_errors import is_passing as is_passing
from spark_consumer.target.server_errors import message_of as message_of

Flavor = Literal["mysql", "mariadb"]
Row = tuple[Any, ...]
#: runs a query with values: a session's ``rows``, or that of any other connection
Query = Callable[[str, Row], Sequence[Row]]
_NOT_THERE = (1049, 1054, 1146)  # no schema, no table, or one of another kind

#: the mode under which the row renderers' literals mean what they say
SQL_MODE = "NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"
_SETTINGS = (
    f"sql_mode = '{SQL_MODE}'",
    "time_zone = '+00:00'",
    # Rows of compacted tables are written in another order than upstream's, and cascades must not run twice.
    "foreign_key_checks = 0",
    # A snapshot from before another connection's ALTER TABLE cannot be written through.
    "transaction_isolation = 'READ-COMMITTED'",
    # An hour-long ALTER on the DDL connection must not end this one.
    "wait_timeout = 2147483",
)


@dataclass
class Session:
    """One connection whose statements are bytes, with the facts about its server that matter to us."""

    connection: pymysql.Connection[Any]
    flavor: Flavor
    version: tuple[int, ...]
    max_allowed_packet: int

    def execute(self, sql: str | bytes) -> int:
        """Run one statement; the number of rows it affected (found rows, for UPDATE)."""
        return int(self.connection.query(sql.encode() if isinstance(sql, str) else sql))

    def run(self, sql: str, args: Row = ()) -> int:
        """Run one statement with values put in by the driver."""
        with self.connection.cursor() as cursor:
            return int(cursor.execute(sql, args or None))

    def rows(self, sql: str, args: Row = ()) -> list[Row]:
        """All rows of a query."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, args or None)
            return list(cursor.fetchall())

    def value(self, sql: str, args: Row = ()) -> Any:
        """The first column of the first row; None without rows."""
        rows = self.rows(sql, args)
        return rows[0][0] if rows else None

    def cut(self) -> None:
        """Cut the connection under a statement that another thread waits for; it ends there as lost."""
        sock = getattr(self.connection, "_sock", None)
        with contextlib.suppress(OSError):
            if sock is not None:
                # Not TLS's own shutdown: it would let the other thread go on in the clear.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close, whatever state the connection is in."""
        with contextlib.suppress(pymysql.MySQLError, OSError):
            self.connection.close()


def connect(target: ServerUrl, *, database: str | None = None) -> Session:
    """Open a connection with our session settings. Raises DownstreamError, retryable unless refused."""
    try:
        connection = _open(target, database)
        version = str(_value(connection, "SELECT VERSION()"))
        flavor: Flavor = "mariadb" if "mariadb" in version.lower() else "mysql"
        session = Session(
            connection,
            flavor,
            tuple(int(part) for part in version.split("-", 1)[0].split(".") if part.isdigit()),
            int(_value(connection, "SELECT @@max_allowed_packet")),
        )
        for setting in _SETTINGS:
            session.execute("SET SESSION " + _for_flavor(setting, flavor, session.version))
    except (pymysql.MySQLError, OSError, ValueError, LookupError, TypeError) as error:
        raise unreachable(target, error) from error
    return session


def _open(target: ServerUrl, database: str | None) -> pymysql.Connection[Any]:
    # UPDATE must count the rows it found: an UPDATE that changes nothing is no disagreement.
    ours: dict[str, Any] = {"database": database, "client_flag": CLIENT.FOUND_ROWS}
    return open_connection(target, **ours)


def _value(connection: pymysql.Connection[Any], sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        row: Any = cursor.fetchone()
        return row[0]


def _for_flavor(setting: str, flavor: Flavor, version: tuple[int, ...]) -> str:
    # MariaDB knows the variable by this name only since 11.1.
    if flavor == "mariadb" and version < (11, 1):
        return setting.replace("transaction_isolation", "tx_isolation")
    return setting


class Unreachable(DownstreamError):
    """TR601: the downstream does not let us in."""


def unreachable(target: ServerUrl, error: BaseException) -> Unreachable:
    """The error for a downstream that does not let us in."""
    number = error_number(error)
    refused = number in (1044, 1045, 1049, 1227)
    login = f"check user and password{login_hint(target, error)}"
    return Unreachable(
        "TR601",
        f"cannot work with the downstream {target}: {message_of(error)}",
        hint=login if refused else "check that the server runs and can be reached",
        retryable=not refused,
    )


def rows_if_there(query: Query, sql: str, args: Row = ()) -> Sequence[Row]:
    """The rows of a query; none where its table is not there."""
    try:
        return query(sql, args)
    except pymysql.MySQLError as error:
        if error_number(error) in _NOT_THERE:
            return []
        raise


@contextlib.contextmanager
def closing(session: Session) -> Iterator[Session]:
    """Close the session at the end of the block."""
    try:
        yield session
    finally:
        session.close()
