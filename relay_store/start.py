"""Where the first reader of a relay log begins."""

from __future__ import annotations

from pathlib import Path

from relay_store import layout
from relay_store.layout import RelayPosition, disk_errors
from schemas import binlog
from schemas.errors import RelayError, Where
from schemas.gtid import Flavor, GtidSet, empty_gtid_set, parse_gtid_set


def initial_position(root: Path, flavor: Flavor) -> tuple[RelayPosition, GtidSet] | None:
    """The position and the GTID set of all that lies before it; None when nothing is mirrored yet.

    It is what the mirror wrote down for a start at "current", else the oldest file's first event with
    the set that this file itself says was executed before it; so it is once the first file is purged.
    """
    first = first_used(root)
    for subdir in layout.read_index(root):
        files = layout.binlog_files(root / subdir)
        if subdir == first and (start := layout.read_start(root)) and start.file in files:
            return RelayPosition(subdir, start.file, start.pos), parse_gtid_set(start.gtid_set, flavor)
        if files:
            position = RelayPosition(subdir, files[0], binlog.FIRST_POSITION)
            return position, gtids_before(root / subdir / files[0], flavor)
    return None


def first_used(root: Path) -> str | None:
    """The sub-directory that start.toml speaks of, the oldest that ever had a file; later ones have namesakes."""
    for subdir in layout.read_index(root):
        if layout.read_meta(root / subdir) or layout.binlog_files(root / subdir):
            return subdir
    return None


def gtids_before(path: Path, flavor: Flavor) -> GtidSet:
    """The set in a file's PREVIOUS_GTIDS or GTID_LIST event; empty if the file has none (yet)."""
    where = Where(file=path.name)
    with disk_errors("reading the relay log", where), path.open("rb") as file:
        if file.read(4) != binlog.MAGIC:
            raise RelayError("TR304", "not a binlog file", where=where)
        has_checksum = False
        while len(head := file.read(binlog.HEADER_SIZE)) == binlog.HEADER_SIZE:
            kind, size = binlog.header(head).type, binlog.header(head).size
            event = head + file.read(size - binlog.HEADER_SIZE)
            if kind == binlog.FORMAT_DESCRIPTION:
                has_checksum = binlog.checksum_algorithm(event) == binlog.CHECKSUM_CRC32
            elif kind != binlog.MARIADB_START_ENCRYPTION:
                return binlog.previous_gtids(event, has_checksum) or empty_gtid_set(flavor)
    return empty_gtid_set(flavor)
