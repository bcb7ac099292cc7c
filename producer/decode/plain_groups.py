"""What is decoded at once: plain groups of a block, or rows of the open group.

A group is plain if it has a GTID and consists of rows of known tables alone, whose images have all columns, or those
of a known variant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from producer.decode.open_group import EventFile, WholeGroups
from producer.decode.row_decoder import RowDecoder
from producer.decode.rows_events import DecodedTable, KnownTables
from producer.epochs.open_epoch import EpochLimits, Headers, OpenEpoch


@dataclass(frozen=True)
class BlockPart:
    """What is to be decoded.

    Attributes:
        begin, end: where it is in ``data``.
        pos: where ``data`` begins in the file.
        epoch: where the rows go; it is not changed.
        known: the tables that are known.
        published: the time of publishing, as in Avro.
    """

    data: bytes
    begin: int
    end: int
    pos: int
    file: EventFile
    epoch: OpenEpoch
    known: KnownTables
    published: bytes


class Decoded(NamedTuple):
    """What was decoded.

    Attributes:
        end: where it ends in the block.
        is_gap: whether it is no group, but what comes before the next plain one.
        is_full: whether the epoch is full behind it.
        groups: in runs of successive numbers.
        keys: of the rows.
        values: of the rows.
        moves: the first halves of key changes, by their number from 0.
        counts: the structures in the order in which they came, each with its rows of INSERT, UPDATE and DELETE events.
    """

    end: int
    is_gap: bool
    is_full: bool
    groups: list[WholeGroups]
    keys: list[bytes]
    values: list[bytes]
    moves: list[int]
    counts: list[tuple[RowDecoder, list[int]]]

    def headers(self, first: int) -> dict[int, Headers]:
        """The headers of the halves of key changes, if the first row has this number."""
        found: dict[int, Headers] = {}
        for number in self.moves:
            found[first + number] = [("__debezium.newkey", self.keys[number + 1])]
            found[first + number + 1] = [("__debezium.oldkey", self.keys[number])]
        return found


class OpenRows(NamedTuple):
    """Rows of the open group.

    Attributes:
        tables: by their id, those that the TABLE_MAPs among them led to.
        text_at: where the text of the last statement among them is in the block; -1: there is none.
    """

    decoded: Decoded
    tables: dict[bytes, DecodedTable | None]
    text_at: int


class PlainGroups(Protocol):
    """Decodes what is plain of one log."""

    def groups(self, part: BlockPart, limits: EpochLimits, *, ends: bool) -> Decoded:
        """Decode the groups at the part's begin, up to the first that is not plain.

        Args:
            ends: whether the epoch ends behind the first group.
        """

    def open_rows(
        self, part: BlockPart, source: bytes, commit_ms: int, tables: dict[bytes, DecodedTable | None]
    ) -> OpenRows:
        """Decode rows of the open group from the part's begin on, up to another event or one that is not plain.

        Args:
            source: server id and GTID, as values have them.
            tables: by their id.
        """
