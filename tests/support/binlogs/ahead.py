"""Decodes blocks into epochs as the publisher does, with and without groups that were decoded ahead."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from producer.decode.decode_rules import DecodeRules
from producer.decode.decoded_groups import BlockToDecode, DecodedBlock, DecodedGroups
from producer.decode.duplicate_filter import duplicate_filter
from producer.decode.epoch_stream import EpochStream
from producer.decode.event_decoder import EventDecoder
from producer.decode.group_decoder import GroupDecoder
from producer.decode.nested_events import PreparedTransactions
from producer.decode.open_group import EventFile
from producer.epochs.open_epoch import EpochLimits, OpenEpoch, Records, SealedEpoch
from producer.publish_start import prepared_in
from producer.structures.store import Structures
from relay_store.layout.directory import RelayPosition
from relay_store.read.reader import RelayBlock
from schemas.binlog import framing
from schemas.gtid.sets import Flavor, empty_gtid_set
from schemas.tables import TableFilter
from tests.support.binlogs.decoder import NOW

_GTID_NUMBER = {framing.GTID: framing.HEADER_SIZE + 17, framing.MARIADB_GTID: framing.HEADER_SIZE}
_REPEATABLE = (b"BEGIN", b"COMMIT", b"SAVEPOINT", b"ROLLBACK TO")


@dataclass
class Epochs:
    """What a log came to.

    Attributes:
        epochs: of each epoch all that is written.
        ahead: how many groups were decoded ahead and used.
    """

    epochs: list[Any] = field(default_factory=list)
    ahead: int = 0


class Ahead:
    """Decodes blocks ahead, through the form that they have on the way between processes."""

    def __init__(self, flavor: Flavor) -> None:
        self._decoder = GroupDecoder(flavor, by_fingerprint=True)
        self._known: Any = None
        self._told = self._id = 0

    def decode(self, stream: EpochStream, block: RelayBlock, format_description: bytes) -> DecodedBlock:
        """What another process would make of a block, with the tables that are known now."""
        known = stream.known_tables
        if known is not self._known:
            self._known, self._told, self._id = known, 0, self._id + 1
        tables: Any = [
            (body, table and table.decoder.structure.to_json(), table and table.decoder.fingerprint)
            for body, table in known.tables[self._told :]
        ]
        message = BlockToDecode(
            self._id, self._told, tables, block.subdir, block.file, block.pos, format_description, block.data
        )
        self._told = len(known.tables)
        made = self._decoder.decode(BlockToDecode.decoded(message.encode()))
        file = EventFile.of(block.subdir, block.file, format_description)
        return DecodedBlock(DecodedGroups.decoded(made.encode()), known, file)


def epochs(
    blocks: Sequence[RelayBlock],
    flavor: Flavor,
    root: Path,
    limits: EpochLimits,
    *,
    lead: int | None = None,
    exclude: Sequence[str] = (),
) -> Epochs:
    """Decode blocks of one file, of which the first begins with the FORMAT_DESCRIPTION.

    Args:
        root: where prepared transactions are read again.
        lead: how many blocks before its turn each block is decoded ahead; None: none is.

    Raises:
        TailraceError: an event that cannot be replicated.
    """
    rules = DecodeRules(flavor, TableFilter(exclude=tuple(exclude)), limits)
    structures = Structures(flavor, rules.tables, {}, None)
    decoder = EventDecoder(
        rules, OpenEpoch(1, NOW.monotonic), empty_gtid_set(flavor).tracker(), {}, structures, PreparedTransactions(),
        prepared_in(root),
    )  # fmt: skip
    first = blocks[0]
    begin = RelayPosition(first.subdir, first.file, first.pos)
    stream = EpochStream(rules, decoder, structures, begin, lambda: NOW)
    head = first.data[: framing.header(first.data).size]
    ahead, decoded, found, rows = Ahead(flavor), dict[int, DecodedBlock](), Epochs(), _Rows()

    def take(parts: Iterable[Records | SealedEpoch]) -> None:
        for part in parts:
            if isinstance(part, SealedEpoch):
                rows.add(part.records)
                found.epochs.append((vars(part) | {"records": rows.taken()}, _order(part)))
            else:
                rows.add(part)

    add_decoded = decoder.add_decoded

    def counted(block: Any, number: int, now: Any) -> Any:
        before = decoder.state.epoch.transactions
        stopped = yield from add_decoded(block, number, now)
        found.ahead += decoder.state.epoch.transactions - before
        return stopped

    decoder.add_decoded = counted  # type: ignore[method-assign]
    for n, block in enumerate(blocks):
        if lead is not None:
            for next_one in range(n, min(n + lead + 1, len(blocks))):
                if next_one not in decoded:
                    decoded[next_one] = ahead.decode(stream, blocks[next_one], head)
        stream.enter(block, lambda executed, at: duplicate_filter(executed), lambda: head)
        take(stream.decode_block(block, decoded.pop(n, None)))
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


def _renumbered(event: bytes, number: int) -> bytes:
    at = _GTID_NUMBER.get(event[4])
    if at is None:
        return event
    content = event[:at] + struct.pack("<Q", number) + event[at + 8 : -framing.CHECKSUM_SIZE]
    return content + struct.pack("<I", zlib.crc32(content))
