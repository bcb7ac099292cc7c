"""The commit protocol of a folder of change files. The atomic replacement of one small file is the commit.

1. A batch's files are written into ``_tailrace/staged`` and fsynced.
2. ``_tailrace/position.json`` is replaced; it has the new position and the names of those files. This is the commit.
3. The files are moved to their final folders, and the folders are fsynced.

The next process that opens the folder completes step 3 for the files in ``position.json``, and deletes all other staged
files. So ``<schema>/<table>/*.parquet`` are committed files only.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from schemas.access.private_files import make_folder, opener
from schemas.crashpoints import reached
from schemas.errors import DownstreamError
from schemas.state_format import refuse_newer

METADATA_DIR = "_tailrace"
PAUSE_NAME = "paused"
#: the version of the folder's format, in the position file
FORMAT = 1
_FULL = (errno.ENOSPC, errno.EDQUOT)
_log = structlog.get_logger()


class Folder:
    """One channel's folder, locked by one process at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock: int | None = None

    @property
    def _ours(self) -> Path:
        return self.root / METADATA_DIR

    @property
    def _staged(self) -> Path:
        return self._ours / "staged"

    def open(self) -> None:
        """Create and lock the folder, and complete or undo an interrupted commit.

        Raises DownstreamError: TR681, another process has locked it; TR680, the file system refuses.
        """
        with refused(self.root):
            if others := make_folder(self.root, chosen=True):
                _log.warning("folder_open_to_others", folder=str(self.root), others_may=others)
            make_folder(self._ours)
            make_folder(self._staged)
            lock = opener(str(self._ours / "lock"), os.O_WRONLY | os.O_CREAT)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(lock)
                raise DownstreamError(
                    "TR681",
                    f"another process writes to {self.root}",
                    hint="each channel needs a folder of its own, and one consumer",
                    another_start=True,
                ) from error
            self._lock = lock
            found = read(self.root)
            self._publish(found["files"] if found else {})
            for leftover in self._staged.iterdir():
                leftover.unlink()

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def staging(self, number: int) -> Iterator[Path]:
        """Create a file of the current batch; it is written in the block, and fsynced at its end."""
        path = self._staged / str(number)
        with refused(self.root):
            yield path
            path.chmod(0o600)
            _sync(path)

    def commit(self, content: Mapping[str, Any], files: Mapping[str, str]) -> None:
        """Write this content into the position file, and publish the staged files.

        Args:
            files: number of each staged file, and its name in the folder.
        """
        with refused(self.root):
            _sync(self._staged)
            scratch = self._ours / "position.json.new"
            with open(scratch, "w", opener=opener, encoding="utf-8") as file:
                written = {**content, "format": FORMAT, "files": dict(files)}
                file.write(json.dumps(written, indent=1, ensure_ascii=False))
            _sync(scratch)
            reached("apply.before_commit")
            scratch.rename(self._ours / "position.json")
            _sync(self._ours)
            reached("apply.after_commit")
            self._publish(files)

    def _publish(self, files: Mapping[str, str]) -> None:
        folders: set[Path] = set()
        for staged, name in files.items():
            source, target = self._staged / staged, self.root / name
            if source.exists():
                for folder in reversed(target.relative_to(self.root).parents):
                    if not (self.root / folder).is_dir():
                        make_folder(self.root / folder)
                        folders.add((self.root / folder).parent)
                source.rename(target)
                folders.add(target.parent)
            elif not target.exists():
                raise DownstreamError(
                    "TR682",
                    f"a committed file is missing: {target}",
                    hint="restore the folder from a copy, or replay the channel into another one",
                )
        for folder in folders:
            _sync(folder)


def read(root: Path) -> dict[str, Any] | None:
    """Return the position file's content; None if there is no such file.

    Raises DownstreamError TR680 or TR682, and TailraceError TR191 if a newer release has written it.
    """
    path = root / METADATA_DIR / "position.json"
    try:
        content = _checked(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refusal(root, error) from error
    except (ValueError, RecursionError) as error:
        raise DownstreamError(
            "TR682", f"{path} cannot be read: {error}", hint="restore the folder from a copy"
        ) from error
    refuse_newer(f"the folder of change files {root}", content["format"], FORMAT)
    return content


def paused_since(root: Path) -> str | None:
    """Return since when an operator has paused the folder's channel, in UTC; None if it is not paused."""
    path = root / METADATA_DIR / PAUSE_NAME
    with refused(root):
        try:
            return _moment(path.stat().st_mtime)
        except FileNotFoundError:
            return None


def set_pause(root: Path, paused: bool) -> None:
    """Pause or resume the folder's channel: an empty file says that it is paused, and its time since when."""
    path = root / METADATA_DIR / PAUSE_NAME
    with refused(root):
        if not paused:
            path.unlink(missing_ok=True)
        elif not path.exists():
            os.close(opener(str(path), os.O_WRONLY | os.O_CREAT))
        _sync(path.parent)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def refuse_without_position(root: Path) -> None:
    """For a folder without a position file: raise DownstreamError TR682 if a channel has written to it."""
    with refused(root):
        written = next((root / METADATA_DIR).glob("batches/*.json"), None)
    if written is not None:
        raise DownstreamError(
            "TR682",
            f"{root / METADATA_DIR / 'position.json'} is missing although the folder has data:"
            " the channel's position is unknown",
            hint="restore the folder from a copy, or empty it: the channel then starts over with its --from",
        )


def _checked(content: Any) -> dict[str, Any]:
    """Return the content if it is valid, because its names become paths. Raises ValueError."""
    if not isinstance(content, dict) or not isinstance(files := content.get("files"), dict):
        raise ValueError("it is not a position")
    for number, name in files.items():
        if not (number.isdecimal() and isinstance(name, str) and name and not _leads_out(Path(name))):
            raise ValueError(f"it names the file {number[:40]!r}: {str(name)[:100]!r}")
    if not isinstance(content.setdefault("format", 1), int):
        raise ValueError("its format is no number")
    return content


def _leads_out(name: Path) -> bool:
    return name.is_absolute() or ".." in name.parts


@contextmanager
def refused(root: Path) -> Iterator[None]:
    """Translate OSError into a DownstreamError."""
    try:
        yield
    except OSError as error:
        raise _refusal(root, error) from error


def _refusal(root: Path, error: OSError) -> DownstreamError:
    full = error.errno in _FULL
    return DownstreamError(
        "TR680",
        f"{'the disk is full' if full else 'the file system refuses'}: {error}",
        hint=f"make room for {root}" if full else f"check the permissions of {error.filename or root}",
        retryable=full,
        another_start=True,
    )


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def directory_name(name: str) -> str:
    """Return a folder's name for a schema or table: readers of data folders ignore names that start with _ or a dot."""
    return re.sub(r"[/%\x00-\x1f\x7f]|^[_.]", lambda match: f"%{ord(match[0]):02X}", name)
