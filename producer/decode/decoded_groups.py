"""Whole groups that another process decoded, and their form on the way between the processes.

Decoded are a row's key and its value up to ``source``. What is behind that depends on the groups before: the row's
number in its epoch, and the epoch's number.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field

from producer.decode.open_group import EventFile
from producer.decode.row_decoder import RowDecoder
from producer.decode.rows_events import KnownTables
from producer.epochs.open_epoch import Headers
from schemas.gtid.base import SourceKey

# Without references to what came before, which takes longer to look for than it saves.
_MARSHAL = 2

#: ``before_columns`` or ``after_columns`` of a structure
_Columns = tuple[str, ...] | None


@dataclass
class DecodedGroups:
    """What is decoded of one block. Groups that are not plain are left out, and so is what stands between groups.

    Attributes:
        groups: of each group where it begins and ends in the block; the source (MariaDB: domain), number and server
            id of its GTID, and the GTID as text; when it was committed, ms; and how many of the rows and of the
            events below come before its end.
        keys: of each row.
        values: of each row, up to ``source.seq``.
        headers: of rows that have some, by their number.
        tails: of each rows event ``source`` from ``flags`` on. A row that is half of a key change has one of its own.
        counts: how many rows each tail is of.
        kinds: each tail's table, as its number in ``tables`` times three, and the column of its counts.
        tables: each table's number in ``KnownTables.tables``, and the columns that its row images have.
        held: bytes of events that were unpacked for this.
    """

    groups: list[tuple[int, int, SourceKey | int, int, int, str, int, int, int]] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)
    tails: list[bytes] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    tables: list[tuple[int, _Columns, _Columns]] = field(default_factory=list)
    held: int = 0

    def before(self, group: int) -> tuple[int, int]:
        """The numbers of rows and events before a group."""
        return self.groups[group - 1][-2:] if group else (0, 0)

    def encode(self) -> bytes:
        """All of it in one piece; only for a process of the same Python."""
        return marshal.dumps(tuple(vars(self).values()), _MARSHAL)

    @classmethod
    def decoded(cls, data: bytes) -> DecodedGroups:
        """The inverse of ``encode``. Raises ValueError, TypeError, EOFError for what is not whole."""
        made = cls(*marshal.loads(data))
        rows, events = made.before(len(made.groups))
        if not (
            len(made.keys) == len(made.values) == sum(made.counts) == rows
            and len(made.tails) == len(made.counts) == len(made.kinds) == events
        ):
            raise ValueError("decoded rows are missing")
        return made


@dataclass
class DecodedBlock:
    """Decoded groups of a block, and what they were decoded with.

    Attributes:
        known: the tables that were known; if others are in force now, the groups must not be used.
        file: the block's file.
    """

    groups: DecodedGroups
    known: KnownTables
    file: EventFile
    _next: int = 0

    def group_from(self, offset: int) -> int:
        """The number of the first group that begins there or behind; the offsets of one caller never decrease."""
        groups = self.groups.groups
        while self._next < len(groups) and groups[self._next][0] < offset:
            self._next += 1
        return self._next

    def counts(self, events: slice) -> list[tuple[RowDecoder, int, int]]:
        """The rows of these events by table and column of counts, in the order in which these come first."""
        groups, totals = self.groups, dict[int, int]()
        for kind, count in zip(groups.kinds[events], groups.counts[events], strict=True):
            totals[kind] = totals.get(kind, 0) + count
        return [(self._decoder(*groups.tables[kind // 3]), kind % 3, n) for kind, n in totals.items()]

    def _decoder(self, number: int, before: _Columns, after: _Columns) -> RowDecoder:
        _, table = self.known.tables[number]
        if table is None:
            raise ValueError("rows of a table that is not replicated")
        return table.decoder_of(before, after)

    def begin_from(self, offset: int, otherwise: int) -> int:
        """Where that group begins; ``otherwise`` if there is none."""
        number = self.group_from(offset)
        return self.groups.groups[number][0] if number < len(self.groups.groups) else otherwise


@dataclass(frozen=True)
class BlockToDecode:
    """A block for another process.

    Attributes:
        known_id: identifies a ``KnownTables``.
        known_before: how many of its tables the process has been told already.
        tables: those behind them: the TABLE_MAP's body, the structure as JSON, and what names its schema on the wire;
            None for a table that is not replicated.
    """

    known_id: int
    known_before: int
    tables: list[tuple[bytes, str, bytes] | tuple[bytes, None, None]]
    subdir: str
    file: str
    pos: int
    format_description: bytes
    data: bytes

    def encode(self) -> bytes:
        """All of it in one piece; only for a process of the same Python."""
        return marshal.dumps(tuple(vars(self).values()), _MARSHAL)

    @classmethod
    def decoded(cls, data: bytes) -> BlockToDecode:
        """The inverse of ``encode``."""
        return cls(*marshal.loads(data))
