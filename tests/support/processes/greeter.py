"""A MySQL server that only greets, starts TLS and requests a login; it records what clients send."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_CAPABILITIES = 0x00000200 | 0x00008000 | 0x00080000 | 0x00000008  # 4.1, secure login, plugins, database
_TLS = 0x00000800


class Greeter:
    """Answers connections on ``port`` until the block ends.

    Args:
        certificate: its certificate and key; None for a server without TLS.
        method: the authentication plugin that it switches to.
        greeting: sent instead of a greeting.
    """

    def __init__(
        self,
        certificate: tuple[Path, Path] | None = None,
        method: str = "mysql_clear_password",
        greeting: bytes | None = None,
    ) -> None:
        self._certificate, self._method, self._greeting = certificate, method, greeting
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.heard = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Greeter:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with suppress(OSError), connection:
                connection.settimeout(10)
                self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        if self._greeting is not None:
            connection.sendall(self._greeting)
            return
        offered = _CAPABILITIES | (_TLS if self._certificate else 0)
        _send(connection, 0, _greeting(offered))
        number, said = _receive(connection)
        self.heard += said
        if self._certificate and struct.unpack("<I", said[:4])[0] & _TLS:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._certificate)
            connection = context.wrap_socket(connection, server_side=True)
            number, said = _receive(connection)
            self.heard += said
        _send(connection, number + 1, b"\xfe" + self._method.encode() + b"\0" + b"x" * 20 + b"\0")
        self.heard += _receive(connection)[1]


def _greeting(capabilities: int) -> bytes:
    low, high = struct.pack("<H", capabilities & 0xFFFF), struct.pack("<H", capabilities >> 16)
    head = b"\x0a9.7.0\0" + struct.pack("<I", 1) + b"a" * 8 + b"\0" + low + b"\xff\x02\x00" + high
    return head + bytes([21]) + bytes(10) + b"b" * 12 + b"\0mysql_native_password\0"


def _send(connection: socket.socket, number: int, payload: bytes) -> None:
    connection.sendall(struct.pack("<I", len(payload))[:3] + bytes([number]) + payload)


def _receive(connection: socket.socket) -> tuple[int, bytes]:
    head = _exactly(connection, 4)
    return head[3], _exactly(connection, int.from_bytes(head[:3], "little"))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data
