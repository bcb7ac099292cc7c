"""Serves a process's metrics and its state over HTTP.

``/metrics`` asks for a bearer token. ``/healthz`` and ``/readyz`` tell one word to everybody who can connect.
"""

from __future__ import annotations

import hmac
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any, Protocol

from tailrace.metrics.exposition import Sample, render

_TIMEOUT = 5.0  # seconds without a byte
_LONGEST = 15.0  # seconds that a request may take, however its bytes trickle in
_MOST_REQUESTS = 8  # at a time; more are closed unanswered
_TEXT = "text/plain; charset=utf-8"
_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
_TRIES = 5


class Facts(Protocol):
    """What a process can tell about itself, in any thread."""

    def is_ready(self) -> bool:
        """Whether it is connected, and moves or has nothing to do."""

    def samples(self) -> Iterable[Sample]:
        """Return the metrics. Raises RuntimeError if the state changes while it is read."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    timeout = _TIMEOUT
    facts: Facts
    token: bytes

    def do_GET(self) -> None:
        """Answer by the path."""
        if self.path == "/healthz":
            self._answer(HTTPStatus.OK, b"alive\n")
        elif self.path == "/readyz":
            is_ready = self.facts.is_ready()
            status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
            self._answer(status, b"ready\n" if is_ready else b"not ready\n")
        elif self.path != "/metrics":
            self._answer(HTTPStatus.NOT_FOUND, b"not found\n")
        elif not hmac.compare_digest(self._given_token(), self.token):
            self._answer(HTTPStatus.UNAUTHORIZED, b"this needs the token\n")
        else:
            self._answer(HTTPStatus.OK, _rendered(self.facts), _EXPOSITION)

    def _given_token(self) -> bytes:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        return token.strip().encode() if scheme.lower() == "bearer" else b""

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = _TEXT) -> None:
        self.send_response(status)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Return what the header Server says."""
        return "tailrace"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests come every few seconds."""


class _Server(ThreadingHTTPServer):
    """Answers a limited number of requests at a time, each in a thread."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, handler: type[_Handler]) -> None:
        super().__init__(listener.getsockname()[:2], handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self._free = threading.BoundedSemaphore(_MOST_REQUESTS)
        self._begun: dict[socket.socket, float] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if one is free."""
        if self._free.acquire(blocking=False):
            self._begun[request] = time.monotonic()
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, in the request's thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._begun.pop(request, None)
            self._free.release()

    def service_actions(self) -> None:
        """End requests that take too long; this is called twice a second."""
        late = time.monotonic() - _LONGEST
        for request in [one for one, begun in tuple(self._begun.items()) if begun < late]:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Forget a client that went away in the midst of its request."""


@contextmanager
def answering(listener: socket.socket, facts: Facts, token: str) -> Iterator[HTTPServer]:
    """Answer the requests that come to a listening socket while the block runs; then it is closed."""
    handler = type("_OurHandler", (_Handler,), {"facts": facts, "token": token.encode()})
    server = _Server(listener, handler)
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _rendered(facts: Facts) -> bytes:
    for _ in range(_TRIES):
        with suppress(RuntimeError):
            return render(list(facts.samples()))
    return b""
