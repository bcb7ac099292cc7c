"""An operator's request for copies: a file in the relay directory, which the running publisher takes.

copy-request.json   {"copy": UUID, "tables": [patterns in the form of [tables] include], "cancel": false}

The file goes once the log has what was asked for. If the publisher is killed in between, the next one knows the copy's
id from the log and only removes the file.
"""

from __future__ import annotations

import json
import os
import stat
import time
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path

import structlog

from relay_store.layout.directory import UnreadableFile, disk_errors, write_atomically
from relay_store.layout.locks import files_locked
from schemas.crashpoints import reached
from schemas.errors import ConfigError, RelayError
from schemas.tables import TableFilter

log = structlog.get_logger()

REQUEST_NAME = "copy-request.json"
_MOST_BYTES = 1 << 20
_PAUSE = 0.5  # seconds between two looks
_INVALID = (ConfigError, ValueError, LookupError, TypeError, RecursionError)


@dataclass(frozen=True)
class CopyRequest:
    """What an operator asks for.

    Attributes:
        tables: patterns in the form of ``[tables] include``; none for all tables.
        cancel: instead of that, copies that have not begun are to be dropped.
        copy: UUID of the copy.
    """

    tables: tuple[str, ...] = ()
    cancel: bool = False
    copy: str = field(default_factory=lambda: str(uuid.uuid4()))

    @classmethod
    def decode(cls, text: bytes) -> CopyRequest:
        """Read a request. Raises ValueError, LookupError, TypeError, RecursionError, ConfigError for what is none."""
        data = json.loads(text)
        tables, cancel, copy = data["tables"], data["cancel"], data["copy"]
        texts = [copy, *tables] if type(tables) is list else [None]
        if type(cancel) is not bool or not all(type(text) is str for text in texts):
            raise ValueError("a field has another type")
        TableFilter(tables, fields=("the request's tables", ""))
        return cls(tuple(tables), cancel, str(uuid.UUID(copy)))


def write_request(root: Path, request: CopyRequest) -> None:
    """Leave a request in a relay directory. A cancellation replaces one that nobody has taken.

    Raises:
        RelayError: TR324, another request waits there; TR302, it cannot be written.
    """
    path = root / REQUEST_NAME
    with files_locked(root), disk_errors(f"writing {path.name}"):
        if path.exists() and not request.cancel:
            raise RelayError(
                "TR324",
                f"an earlier request for a copy is still in {path}",
                hint="the producer takes it once it has the tables of a copy that begins; if none runs, start it;"
                " `tailrace copy --cancel` drops the request",
            )
        write_atomically(path, json.dumps(asdict(request), ensure_ascii=False))


def is_waiting(root: Path, request: CopyRequest) -> bool:
    """Whether a request has not been taken yet. Raises RelayError."""
    found = _read(root)
    return found is not None and _same(found, request)


class Requests:
    """Takes the requests in a relay directory, for the publisher."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._next_look = 0.0
        self._reported = ""

    def waiting(self) -> CopyRequest | None:
        """The request that waits; None if there is none, or if it was looked for just now.

        What is no request is reported and removed. What cannot be read is reported and left.
        """
        now = time.monotonic()
        if now < self._next_look:
            return None
        self._next_look = now + _PAUSE
        text = None
        try:
            text = _read(self._root)
            return CopyRequest.decode(text) if text is not None else None
        except (*_INVALID, RelayError) as error:
            if str(error) != self._reported:
                log.error("copy_request_refused", file=str(self._root / REQUEST_NAME), reason=str(error))
                self._reported = str(error)
            if text is not None:
                self._remove(text)
            return None

    def taken(self, request: CopyRequest) -> None:
        """The log has what was asked for. Raises RelayError."""
        reached("copy.before_removal")
        if (text := _read(self._root)) is not None and _same(text, request):
            self._remove(text)

    def _remove(self, text: bytes) -> None:
        """Remove the file, unless it was replaced."""
        with files_locked(self._root), disk_errors(f"removing {REQUEST_NAME}"):
            if _read(self._root) == text:
                (self._root / REQUEST_NAME).unlink()


def _same(text: bytes, request: CopyRequest) -> bool:
    try:
        return CopyRequest.decode(text) == request
    except _INVALID:
        return False


def _read(root: Path) -> bytes | None:
    """The file's first bytes; None if there is none. Raises RelayError: TR302; TR306, it is no regular file."""
    path = root / REQUEST_NAME
    with disk_errors(f"reading {path.name}"):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return file.read(_MOST_BYTES)
    raise UnreadableFile("TR306", f"{path} is no regular file", hint="delete it")
