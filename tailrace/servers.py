"""Short-lived connections to the servers, for commands that only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Literal, TypeVar

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from schemas.access.server_login import connect as open_connection
from schemas.access.server_login import login_hint
from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError, TailraceError, UpstreamError

Side = Literal["upstream", "downstream"]
_T = TypeVar("_T")


def connect(url: ServerUrl, side: Side, **options: Any) -> Connection[Any]:
    """Open a pymysql connection in autocommit mode; `options` are pymysql's and take precedence.

    Raises UpstreamError TR200 or DownstreamError TR600 if the server does not answer or refuses the login, and the
    errors of ``schemas.access.server_login.connect``.
    """
    try:
        return open_connection(url, **({"connect_timeout": 5} | options))
    except (pymysql.MySQLError, OSError) as error:
        raise unreachable(url, side, error) from error


@contextmanager
def asking(url: ServerUrl, side: Side, **options: Any) -> Iterator[Connection[Any]]:
    """Yield a connection to read from. Errors of its queries are raised like those of ``connect``."""
    with closing(connect(url, side, **options)) as connection:
        try:
            yield connection
        except pymysql.MySQLError as error:
            raise unreachable(url, side, error) from error


def unreachable(url: ServerUrl, side: Side, error: Exception) -> TailraceError:
    """Return the error about a server that did not answer or refused the login."""
    code, kind = ("TR200", UpstreamError) if side == "upstream" else ("TR600", DownstreamError)
    section = "source" if side == "upstream" else "target"
    hint = (
        f"check [{section}] url, the password (TAILRACE_{section.upper()}_PASSWORD) and that the server is running"
        + login_hint(url, error)
    )
    return kind(code, f"the {side} {url} cannot be reached: {message(error)}", hint=hint, retryable=True)


def attempt(read: Callable[[], _T]) -> _T | None:
    """Return the result of ``read``; None if the server refuses it."""
    try:
        return read()
    except pymysql.MySQLError:
        return None


def message(error: Exception) -> str:
    """Return the server's message and error number."""
    if isinstance(error, pymysql.MySQLError) and len(error.args) > 1:
        return f"{error.args[1]} ({error.args[0]})"
    return str(error) or type(error).__name__


def rows(
    connection: Connection[Any], sql: str, arguments: Sequence[Any] | None = None
) -> list[tuple[Any, ...]]:
    """Return all rows of a query."""
    with connection.cursor(Cursor) as cursor:
        cursor.execute(sql, arguments)
        return list(cursor.fetchall())


def variables(connection: Connection[Any]) -> dict[str, str]:
    """Return the server's global variables."""
    return {str(name): str(value) for name, value in rows(connection, "SHOW GLOBAL VARIABLES")}


def is_mariadb(connection: Connection[Any]) -> bool:
    """Return whether the server is MariaDB."""
    [(version,)] = rows(connection, "SELECT VERSION()")
    return "mariadb" in str(version).lower()
