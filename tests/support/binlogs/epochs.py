"""Decodes blocks into epochs as the publisher does, with and without compiled code."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from producer.decode import documents
from producer.decode.compiled.documents import CompiledDocuments
from producer.decode.compiled.groups import CompiledGroups
from producer.decode.decode_rules import DecodeRules
from producer.decode.duplicate_filter import duplicate_filter
from producer.decode.epoch_stream import EpochStream
from producer.decode.event_decoder import EventDecoder
from producer.decode.nested_events import PreparedTransactions
from producer.decode.plain_groups import Decoded, OpenRows, PlainGroups
from producer.decode.rows_events import FLAGS_AT
from producer.epochs.open_epoch import EpochLimits, OpenEpoch, Records, SealedEpoch
from producer.publish_start import prepared_in
from producer.structures.store import Structures
from relay_store.layout.directory import RelayPosition
from relay_store.read.reader import RelayBlock
from schemas.binlog import framing
from schemas.gtid.sets import Flavor, empty_gtid_set
from schemas.tables import TableFilter
from tests.support.binlogs.compiled import compiled_library
from tests.support.binlogs.decoder import NOW

_GTID_NUMBER = {framing.GTID: framing.HEADER_SIZE + 17, framing.MARIADB_GTID: framing.HEADER_SIZE}
_REPEATABLE = (b"BEGIN", b"COMMIT", b"SAVEPOINT", b"ROLLBACK TO")


@dataclass
class Epochs:
    """What a log came to.

    Attributes:
        epochs: of each epoch all that is written.
        groups: how many of its groups compiled code decoded.
        rows: how many rows of groups that are not whole in a block.
    """

    epochs: list[Any] = field(default_factory=list)
    groups: int = 0
    rows: int = 0


class _Counted:
    """Counts what compiled code decodes."""

    def __init__(self, plain: PlainGroups, found: Epochs) -> None:
        self._plain, self._found = plain, found

    def groups(self, *args: Any, **options: Any) -> Decoded:
        decoded = self._plain.groups(*args, **options)
        self._found.groups += sum(one.transactions for one in decoded.groups)
        return decoded

    def open_rows(self, *args: Any) -> OpenRows:
        found = self._plain.open_rows(*args)
        self._found.rows += len(found.decoded.keys)
        return found


@cache
def compiled_groups(flavor: Flavor) -> PlainGroups:
    """What decodes plain groups, made once."""
    return CompiledGroups(flavor, compiled_library())


@cache
def compiled_documents() -> CompiledDocuments:
    """What makes documents' texts, made once."""
    return CompiledDocuments(compiled_library())


def epochs(
    blocks: Sequence[RelayBlock],
    flavor: Flavor,
    root: Path,
    limits: EpochLimits,
    *,
    compiled: bool = False,
    exclude: Sequence[str] = (),
) -> Epochs:
    """Decode blocks of one file, of which the first begins with the FORMAT_DESCRIPTION.

    Args:
        root: where prepared transactions are read again.
        compiled: whether compiled code decodes what is plain.

    Raises:
        TailraceError: an event that cannot be replicated.
    """
    rules = DecodeRules(flavor, TableFilter(exclude=tuple(exclude)), limits)
    structures = Structures(flavor, rules.tables, {}, None)
    decoder = EventDecoder(
        rules, OpenEpoch(1, NOW.monotonic), empty_gtid_set(flavor).tracker(), {}, structures, PreparedTransactions(),
        prepared_in(root),
    )  # fmt: skip
    found, rows = Epochs(), _Rows()
    documents.use(compiled_documents().text if compiled else None)
    if compiled:
        decoder.plain = _Counted(compiled_groups(flavor), found)
    first = blocks[0]
    begin = RelayPosition(first.subdir, first.file, first.pos)
    stream = EpochStream(rules, decoder, structures, begin, lambda: NOW)
    head = first.data[: framing.header(first.data).size]

    def take(parts: Iterable[Records | SealedEpoch]) -> None:
        for part in parts:
            if isinstance(part, SealedEpoch):
                rows.add(part.records)
                found.epochs.append((vars(part) | {"records": rows.taken()}, _order(part)))
            else:
                rows.add(part)

    for block in blocks:
        stream.enter(block, lambda executed, at: duplicate_filter(executed), lambda: head)
        take(stream.decode_block(block))
    take(stream.rest())
    return found


def _order(epoch: SealedEpoch) -> list[str]:
    """The tables in the order in which the record has them, which comparing sets would not tell."""
    return [f"{table}" for table in epoch.record.tables]


class _Rows:
    def __init__(self) -> None:
        self._rows: list[tuple[int, bytes, bytes, Any]] = []

    def add(self, part: Records) -> None:
        for n, (key, value) in enumerate(zip(part.keys, part.values, strict=True), part.first):
            self._rows.append((n, key, value, part.headers.get(n)))

    def taken(self) -> list[tuple[int, bytes, bytes, Any]]:
        taken, self._rows = self._rows, []
        return taken


def groups_of(events: Sequence[bytes]) -> list[list[bytes]]:
    """The events after the first one, from each GTID event to the next."""
    groups: list[list[bytes]] = [[]]
    for event in events:
        if event[4] in (*_GTID_NUMBER, framing.GTID_TAGGED, framing.ANONYMOUS_GTID):
            groups.append([])
        groups[-1].append(event)
    return groups


def repeated(groups: Iterable[list[bytes]], times: int) -> list[list[bytes]]:
    """The groups, each that neither DDL nor XA is in so many times, with numbers of its own."""
    made, number = [], 0
    for group in groups:
        for _ in range(times if _is_repeatable(group) else 1):
            number += 1
            made.append([_renumbered(group[0], number), *group[1:]] if group else [])
    return made


def _is_repeatable(group: list[bytes]) -> bool:
    texts = [framing.query_text(event, True) for event in group if event[4] == framing.QUERY]
    return (
        bool(group)
        and all(text.startswith(_REPEATABLE) for text in texts)
        and framing.XA_PREPARE not in (event[4] for event in group)
    )


def of_several_sources(events: Iterable[bytes], rng: random.Random) -> list[bytes]:
    """The events with GTIDs as a server writes them that is a replica of others: runs of numbers, with gaps."""
    made, source, numbers = [], 0, [0, 0]
    for event in events:
        if event[4] in _GTID_NUMBER:
            if rng.random() < 0.3:
                source = 1 - source
            numbers[source] += rng.choice((1, 1, 1, 1, 3))
            event = _renumbered(event, numbers[source], source)
        made.append(event)
    return made


def _renumbered(event: bytes, number: int, source: int | None = None) -> bytes:
    at = _GTID_NUMBER.get(event[4])
    if at is None:
        return event
    content = bytearray(event[: -framing.CHECKSUM_SIZE])
    content[at : at + 8] = struct.pack("<Q", number)
    if source is not None:
        # The last byte of MySQL's UUID, the first one of MariaDB's domain, or of the server's id.
        content[at - 1 if event[4] == framing.GTID else (at + 8, 5)[number % 2]] = source + 1
    return _checksummed(content)


def with_partitions(event: bytes, number: int) -> bytes:
    """An event as it is for a table with partitions: rows events have their number."""
    if event[4] not in range(framing.WRITE_ROWS, framing.DELETE_ROWS + 1):
        return event
    at = FLAGS_AT + 2
    before = struct.pack("<H", number) if event[4] == framing.UPDATE_ROWS else b""
    extra = b"\1" + struct.pack("<H", number) + before
    content = bytearray(
        event[:at] + struct.pack("<H", 2 + len(extra)) + extra + event[at + 2 : -framing.CHECKSUM_SIZE]
    )
    content[9:13] = struct.pack("<I", len(content) + framing.CHECKSUM_SIZE)
    return _checksummed(content)


def _checksummed(content: bytearray) -> bytes:
    return bytes(content) + struct.pack("<I", zlib.crc32(content))
