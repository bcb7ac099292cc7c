"""Where a reader of the relay log begins: for the first time, or behind what it has read already."""

from __future__ import annotations

from pathlib import Path

from relay_store import layout
from relay_store.file_head import read_head
from relay_store.layout import RelayPosition
from schemas import binlog
from schemas.errors import RelayError
from schemas.gtid import Flavor, GtidSet, MariadbGtidSet, empty_gtid_set, parse_gtid_set


def initial_position(root: Path, flavor: Flavor) -> tuple[RelayPosition, GtidSet] | None:
    """The position and the GTID set of all that lies before it; None when nothing is mirrored yet.

    It is what the mirror wrote down for a start at "current", else the oldest file's first event with
    the set that this file itself says was executed before it; so it is once the first file is purged.
    """
    first = first_used(root)
    for subdir in layout.read_index(root):
        files = layout.binlog_files(root / subdir)
        if files and subdir == first and (start := layout.read_start(root)):
            if begin := layout.locate(root, subdir, start.file, start.pos):
                return begin, parse_gtid_set(start.gtid_set, flavor)
            if layout.file_order(files[0]) <= (layout.file_number(start.file), start.pos):
                return None  # the mirror has not come so far yet
        if files:
            before = gtids_before(root / subdir / files[0], flavor)
            position = RelayPosition(subdir, files[0], binlog.FIRST_POSITION)
            return (position, before) if before is not None else None
    return None


def first_used(root: Path) -> str | None:
    """The sub-directory that start.toml speaks of, the oldest that ever had a file; later ones have namesakes."""
    for subdir in layout.read_index(root):
        if layout.read_meta(root / subdir) or layout.binlog_files(root / subdir):
            return subdir
    return None


def resume_position(root: Path, subdir: str, file: str, pos: int, executed: GtidSet) -> RelayPosition | None:
    """Where to go on behind the upstream's `file` and `pos` as this relay log's `subdir` had them.

    If they are not there any more (the relay log was made anew, of this server or of another one), it is the
    begin of the newest file that holds nothing older than what `executed` lacks.

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
        if executed and before is not None and executed.contains(before):
            return RelayPosition(folder, name, binlog.FIRST_POSITION)
    if None in sets.values() or not sets:
        return None
    raise RelayError(
        "TR308",
        f"the relay log begins behind what is published: it has neither {file}:{pos} of {subdir} nor all that"
        f" follows the GTID set {executed or 'of nothing'}",
        hint="move the relay directory away, and set relay.relay-binlog-gtid to that set, or"
        " relay.relay-binlog-name to that file, if the upstream still has it",
    )


def gtids_before(path: Path, flavor: Flavor) -> GtidSet | None:
    """The set in a file's PREVIOUS_GTIDS or GTID_LIST event; None if the file does not say so yet."""
    head = read_head(path)
    if head.previous is None and head.is_bare:
        return None
    return head.previous or empty_gtid_set(flavor)
