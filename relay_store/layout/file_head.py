"""The head of a relay file: FORMAT_DESCRIPTION and the GTIDs before it, up to its first other event."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from relay_store.layout.directory import disk_errors
from schemas.binlog import framing
from schemas.errors import RelayError, Where
from schemas.gtid.sets import Flavor, GtidSet

_HEAD = frozenset(
    {
        framing.FORMAT_DESCRIPTION,
        framing.PREVIOUS_GTIDS,
        framing.MARIADB_GTID_LIST,
        framing.MARIADB_START_ENCRYPTION,
        framing.MARIADB_BINLOG_CHECKPOINT,
    }
)


@dataclass(frozen=True)
class FileHead:
    """What a file says of itself.

    Attributes:
        created: of the FORMAT_DESCRIPTION event, seconds since 1970; None for a file without events.
        version: of the server that wrote it.
        previous: the transactions before the file; None when it says nothing of them.
        begin: where the first event behind FORMAT_DESCRIPTION and those GTIDs begins, or is going to.
        end: the same behind whatever else belongs to the head.
        is_bare: whether it has no other event yet.
    """

    created: int | None
    version: str
    has_checksum: bool
    previous: GtidSet | None
    begin: int
    end: int
    is_bare: bool

    @property
    def flavor(self) -> Flavor:
        """The kind of server that wrote the file."""
        return "mariadb" if "mariadb" in self.version.lower() else "mysql"


def read_head(path: Path) -> FileHead:
    """Read a file's head. Raises RelayError TR302, or TR304 when it is not a binlog file's."""
    where = Where(file=path.name)
    created, version, has_checksum, previous = None, "", False, None
    with disk_errors("reading the relay log", where), path.open("rb") as file:
        if said := framing.magic_fault(file.read(len(framing.MAGIC))):
            raise RelayError("TR304", said, where=where)
        size = os.fstat(file.fileno()).st_size
        begin = end = framing.FIRST_POSITION
        while len(start := file.read(framing.HEADER_SIZE)) == framing.HEADER_SIZE:
            header = framing.header(start)
            if header.type not in _HEAD:
                return FileHead(created, version, has_checksum, previous, begin, end, is_bare=False)
            if header.size < framing.HEADER_SIZE:
                raise RelayError("TR304", f"an event of {header.size} bytes", where=where)
            if end + header.size > size:
                break
            event = start + file.read(header.size - framing.HEADER_SIZE)
            if len(event) < header.size:
                break
            if header.type == framing.FORMAT_DESCRIPTION:
                has_checksum = framing.checksum_algorithm(event) == framing.CHECKSUM_CRC32
                created, version = header.timestamp, framing.server_version(event)
            elif previous is None:
                previous = _previous(event, has_checksum, where)
            end += header.size
            if header.type != framing.MARIADB_BINLOG_CHECKPOINT:
                begin = end
    return FileHead(created, version, has_checksum, previous, begin, end, is_bare=True)


def _previous(event: bytes, has_checksum: bool, where: Where) -> GtidSet | None:
    try:
        return framing.previous_gtids(event, has_checksum)
    except (ValueError, struct.error) as error:
        raise RelayError(
            "TR304", f"the GTIDs before the file cannot be read: {error}", where=where
        ) from error
