"""Checks a relay directory without reading events: index, sub-directories, sequence of files, relay.meta."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from relay_store.layout import directory as layout
from relay_store.layout.directory import INDEX_NAME, META_NAME, RelayMeta, UnreadableFile, disk_errors
from relay_store.layout.file_head import read_head
from schemas.binlog.framing import CHECKSUM_SIZE, FIRST_POSITION, HEADER_SIZE, MAGIC, ROTATE, STOP, header
from schemas.counted import counted
from schemas.errors import RelayError, Where

ROTATE_SIZE = HEADER_SIZE + 8  # and the next file's name
_TRIES = 100  # for a moment without a rotation

REFETCH = (
    "restore an undamaged copy from a backup, or move the relay directory away and start the producer: "
    "it fetches the log from the upstream again"
)
_INDEX = f"list the sub-directories in {INDEX_NAME}, one per line, ordered by serial number"
META_REMEDY = (
    f"restore {META_NAME} from a backup, or write it again with the values that `tailrace relay verify` prints: "
    "name of the last complete file, position and GTID set after its last transaction"
)


@dataclass(frozen=True)
class RelayFinding:
    """One problem found in the relay log.

    Attributes:
        code: as in docs/ERRORS.md.
        location: `sub-directory/file:position`, or the metadata file.
        hint: one sentence for the operator.
    """

    code: str
    location: str
    message: str
    hint: str

    def as_dict(self) -> dict[str, str]:
        """Return plain data for ``--json``."""
        return {"code": self.code, "place": self.location, "what": self.message, "remedy": self.hint}

    def as_error(self, more: int = 0) -> RelayError:
        """Return this finding as an error; `more` is the number of further findings, which it only counts."""
        message = (
            f"{self.message} (and {counted(more, 'more finding')}: see `tailrace relay verify`)"
            if more
            else self.message
        )
        return RelayError(self.code, message, where=Where(file=self.location), hint=self.hint)


@dataclass
class Subdir:
    """The state of a sub-directory at one moment.

    Attributes:
        files: its binlog files in order, with their sizes in bytes.
        meta: None if there is none, or it cannot be read.
        is_active: whether it is the last one, which may be written to.
    """

    name: str
    files: dict[str, int] = field(default_factory=dict)
    meta: RelayMeta | None = None
    is_active: bool = False

    @property
    def end(self) -> tuple[str, int] | None:
        """File and offset of relay.meta's position; None if relay.meta is missing or the position does not exist."""
        if self.meta is None:
            return None
        for file, size in self.files.items():
            pos = self.meta.pos - layout.part_offset(file)
            if layout.upstream_file(file) == self.meta.file and FIRST_POSITION <= pos <= size:
                return file, pos
        return None

    def limit(self, file: str) -> int:
        """Return how many bytes of a file to check; in the active sub-directory those up to relay.meta's position."""
        end = self.end
        if end is None or not self.is_active or layout.file_order(file) < layout.file_order(end[0]):
            return self.files[file]
        return end[1] if file == end[0] else 0


@dataclass
class DirectoryCheck:
    """The sub-directories in order, and the problems found in them."""

    subdirs: list[Subdir] = field(default_factory=list)
    findings: list[RelayFinding] = field(default_factory=list)

    def add(self, code: str, location: str, message: str, hint: str) -> None:
        self.findings.append(RelayFinding(code, location, message, hint))


def check_directory(root: Path) -> DirectoryCheck:
    """Check index, sub-directories, sequence of files and relay.meta. Raises RelayError TR302 on an I/O error."""
    found = DirectoryCheck()
    # A sub-directory is created before it is added to the index, and removed from the index before it is deleted.
    present = set(layout.subdirs_in(root)) if root.is_dir() else set()
    names = _index(root, found)
    lacking = [name for name in names if not (root / name).is_dir()]
    still_named = _index(root, DirectoryCheck()) if lacking else []
    for name in (name for name in lacking if name in still_named):
        remedy = f"restore it from a backup; if it was deleted on purpose, remove its line from {INDEX_NAME}"
        found.add(
            "TR332", INDEX_NAME, f"the index lists {name}, but that sub-directory does not exist", remedy
        )
    for name in sorted(present - set(names)):
        if _has_content(root / name):
            found.add("TR332", name, "the sub-directory is not in the index", _INDEX)
    for name in names:
        if name in lacking:
            continue
        found.subdirs.append(_subdir(root, name, name == names[-1], found))
    return found


def _index(root: Path, found: DirectoryCheck) -> list[str]:
    with disk_errors("reading the index of the relay log"):
        try:
            lines = (root / INDEX_NAME).read_bytes().decode(errors="replace").splitlines()
        except FileNotFoundError:
            return []
    names = []
    for line in lines:
        try:
            layout.subdir_serial(line)
            names.append(line)
        except RelayError:
            found.add("TR306", INDEX_NAME, f"{line!r} is not the name of a relay sub-directory", _INDEX)
    serials = [layout.subdir_serial(name) for name in names]
    if len(set(serials)) < len(serials):
        twice = next(name for name, serial in zip(names, serials, strict=True) if serials.count(serial) > 1)
        remedy = f"remove one of the two lines from {INDEX_NAME}, and its directory if it is not part of this relay log"
        found.add("TR307", INDEX_NAME, f"the serial number of {twice} is listed more than once", remedy)
    elif serials != sorted(serials):
        found.add("TR307", INDEX_NAME, "the index is not ordered by serial number", _INDEX)
    return list(dict.fromkeys(names))


def _has_content(folder: Path) -> bool:
    """Whether a sub-directory contains more than a crash leaves in one that is being created or removed."""
    return any(_size(folder / name) > len(MAGIC) for name in layout.binlog_files(folder))


def _subdir(root: Path, name: str, is_active: bool, found: DirectoryCheck) -> Subdir:
    folder = root / name
    subdir = Subdir(name, is_active=is_active)
    garbled = False
    try:
        subdir.meta, subdir.files = _meta_and_files(folder)
    except UnreadableFile as error:
        garbled = True
        subdir.files = _files(folder)
        found.add("TR306", f"{name}/{META_NAME}", error.message, META_REMEDY)
    _check_sequence(folder, subdir, found)
    if not subdir.files and not is_active and not any(before.files for before in found.subdirs):
        return subdir  # a purge was killed before it removed it from the index
    if subdir.meta is not None:
        _check_meta(folder, subdir, subdir.meta, found)
    elif not garbled and _has_content(folder):
        found.add("TR333", f"{name}/{META_NAME}", f"{META_NAME} is missing", META_REMEDY)
    return subdir


def _meta_and_files(folder: Path) -> tuple[RelayMeta | None, dict[str, int]]:
    """Read relay.meta and the list of files consistently: read again if a file was started in between."""
    for _ in range(_TRIES):
        before = layout.read_meta(folder)
        files = _files(folder)
        after = layout.read_meta(folder)
        if (before and before.file) == (after and after.file):
            break
    return before, files


def _files(folder: Path) -> dict[str, int]:
    return {file: _size(folder / file) for file in layout.binlog_files(folder)}


def _check_sequence(folder: Path, subdir: Subdir, found: DirectoryCheck) -> None:
    for before, after in pairwise(subdir.files):
        numbers = layout.file_number(before), layout.file_number(after)
        if numbers[0] == numbers[1]:
            fits = _is_continued_by(folder, before, subdir.files[before], after)
        else:
            fits = numbers[1] == numbers[0] + 1 and not layout.part_offset(after)
        if not fits:
            what = f"one or more files between {before} and {after} are missing"
            found.add("TR303", f"{subdir.name}/{after}", what, REFETCH)


def _is_continued_by(folder: Path, before: str, size: int, after: str) -> bool:
    """Whether the part `after` starts at the offset of the upstream's file at which `before` ends."""
    try:
        head = read_head(folder / after)
    except RelayError:
        head = None
    if head is None or head.previous is None:
        return True  # damaged, or just being created: the check of the file itself reports it
    return layout.part_offset(after) + head.begin == layout.part_offset(before) + size


def has_end_event(folder: Path, file: str, size: int, following: str) -> bool:
    """Whether a file ends with STOP or with ROTATE to `following`, so that nothing is missing at its end."""
    with disk_errors("reading the relay log", Where(file=file)), (folder / file).open("rb") as opened:
        for length in (ROTATE_SIZE + len(following), HEADER_SIZE):
            for whole in (length + CHECKSUM_SIZE, length):
                if size - whole >= FIRST_POSITION:
                    opened.seek(size - whole)
                    found = header(opened.read(HEADER_SIZE))
                    if found.type in (ROTATE, STOP) and found.size == whole:
                        return True
    return False


def _check_meta(folder: Path, subdir: Subdir, meta: RelayMeta, found: DirectoryCheck) -> None:
    place, end = f"{subdir.name}/{META_NAME}", subdir.end
    if end is None:
        parts = [file for file in subdir.files if layout.upstream_file(file) == meta.file]
        if not parts:
            what = f"{META_NAME} refers to {meta.file}, which is missing"
            found.add("TR303", f"{subdir.name}/{meta.file}", what, REFETCH)
            return
        last = parts[-1]
        has = layout.part_offset(last) + subdir.files[last]
        what = f"{META_NAME} records {meta.pos:,} bytes of {meta.file}, but the file has only {has:,}"
        found.add("TR334", place, what, "the disk lost data that had been synced: " + REFETCH)
        return
    file, pos = end
    later = [name for name in subdir.files if layout.file_order(name) > layout.file_order(file)]
    more = subdir.files[file] - pos
    # A rotation creates the next file just before relay.meta refers to it. A part ends where the next one starts,
    # so the next one may contain everything received since relay.meta was last written.
    extra = [name for name in later if not subdir.is_active or _has_events(folder / name)]
    if subdir.is_active and not more and later and layout.upstream_file(later[0]) == meta.file:
        extra = extra[1:] if extra[:1] == later[:1] else extra
    if extra and layout.read_meta(folder) == meta:  # else a running producer has advanced it
        what = f"{META_NAME} ends at {file}, but {counted(len(extra), 'more file')} follow, up to {extra[-1]}"
        found.add("TR334", place, what, META_REMEDY)
    elif not subdir.is_active and more:
        what = f"{META_NAME} ends at {meta.file}:{meta.pos}, but the file continues for {more:,} bytes"
        found.add("TR334", place, what, META_REMEDY)


def _has_events(path: Path) -> bool:
    try:
        return not read_head(path).is_bare
    except RelayError:
        return _size(path) > len(MAGIC)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # purged meanwhile
        return 0
