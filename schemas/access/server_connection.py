"""A pymysql connection that does not trust the server, whose answers may come from a man in the middle."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from struct import unpack_from
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.connections import Connection
from pymysql.constants import COMMAND, CR

#: bytes of one answer, in all its packets; the largest is a value of 1 GB, read by `compare`
MAX_ANSWER = (1 << 30) + (1 << 26)
_MAX_GREETING = 1 << 16  # bytes of everything that a server sends before the login is complete
# Memory of Python for each piece that is read, in bytes: an answer of many small rows needs many times its size.
_OVERHEAD = 64
_CLEAR = (b"mysql_clear_password", b"dialog")


if TYPE_CHECKING:
    _Connection = Connection[Any]
else:
    _Connection = Connection  # generic in its stubs only


class ServerConnection(_Connection):
    """A connection that limits the size of an answer, never sends the password in clear text to an unverified server,
    and raises pymysql's error for a malformed packet whenever it cannot read an answer.

    Args:
        max_answer: the most bytes of one answer.
        proved: whether the server is verified before the login, by its certificate or by a unix socket.
    """

    def __init__(
        self, *args: Any, max_answer: int = MAX_ANSWER, proved: bool = False, **options: Any
    ) -> None:
        self._max_answer, self._left, self._proved = max_answer, _MAX_GREETING, proved
        super().__init__(*args, **options)

    def _create_ssl_ctx(self, options: Any) -> ssl.SSLContext:
        if options:
            context: ssl.SSLContext = super()._create_ssl_ctx(options)  # type: ignore[misc]
            return context
        # "preferred" verifies no certificate, and pymysql would read the system's authorities, which takes 40 ms.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def connect(self, sock: Any = None) -> None:
        self._left = _MAX_GREETING
        with _one_kind_of_error():
            super().connect(sock)

    def _execute_command(self, command: int, sql: Any) -> None:
        self._left = self._max_answer
        super()._execute_command(command, sql)  # type: ignore[misc]

    def _read_query_result(self, unbuffered: bool = False) -> Any:
        with _one_kind_of_error():
            return super()._read_query_result(unbuffered)  # type: ignore[misc]

    def prepare(self, sql: bytes) -> bytes:
        """Return the number of a new prepared statement, as bytes."""
        self._execute_command(COMMAND.COM_STMT_PREPARE, sql)
        with _one_kind_of_error():
            answer = self._read_packet().get_all_data()  # type: ignore[no-untyped-call]
            columns, parameters = unpack_from("<HH", answer, 5)
            # Their definitions, and what ends these.
            for count in (parameters, columns):
                for _ in range(count + bool(count)):
                    self._read_packet()  # type: ignore[no-untyped-call]
        return bytes(answer[1:5])

    def execute_prepared(self, number: bytes, values: bytes) -> Any:
        """Run a prepared statement. Returns the number of affected rows.

        Args:
            values: NULLs, types and values in the binary protocol.
        """
        # Without a cursor, once.
        self._execute_command(COMMAND.COM_STMT_EXECUTE, number + b"\0\1\0\0\0" + values)
        return self._read_query_result()

    def close_prepared(self, number: bytes) -> None:
        """Have the server forget a prepared statement; it does not answer."""
        self._execute_command(COMMAND.COM_STMT_CLOSE, number)

    def _read_bytes(self, num_bytes: int) -> bytes:
        self._left -= num_bytes + _OVERHEAD
        if self._left < 0:
            self._force_close()  # type: ignore[attr-defined]
            raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "the server's answer does not end")
        data: bytes = super()._read_bytes(num_bytes)  # type: ignore[misc]
        return data

    def _process_auth(self, plugin_name: bytes, auth_packet: Any, handler: Any = None) -> Any:
        # Encryption alone is not enough: the other side may be a man in the middle.
        if plugin_name in _CLEAR and not self._proved:
            raise pymysql.err.OperationalError(
                CR.CR_AUTH_PLUGIN_ERR,
                f"the server asks for the password in clear text ({plugin_name.decode()}), but it is not verified",
            )
        try:
            return super()._process_auth(plugin_name, auth_packet, handler)  # type: ignore[misc]
        except (RuntimeError, AttributeError) as error:
            # A method that pymysql does not support, or a lost connection.
            raise pymysql.err.OperationalError(CR.CR_AUTH_PLUGIN_ERR, str(error)) from error


@contextmanager
def _one_kind_of_error() -> Iterator[None]:
    try:
        yield
    except (pymysql.MySQLError, OSError, MemoryError):
        raise
    except Exception as error:
        # pymysql trusts a server's packets, so a malformed one can raise any exception of Python.
        raise pymysql.err.OperationalError(
            CR.CR_MALFORMED_PACKET, f"Malformed packet: {type(error).__name__}: {str(error)[:200]}"
        ) from error
