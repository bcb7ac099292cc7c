"""Calls the compiled walk, and makes Python's objects of what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from producer.decode.compiled import arrays
from producer.decode.compiled.tables import table_arrays
from producer.decode.open_group import WholeGroups
from producer.decode.plain_groups import BlockPart, Decoded, OpenRows, PlainGroups
from producer.decode.rows_events import DecodedTable, KnownTables
from producer.epochs.open_epoch import EpochLimits
from schemas.compiled.types import Argument, pieces
from schemas.gtid.sets import Flavor

if TYPE_CHECKING:
    from schemas.compiled.library import Library

_KEYS, _VALUES, _IMAGES = 8 << 20, 24 << 20, 8 << 20  # bytes; what is not used takes no memory
_ROWS, _GROUPS, _EVENTS, _MOVES = 100_000, 50_000, 50_000, 10_000
_MOST_TAIL, _MOST_GTID, _WORDS = 4096, 256, 8
_ENDLESS = 1 << 62


class CompiledGroups(PlainGroups):
    """Decodes plain groups of one log with compiled code. Raises LookupError: it is not in the library."""

    def __init__(self, flavor: Flavor, library: Library) -> None:
        self._is_mariadb = flavor == "mariadb"
        self._call, self._fill_index = library.function("walk"), library.function("fill_index")
        self._asked = np.zeros(arrays.ASKED_FIELDS, np.int64)
        self._out = _output()
        self._learn(KnownTables())

    def groups(self, part: BlockPart, limits: EpochLimits, *, ends: bool) -> Decoded:
        epoch = part.epoch
        most = (
            min(limits.max_rows, _ENDLESS),
            epoch.size,
            min(limits.max_bytes, _ENDLESS),
            1 if ends else -1,
        )
        return self._walk(part, most, b"", 0)

    def open_rows(
        self, part: BlockPart, source: bytes, commit_ms: int, tables: dict[bytes, DecodedTable | None]
    ) -> OpenRows:
        self._know(part.known)
        ids, out = self._out.open_tables, self._out
        ids[:, 0] = -1
        numbers = {table: number for number, (_, table) in enumerate(part.known.tables)}
        for table_id, table in tables.items():
            if (number := numbers.get(table)) is not None:
                packed = int.from_bytes(table_id, "little")
                ids[packed % arrays.OPEN_TABLES] = packed, number
        out.gtid[: len(source)] = list(source)
        decoded = self._walk(part, (_ENDLESS, 0, _ENDLESS, -1), source, commit_ms)
        met = {
            packed.to_bytes(6, "little"): part.known.tables[number][1]
            for packed, number in ids.tolist()
            if packed >= 0 and number >= 0
        }
        return OpenRows(decoded, met, int(self._asked[arrays.TEXT_AT]))

    def _walk(
        self, part: BlockPart, most: tuple[int, int, int, int], source: bytes, commit_ms: int
    ) -> Decoded:
        self._know(part.known)
        asked, out, file, known = self._asked, self._out, part.file, part.known
        varying = (part.epoch.avro_number, file.source_name, part.published)
        asked[: arrays.TEXT_AT] = (
            part.begin, part.end, part.pos + file.offset, file.checksum, self._is_mariadb, part.epoch.seq, *most,
            *map(len, varying), len(source), commit_ms,
        )  # fmt: skip
        block = arrays.Block(
            np.frombuffer(part.data, np.uint8), asked, np.frombuffer(b"".join(varying), np.uint8)
        )
        self._call(block, self._tables, out)
        end, why, groups, rows, moves, tables = asked[arrays.BEHIND :].tolist()
        order = out.order[:tables].tolist()
        counts = [(known.tables[number][1], out.counts[number, :3].tolist()) for number in order]
        out.counts[order] = 0
        return Decoded(
            end,
            why == arrays.GAP_ENDS,
            why == arrays.EPOCH_IS_FULL,
            [self._groups(part.data, fields) for fields in out.groups[:groups].tolist()],
            pieces(out.keys, out.key_ends[:rows].tolist()),
            pieces(out.values, out.value_ends[:rows].tolist()),
            out.moves[:moves].tolist(),
            [(table, rows) for table, rows in counts if table is not None],
        )

    def _groups(self, data: bytes, fields: list[int]) -> WholeGroups:
        end, source, *others = fields
        return WholeGroups(end, source if self._is_mariadb else data[source : source + 16], *others)

    def _know(self, known: KnownTables) -> None:
        if known is not self._known or len(known.tables) != self._count:
            self._learn(known)

    def _learn(self, known: KnownTables) -> None:
        self._known, self._count = known, len(known.tables)
        self._tables = table_arrays(known)
        self._fill_index(self._tables)
        widest = max((len(table.decoder.structure.columns) for _, table in known.tables if table), default=0)
        count = max(1, self._count)
        self._out = self._out._replace(
            counts=np.zeros((count, 4), np.int64),
            order=np.empty(count, np.int64),
            columns_before=np.empty(widest + 1, np.int64),
            columns_after=np.empty(widest + 1, np.int64),
        )


def _output() -> arrays.Output:
    """The arrays for what is written, without those that depend on the tables."""
    int64, uint8, none = np.int64, np.uint8, np.empty(0, np.int64)
    return arrays.Output(
        keys=np.empty(_KEYS, uint8),
        values=np.empty(_VALUES, uint8),
        key_ends=np.empty(_ROWS, int64),
        value_ends=np.empty(_ROWS, int64),
        groups=np.empty((_GROUPS, arrays.GROUP_FIELDS), int64),
        moves=np.empty(_MOVES, int64),
        counts=np.empty((0, 4), int64),
        order=none,
        events=np.empty((_EVENTS, 3), int64),
        open_tables=np.empty((arrays.OPEN_TABLES, 2), int64),
        gtid=np.empty(_MOST_GTID, uint8),
        tail=np.empty(_MOST_TAIL, uint8),
        before=np.empty(_IMAGES, uint8),
        columns_before=none,
        columns_after=none,
        words=np.empty(_WORDS, np.uint64),
        stack=np.empty((arrays.JSON_DEPTH, arrays.JSON_FIELDS), int64),
    )


def examples() -> tuple[Argument, ...]:
    """Arguments of the walk, as examples of their types."""
    block = arrays.Block(np.zeros(1, np.uint8), np.zeros(1, np.int64), np.zeros(1, np.uint8))
    return block, table_arrays(KnownTables()), _output()
