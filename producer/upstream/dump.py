"""The upstream's binlog as a stream of raw events, read as fast as the socket gives them.

pymysql connects, authenticates and sends the commands, and mysql-replication says how a replica registers; the packets
that follow are read here in large pieces, because pymysql's packet reader takes longer for one event than the whole
mirror may.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
import uuid
from collections.abc import Callable
from typing import Any

from pymysql.connections import Connection
from pymysql.constants.COMMAND import COM_BINLOG_DUMP, COM_REGISTER_SLAVE

from producer.upstream.connect import UpstreamInfo, connect, purged, query, upstream_errors
from producer.upstream.packets import UNKNOWN, ServerSaid
from schemas.access.server_login import tls_of
from schemas.access.server_url import ServerUrl
from schemas.errors import UpstreamError, Where

HEARTBEAT = 1.0  # seconds
SILENCE_LIMIT = 30.0  # seconds without even a heartbeat: the connection is dead
_RECEIVE_SIZE = 1 << 20

_DO_NOT_WAIT = 0x01  # end the dump with the binlog
_MAX_HOST = 60  # characters of this machine's name, as the server shows it
_COMMAND_SIZE = 5  # bytes in front of a command's arguments: packet size and command
_SEND_ANNOTATE_ROWS = 0x02  # MariaDB leaves these events out unless asked for

_NAMESPACE = uuid.UUID("7461696c-7261-4365-8000-000000000000")  # "tailrace"


class DumpStream:
    """An open binlog dump, from one file and position to whatever comes."""

    def __init__(self, url: ServerUrl, info: UpstreamInfo, start: Where, connection: Connection[Any]) -> None:
        self._url, self._info, self._place = url, info, start
        self._connection = connection
        self._socket: socket.socket = connection._sock  # type: ignore[attr-defined]
        self._is_tls = isinstance(self._socket, ssl.SSLSocket)
        self._rest = b""
        self._need = UNKNOWN
        self._heard = time.monotonic()

    @classmethod
    def open(
        cls,
        url: ServerUrl,
        info: UpstreamInfo,
        file: str,
        position: int,
        server_id: int,
        *,
        follow: bool = True,
    ) -> DumpStream:
        """Connect, and ask for the binlog. Raises UpstreamError.

        Args:
            info: the upstream's description of itself.
            file, position: the start; the position is at most 2**32-1, the protocol's limit.
            server_id: of this replica, unique among the upstream's replicas.
            follow: whether to wait for new events; otherwise the stream ends at the binlog's end.
        """
        stream = cls(url, info, Where(file=file, position=position), connect(url))
        try:
            with upstream_errors(url):
                stream._prepare(server_id)
                flags = _SEND_ANNOTATE_ROWS if info.flavor == "mariadb" else 0
                flags |= 0 if follow else _DO_NOT_WAIT
                payload = struct.pack("<IHI", position, flags, server_id) + file.encode()
                stream._command(COM_BINLOG_DUMP, payload)
        except UpstreamError:
            stream.close()
            raise
        return stream

    def read(self, timeout: float, take: Callable[[bytes], tuple[int, int]]) -> bool:
        """Receive, and let `take` have what is here.

        Args:
            timeout: seconds to wait for something to come.
            take: gets bytes that begin with a packet; returns how many it took, and how many it needs at
                least to take more.

        Returns whether anything was taken. Raises UpstreamError, and what `take` raises.
        """
        self._socket.settimeout(timeout)
        lost: OSError | None = None
        try:
            self._receive()
        except TimeoutError:
            if time.monotonic() - self._heard > SILENCE_LIMIT:
                raise self._lost(f"silent for {SILENCE_LIMIT:.0f} s") from None
        except OSError as error:
            lost = error  # what it said last may have come with the end
        taken = False
        try:
            while len(self._rest) >= self._need:
                used, self._need = take(self._rest)
                self._rest = self._rest[used:]
                taken = taken or used > 0
        except ServerSaid as said:
            raise self._refused(said) from said
        if lost and not taken:
            raise self._lost(str(lost)) from lost
        return taken

    @property
    def tls(self) -> str:
        """What it is encrypted with; empty if it is not."""
        return tls_of(self._connection)

    @property
    def heard_at(self) -> float:
        """When the server last sent anything, a heartbeat at least; seconds since 1970."""
        return time.time() - (time.monotonic() - self._heard)

    @property
    def is_drained(self) -> bool:
        """Whether nothing of what the server sent is left here, not even a part of an event."""
        return not (self._rest or self.has_more())

    def has_more(self) -> bool:
        """Whether further bytes are here already, so that a sync can wait for them."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        """Close the connection immediately, without COM_QUIT, since the server is sending a dump."""
        with contextlib.suppress(Exception):
            self._connection._force_close()  # type: ignore[attr-defined]

    def _receive(self) -> None:
        """Receive until the next event is whole. What came before a timeout is kept."""
        parts, size = [self._rest], len(self._rest)
        try:
            while True:
                part = self._socket.recv(_RECEIVE_SIZE)
                if not part:
                    raise ConnectionError("the server closed the connection")
                self._heard = time.monotonic()
                parts.append(part)
                size += len(part)
                # TLS gives 16 KB at a time; larger pieces are cheaper to take apart.
                if size >= self._need and not (self._is_tls and size < _RECEIVE_SIZE and self.has_more()):
                    return
        finally:
            self._rest = b"".join(parts) if len(parts) > 2 or self._rest else parts[-1]

    def _prepare(self, server_id: int) -> None:
        """Introduce this replica, as a server of its own would."""
        # Here, since importing it takes 90 ms: who only wants HEARTBEAT need not wait.
        from pymysqlreplication.binlogstream import ReportSlave

        settings = [
            "SET @master_binlog_checksum = @@global.binlog_checksum",
            "SET @source_binlog_checksum = @@global.binlog_checksum",
            f"SET @master_heartbeat_period = {int(HEARTBEAT * 1e9)}",
            f"SET @source_heartbeat_period = {int(HEARTBEAT * 1e9)}",
        ]
        if self._info.flavor == "mariadb":
            settings.append("SET @mariadb_slave_capability = 4")
        else:
            own = uuid.uuid5(_NAMESPACE, f"{self._info.server_uuid}/{server_id}")
            settings += [f"SET @slave_uuid = '{own}'", f"SET @replica_uuid = '{own}'"]
        for statement in settings:
            query(self._connection, statement)
        registration = ReportSlave(socket.gethostname()[:_MAX_HOST]).encoded(server_id)
        self._command(COM_REGISTER_SLAVE, registration[_COMMAND_SIZE:])
        connection: Any = self._connection
        connection._read_packet()

    def _command(self, code: int, payload: bytes) -> None:
        connection: Any = self._connection
        connection._execute_command(code, payload)

    def _lost(self, why: str) -> UpstreamError:
        hint = "the mirror reconnects automatically"
        return UpstreamError("TR201", f"connection to {self._url} lost: {why}", hint=hint, retryable=True)

    def _refused(self, said: ServerSaid) -> UpstreamError:
        """What the server's last words mean for the operator."""
        text = said.text
        if said.number == 1236 and ("first log file" in text or "purged" in text):
            return purged(self._url, self._info, f"the binlog file {self._place.file}").but(where=self._place)
        if said.number == 1236 and "checksum" in text.lower():
            return self._lost(text)  # binlog_checksum was changed: the next handshake learns the new one
        if said.number in (0, 1053, 1077, 1317, 1927, 3169):  # shutdown, killed
            return self._lost(text)
        hint = "see the server's message; a second replica with this server-id also ends a dump"
        return UpstreamError(
            "TR205", f"{self._url} ended the dump: {said.number} {text}", where=self._place, hint=hint
        )
