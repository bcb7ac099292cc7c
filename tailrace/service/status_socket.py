"""What a running process has in memory, for ``tailrace status``: one JSON object over a unix socket.

The socket lies beside what the process owns: `producer.sock` in the relay directory, `<channel>.sock` in the
folder of the checkpoints. Only its owner may connect, and nothing served holds a password.
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
_PATIENCE_S = 2.0
_log = structlog.get_logger()


@contextmanager
def serve_status(folder: Path, name: str, snapshot: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Answer each connection with ``snapshot()`` while the block runs.

    ``snapshot`` is called in a thread of its own. A folder that allows no socket is no reason not to run.
    """
    try:
        make_folder(folder, chosen=True)
        listener = _listen(folder, name)
        ours = (folder / name).stat().st_ino
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
            listener.shutdown(socket.SHUT_RDWR)  # ends the accept that the thread waits in
        thread.join(_PATIENCE_S)
        with suppress(OSError):
            if (folder / name).stat().st_ino == ours:  # else a successor has taken the name
                (folder / name).unlink()
        listener.close()


def query_status(folder: Path, name: str) -> dict[str, Any] | None:
    """What the process behind a socket says; None if there is none. Raises OSError if it does not answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_PATIENCE_S)
        try:
            with _short_path(folder, name) as path:
                client.connect(path)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            return None  # refused: its process was killed, and the name was left
        parts = []
        while part := client.recv(1 << 16):
            parts.append(part)
    try:
        found: dict[str, Any] = json.loads(b"".join(parts))
    except ValueError as error:
        raise ConnectionError("the process ended while it answered") from error
    return found


def _listen(folder: Path, name: str) -> socket.socket:
    with suppress(FileNotFoundError):
        (folder / name).unlink()  # of a process that was killed; a live one would hold the folder's lock
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)  # before it has a name: nobody connects in between
        with _short_path(folder, name) as path:
            listener.bind(path)
        listener.listen()
    except BaseException:
        listener.close()
        raise
    return listener


@contextmanager
def _short_path(folder: Path, name: str) -> Iterator[str]:
    """A path of the socket that fits into the 108 bytes which the kernel allows."""
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
        with client, suppress(OSError):  # an asker who left is his own affair
            client.settimeout(_PATIENCE_S)
            client.sendall(json.dumps(_snapshot_or_error(snapshot), ensure_ascii=False, default=str).encode())


def _snapshot_or_error(snapshot: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    for _ in range(5):
        with suppress(RuntimeError):  # a set that grew while it was read
            return snapshot()
    return {"error": "its state changes too fast to be read"}
