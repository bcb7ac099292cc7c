"""Names and metadata of the relay directory.

relay.lock                        locked by the producer that writes here
purge.lock                        locked while files are purged or a sub-directory is added
owner.toml                        the Kafka prefix this relay log is published to, the id of that log, and the format
start.toml                        start position of this relay log and its reason; kept when that file is purged
lower-case-names                  exists if the upstream has all names in lower case
default-engine                    default_storage_engine of the upstream, if known
recovered.toml                    positions at which an epoch must end (``epoch_ends.py``)
copy-request.json                 copies that an operator asks for, until the publisher takes the request
readers/<name>.toml               position from which a registered reader still needs files
server-uuid.index                 one sub-directory per line, oldest first
<server-uuid>.000001/relay.meta   TOML: binlog-name, binlog-pos, binlog-gtid
<server-uuid>.000001/mysql-bin.000001 …

A file larger than `max-file-size` is kept in parts. The first has the upstream's name. The name of a later one ends
in `+N`, and its offset p is offset p + N of the upstream's file. Each part starts like a binlog file of its own:
magic, FORMAT_DESCRIPTION, PREVIOUS_GTIDS (MariaDB: GTID_LIST).
"""

from __future__ import annotations

import errno
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from schemas import names
from schemas.binlog.framing import FIRST_POSITION
from schemas.errors import NOWHERE, RelayError, Where
from schemas.gtid.sets import Flavor, GtidSet, parse_gtid_set
from schemas.names import UnfitName
from schemas.state_format import refuse_newer

INDEX_NAME = "server-uuid.index"
META_NAME = "relay.meta"
START_NAME = "start.toml"
OWNER_NAME = "owner.toml"
LOCK_NAME = "relay.lock"
LOWER_CASE_NAME = "lower-case-names"
ENGINE_NAME = "default-engine"

#: the version of the relay directory's format, in owner.toml
FORMAT = 1

_FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskError(RelayError):
    """TR302: the disk or its permissions; another try may find them repaired."""


class DiskFull(DiskError):
    """TR320: a full disk or quota. The writer retries until there is space."""


class UnreadableFile(RelayError):
    """TR306: a name in the relay directory, or what a metadata file says, is not one of ours."""


@dataclass(frozen=True)
class RelayPosition:
    """An offset in one file of one sub-directory; ordered by age."""

    subdir: str
    file: str
    pos: int

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Comparable with other positions of the same relay directory."""
        return subdir_serial(self.subdir), *file_order(self.file), self.pos

    @property
    def upstream(self) -> tuple[str, int]:
        """The same position in the upstream's own binlog: file and offset."""
        return upstream_file(self.file), self.pos + part_offset(self.file)

    def __str__(self) -> str:
        return f"{self.subdir}/{self.file}:{self.pos}"


@dataclass(frozen=True)
class StartPosition:
    """The start of a relay log and the transactions before it.

    Attributes:
        file, pos: in the upstream's own binlog.
        gtid_set: all that is executed there.
        subdir: the sub-directory of the file.
        log_begins: why a log may start here: ``schemas.wire.epoch.ORIGIN``, or the setting that allows it; empty if
            the relay log continues epochs that were published from an earlier relay log.
    """

    file: str
    pos: int
    gtid_set: str
    subdir: str
    log_begins: str


@dataclass(frozen=True)
class Owner:
    """The Kafka log that this relay log is published to; ``log_id`` is empty before the first epoch."""

    prefix: str
    log_id: str = ""


@dataclass(frozen=True)
class RelayMeta:
    """The contents of relay.meta: the position up to which the files are complete and on disk."""

    file: str
    pos: int
    gtid_set: str


_Position = TypeVar("_Position", RelayMeta, StartPosition)
_KEYS = {
    "file": "binlog-name",
    "pos": "binlog-pos",
    "gtid_set": "binlog-gtid",
    "subdir": "sub-dir",
    "log_begins": "log-begins",
}


def file_number(name: str) -> int:
    """Return the file number: 7 for `mysql-bin.000007` and its parts. Raises RelayError."""
    return _file_name(name)[1]


def part_offset(name: str) -> int:
    """Return the offset of a part: 1000 for `mysql-bin.000007+1000`, 0 for the first part. Raises RelayError."""
    return _file_name(name)[2]


def file_order(name: str) -> tuple[int, int]:
    """Return the sort key of a relay file within its sub-directory. Raises RelayError."""
    return _file_name(name)[1:]


def upstream_file(name: str) -> str:
    """Return the upstream's name of the file that a relay file is all or a part of. Raises RelayError."""
    return _file_name(name)[0]


def part_name(name: str, offset: int) -> str:
    """Return the name of the part at `offset` of the upstream file that `name` belongs to."""
    return f"{upstream_file(name)}+{offset}" if offset else upstream_file(name)


@lru_cache(maxsize=1024)
def _file_name(name: str) -> tuple[str, int, int]:
    try:
        return names.relay_file(name)
    except UnfitName as error:
        raise UnreadableFile("TR306", str(error)) from None


def is_file_name(name: str) -> bool:
    """Whether `name` is the name of a relay file."""
    try:
        return bool(names.relay_file(name))
    except UnfitName:
        return False


def subdir_serial(name: str) -> int:
    """Return the serial number: 2 for `<server-uuid>.000002`. Raises RelayError."""
    try:
        return names.relay_subdir(name)[1]
    except UnfitName as error:
        raise UnreadableFile("TR306", str(error)) from None


def is_subdir_name(name: str) -> bool:
    """Whether `name` is the name of a relay sub-directory."""
    try:
        return bool(names.relay_subdir(name))
    except UnfitName:
        return False


def subdirs_in(root: Path) -> list[str]:
    """List the directories named like sub-directories, whether or not the index lists them. Raises RelayError."""
    with disk_errors("listing the relay directory"):
        return [entry.name for entry in os.scandir(root) if entry.is_dir() and is_subdir_name(entry.name)]


def subdir_name(server_uuid: str, serial: int) -> str:
    return f"{server_uuid}.{serial:06d}"


def subdir_uuid(name: str) -> str:
    """Return the server UUID in the name of a sub-directory."""
    return name.rpartition(".")[0]


@contextmanager
def disk_errors(doing: str, where: Where = NOWHERE) -> Iterator[None]:
    """Turn an OSError into DiskFull, or DiskError (permissions, input/output)."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in _FULL:
            hint = "free disk space or configure [purge]; the producer then continues by itself, and nothing is lost"
            raise DiskFull("TR320", f"{doing}: {reason}", where=where, hint=hint, retryable=True) from error
        hint = "fix the disk or permissions, then start again: nothing written is lost"
        raise DiskError("TR302", f"{doing}: {reason}", where=where, hint=hint, retryable=True) from error


def sync_dir(path: Path) -> None:
    """Sync a directory, so that created, renamed and removed names survive a power failure. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def ensure_free_space(fd: int, size: int) -> None:
    """Raise OSError (ENOSPC) unless ``size`` bytes are free."""
    disk = os.fstatvfs(fd)
    # File systems that do not count their blocks report 0.
    if disk.f_blocks and disk.f_bavail * disk.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, also if the disk accepts only a part of it at a time. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def scratch(path: Path) -> Path:
    """Return where a file is written before it gets its name; it is no name of a file of the relay log."""
    return path.with_name(f".{path.name}.tmp")


def write_atomically(path: Path, text: str) -> None:
    """Replace a small file. A reader sees the old text or the new one, also after a crash. Raises OSError."""
    new = scratch(path)
    try:
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            write_all(fd, text.encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)  # on a full disk, it would take space from other files
        raise
    sync_dir(path.parent)


def read_index(root: Path) -> list[str]:
    """Return the sub-directories, oldest first; empty when there is no relay log. Raises RelayError."""
    with disk_errors("reading the index of the relay log"):
        try:
            lines = (root / INDEX_NAME).read_bytes().decode(errors="replace").split()
        except FileNotFoundError:
            return []
    serials = [subdir_serial(line) for line in lines]
    if serials != sorted(set(serials)):
        raise RelayError("TR307", f"{INDEX_NAME} is not ordered by serial number", hint=_REBUILD)
    return lines


def write_index(root: Path, subdirs: list[str]) -> None:
    with disk_errors("writing the index of the relay log"):
        write_atomically(root / INDEX_NAME, "".join(f"{name}\n" for name in subdirs))


def binlog_files(subdir: Path) -> list[str]:
    """Return the binlog files of a sub-directory, ordered by number; none if it is gone. Raises RelayError."""
    with disk_errors("listing the relay log", Where(file=subdir.name)):
        try:
            found = [entry.name for entry in os.scandir(subdir) if entry.is_file()]
        except FileNotFoundError:
            return []
    return sorted(filter(is_file_name, found), key=file_order)


def oldest_file(root: Path) -> RelayPosition | None:
    """Return the start of the oldest remaining file; None if there is no file. Raises RelayError."""
    for subdir in read_index(root):
        if files := binlog_files(root / subdir):
            return RelayPosition(subdir, files[0], FIRST_POSITION)
    return None


def find_upstream_position(root: Path, subdir: str, file: str, pos: int) -> RelayPosition | None:
    """Translate the upstream's `file` and `pos` to a position in a sub-directory.

    A position between two parts is the end of the first. Returns None if it is not in the relay log.
    Raises RelayError.
    """
    for name in binlog_files(root / subdir):
        local = RelayPosition(subdir, name, pos - part_offset(name))
        if upstream_file(name) == file and FIRST_POSITION <= local.pos <= file_size(root / subdir / name):
            return local
    return None


def file_size(path: Path) -> int:
    """Return the size of a relay file in bytes. Raises RelayError."""
    with disk_errors("reading the relay log", Where(file=path.name)):
        return path.stat().st_size


def read_meta(subdir: Path) -> RelayMeta | None:
    """Read relay.meta; None without one. Raises RelayError if it cannot be read."""
    return _read_toml(subdir / META_NAME, RelayMeta)


def write_meta(subdir: Path, meta: RelayMeta) -> None:
    _write_toml(subdir / META_NAME, meta)


def write_lower_case_names(root: Path, folds: bool) -> None:
    """Store whether the upstream has all names in lower case. Raises RelayError."""
    with disk_errors(f"writing {LOWER_CASE_NAME}"):
        if folds:
            (root / LOWER_CASE_NAME).touch()
        else:
            (root / LOWER_CASE_NAME).unlink(missing_ok=True)


def read_lower_case_names(root: Path) -> bool:
    """Whether the upstream has all names in lower case, as the last producer stored it."""
    return (root / LOWER_CASE_NAME).exists()


def write_default_engine(root: Path, engine: str | None) -> None:
    """Store the upstream's ``default_storage_engine``, if it has one. Raises RelayError."""
    if engine:
        write_atomically(root / ENGINE_NAME, f"{engine}\n")


def read_default_engine(root: Path) -> str | None:
    """Return the upstream's ``default_storage_engine``, as the last producer stored it; None if it is unknown."""
    try:
        return (root / ENGINE_NAME).read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def read_start(root: Path) -> StartPosition | None:
    """Read the start of the relay log; None if it was not stored yet. Raises RelayError."""
    return _read_toml(root / START_NAME, StartPosition)


def write_start(root: Path, start: StartPosition) -> None:
    _write_toml(root / START_NAME, start)


def parse_stored_gtid_set(text: str, flavor: Flavor, path: Path) -> GtidSet:
    """Parse a GTID set read from the metadata file `path`. Raises UnreadableFile."""
    try:
        return parse_gtid_set(text, flavor)
    except ValueError as error:
        what = f"{path} has no valid GTID set of a {flavor} server: {error}"
        raise UnreadableFile("TR306", what, hint=_REBUILD) from error


def read_owner(root: Path) -> Owner | None:
    """Read the owner of the relay log; None if it has none yet.

    Raises RelayError, and TailraceError TR191 if a newer release has written the directory.
    """
    with disk_errors(f"reading {OWNER_NAME}"):
        try:
            data = (root / OWNER_NAME).read_bytes()
        except FileNotFoundError:
            return None
    try:
        fields = tomllib.loads(data.decode())
        owner, found = Owner(str(fields["prefix"]), str(fields["log-id"])), int(fields.get("format", 1))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableFile(
            "TR306", f"{root / OWNER_NAME} cannot be read: {error}", hint=_REBUILD
        ) from error
    refuse_newer(f"the relay directory {root}", found, FORMAT)
    return owner


def write_owner(root: Path, owner: Owner) -> None:
    """Write owner.toml, unless it already has these values. Raises RelayError."""
    if read_owner(root) == owner:
        return
    with disk_errors(f"writing {OWNER_NAME}"):
        text = f'prefix = "{owner.prefix}"\nlog-id = "{owner.log_id}"\nformat = {FORMAT}\n'
        write_atomically(root / OWNER_NAME, text)


def check_owner(root: Path, prefix: str) -> Owner:
    """Return the relay log's owner, if it is this prefix or there is none yet. Raises RelayError TR311."""
    owner = read_owner(root) or Owner(prefix)
    if owner.prefix != prefix:
        raise RelayError(
            "TR311",
            f"the relay log in {root} belongs to prefix {owner.prefix}, not to {prefix}",
            hint="set a separate [relay] dir for each pipeline",
        )
    return owner


def check_here(root: Path, prefix: str) -> None:
    """Raise RelayError TR340 if a producer's relay log is not on this machine, TR311 if it is another prefix's."""
    if not root.is_dir():
        raise RelayError(
            "TR340",
            f"there is no relay log in {root}",
            hint="run the command on the machine of the producer, with its configuration",
        )
    check_owner(root, prefix)


_REBUILD = (
    "move the relay directory away and start again: the relay log is then fetched from the upstream again"
)


def _write_toml(path: Path, position: RelayMeta | StartPosition) -> None:
    values = asdict(position)
    texts = "".join(value for value in values.values() if isinstance(value, str))
    if not texts.isprintable() or '"' in texts or "\\" in texts:
        raise UnreadableFile("TR306", f"{position.file!r} cannot be written to {path.name}")
    lines = [
        f"{_KEYS[name]} = {value}\n" if isinstance(value, int) else f'{_KEYS[name]} = "{value}"\n'
        for name, value in values.items()
    ]
    with disk_errors(f"writing {path.name}"):
        write_atomically(path, "".join(lines))


def _read_toml(path: Path, build: type[_Position]) -> _Position | None:
    with disk_errors(f"reading {path.name}"):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
    try:
        found = tomllib.loads(data.decode())
        values = {field.name: found[_KEYS[field.name]] for field in fields(build)}
        position = build(**values)
        names.binlog_file(position.file)
        if "subdir" in values:
            names.relay_subdir(values["subdir"])
        texts = [value for name, value in values.items() if name != "pos"]
        if (
            type(position.pos) is not int
            or position.pos < FIRST_POSITION
            or not all(isinstance(text, str) for text in texts)
        ):
            raise ValueError("a field is out of range")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UnreadableFile("TR306", f"{path} cannot be read: {error}", hint=_REBUILD) from error
    return position
