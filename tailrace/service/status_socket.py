"""Serves the memory of a running process to ``tailrace status``, as a JSON object over a unix socket.

The sockets are `producer.sock` in the relay directory and `consumer.sock` in the channel's folder. Only their owner
may connect, and the object contains no password.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import structlog

from schemas.access.private_files import make_folder

PRODUCER = "producer.sock"
CONSUMER = "consumer.sock"
_TIMEOUT_S = 2.0
_log = structlog.get_logger()


@contextmanager
def serve_status(folder: Path, name: str, snapshot: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Answer each connection with ``snapshot()`` while the block runs.

    ``snapshot`` is called in a thread of its own. If the folder allows no socket, the block runs without one.
    """
    try:
        make_folder(folder, chosen=True)
        listener = _listen(folder, name)
        inode = (folder / name).stat().st_ino
    except OSError as error:
        _log.warning("status_socket_unavailable", folder=str(folder), reason=error.strerror or str(error))
        yield
        return
    thread = threading.Thread(target=_answer, args=(listener, snapshot), name="live", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # ends the thread's accept
        thread.join(_TIMEOUT_S)
        with suppress(OSError):
            if (folder / name).stat().st_ino == inode:  # otherwise it is another process's socket
                (folder / name).unlink()
        listener.close()


def query_status(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the object that a process serves; None if none runs. Raises OSError if it does not answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_TIMEOUT_S)
        try:
            with _short_path(folder, name) as path:
                client.connect(path)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            return None  # refused: the process was killed and left its socket
        parts = []
        while part := client.recv(1 << 16):
            parts.append(part)
    try:
        found: dict[str, Any] = json.loads(b"".join(parts))
    except ValueError as error:
        raise ConnectionError("the process ended during its answer") from error
    return found


def _listen(folder: Path, name: str) -> socket.socket:
    with suppress(FileNotFoundError):
        (folder / name).unlink()  # left by a killed process; a running one would hold the folder's lock
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # before bind, so that no other user can connect
        with _short_path(folder, name) as path:
            listener.bind(path)
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


@contextmanager
def _short_path(folder: Path, name: str) -> Iterator[str]:
    """Yield a path of the socket that fits into the kernel's limit of 108 bytes."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def _answer(listener: socket.socket, snapshot: Callable[[], dict[str, Any]]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:  # closed
            return
        with client, suppress(OSError):  # the client may have closed the connection
            client.settimeout(_TIMEOUT_S)
            client.sendall(json.dumps(_snapshot_or_error(snapshot), ensure_ascii=False, default=str).encode())


def _snapshot_or_error(snapshot: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    for _ in range(5):
        with suppress(RuntimeError):  # the state changed while it was read
            return snapshot()
    return {"error": "the state changes too fast to be read"}
