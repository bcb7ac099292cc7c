"""The image's health check, before small HTTP servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from compose.healthy import PORTS, main
from compose.processes import free_port
from tailrace.config.model import Metrics

Serve = Callable[[int], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts a server that answers /readyz with a status, and returns its port."""
    servers: list[HTTPServer] = []

    def start(status: int) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status if self.path == "/readyz" else 404)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return int(servers[-1].server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_healthy_is_where_all_that_listen_are_ready(serve: Serve) -> None:
    ready, waiting, nobody = serve(200), serve(503), free_port()
    assert main([ready, nobody]) == 0
    assert main([ready, waiting]) == 1
    assert main([nobody]) == 1


def test_the_ports_are_those_of_the_default_address() -> None:
    assert Metrics().listen == f"127.0.0.1:{PORTS.start}"
