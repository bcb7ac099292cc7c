"""Writes the relay log: first the bytes, then fsync, then the metadata; then readers see them (or earlier, by `show`).

The order of one `sync`:
  1. fdatasync of the active file;
  2. relay.meta (at most every META_INTERVAL seconds, at rotation and at close);
  3. the tail, which lets readers, and so Kafka, see the bytes.

After a crash, and after a disk was full, the active file is truncated to relay.meta's position, which is a
transaction boundary, and later files are removed. The rest is fetched again and is identical byte for byte; a
reader that was already further waits.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from relay_store.check.verify import check_at_start
from relay_store.layout import directory as layout
from relay_store.layout.directory import DiskFull, RelayMeta, RelayPosition, StartPosition, disk_errors
from relay_store.layout.locks import files_locked
from relay_store.read.reader import RelayReader
from relay_store.read.tail import RelayTail
from schemas.access.private_files import make_folder
from schemas.binlog import framing
from schemas.binlog.framing import FIRST_POSITION, MAGIC
from schemas.crashpoints import reached
from schemas.errors import RelayError, Where
from schemas.gtid.sets import GtidSet

#: bytes kept free for metadata: a purge can only free a full disk if relay.meta, the readers' marks and the index
#: can be written
RESERVE = 256 << 10
META_INTERVAL = 0.2  # seconds between two writes of relay.meta while data flows

_PUT_BACK = "restore it, or move the relay directory away to fetch everything again"

_log = structlog.get_logger()


class RelayWriter:
    """The only writer of a relay directory, created by ``open``.

    Args:
        root: the relay directory.
        lock: the descriptor of the directory's lock, which is closed with the writer.
        clock: seconds, monotonic.
    """

    def __init__(self, root: Path, lock: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self.tail = RelayTail()
        self._lock = lock
        self._clock = clock
        self._fd = -1
        self._end = 0  # of the active file
        self._boundary = 0  # end of its last whole group
        self._offset = 0  # of the active file, when it is a part
        self._subdir = self._file = ""
        self._gtids: Callable[[], str] = str
        self._meta_written: RelayMeta | None = None
        self._meta_time = float("-inf")
        self.syncs = 0  # so far
        self._synced = ("", 0)  # the active file and its boundary as of the last fsync
        self._unsure = False  # whether an fsync failed; a later one may succeed although data was lost

    @classmethod
    def open(
        cls, root: Path, lock: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> RelayWriter:
        """Lock and check a relay directory, creating it if necessary, and recover it after a crash.

        Args:
            lock: the descriptor of ``create_and_lock`` if the caller already has the lock; closed on an error.

        Raises RelayError: TR301 another process writes here, TR302 an I/O error, TR320 the disk is full, and the
        codes of `relay_store.check.verify` when the relay log is damaged. After TR320, `recover` makes the writer
        usable again.
        """
        writer = cls(root, create_and_lock(root) if lock is None else lock, clock)
        try:
            check_at_start(root)
            with disk_errors("opening the relay directory"):
                for name in layout.read_index(root):
                    make_folder(root / name)
            writer.recover()
        except BaseException:
            os.close(writer._lock)
            raise
        return writer

    @property
    def position(self) -> RelayPosition | None:
        """The position of the next byte; None before the first file."""
        return RelayPosition(self._subdir, self._file, self._end) if self._file else None

    @property
    def subdir(self) -> str:
        """The active sub-directory; empty when there is none."""
        return self._subdir

    @property
    def boundary(self) -> int:
        """The end of the active file's last whole group."""
        return self._boundary

    @property
    def file_size(self) -> int:
        """Bytes of the active file."""
        return self._end

    @property
    def executed_gtids(self) -> str:
        """The GTID set of the whole groups in the relay log, as text."""
        return self._gtids()

    def track_gtids(self, gtids: Callable[[], str]) -> None:
        """Set the function that returns the GTID set at the last boundary, for relay.meta."""
        self._gtids = gtids

    def open_subdir(self, server_uuid: str) -> None:
        """Start the next sub-directory, for another server; `rotate` then creates its first file."""
        self.close_file()
        with files_locked(self.root):
            subdirs = layout.read_index(self.root)
            serial = layout.subdir_serial(subdirs[-1]) + 1 if subdirs else 1
            name = layout.subdir_name(server_uuid, serial)
            with disk_errors("creating a relay sub-directory", Where(file=name)):
                make_folder(self.root / name)
                layout.sync_dir(self.root)
            layout.write_index(self.root, [*subdirs, name])
        self._subdir, self._file, self._meta_written = name, "", None

    def write_start(self, start: StartPosition) -> None:
        """Store the position at which the first reader of this relay log starts; called once."""
        layout.write_start(self.root, start)

    def rotate(self, name: str) -> None:
        """Finish the active file and start `name` with the magic. Raises RelayError."""
        self._begin_file(name, MAGIC)

    def begin_part(self, gtids: GtidSet) -> bool:
        """Finish the active file between two groups, and continue in a part that can be read by itself.

        Args:
            gtids: all transactions executed before.

        Returns False, and does nothing, within a group or if the active part is still empty.
        """
        header = self._part_header(gtids)
        if self._end != self._boundary or self._end <= len(header):
            return False
        self._begin_file(layout.part_name(self._file, self._offset + self._end - len(header)), header)
        return True

    def _begin_file(self, name: str, header: bytes) -> None:
        self.close_file()
        with disk_errors("creating a relay file", Where(file=name)):
            path = self.root / self._subdir / name
            # Readers list the folder at any time, and must not find a file without its first bytes.
            new = path if path.exists() else layout.scratch(path)
            self._fd = os.open(new, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                layout.write_all(self._fd, header)
                os.ftruncate(self._fd, len(header))
                new.replace(path)
            except OSError:
                new.unlink()
                raise
            layout.sync_dir(path.parent)
        self._file, self._offset = name, layout.part_offset(name)
        self._end = self._boundary = len(header)
        self._sync(force_meta=True)

    def _part_header(self, gtids: GtidSet) -> bytes:
        reader = RelayReader(self.root, RelayPosition(self._subdir, self._file, FIRST_POSITION))
        description = reader.format_description()
        reader.close()
        has_checksum = framing.checksum_algorithm(description) == framing.CHECKSUM_CRC32
        end = FIRST_POSITION + len(description)
        described = framing.header(description)
        return MAGIC + description + framing.previous_gtids_event(gtids, described, end, has_checksum)

    def append(self, chunks: Sequence[bytes], boundary: int | None) -> None:
        """Write events at the end.

        Args:
            chunks: whole events, in order.
            boundary: the upstream's position after the last complete group, None if no group ended.
        """
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        with disk_errors("writing the relay log", self._where()):
            layout.ensure_free_space(self._fd, len(data) + RESERVE)
            view = memoryview(data)
            while view:
                written = os.write(self._fd, view)
                self._end += written
                view = view[written:]
        if boundary is not None:
            self._boundary = boundary - self._offset

    def cut_back(self) -> None:
        """Remove an incomplete group, for example after a lost connection; it will be fetched again."""
        if self._fd >= 0 and self._end > self._boundary:
            with disk_errors("truncating the relay log", self._where()):
                os.ftruncate(self._fd, self._boundary)
                os.lseek(self._fd, self._boundary, os.SEEK_SET)
            self._end = self._boundary

    def sync(self) -> None:
        """Put the appended data on disk and make its complete groups visible to readers."""
        if self._fd >= 0:
            self._sync(force_meta=False)

    def show(self) -> None:
        """Make the complete groups visible to readers; the operating system decides when they reach the disk."""
        self.tail.advance(RelayPosition(self._subdir, self._file, self._boundary), durable=False)

    def flush_meta(self) -> None:
        """Write relay.meta if it is out of date; called when idle."""
        is_durable = self._synced == (self._file, self._boundary)
        if self._file and is_durable and self._clock() - self._meta_time >= META_INTERVAL:
            self._write_meta()

    def close_file(self) -> None:
        """Sync and close the active file; a group that the upstream left open there ends with it."""
        if self._fd < 0:
            return
        self._boundary = self._end
        self._sync(force_meta=True)
        self._close_fd()

    def close(self) -> None:
        """Sync up to the last complete group and release the directory."""
        try:
            if self._fd >= 0 and not self._unsure:
                self._sync(force_meta=True)
        except DiskFull as error:
            _log.warning("relay_meta_not_written", error=str(error))  # the next start fetches a little again
        finally:
            self._close_fd()
            os.close(self._lock)
            self.tail.close()

    def _sync(self, force_meta: bool) -> None:
        reached("relay.before_fsync")
        self._unsure = True
        with disk_errors("fsync of the relay log", self._where()):
            os.fdatasync(self._fd)
        self._unsure, self._synced = False, (self._file, self._boundary)
        self.syncs += 1
        reached("relay.after_fsync")
        if force_meta or self._clock() - self._meta_time >= META_INTERVAL:
            self._write_meta()
        self.tail.advance(RelayPosition(self._subdir, self._file, self._boundary))

    def _write_meta(self) -> None:
        """Write relay.meta. Called only when the bytes before the boundary are on disk."""
        upstream = RelayPosition(self._subdir, self._file, self._boundary).upstream
        last = self._meta_written
        if last is not None and (last.file, last.pos) == upstream:
            return
        reached("relay.before_meta")
        meta = RelayMeta(*upstream, self._gtids())
        layout.write_meta(self.root / self._subdir, meta)
        reached("relay.after_meta")
        self._meta_written, self._meta_time = meta, self._clock()

    def _where(self) -> Where:
        return Where(file=f"{self._subdir}/{self._file}", position=self._end)

    def _close_fd(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def recover(self) -> None:
        """Truncate the relay log to relay.meta's position, from any state. Raises RelayError."""
        self._close_fd()
        self._subdir = self._file = ""
        self._end = self._boundary = self._offset = 0
        self._meta_written, self._unsure = None, False
        subdirs = layout.read_index(self.root)
        if not subdirs:
            self._gtids = str
            return
        self._subdir = subdirs[-1]
        folder = self.root / self._subdir
        if not folder.is_dir():
            raise RelayError("TR303", f"the relay sub-directory {self._subdir} is missing", hint=_PUT_BACK)
        meta = layout.read_meta(folder)
        here = layout.find_upstream_position(self.root, self._subdir, meta.file, meta.pos) if meta else None
        kept = layout.file_order(here.file if here else meta.file) if meta else (-1, 0)
        with disk_errors("removing files after relay.meta's position", Where(file=self._subdir)):
            for name in layout.binlog_files(folder):
                if layout.file_order(name) > kept:
                    (folder / name).unlink()
        if meta is None:
            # The producer died before the first file of this sub-directory was complete: use an earlier relay.meta.
            metas = [layout.read_meta(self.root / name) for name in reversed(subdirs)]
            gtids = next((m.gtid_set for m in metas if m), "")
            self._gtids = lambda: gtids
            return
        here = here or RelayPosition(self._subdir, meta.file, meta.pos)
        self._file, self._offset = here.file, layout.part_offset(here.file)
        self._gtids, self._meta_written = lambda: meta.gtid_set, meta
        self._cut(folder / here.file, here.pos)
        self.tail.advance(RelayPosition(self._subdir, self._file, self._end))

    def _cut(self, path: Path, pos: int) -> None:
        where = Where(file=f"{self._subdir}/{path.name}", position=pos)
        with disk_errors("opening the relay log", where):
            try:
                self._fd = os.open(path, os.O_WRONLY | os.O_APPEND)
            except FileNotFoundError as error:
                raise RelayError(
                    "TR303", "the active relay file is missing", where=where, hint=_PUT_BACK
                ) from error
            size = os.fstat(self._fd).st_size
            if size < pos:
                hint = "the disk lost synced data: move the relay directory away to fetch everything again"
                raise RelayError("TR304", f"the relay file has only {size} bytes", where=where, hint=hint)
            os.ftruncate(self._fd, pos)
            os.fdatasync(self._fd)
        if size > pos:
            _log.info("relay_tail_cut", file=path.name, position=pos, bytes=size - pos)
        self._end = self._boundary = pos


def create_and_lock(root: Path) -> int:
    """Create a relay directory if it does not exist, and lock it as ``lock_directory`` does. Raises RelayError."""
    with disk_errors("creating the relay directory"):
        others = make_folder(root, chosen=True)
    if others:
        _log.warning("folder_open_to_others", folder=str(root), others_may=others)
    return lock_directory(root)


def lock_directory(root: Path) -> int:
    """Lock the directory against other writers until the returned descriptor is closed.

    Raises RelayError, and TailraceError TR191 if a newer release has written the directory.
    """
    layout.read_owner(root)
    with disk_errors("locking the relay directory"):
        fd = os.open(root / layout.LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        hint = "only one producer can use a relay directory: stop the other one, or set another relay.dir"
        what = f"{root} is in use by another process"
        raise RelayError("TR301", what, hint=hint, another_start=True) from error
    return fd
