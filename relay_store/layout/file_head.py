"""The head of a relay file: FORMAT_DESCRIPTION and the GTID list, up to the first other event."""

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
    """Metadata from the first events of a relay file.

    Attributes:
        created: of the FORMAT_DESCRIPTION event, seconds since 1970; None for a file without events.
        version: of the server that wrote it.
        previous: the transactions before the file; None if the file has no such event.
        begin: offset of the first event after FORMAT_DESCRIPTION and the GTID list, even if it is not written yet.
        end: offset after all events of the head.
        is_bare: whether the file has only events of the head.
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
    """Read a file's head. Raises RelayError TR302, or TR304 when it is not a binlog file."""
    where = Where(file=path.name)
    created, version, has_checksum, previous = None, "", False, None
    with disk_errors("reading the relay log", where), path.open("rb") as file:
        if fault := framing.magic_fault(file.read(len(framing.MAGIC))):
            raise RelayError("TR304", fault, where=where)
        size = os.fstat(file.fileno()).st_size
        begin = end = framing.FIRST_POSITION
        while len(start := file.read(framing.HEADER_SIZE)) == framing.HEADER_SIZE:
            header = framing.header(start)
            if header.type not in _HEAD:
                return FileHead(created, version, has_checksum, previous, begin, end, is_bare=False)
            if header.size < framing.HEADER_SIZE:
                raise RelayError(
                    "TR304", f"an event has the impossible size of {header.size} bytes", where=where
                )
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
            "TR304", f"the list of the GTIDs before the file cannot be read: {error}", where=where
        ) from error
