"""Receives the rows of a SELECT in large pieces, and encodes them in the packets.

pymysql sends the statement and reads the answer up to the rows. Its reader of packets takes longer for a row than
``RowEncoder``.
"""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CR

from producer.copy.row_encoder import LEAST_END, MAX_PACKET, PACKET_HEADER, Append, RowEncoder
from schemas.access.server_connection import MAX_ANSWER

_RECEIVE_SIZE = 1 << 20  # bytes
_EOF, _ERROR = 0xFE, 0xFF
_EOF_SIZE = 5  # bytes
_MAX_ERROR = 64 << 10  # bytes; servers cut their messages at 512


class RowPackets:
    """The rows of a SELECT on a connection, which can be used again after the last row.

    It holds no more bytes than one receive, or one row, brings.

    Args:
        connection: on which the rows come next.
        max_row: the most bytes of one row.
    """

    def __init__(self, connection: Connection[Any], encoder: RowEncoder, max_row: int) -> None:
        self._connection, self._encoder, self._max_row = connection, encoder, max_row
        self._input: Any = connection._rfile  # type: ignore[attr-defined]
        self._rest = b""
        self._ended = False

    @classmethod
    def select(
        cls, connection: Connection[Any], encoder: RowEncoder, sql: str, *, max_row: int = MAX_ANSWER
    ) -> RowPackets:
        """Send a SELECT of ``encoder.expressions``.

        Args:
            connection: prepared with ``session_setup``.

        Raises:
            pymysql.MySQLError, OSError: the server refuses the statement, or cannot be reached.
        """
        internals: Any = connection
        internals.query(sql, unbuffered=True)
        result, internals._result = internals._result, None
        # pymysql would read the rows by itself when it drops its result.
        result.unbuffered_active = False
        rows = cls(connection, encoder, max_row)
        if result.field_count != encoder.field_count:
            rows._malformed(f"{result.field_count} columns, and {encoder.field_count} were selected")
        return rows

    def read(self, add_key: Append, add_after: Append) -> bool:
        """Receive once, or a large row, and encode the rows that are whole. Returns False after the last row.

        After an error the connection is closed, unless the server sent it.

        Raises:
            pymysql.MySQLError, OSError: the server sent an error or invalid packets, or the connection is lost.
            DecodeError: see ``RowEncoder.packets``.
        """
        if self._ended:
            return False
        try:
            self._read(add_key, add_after)
        except BaseException:
            if not self._ended:
                self.close()
            raise
        return not self._ended

    def close(self) -> None:
        """Close the connection, unless all rows were read."""
        if self._ended:
            return
        self._ended, self._rest = True, b""
        with contextlib.suppress(Exception):
            self._connection._force_close()  # type: ignore[attr-defined]

    def _read(self, add_key: Append, add_after: Append) -> None:
        more = self._receive()
        data = self._rest + more if self._rest else more
        while True:
            p = self._encoder.packets(data, 0, len(data), add_key, add_after)
            self._rest = data = data[p:]
            if len(data) <= PACKET_HEADER:
                return
            size, first = _size(data), data[PACKET_HEADER]
            if size == MAX_PACKET:
                self._encoder.row(self._large_row(), add_key, add_after)
                data = self._rest
            elif size > 0 and first < LEAST_END:
                return  # the rest of this row has yet to come
            else:
                self._end(size, first)
                return

    def _receive(self) -> bytes:
        """Bytes that came; those of a large packet all at once, so that they are not copied several times."""
        needed = _size(self._rest) + PACKET_HEADER - len(self._rest) if len(self._rest) >= 3 else 0
        if needed > _RECEIVE_SIZE:
            return self._exactly(needed)
        data: bytes = self._input.read1(_RECEIVE_SIZE)
        return data or self._lost()

    def _exactly(self, size: int) -> bytes:
        data: bytes = self._input.read(size)
        return data if len(data) == size else self._lost()

    def _take(self, size: int) -> bytes:
        """The next bytes, received if they have not come yet."""
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken + self._exactly(size - len(taken)) if len(taken) < size else taken

    def _large_row(self) -> bytes:
        """A row that has several packets, which come next."""
        parts, left = [], self._max_row
        while True:
            size = _size(self._take(PACKET_HEADER))
            left -= size
            if left < 0:
                self._malformed(f"a row of more than {self._max_row} bytes")
            parts.append(self._take(size))
            if size < MAX_PACKET:
                return b"".join(parts)

    def _end(self, size: int, first: int) -> None:
        """Process the packet behind the rows. Raises pymysql.MySQLError for an error."""
        is_end = first == _EOF and size == _EOF_SIZE
        if not is_end and not (first == _ERROR and 0 < size <= _MAX_ERROR):
            self._malformed(f"a packet of {size} bytes that begins with {first}")
        content = self._take(PACKET_HEADER + size)[PACKET_HEADER:]
        if self._rest:
            self._malformed("more bytes behind the last row")
        self._ended = True
        if not is_end:
            pymysql.err.raise_mysql_exception(content)

    def _malformed(self, what: str) -> NoReturn:
        self.close()
        raise pymysql.err.OperationalError(CR.CR_MALFORMED_PACKET, f"Malformed packet: {what}")

    def _lost(self) -> NoReturn:
        raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "Lost connection to the server between rows")


def _size(header: bytes) -> int:
    return int.from_bytes(header[:3], "little")
