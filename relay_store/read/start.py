"""The position at which a reader of the relay log begins: the first time, or after what it has read."""

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
class Begin:
    """Where a relay log begins.

    Attributes:
        executed: the GTID set of all that lies before it.
        log_begins: as in start.toml; not empty.
    """

    position: RelayPosition
    executed: GtidSet
    log_begins: str


def initial_position(root: Path, flavor: Flavor) -> Begin | None:
    """Where a log that has no reader yet begins: at the position in start.toml.

    The rest that a purge left is not a beginning, because what was before it is not known.

    Returns None when the mirror has not come so far yet. Raises RelayError TR313: the begin is not there any more.
    """
    there = [
        (subdir, file) for subdir in layout.read_index(root) for file in layout.binlog_files(root / subdir)
    ]
    if not there:
        return None
    oldest = f"{there[0][0]}/{there[0][1]}"
    start = layout.read_start(root)
    if start is None:
        raise _no_begin(f"{layout.START_NAME} is missing, which says where this relay log begins", oldest)
    if not start.log_begins:
        raise _no_begin(
            "this relay log goes on behind epochs that were published before there was one", oldest
        )
    if begin := layout.locate(root, start.subdir, start.file, start.pos):
        return Begin(
            begin, layout.stated_set(start.gtid_set, flavor, root / layout.START_NAME), start.log_begins
        )
    subdir, file = there[0]
    if subdir == start.subdir and layout.file_order(file) <= (layout.file_number(start.file), start.pos):
        return None
    raise _no_begin(f"this relay log began at {start.subdir}/{start.file}:{start.pos}", oldest)


def _no_begin(what: str, oldest: str) -> RelayError:
    return RelayError(
        "TR313",
        f"what was written before {oldest}, the oldest relay file, is not here any more: {what}",
        where=Where(file=oldest),
        hint="put the relay files back from a backup; or, if Kafka has no epochs and shall have none of that, move the"
        " relay directory away: the next `tailrace produce` begins anew as [source] start and [relay] say",
    )


def resume_position(
    root: Path, subdir: str, file: str, pos: int, executed: GtidSet, *, by_gtids: bool = True
) -> RelayPosition | None:
    """Where to go on behind the upstream's `file` and `pos` as this relay log's `subdir` had them.

    If they are not there any more (the relay log was made anew, of this server or of another one), it is the
    begin of the newest file that holds nothing older than what `executed` lacks.

    Args:
        by_gtids: whether the transactions before the place had GTIDs; without, a set does not say what is lacking.

    Returns None while the relay log has not come so far again. Raises RelayError TR308 when it cannot.
    """
    flavor: Flavor = "mariadb" if isinstance(executed, MariadbGtidSet) else "mysql"
    folders = [name for name in layout.read_index(root) if layout.binlog_files(root / name)]
    for folder in reversed(folders):
        # Without GTIDs all that can be gone by is the server and its own positions.
        if folder == subdir or (not executed and layout.subdir_uuid(folder) == layout.subdir_uuid(subdir)):
            here = layout.locate(root, folder, file, pos)
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
        f"the relay log begins behind what is published: it has neither {file}:{pos} of {subdir} nor all that"
        f" follows the GTID set {executed or 'of nothing'}",
        hint="move the relay directory away, and take relay.relay-binlog-gtid and relay-binlog-name out of the"
        " configuration, or set them to that set and file: the next start fetches what the upstream still has",
    )


def _begins_anonymous(path: Path) -> bool:
    """Whether a file's first transaction has no GTID: then those just before it may have had none either."""
    end = read_head(path).end
    with layout.disk_errors("reading the relay log", Where(file=path.name)), path.open("rb") as file:
        file.seek(end)
        event = file.read(framing.HEADER_SIZE)
    return len(event) == framing.HEADER_SIZE and framing.header(event).type == framing.ANONYMOUS_GTID


def gtids_before(path: Path, flavor: Flavor) -> GtidSet | None:
    """The set in a file's PREVIOUS_GTIDS or GTID_LIST event; None if the file does not say so yet.

    Raises RelayError TR304 for a file of the other kind of server.
    """
    head = read_head(path)
    if head.previous is None and head.is_bare:
        return None
    before = head.previous or empty_gtid_set(flavor)
    if isinstance(before, MariadbGtidSet) is not (flavor == "mariadb"):
        raise RelayError("TR304", f"the file is not of a {flavor} server", where=Where(file=path.name))
    return before
