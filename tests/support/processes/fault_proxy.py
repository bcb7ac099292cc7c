"""A TCP proxy in front of a server that cuts connections exactly where a test requests it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

#: before: what the client sent does not arrive; after: the server has answered it, and the answer does not arrive
Cut = Literal["before", "after"]
_PIECE = 1 << 16


class FaultProxy:
    """Forwards bytes between its port and a server's.

    Attributes:
        port: the port that it listens on.
        closed: while set, new connections are refused; open ones continue.
        cuts: the number of connections cut because of ``cut_at``.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.closed = threading.Event()
        self.cuts = 0
        self._wanted: tuple[bytes, Cut] | None = None
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_at(self, sent: bytes, when: Cut) -> None:
        """Cut the next connection on which a client sends a packet that ends with ``sent``, and no other."""
        self._wanted = (sent, when)

    def cut_all(self) -> None:
        """Cut all open connections."""
        for one in self._open:
            _shut(one)
        self._open = []

    def close(self) -> None:
        """Cut all connections and stop listening."""
        self.closed.set()
        _shut(self._listener)
        self.cut_all()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.closed.is_set():
                _shut(client)
                continue
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._open += [client, server]
            doomed = threading.Event()
            threading.Thread(target=self._requests, args=(client, server, doomed), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, doomed), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(_PIECE):
                if self._wanted is not None and data.endswith(self._wanted[0]):
                    (_, when), self._wanted = self._wanted, None
                    self.cuts += 1
                    if when == "before":
                        break
                    doomed.set()
                server.sendall(data)
        if not doomed.is_set():
            _shut(client)
            _shut(server)

    @staticmethod
    def _answers(client: socket.socket, server: socket.socket, doomed: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(_PIECE):
                if doomed.is_set():
                    break
                client.sendall(data)
        _shut(client)
        _shut(server)


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextmanager
def fault_proxy(port: int) -> Iterator[FaultProxy]:
    """Yield a proxy in front of a server on 127.0.0.1."""
    proxy = FaultProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
