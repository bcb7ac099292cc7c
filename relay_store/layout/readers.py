"""Registered readers of a relay log: the positions from which they still need it.

<relay directory>/readers/<name>.toml   subdir, binlog-name, binlog-pos

A purge never deletes a file that a registered reader needs, whether or not the reader is running. With its mark a
reader promises not to read anything before it. A mark that is too old is always safe, one that is too new is not.
"""

from __future__ import annotations

import os
import re
import time
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from relay_store.layout import directory as layout
from relay_store.layout.directory import DiskFull, RelayPosition, UnreadableFile, disk_errors
from relay_store.layout.locks import files_locked
from schemas.access.private_files import make_folder
from schemas.binlog.framing import FIRST_POSITION
from schemas.errors import RelayError, Where

READERS_NAME = "readers"
PUBLISHER = "publisher"
MARK_INTERVAL = 1.0  # seconds between two writes of a mark that moves

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_SUFFIX = ".toml"
_log = structlog.get_logger()


@dataclass(frozen=True)
class Reader:
    """One registered reader.

    Attributes:
        updated: when the mark was written, seconds since 1970; None for a reader that is expected but has not
            registered yet.
    """

    name: str
    position: RelayPosition
    updated: float | None


def channel_reader(channel: str) -> str:
    """Return the name under which a consumer's channel is registered."""
    return f"channel-{channel}"


def read_readers(root: Path, awaited: Iterable[str] = ()) -> list[Reader]:
    """Read the registered readers, sorted by name. Raises RelayError if a mark cannot be read.

    Args:
        awaited: names of expected readers; one that has not registered yet needs all files.
    """
    with disk_errors("reading the marks of the relay log's readers"):
        paths = [p for p in (root / READERS_NAME).glob(f"*{_SUFFIX}") if not p.name.startswith(".")]
    found = {reader.name: reader for reader in map(_read, paths) if reader is not None}
    if (oldest := layout.oldest_file(root)) is not None:
        found = {name: Reader(name, oldest, None) for name in awaited} | found
    return sorted(found.values(), key=lambda reader: reader.name)


def register(root: Path, name: str, position: RelayPosition) -> None:
    """Set a reader's mark, forwards or backwards, after waiting for a running purge. Raises RelayError."""
    with files_locked(root):
        _write(root, name, position)


def forget(root: Path, name: str) -> bool:
    """Remove a reader permanently. Returns False if it is not registered. Raises RelayError."""
    path = _path(root, name)
    with files_locked(root), disk_errors("removing a reader", Where(file=path.name)):
        if not path.exists():
            return False
        path.unlink()
        layout.sync_dir(path.parent)
    return True


class Mark:
    """A running reader's mark, moved at most about once a second.

    Args:
        root: the relay directory.
        name: of the reader.
        clock: seconds, monotonic.
    """

    def __init__(self, root: Path, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._name, self._clock = root, name, clock
        self._position: RelayPosition | None = None
        self._written: RelayPosition | None = None
        self._next_write = float("-inf")

    def begin(self, position: RelayPosition) -> None:
        """Register before the first read, while the files are locked. Raises RelayError.

        If the disk is too full for a first mark, the next `advance` tries again.
        """
        self._position, self._written = position, None
        self._next_write = self._clock() + MARK_INTERVAL
        try:
            _write(self._root, self._name, position)
        except DiskFull as error:
            if _path(self._root, self._name).exists():
                raise
            _log.warning("reader_mark_not_written", reader=self._name, error=str(error))
            return
        self._written = position

    def advance(self, position: RelayPosition) -> None:
        """Promise not to read anything before `position` again. Raises RelayError unless the disk is full."""
        self._position = position
        self.keep_up()

    def keep_up(self) -> None:
        """Write a mark that `advance` deferred, once it is due; called when idle. Raises like `advance`."""
        if self._clock() >= self._next_write:
            self.flush()

    def flush(self) -> None:
        """Write the mark if it has moved. On a full disk the old mark stays, which only keeps more files."""
        if self._position is None or self._position == self._written:
            return
        self._next_write = self._clock() + MARK_INTERVAL
        try:
            self._write(self._position)
        except DiskFull as error:
            _log.warning("reader_mark_not_written", reader=self._name, error=str(error))
        else:
            self._written = self._position

    def _write(self, position: RelayPosition) -> None:
        try:
            _write_new(self._root, self._name, position)
        except DiskFull:
            register(self._root, self._name, position)


def _path(root: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        hint = "a name has at most 100 letters, digits, _, . and -; `tailrace relay readers` lists the names"
        raise UnreadableFile("TR306", f"{name!r} is not a valid name of a reader", hint=hint)
    return root / READERS_NAME / f"{name}{_SUFFIX}"


def _read(path: Path) -> Reader | None:
    with disk_errors("reading a reader's mark", Where(file=path.name)):
        try:
            text, updated = path.read_text(), path.stat().st_mtime
        except FileNotFoundError:  # forgotten just now
            return None
    try:
        fields = tomllib.loads(text)
        position = RelayPosition(fields["subdir"], fields["binlog-name"], fields["binlog-pos"])
        if type(position.pos) is not int or position.order[-1] < FIRST_POSITION:
            raise ValueError("binlog-pos is out of range")
    except (RelayError, ValueError, KeyError, TypeError, RecursionError) as error:
        hint = "nothing is purged until the file is valid: start that reader again, or remove it"
        raise UnreadableFile("TR306", f"{path} cannot be read: {error}", hint=hint) from error
    return Reader(path.name.removesuffix(_SUFFIX), position, updated)


def _write(root: Path, name: str, position: RelayPosition) -> None:
    """Write a mark while the files are locked, in place if the disk has no room for a new file."""
    try:
        _write_new(root, name, position)
    except DiskFull:
        path = _path(root, name)
        if not path.exists():
            raise
        # An old mark may be all that prevents the purge that would free the disk. The text is far shorter
        # than a sector, purges read it under the lock, and an invalid mark stops them.
        with disk_errors("writing a reader's mark", Where(file=path.name)):
            fd = os.open(path, os.O_WRONLY)
            try:
                layout.write_all(fd, _text(position).ljust(os.fstat(fd).st_size, "\n").encode())
                os.fsync(fd)
            finally:
                os.close(fd)


def _write_new(root: Path, name: str, position: RelayPosition) -> None:
    path = _path(root, name)
    with disk_errors("writing a reader's mark", Where(file=path.name)):
        if not path.parent.is_dir():
            make_folder(path.parent)
            layout.sync_dir(root)
        layout.write_atomically(path, _text(position))


def _text(position: RelayPosition) -> str:
    return f'subdir = "{position.subdir}"\nbinlog-name = "{position.file}"\nbinlog-pos = {position.pos}\n'
