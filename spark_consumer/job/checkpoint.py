"""Spark's checkpoint. It is only a cache of the position, and is replaced if it does not match."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from schemas.access.private_files import make_folder, opener
from schemas.errors import DownstreamError, LogError
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import LoggedEpoch
from spark_consumer.epochs.tracker import STATE_VERSION

_log = structlog.get_logger()


@contextmanager
def in_use(folder: Path, *, alone: bool = False) -> Iterator[None]:
    """Lock a channel's folder: a consumer shares the lock, and ``alone`` is for removing the channel.

    Raises:
        DownstreamError: TR614, a consumer on this machine is using it.
        LogError: TR564, it cannot be written.
    """
    with _written(folder):
        make_folder(folder)
        lock = opener(str(folder / "lock"), os.O_WRONLY | os.O_CREAT)
    with os.fdopen(lock, "w") as file:
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except OSError as error:
            what = "a consumer of this channel is running" if alone else "the channel is being reset"
            raise DownstreamError(
                "TR614",
                f"{what}: {folder} is in use",
                hint="stop it, or wait until it ends, and retry",
                another_start=True,
            ) from error
        yield


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LogError(
            "TR564",
            f"the checkpoint folder {folder} cannot be written: {error.strerror}",
            hint="[consumer] checkpoint-dir must be writable and have free space; its contents are only a cache",
            another_start=True,
        ) from error


def clear(folder: Path) -> None:
    """Delete the contents of a channel's folder, which the caller has locked ``alone``."""
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != "lock":
            entry.unlink()


@dataclass(frozen=True)
class CheckpointOwner:
    """The owner of a checkpoint: a channel of one downstream (its ledger's UUID) that follows one log.

    Attributes:
        state_version: the version of the tracker's state in it; see ``spark_consumer.epochs.tracker``.
    """

    channel: str
    prefix: str
    ledger_uuid: str
    state_version: int = STATE_VERSION


class Checkpoint:
    """The folder ``spark`` in the channel's folder, with ``owner.json`` beside it."""

    def __init__(self, folder: Path, owner: CheckpointOwner) -> None:
        self._folder = folder.absolute()
        self._owner = owner

    @property
    def path(self) -> Path:
        return self._folder / "spark"

    @property
    def _owner_file(self) -> Path:
        return self._folder / "owner.json"

    def ready(self, position: Position, log: LogReader) -> bool:
        """Prepare the folder. Returns True if the query can continue from it, False if it is new.

        Raises:
            LogError: TR564, it cannot be written.
        """
        if self.path.exists() and (reason := self._unusable(position, log)):
            self.set_aside(reason)
        with _written(self._folder):
            make_folder(self._folder)
            kept = self.path.exists()
            with open(self._owner_file, "w", opener=opener) as file:
                file.write(json.dumps(asdict(self._owner)))
        return kept

    def set_aside(self, reason: str) -> None:
        """Rename the checkpoint, so that a new one is made from the downstream's position."""
        for older in self._folder.glob("spark.aside-*"):
            shutil.rmtree(older, ignore_errors=True) if older.is_dir() else older.unlink(missing_ok=True)
        aside = self._folder / f"spark.aside-{int(time.time())}"
        with _written(self._folder):
            self.path.rename(aside)
        _log.warning("checkpoint_set_aside", reason=reason, kept_as=str(aside))

    def _unusable(self, position: Position, log: LogReader) -> str:
        try:
            found, owner = dict(json.loads(self._owner_file.read_text())), asdict(self._owner)
            if found != owner:
                # A file without a version is of version 1.
                state = found.pop("state_version", 1)
                if state != owner.pop("state_version") and found == owner:
                    return f"its state version is {state}; this release needs {STATE_VERSION}"
                return "it belongs to another channel, downstream or log"
            end = self._committed_end()
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            return f"it is damaged: {error}"
        low, _ = log.bounds()
        if end is None:
            return "it has no finished batch"
        if end < low:
            return "it is older than the first epoch in the log"
        if end > position.epochs_offset + 1 and self._holds_epochs(log, position.epochs_offset + 1, end):
            return f"it is ahead of the downstream, whose position is epoch {position.epoch}"
        return ""

    def _committed_end(self) -> int | None:
        """Return the offset of the epochs topic at which the last finished batch ended."""
        done = [int(file.name) for file in (self.path / "commits").iterdir() if file.name.isdigit()]
        if not done:
            return None
        lines = (self.path / "offsets" / str(max(done))).read_text().splitlines()
        [(topic, ends)] = json.loads(lines[-1]).items()
        if topic != f"{self._owner.prefix}.epochs":
            raise ValueError(f"it follows topic {topic}")
        return int(ends["0"])

    @staticmethod
    def _holds_epochs(log: LogReader, start: int, end: int) -> bool:
        # Transaction markers may be between the last epoch and the batch's end, so only a record counts.
        low, _ = log.bounds()
        return any(logged.offset < end for logged in _first(log, max(start, low)))


def _first(log: LogReader, start: int) -> list[LoggedEpoch]:
    for logged in log.epochs(start):
        return [logged]
    return []
