"""`tailrace relay verify`, and the shorter check of the relay log when a producer starts.

A log that is being written is checked up to the position that relay.meta had at the start: the data after it may
be incomplete, and is truncated after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from relay_store.check.directory import (
    META_REMEDY,
    REFETCH,
    DirectoryCheck,
    RelayFinding,
    Subdir,
    check_directory,
    has_end_event,
)
from relay_store.check.file import FileCheck
from relay_store.check.gtid_chain import GtidChain
from relay_store.layout import directory as layout
from relay_store.layout.directory import META_NAME, START_NAME, DiskError, RelayPosition
from relay_store.layout.epoch_ends import RECOVERED_NAME, read_epoch_ends
from relay_store.layout.file_head import read_head
from relay_store.layout.readers import READERS_NAME, read_readers
from schemas.binlog.framing import FIRST_POSITION
from schemas.counted import counted
from schemas.errors import RelayError
from schemas.gtid.sets import Flavor, GtidSet, empty_gtid_set, parse_gtid_set

Progress = Callable[[int, int], None]


@dataclass
class VerifyReport:
    """The result of checking a relay log.

    Attributes:
        findings: the problems, in the order of the log; empty if it is sound.
        notes: information that needs no action.
        files, bytes, events: numbers checked.
    """

    findings: list[RelayFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    events: int = 0

    @property
    def sound(self) -> bool:
        return not self.findings


def verify(root: Path, progress: Progress = lambda done, total: None) -> VerifyReport:
    """Check every byte of a relay log, which may be written at the same time.

    Args:
        root: the relay directory.
        progress: called periodically with the bytes checked and the total.

    Raises RelayError TR302 on an I/O error.
    """
    return _Verification(root, check_directory(root), progress).run()


def check_at_start(root: Path) -> None:
    """Check everything except the events of finished files, when a producer starts.

    Raises RelayError: the first finding, with its remedy.
    """
    directory = check_directory(root)
    report = VerifyReport(findings=list(directory.findings))
    for subdir in directory.subdirs:
        for file in subdir.files:
            if subdir.limit(file) > FIRST_POSITION:
                report.findings += _check_head(root, subdir, file)
    if not report.findings:
        report.findings += [finding for subdir in directory.subdirs for finding in _check_ends(root, subdir)]
    last = directory.subdirs[-1] if directory.subdirs else None
    if not report.findings and last and last.end:
        file, pos = last.end
        check = FileCheck.of(root / last.name / file, pos, GtidChain(), layout.part_offset(file))
        report.findings += _file_findings(last, file, check)
        report.findings += _at_boundary(last, check)
    if report.findings:
        raise report.findings[0].as_error(len(report.findings) - 1)


def _check_ends(root: Path, subdir: Subdir) -> Iterator[RelayFinding]:
    """Check each file without ROTATE or STOP against the next one: the server crashed, or its end is missing."""
    folder = root / subdir.name
    for file, following in pairwise(subdir.files):
        same_file = layout.upstream_file(file) == layout.upstream_file(following)
        if same_file or subdir.limit(following) <= FIRST_POSITION:
            continue
        if not has_end_event(folder, file, subdir.files[file], following):
            chain = GtidChain()
            check = FileCheck.of(folder / file, subdir.files[file], chain, layout.part_offset(file))
            yield from _file_findings(subdir, file, check)
            if check.torn_at is not None:
                yield _torn_event(subdir, file, check.torn_at)
                continue
            head = read_head(folder / following).end
            yield from _file_findings(subdir, following, FileCheck.of(folder / following, head, chain))


def _check_head(root: Path, subdir: Subdir, file: str) -> list[RelayFinding]:
    try:
        head = read_head(root / subdir.name / file)
    except DiskError:
        raise
    except RelayError as error:
        return [RelayFinding(error.code, f"{subdir.name}/{file}", error.message, REFETCH)]
    if head.created is None:
        what = "the file does not start with a FORMAT_DESCRIPTION event"
        return [RelayFinding("TR304", f"{subdir.name}/{file}:{FIRST_POSITION}", what, REFETCH)]
    return []


def _file_findings(subdir: Subdir, file: str, check: FileCheck) -> list[RelayFinding]:
    return [RelayFinding(f.code, f"{subdir.name}/{file}:{f.pos}", f.what, REFETCH) for f in check.faults]


def _torn_event(subdir: Subdir, file: str, pos: int) -> RelayFinding:
    return RelayFinding("TR304", f"{subdir.name}/{file}:{pos}", "the file ends within an event", REFETCH)


def _at_boundary(subdir: Subdir, check: FileCheck) -> list[RelayFinding]:
    """Check that relay.meta's position is the end of a transaction."""
    if subdir.end is None or check.faults:
        return []
    file, pos = subdir.end
    # If a server crashed within a transaction, its file ends there, and so does relay.meta's position.
    is_open = check.in_group and subdir.files[file] > pos
    if check.torn_at is None and not is_open:
        return []
    into = "an event" if check.torn_at is not None else "a transaction"
    name, boundary = RelayPosition(subdir.name, file, check.boundary).upstream
    what = f"{META_NAME} points into {into}; the last complete transaction ends at {name}:{boundary}"
    return [RelayFinding("TR334", f"{subdir.name}/{META_NAME}", what, META_REMEDY)]


def _has_next_part(subdir: Subdir, file: str) -> bool:
    return any(
        layout.upstream_file(name) == layout.upstream_file(file)
        and layout.part_offset(name) > layout.part_offset(file)
        for name in subdir.files
    )


class _Verification:
    """One pass over a whole relay log."""

    def __init__(self, root: Path, directory: DirectoryCheck, progress: Progress) -> None:
        self._root, self._directory, self._progress = root, directory, progress
        self._report = VerifyReport(findings=list(self._directory.findings))
        subdirs = self._directory.subdirs
        self._total = sum(subdir.limit(file) for subdir in subdirs for file in subdir.files)
        self._unprotected = 0
        # the transactions of the sub-directories so far; None if unknown
        self._executed: GtidSet | None = None
        self._knows_all = not self._report.findings

    def run(self) -> VerifyReport:
        self._progress(0, self._total)
        for subdir in self._directory.subdirs:
            self._check_subdir(subdir)
        self._check_other_files()
        if self._unprotected:
            what = f"{counted(self._unprotected, 'event')} without a checksum (binlog_checksum was NONE)"
            self._report.notes.append(f"{what}: only their framing was checked")
        return self._report

    def _check_subdir(self, subdir: Subdir) -> None:
        chain, last = GtidChain(self._executed_before(subdir)), ""
        for file, size in subdir.files.items():
            limit = subdir.limit(file)
            if limit <= FIRST_POSITION:
                continue
            if not last:
                self._check_switch(subdir, file)
            try:
                path, offset = self._path(subdir, file), layout.part_offset(file)
                check = FileCheck.of(path, min(limit, size), chain, offset, self._report_progress)
            except FileNotFoundError:  # purged meanwhile
                chain.reset()
                self._knows_all = False
                continue
            last = file
            self._report.files += 1
            self._report.events += check.events
            self._unprotected += check.unprotected
            self._add_findings(subdir, file, check, chain)
        self._check_gtids(subdir, chain)

    def _add_findings(self, subdir: Subdir, file: str, check: FileCheck, chain: GtidChain) -> None:
        findings = _file_findings(subdir, file, check)
        is_last = file == (subdir.end[0] if subdir.end else next(reversed(subdir.files)))
        if is_last:
            findings += _at_boundary(subdir, check)
        elif check.torn_at is not None:
            findings.append(_torn_event(subdir, file, check.torn_at))
        may_lack_its_end = not is_last and not check.has_end_event and not _has_next_part(subdir, file)
        if not findings and may_lack_its_end and not chain.executed():
            note = f"{subdir.name}/{file} ends without ROTATE or STOP: the upstream crashed, or its last part is lost"
            self._report.notes.append(note)
        if is_last and subdir.is_active and not findings:
            self._add_tail_notes(subdir, file, check, chain)
        if findings:
            chain.reset()
            self._knows_all = False
        self._report.findings += findings

    def _add_tail_notes(self, subdir: Subdir, file: str, check: FileCheck, chain: GtidChain) -> None:
        """Note the contents that a missing relay.meta should have, or the bytes after its position."""
        more = subdir.files[file] - (subdir.end[1] if subdir.end else 0)
        if subdir.meta is None:
            name, pos = RelayPosition(subdir.name, file, check.boundary).upstream
            text = f'binlog-name = "{name}", binlog-pos = {pos}, binlog-gtid = "{self._executed_so_far(chain) or ""}"'
            self._report.notes.append(
                f"according to its files, {subdir.name}/{META_NAME} should contain: {text}"
            )
        elif more:
            note = f"{more:,} bytes of {subdir.name}/{file} are after {META_NAME}'s position: "
            self._report.notes.append(note + "they are being written now, or the next start truncates them")

    def _check_switch(self, subdir: Subdir, file: str) -> None:
        """Check that no transactions are missing between the files of the previous servers and this server's first."""
        with suppress(RelayError):  # a damaged head is found by the pass over the file
            head = read_head(self._path(subdir, file))
            before = head.previous
            if before is None or self._executed is None or type(before) is not type(self._executed):
                return
            known = self._executed.union(self._before_start(head.flavor))
            if lacking := before.minus(known):
                what = f"the first file of this server starts after {lacking}, which no earlier file contains"
                self._report.findings.append(RelayFinding("TR335", f"{subdir.name}/{file}", what, REFETCH))

    def _check_gtids(self, subdir: Subdir, chain: GtidChain) -> None:
        """Compare relay.meta's GTID set with the files."""
        whole = self._executed_so_far(chain)
        self._executed = whole
        if subdir.meta is None or whole is None or not self._knows_all:
            return
        place = f"{subdir.name}/{META_NAME}"
        try:
            stated = parse_gtid_set(subdir.meta.gtid_set, chain.flavor or "mysql")
        except ValueError as error:
            self._report.findings.append(RelayFinding("TR306", place, str(error), META_REMEDY))
            return
        if lacking := whole.minus(stated):
            what = f"the GTID set of {META_NAME} lacks {lacking}, which the files contain"
            self._report.findings.append(RelayFinding("TR336", place, what, META_REMEDY))
        # Transactions before the first file, purged or from before the start, are known from other sources.
        extra = stated.minus(whole) if self._is_complete() else None
        if extra and (extra := extra.minus(self._before_start(chain.flavor or "mysql"))):
            what = f"the GTID set of {META_NAME} has {extra}, which no file contains"
            self._report.findings.append(RelayFinding("TR336", place, what, META_REMEDY))

    def _executed_so_far(self, chain: GtidChain) -> GtidSet | None:
        """Return all transactions up to the end of the sub-directory; None if unknown."""
        own = chain.executed()
        if own is None or self._executed is None or type(own) is not type(self._executed):
            return own
        return self._executed.union(own)

    def _executed_before(self, subdir: Subdir) -> GtidSet | None:
        """Return the transactions executed before a sub-directory's files; None if unknown."""
        if not self._is_complete() or not self._knows_all:
            return None
        with suppress(RelayError, StopIteration):
            flavor = read_head(self._path(subdir, next(iter(subdir.files)))).flavor
            before = self._before_start(flavor)
            if self._executed is None:
                return before
            return before.union(self._executed) if type(before) is type(self._executed) else None
        return None

    def _is_complete(self) -> bool:
        """Whether no earlier sub-directory was purged."""
        subdirs = self._directory.subdirs
        return layout.subdir_serial(subdirs[0].name) == 1

    def _before_start(self, flavor: Flavor) -> GtidSet:
        with suppress(RelayError, ValueError):
            if start := layout.read_start(self._root):
                return parse_gtid_set(start.gtid_set, flavor)
        return empty_gtid_set(flavor)

    def _check_other_files(self) -> None:
        """Check that start.toml, recovered.toml and the readers' marks can be read."""
        readers: dict[str, Callable[[Path], object]] = {
            START_NAME: layout.read_start,
            RECOVERED_NAME: read_epoch_ends,
            READERS_NAME: read_readers,
        }
        for name, read in readers.items():
            try:
                read(self._root)
            except RelayError as error:
                remedy = error.hint or "restore it from a backup"
                self._report.findings.append(RelayFinding(error.code, name, error.message, remedy))

    def _path(self, subdir: Subdir, file: str) -> Path:
        return self._root / subdir.name / file

    def _report_progress(self, size: int) -> None:
        self._report.bytes += size
        self._progress(self._report.bytes, self._total)
