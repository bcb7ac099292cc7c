"""The position at which a reader of the relay log starts: the first time, or after the last position it read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relay_store.layout import directory as layout
from relay_store.layout.directory import RelayPosition
from relay_store.layout.file_head import read_head
from schemas.binlog import framing
from schemas.errors import RelayError, Where
from schemas.gtid.sets import Flavor, GtidSet, MariadbGtidSet, empty_gtid_set


@dataclass(frozen=True)
class InitialPosition:
    """The start of a relay log.

    Attributes:
        executed: the GTID set of all transactions before it.
        log_begins: as in start.toml; not empty.
    """

    position: RelayPosition
    executed: GtidSet
    log_begins: str


def initial_position(root: Path, flavor: Flavor) -> InitialPosition | None:
    """Return the position in start.toml, at which the first reader of a relay log starts.

    The oldest file left by a purge is not a valid start, because the transactions before it are unknown.

    Returns None if the mirror has not reached the position yet. Raises RelayError TR313 if it was purged.
    """
    files = [
        (subdir, file) for subdir in layout.read_index(root) for file in layout.binlog_files(root / subdir)
    ]
    if not files:
        return None
    oldest = f"{files[0][0]}/{files[0][1]}"
    start = layout.read_start(root)
    if start is None:
        raise _start_missing(
            f"{layout.START_NAME}, which records the start of this relay log, is missing", oldest
        )
    if not start.log_begins:
        raise _start_missing(
            "this relay log continues epochs that were published from an earlier relay log", oldest
        )
    if position := layout.find_upstream_position(root, start.subdir, start.file, start.pos):
        return InitialPosition(
            position,
            layout.parse_stored_gtid_set(start.gtid_set, flavor, root / layout.START_NAME),
            start.log_begins,
        )
    subdir, file = files[0]
    if subdir == start.subdir and layout.file_order(file) <= (layout.file_number(start.file), start.pos):
        return None
    raise _start_missing(f"this relay log started at {start.subdir}/{start.file}:{start.pos}", oldest)


def _start_missing(what: str, oldest: str) -> RelayError:
    return RelayError(
        "TR313",
        f"everything before {oldest}, the oldest relay file, is gone: {what}",
        where=Where(file=oldest),
        hint="restore the relay files from a backup; or, if Kafka has no epochs and those transactions are not wanted,"
        " move the relay directory away: the next `tailrace produce` starts at the position set by [source] start"
        " and [relay]",
    )


def resume_position(
    root: Path, subdir: str, file: str, pos: int, executed: GtidSet, *, by_gtids: bool = True
) -> RelayPosition | None:
    """Return the position at which to continue after the upstream's `file` and `pos`, last read in `subdir`.

    If the relay log no longer has them (it was created again, from this server or from another one), return the
    start of the newest file from which on all transactions missing in `executed` follow.

    Args:
        by_gtids: whether the transactions before the position had GTIDs; if not, GTID sets cannot be compared.

    Returns None while the relay log has not reached the position again. Raises RelayError TR308 if it never will.
    """
    flavor: Flavor = "mariadb" if isinstance(executed, MariadbGtidSet) else "mysql"
    folders = [name for name in layout.read_index(root) if layout.binlog_files(root / name)]
    for folder in reversed(folders):
        # Without GTIDs only the server and its own positions can be compared.
        if folder == subdir or (not executed and layout.subdir_uuid(folder) == layout.subdir_uuid(subdir)):
            here = layout.find_upstream_position(root, folder, file, pos)
            before = gtids_before(root / folder / here.file, flavor) if here else None
            if here and before is not None and executed.contains(before):
                return here
            newest = layout.binlog_files(root / folder)[-1]
            if not here and layout.file_number(newest) <= layout.file_number(file) and folder == folders[-1]:
                return None
    sets = {
        (folder, name): gtids_before(root / folder / name, flavor)
        for folder in folders
        for name in layout.binlog_files(root / folder)
    }
    for (folder, name), before in reversed(sets.items()):
        if not (by_gtids and executed) or before is None or not executed.contains(before):
            continue
        if _begins_anonymous(root / folder / name):
            break
        return RelayPosition(folder, name, framing.FIRST_POSITION)
    if None in sets.values() or not sets:
        return None
    raise RelayError(
        "TR308",
        f"the relay log starts after the last published position: it has neither {file}:{pos} of {subdir} nor all"
        f" transactions after the GTID set {executed or '(empty)'}",
        hint="move the relay directory away, and remove relay.relay-binlog-gtid and relay-binlog-name from the"
        " configuration or set them to that set and file: the next start fetches the binlogs that the upstream still"
        " has",
    )


def _begins_anonymous(path: Path) -> bool:
    """Whether a file's first transaction has no GTID; then the transactions just before may have none either."""
    end = read_head(path).end
    with layout.disk_errors("reading the relay log", Where(file=path.name)), path.open("rb") as file:
        file.seek(end)
        event = file.read(framing.HEADER_SIZE)
    return len(event) == framing.HEADER_SIZE and framing.header(event).type == framing.ANONYMOUS_GTID


def gtids_before(path: Path, flavor: Flavor) -> GtidSet | None:
    """Read a file's PREVIOUS_GTIDS or GTID_LIST event; None if it is not written yet.

    Raises RelayError TR304 if the other kind of server wrote the file.
    """
    head = read_head(path)
    if head.previous is None and head.is_bare:
        return None
    before = head.previous or empty_gtid_set(flavor)
    if isinstance(before, MariadbGtidSet) is not (flavor == "mariadb"):
        raise RelayError(
            "TR304", f"the file was not written by a {flavor} server", where=Where(file=path.name)
        )
    return before
