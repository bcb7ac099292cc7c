"""Opens the port of a process's metrics, and answers at it once the process runs."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from schemas.access.private_files import make_folder, opener, others_may
from schemas.errors import ConfigError
from tailrace.config.addresses import token_of
from tailrace.config.listen import ListenAddress
from tailrace.config.model import Config

if TYPE_CHECKING:
    from tailrace.metrics.server import Facts

TOKEN_FILE = "metrics.token"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
# Seconds after which requests are answered. The code for it is not read before, since it may delay the first batch.
_DELAY = 2.0
_JOIN = 2.0
_log = structlog.get_logger()


@contextmanager
def serve_metrics(
    config: Config, address: ListenAddress | None, folder: Path, facts: Facts
) -> Iterator[None]:
    """Serve a process's metrics while the block runs.

    Args:
        address: where; None if nowhere.
        folder: of the process; the token is in a file there if none is configured.

    Raises:
        ConfigError: TR170, the configured address cannot be used. At the default address the block runs without.
    """
    listener = None if address is None else _open(config, address)
    if listener is None:
        yield
        return
    try:
        configured = token_of(config.metrics)
        token = configured or own_token(folder)
    except BaseException:
        listener.close()
        raise
    file = None if configured else str(folder / TOKEN_FILE)
    _log.info("metrics_served", address=str(address), token_file=file)
    ended = threading.Event()
    thread = threading.Thread(
        target=_answer, args=(listener, facts, token, ended), name="metrics", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_JOIN)


def own_token(folder: Path) -> str:
    """Return the token in a folder's file, which only this user can read; it is made if it is not there."""
    path = folder / TOKEN_FILE
    make_folder(folder, chosen=True)
    if path.is_file() and not others_may(path):
        found = path.read_text(errors="replace")[:100].strip()
        if _TOKEN.fullmatch(found):
            return found
    import secrets

    token = secrets.token_urlsafe(32)
    with open(path, "w", opener=opener) as file:
        file.write(token)
    return token


def _open(config: Config, address: ListenAddress) -> socket.socket | None:
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        return socket.create_server(found[0][4][:2], family=found[0][0])
    except OSError as error:
        problem = ConfigError(
            "TR170",
            f"metrics cannot be served at {address}: {error.strerror or error}",
            hint="choose another address with [metrics] listen, or an empty one for no metrics",
            another_start=True,
        )
        if "listen" in config.metrics.model_fields_set:
            raise problem from error
        _log.warning("metrics_not_served", code=problem.code, reason=problem.message, hint=problem.hint)
        return None


def _answer(listener: socket.socket, facts: Facts, token: str, ended: threading.Event) -> None:
    if ended.wait(_DELAY):
        listener.close()
        return
    from tailrace.metrics.server import answering

    with answering(listener, facts, token):
        ended.wait()
