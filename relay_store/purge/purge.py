"""Deletes relay files that are no longer needed, oldest first, up to the first file that must stay.

Whatever the rules are, a file stays while the mirror may write to it, while the publisher or another registered
reader still needs it, and while any process has it open for reading.

The order on disk, which allows for a crash at any point:
  1. the files, one by one, each with its directory synced;
  2. a sub-directory without files is removed from the index;
  3. only then the sub-directory itself is removed.
So a crash leaves a shorter relay log, at most with an empty sub-directory, which the next purge removes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import Field

from relay_store.layout import directory as layout
from relay_store.layout.directory import DiskFull, RelayPosition, disk_errors
from relay_store.layout.inventory import RelayFile, relay_files
from relay_store.layout.locks import files_locked
from relay_store.layout.readers import PUBLISHER, Reader, read_readers
from schemas.binlog.framing import FIRST_POSITION
from schemas.crashpoints import reached
from schemas.errors import RelayError, Where

GB = 1 << 30

_log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class PurgeRules:
    """The fields of ``[purge]``. A file that may be deleted is deleted if any of the rules applies to it."""

    interval: Annotated[
        int, Field(ge=0, description="seconds between two purges in the background; 0: only on a full disk")
    ] = 3600
    expires: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="delete files that were last updated this many hours ago; 0: no such rule",
        ),
    ] = 0
    remain_space: Annotated[
        float,
        Field(
            ge=0,
            allow_inf_nan=False,
            description="delete the oldest files to keep this many GB (2^30 bytes) free on the disk; 0: no such rule",
        ),
    ] = 15
    passed: Annotated[
        bool,
        Field(
            description="delete a file as soon as the publisher, all channels and other readers have passed it"
        ),
    ] = False

    def not_due(self, file: RelayFile, now: float, free: int) -> str:
        """Return why a file is kept, or "" to delete it; ``free`` in bytes, ``now`` in seconds since 1970."""
        hours = (now - file.updated) / 3600
        expired = 0 < self.expires < hours
        if self.passed or expired or free < self.remain_space * GB:
            return ""
        reasons = [f"{free / GB:.1f} GB are free"] if self.remain_space else []
        if self.expires:
            reasons.append(f"it was updated {hours:.1f} hours ago")
        return " and ".join(reasons) or "no rule is switched on"


@dataclass(frozen=True)
class Before:
    """The rule of a manual purge: all files before `file`, which exists."""

    file: RelayFile

    def not_due(self, file: RelayFile, now: float, free: int) -> str:
        return (
            ""
            if file.start.order < self.file.start.order
            else f"only files before {self.file} are to be deleted"
        )


@dataclass(frozen=True)
class RelayState:
    """The state of a relay log, from which ``decide`` works.

    Attributes:
        subdirs: the index, oldest first.
        files: all files of the sub-directories, oldest first.
        active: the oldest file that the mirror may still write to.
        readers: the registered and the expected readers.
        free: free bytes on the disk.
    """

    subdirs: tuple[str, ...]
    files: tuple[RelayFile, ...]
    active: RelayPosition | None
    readers: tuple[Reader, ...]
    free: int


@dataclass(frozen=True)
class Decision:
    """The files to delete, and why no more.

    Attributes:
        delete: oldest first; all of them are older than the files that stay.
        kept: the oldest file that stays.
        why: why it stays.
        blocked: whether a rule applies to it, but it is still needed.
    """

    delete: tuple[RelayFile, ...]
    kept: RelayFile | None
    why: str
    blocked: bool = False


@dataclass(frozen=True)
class PurgeReport:
    """The result of a purge; for a dry run, the result it would have had."""

    deleted: tuple[RelayFile, ...]
    removed_subdirs: tuple[str, ...]
    kept: RelayFile | None
    why: str
    blocked: bool

    @property
    def bytes(self) -> int:
        """The total size of the deleted files."""
        return sum(file.size for file in self.deleted)


def look(root: Path, awaited: Iterable[str] = ()) -> RelayState:
    """Read the current state, including expected readers. Raises RelayError if it is inconsistent."""
    subdirs = layout.read_index(root)
    files = relay_files(root, subdirs)
    active = _active(root, subdirs[-1], files) if subdirs else None
    with disk_errors("asking for free space"):
        free = shutil.disk_usage(root).free
    return RelayState(tuple(subdirs), tuple(files), active, tuple(read_readers(root, awaited)), free)


def _active(root: Path, subdir: str, files: list[RelayFile]) -> RelayPosition | None:
    """Return the start of the file with relay.meta's position; the writer may truncate or rewrite what follows."""
    names = [file.name for file in files if file.subdir == subdir]
    meta = layout.read_meta(root / subdir)
    if meta is None:
        return RelayPosition(subdir, names[0], FIRST_POSITION) if names else None
    here = layout.find_upstream_position(root, subdir, meta.file, meta.pos)
    return RelayPosition(subdir, here.file if here else meta.file, FIRST_POSITION)


def find_file(state: RelayState, name: str, subdir: str | None = None) -> RelayFile:
    """Find a file by name, in the last sub-directory unless `subdir` is given. Raises RelayError."""
    if not state.subdirs:
        raise RelayError("TR322", "there is no relay log")
    subdir = subdir or state.subdirs[-1]
    if subdir not in state.subdirs:
        hint = f"the index has {', '.join(state.subdirs)}"
        raise RelayError("TR322", f"there is no sub-directory {subdir}", hint=hint)
    files = [file for file in state.files if file.subdir == subdir]
    for file in files:
        if file.name == name:
            return file
    hint = f"it has {files[0].name} to {files[-1].name}" if files else "it has no files"
    raise RelayError("TR322", f"there is no file {name} in {subdir}", hint=hint)


def decide(state: RelayState, rule: PurgeRules | Before, now: float) -> Decision:
    """Choose the files to delete by `rule`, up to the first that must stay; ``now`` in seconds since 1970."""
    delete: list[RelayFile] = []
    free = state.free
    for file in state.files:
        if why := rule.not_due(file, now, free):
            return Decision(tuple(delete), file, why)
        if why := _protected(state, file):
            return Decision(tuple(delete), file, why, blocked=True)
        delete.append(file)
        free += file.size
    return Decision(tuple(delete), None, "no file is left")


def _protected(state: RelayState, file: RelayFile) -> str:
    """Return why a file must stay, or "" if it may be deleted."""
    if state.active is not None and file.start.order >= state.active.order:
        return "the mirror writes to it"
    if all(reader.name != PUBLISHER for reader in state.readers):
        return "nothing has been published yet: the publisher is not registered"
    needing = [
        reader.name if reader.updated is not None else f"{reader.name}, which has not started yet"
        for reader in state.readers
        if _needs(state, reader.position, file)
    ]
    return f"needed by {', '.join(needing)}" if needing else ""


def _needs(state: RelayState, mark: RelayPosition, file: RelayFile) -> bool:
    first = RelayPosition(mark.subdir, mark.file, FIRST_POSITION)
    # A position in an unknown sub-directory is older than all files, or belongs to another relay log.
    if mark.subdir not in state.subdirs or file.start.order >= first.order:
        return True
    # A relay log that was fetched again may be split at other offsets: an earlier part may contain the mark.
    name, position = mark.upstream
    their_name, end = RelayPosition(file.subdir, file.name, file.size).upstream
    return (file.subdir, their_name) == (mark.subdir, name) and end >= position


def purge(
    root: Path,
    rule: PurgeRules | tuple[str, str | None],
    *,
    dry_run: bool = False,
    awaited: Iterable[str] = (),
    clock: Callable[[], float] = time.time,
) -> PurgeReport:
    """Delete files by a rule, if no reader needs them, with or without a running producer.

    Args:
        root: the relay directory.
        rule: the automatic rules, or file name and sub-directory (None: the last) of a manual purge, which
            deletes all files before it.
        dry_run: delete nothing.
        awaited: names of expected readers; one that has not registered yet needs all files.
        clock: seconds since 1970.

    Raises RelayError: TR322 the file does not exist; TR302, TR306 or TR307 the relay log cannot be read or
    changed. Files deleted before the error were not needed.
    """
    with files_locked(root):
        state = look(root, awaited)
        wanted = rule if isinstance(rule, PurgeRules) else Before(find_file(state, *rule))
        decision = decide(state, wanted, clock())
        deleted: list[RelayFile] = []
        kept, why, blocked = decision.kept, decision.why, decision.blocked
        for file in decision.delete:
            if not _delete(root, file, dry_run):
                kept, why, blocked = file, "a process is reading it", True
                break
            deleted.append(file)
        removed = _remove_subdirs(root, state, deleted, dry_run)
    return PurgeReport(tuple(deleted), tuple(removed), kept, why, blocked)


def _delete(root: Path, file: RelayFile, dry_run: bool) -> bool:
    """Delete one file unless a process is reading it."""
    path = root / file.subdir / file.name
    with disk_errors("purging a relay file", Where(file=str(file))):
        fd = os.open(path, os.O_RDWR)  # nothing is written: an exclusive lock needs O_RDWR on NFS
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if dry_run:
                return True
            path.unlink()
            layout.sync_dir(path.parent)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
    reached("purge.after_unlink")
    _log.info("relay_file_purged", file=str(file), bytes=file.size)
    return True


def _remove_subdirs(root: Path, state: RelayState, deleted: list[RelayFile], dry_run: bool) -> list[str]:
    """Remove the oldest sub-directories that have no files any more, and those that a crash left behind."""
    left = {file.subdir for file in state.files[len(deleted) :]}
    # Until the last one has its own relay.meta, the GTID set is in the relay.meta before it.
    with_meta = [name for name in state.subdirs if layout.read_meta(root / name)]
    gone: list[str] = []
    for name in state.subdirs[:-1]:
        if name in left or name in with_meta[-1:]:
            break
        gone.append(name)
    if dry_run:
        return gone
    try:
        if gone:
            layout.write_index(root, list(state.subdirs[len(gone) :]))
            reached("purge.after_index")
    except DiskFull as error:
        _log.warning("empty_subdirs_kept", reason=str(error))
        return []
    for name in _without_entry(root):
        _remove_folder(root / name)
    return gone


def _without_entry(root: Path) -> list[str]:
    """Sub-directories that are older than the index and hold no relay files."""
    subdirs = layout.read_index(root)
    if not subdirs:
        return []
    first = layout.subdir_serial(subdirs[0])
    found = []
    with disk_errors("listing the relay directory"):
        for entry in root.iterdir():
            if (
                layout.is_subdir_name(entry.name)
                and entry.is_dir()
                and layout.subdir_serial(entry.name) < first
            ):
                found.append(entry.name)
    return sorted(name for name in found if not layout.binlog_files(root / name))


def _remove_folder(folder: Path) -> None:
    with disk_errors("removing a relay sub-directory", Where(file=folder.name)):
        (folder / layout.META_NAME).unlink(missing_ok=True)
        reached("purge.after_meta")
        if any(folder.iterdir()):
            _log.warning(
                "relay_subdir_not_empty",
                subdir=folder.name,
                hint="it contains files that Tailrace did not create",
            )
            return
        folder.rmdir()
        layout.sync_dir(folder.parent)
    _log.info("relay_subdir_removed", subdir=folder.name)
