"""The transaction that is being read, and the file that its events are in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from relay_store.layout.directory import part_offset, upstream_file
from schemas.binlog import framing
from schemas.varint import encode_bytes


class EventFile(NamedTuple):
    """The relay file whose events are read.

    Attributes:
        subdir: of the relay log.
        name: within ``subdir``.
        source_name: the upstream's name of it, as Avro bytes.
        offset: of a part of the upstream's file, what the upstream's positions are more than its own.
        checksum: bytes behind each event.
    """

    subdir: str
    name: str
    source_name: bytes
    offset: int
    checksum: int

    @classmethod
    def of(cls, subdir: str, name: str, format_description: bytes = b"") -> EventFile:
        """A file; without its FORMAT_DESCRIPTION event, which is its first, nothing but that event can be read."""
        checksum = 0
        if format_description and framing.checksum_algorithm(format_description) == framing.CHECKSUM_CRC32:
            checksum = framing.CHECKSUM_SIZE
        return cls(subdir, name, encode_bytes(upstream_file(name).encode()), part_offset(name), checksum)


def savepoint_name(text: str) -> str:
    """The name in the text of a SAVEPOINT or ROLLBACK TO, with ASCII letters in lower case.

    Args:
        text: the keywords and the name, which the session may have in backticks, double quotes, or bare.
    """
    name = text.split(None, 2)[2] if text[:8].upper() == "ROLLBACK" else text.split(None, 1)[1]
    quote = name[0]
    if quote in '`"':
        name = name[1:-1].replace(quote * 2, quote)
    return name.lower()


#: where nothing was read yet
NO_FILE = EventFile("", "", b"", 0, 0)


class Savepoints:
    """Those of one transaction.

    Servers compare these names without accents too, so of others than ASCII two may be the same one.
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._sure = True

    def add(self, name: str, place: int) -> None:
        """A savepoint; one of the same name is gone."""
        self._places[name] = place
        self._sure = self._sure and name.isascii()

    def find(self, name: str) -> int | None:
        """The place that a name stands for; None if that is not sure."""
        return self._places.get(name) if self._sure and name.isascii() else None


@dataclass(slots=True)
class Transaction:
    """One transaction group, or what stands outside of them.

    Attributes:
        first: the number that its first record has, or would have, in the open epoch.
        gtid: None without one.
        server_id: of the server that it was made on.
        commit_ms: when it was committed there, ms since 1970.
        has_gtid: whether its GTID counts as executed behind it.
        begin: where its first event is in its file; None if no event has begun it.
        is_passed_over: whether its rows are not taken in: it was published before, or an XA transaction's come later.
        is_xa: whether it prepares an XA transaction.
        awaits_prepare: whether its XA PREPARE is to come.
        statement: the text of the statement whose rows follow, if the upstream logs it.
        savepoints: those that are set; None before the first.
        skipped: events that a rule passed over, by schema, table and kind.
    """

    first: int
    gtid: str | None = None
    server_id: int = 0
    commit_ms: int = 0
    has_gtid: bool = False
    begin: int | None = None
    is_passed_over: bool = False
    is_xa: bool = False
    awaits_prepare: bool = False
    statement: bytes = b""
    savepoints: Savepoints | None = None
    skipped: tuple[tuple[str, str, str], ...] = ()

    def start_xa(self, pos: int) -> None:
        """It is an XA transaction, from the event at ``pos`` on: its rows are read when it commits."""
        self.is_xa = self.awaits_prepare = self.is_passed_over = True
        if self.begin is None:
            self.begin = pos
