"""Connections to the downstream, with the session settings that the generated SQL needs."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pymysql
from pymysql.constants import CLIENT, COMMAND

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
#: runs a query with values; for example a session's ``rows``
Query = Callable[[str, Row], Sequence[Row]]
_NOT_THERE = (1049, 1054, 1146)  # unknown database, column or table

#: the mode that the literals of the row renderers are written for
SQL_MODE = "NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"
_SETTINGS = (
    f"sql_mode = '{SQL_MODE}'",
    "time_zone = '+00:00'",
    # Compacted rows are not in the upstream's order, and cascades must not run twice.
    "foreign_key_checks = 0",
    # A snapshot that is older than another connection's ALTER TABLE makes writes fail.
    "transaction_isolation = 'READ-COMMITTED'",
    # The server must not close this connection during an hour-long ALTER on the DDL connection.
    "wait_timeout = 2147483",
)
# A hundred seconds, so it looks rows up by their keys, also where it takes a table for a small one. MySQL has hints for
# that (``delete_head``).
_NO_SCANS = "optimizer_scan_setup_cost = 100000000"

# Bytes of the statements that a session keeps prepared, each with something that does not depend on its length. The
# server needs 100 to 250 times as much for them.
_MOST_PREPARED, _PREPARED = 1 << 18, 1 << 10
_SEVERAL, _SINGLE = b"\0\0", b"\1\0"  # the values of COM_SET_OPTION: MYSQL_OPTION_MULTI_STATEMENTS_ON, _OFF
_KILLED = (1317, "Query execution was interrupted")
_CHANGE = re.compile(
    rb"(?:DELETE FROM|UPDATE) ((?:`[^`]*`|[\w$.])+)(?: SET (?:'[^']*'|`[^`]*`|[^'`])*?)?( WHERE .*)",
    re.DOTALL,
)


def _count_of_rows(sql: bytes) -> str | None:
    """Return a query for the number of rows that an UPDATE or DELETE finds; None for another statement.

    MariaDB may answer an UPDATE or DELETE that is killed while it looks for an index, and a SELECT with LIMIT or
    EXISTS, as if no row matched. It refuses other queries.
    """
    if (parts := _CHANGE.match(sql)) is None:
        return None
    count = b"SELECT COUNT(*) FROM " + parts[1] + parts[2].removesuffix(b" LIMIT 1")
    return count.decode(errors="surrogateescape")


@dataclass
class Session:
    """One connection to the downstream, with the facts about its server that the consumer needs."""

    connection: pymysql.Connection[Any]
    flavor: Flavor
    version: tuple[int, ...]
    max_allowed_packet: int
    _prepared: dict[bytes, bytes] = field(default_factory=dict)

    def execute(self, sql: str | bytes) -> int:
        """Run one statement. Returns the number of affected rows; for UPDATE, of matched rows."""
        text = sql.encode() if isinstance(sql, str) else sql
        affected = int(self.connection.query(text))
        if (
            not affected
            and self.flavor == "mariadb"
            and (count := _count_of_rows(text))
            and self.value(count)
        ):
            raise pymysql.OperationalError(*_KILLED)
        return affected

    def execute_prepared(self, sql: bytes, values: bytes) -> int:
        """Run a statement with parameters. Returns as ``execute``.

        Args:
            values: from ``schemas.sql.parameters.Parameters.joined``.
        """
        connection: Any = self.connection
        if (number := self._prepared.pop(sql, None)) is None:
            while (
                self._prepared
                and sum(_PREPARED + len(one) for one in (*self._prepared, sql)) > _MOST_PREPARED
            ):
                connection.close_prepared(self._prepared.pop(next(iter(self._prepared))))
            number = connection.prepare(sql)
        self._prepared[sql] = number  # the newest
        return int(connection.execute_prepared(number, values))

    def execute_together(self, statements: Sequence[bytes]) -> list[tuple[int, int]]:
        """Run several statements that are sent as one text. Returns each one's numbers of affected rows and duplicates.

        The first error ends it, and none of the statements behind it runs. On MariaDB a statement that was killed may
        count as one without rows. Only here the server accepts several statements, so no text has more than it should.
        """
        return [(affected, self.duplicates) for affected in self._together(statements)]

    def rows_of_each(self, queries: Sequence[str]) -> list[Sequence[Row]]:
        """Return all rows of each of several queries that are sent as one text. The first error ends it."""
        connection: Any = self.connection
        return [connection._result.rows for _ in self._together([query.encode() for query in queries])]

    def _together(self, statements: Sequence[bytes]) -> Iterator[int]:
        """Run statements, and yield the number of affected rows of each when the session knows its result."""
        connection: Any = self.connection
        self._set_option(_SEVERAL)
        try:
            yield int(connection.query(b";".join(statements)))
            for _ in statements[1:]:
                yield int(connection.next_result())
        except BaseException:
            with contextlib.suppress(pymysql.MySQLError, OSError):
                self._set_option(_SINGLE)
            raise
        self._set_option(_SINGLE)

    def _set_option(self, option: bytes) -> None:
        connection: Any = self.connection
        connection._execute_command(COMMAND.COM_SET_OPTION, option)
        connection._read_packet()

    @property
    def duplicates(self) -> int:
        """How many rows of an INSERT of several rows, which was the last statement, were there and were taken over.

        Both servers say so in the text of their answer, in any language: records, duplicates, warnings. The number of
        affected rows does not say it: of a row that was there it is one or two.
        """
        result: Any = self.connection._result  # type: ignore[attr-defined]
        numbers = re.findall(rb"\d+", result.message or b"")
        return int(numbers[-2]) if len(numbers) >= 3 else 0

    def run(self, sql: str, args: Row = ()) -> int:
        """Run one statement with values that the driver escapes. Returns the number of affected rows."""
        with self.connection.cursor() as cursor:
            return self.execute(cursor.mogrify(sql, args or None))

    def rows(self, sql: str, args: Row = ()) -> list[Row]:
        """Return all rows of a query."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, args or None)
            return list(cursor.fetchall())

    def value(self, sql: str, args: Row = ()) -> Any:
        """Return the first column of the first row; None without rows."""
        rows = self.rows(sql, args)
        return rows[0][0] if rows else None

    def cut(self) -> None:
        """Break the connection. A statement that another thread waits for fails with a lost connection."""
        sock = getattr(self.connection, "_sock", None)
        with contextlib.suppress(OSError):
            if sock is not None:
                # Not the TLS socket's shutdown: after it the other thread would continue unencrypted.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, in whatever state it is."""
        with contextlib.suppress(pymysql.MySQLError, OSError):
            self.connection.close()


def connect(target: ServerUrl, *, database: str | None = None) -> Session:
    """Open a connection with our session settings. Raises Unreachable, retryable unless the login is refused."""
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
        for setting in _settings(flavor, session.version):
            session.execute("SET SESSION " + setting)
    except (pymysql.MySQLError, OSError, ValueError, LookupError, TypeError) as error:
        raise unreachable(target, error) from error
    return session


def _open(target: ServerUrl, database: str | None) -> pymysql.Connection[Any]:
    # UPDATE must count matched rows: an UPDATE that changes nothing is not an error.
    ours: dict[str, Any] = {"database": database, "client_flag": CLIENT.FOUND_ROWS}
    return open_connection(target, **ours)


def _value(connection: pymysql.Connection[Any], sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        row: Any = cursor.fetchone()
        return row[0]


def _settings(flavor: Flavor, version: tuple[int, ...]) -> Iterator[str]:
    for setting in _SETTINGS:
        # MariaDB has the variable under this name since 11.1.
        is_older = flavor == "mariadb" and version < (11, 1)
        yield setting.replace("transaction_isolation", "tx_isolation") if is_older else setting
    if flavor == "mariadb" and version >= (11, 1):
        yield _NO_SCANS


class Unreachable(DownstreamError):
    """TR601: no connection to the downstream is possible."""


def unreachable(target: ServerUrl, error: BaseException) -> Unreachable:
    """Return the error for a downstream that cannot be connected to."""
    number = error_number(error)
    refused = number in (1044, 1045, 1049, 1227)
    login = f"check user and password{login_hint(target, error)}"
    return Unreachable(
        "TR601",
        f"cannot connect to the downstream {target}: {message_of(error)}",
        hint=login if refused else "check that the server is running and can be reached",
        retryable=not refused,
    )


def rows_if_there(query: Query, sql: str, args: Row = ()) -> Sequence[Row]:
    """Return the rows of a query; none if the table does not exist or lacks a column."""
    try:
        return query(sql, args)
    except pymysql.MySQLError as error:
        if error_number(error) in _NOT_THERE:
            return []
        raise


@contextlib.contextmanager
def transaction(session: Session) -> Iterator[None]:
    """Run the block in a transaction: its end commits, an exception rolls back."""
    session.execute("BEGIN")
    try:
        yield
        session.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(pymysql.MySQLError, OSError):
            session.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def closing(session: Session) -> Iterator[Session]:
    """Close the session at the end of the block."""
    try:
        yield session
    finally:
        session.close()
