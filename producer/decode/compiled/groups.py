"""Calls the compiled walk, and makes Python's objects of what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from producer.decode.compiled import arrays
from producer.decode.compiled.tables import GrowingTables
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
_MOST_TAIL, _MOST_GTID, _WORDS, _NODES = 4096, 256, 8, 10_000
_ENDLESS = 1 << 62


class CompiledGroups(PlainGroups):
    """Decodes plain groups of one log with compiled code. Raises LookupError: it is not in the library."""

    def __init__(self, flavor: Flavor, library: Library) -> None:
        self._is_mariadb = flavor == "mariadb"
        self._call, self._fill_index = library.function("walk"), library.function("fill_index")
        self._asked = np.zeros(arrays.ASKED_FIELDS, np.int64)
        self._out = _output()
        self._learn(KnownTables(), 0, 0)

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
        numbers = {table: number for number, table in self._tables_by_number.items()}
        for table_id, table in tables.items():
            if (number := numbers.get(table)) is not None:
                packed = int.from_bytes(table_id, "little")
                ids[packed % arrays.OPEN_TABLES] = packed, number
        out.gtid[: len(source)] = list(source)
        decoded = self._walk(part, (_ENDLESS, 0, _ENDLESS, -1), source, commit_ms)
        met = {
            packed.to_bytes(6, "little"): self._tables_by_number[number]
            for packed, number in ids.tolist()
            if packed >= 0 and number >= 0
        }
        return OpenRows(decoded, met, int(self._asked[arrays.TEXT_AT]))

    def _walk(
        self, part: BlockPart, most: tuple[int, int, int, int], source: bytes, commit_ms: int
    ) -> Decoded:
        self._know(part.known)
        asked, out, file = self._asked, self._out, part.file
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
        decoders = self._growing.decoders
        counts = [(decoders[number], out.counts[number, :3].tolist()) for number in order]
        out.counts[order] = 0
        return Decoded(
            end,
            why == arrays.GAP_ENDS,
            why == arrays.EPOCH_IS_FULL,
            [self._groups(part.data, fields) for fields in out.groups[:groups].tolist()],
            pieces(out.keys, out.key_ends[:rows].tolist()),
            pieces(out.values, out.value_ends[:rows].tolist()),
            out.moves[:moves].tolist(),
            [(decoder, rows) for decoder, rows in counts if decoder is not None],
        )

    def _groups(self, data: bytes, fields: list[int]) -> WholeGroups:
        end, source, *others = fields
        return WholeGroups(end, source if self._is_mariadb else data[source : source + 16], *others)

    def _know(self, known: KnownTables) -> None:
        if known is not self._known:
            self._learn(known, 0, 0)
        elif (len(known.tables), len(known.variants)) != self._count:
            self._learn(known, *self._count)

    def _learn(self, known: KnownTables, tables: int, variants: int) -> None:
        """Learn what is known behind so many tables and variants."""
        if not tables:
            self._growing, self._tables_by_number = GrowingTables(), dict[int, DecodedTable | None]()
        self._known, growing = known, self._growing
        for body, table in known.tables[tables:]:
            self._tables_by_number[len(growing.tables)] = table
            growing.add(body, table)
        for variant in known.variants[variants:]:
            growing.add_variant(variant)
        self._count = len(known.tables), len(known.variants)
        self._tables = growing.arrays()
        self._fill_index(self._tables)
        decoders = growing.decoders
        widest = max((len(decoder.structure.columns) for decoder in decoders if decoder), default=0)
        count = max(1, len(decoders))
        self._out = self._out._replace(
            counts=np.zeros((count, 4), np.int64),
            order=np.empty(count, np.int64),
            columns_before=np.empty(widest + 1, np.int64),
            columns_after=np.empty(widest + 1, np.int64),
            documents=np.empty((widest, 2), np.int64),
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
        documents=np.empty((0, 2), int64),
        words=np.empty(_WORDS, np.uint64),
        stack=np.empty((arrays.JSON_DEPTH, arrays.JSON_FIELDS), int64),
        nodes=np.empty((_NODES, arrays.NODE_FIELDS), int64),
    )


def examples() -> tuple[Argument, ...]:
    """Arguments of the walk, as examples of their types."""
    block = arrays.Block(np.zeros(1, np.uint8), np.zeros(1, np.int64), np.zeros(1, np.uint8))
    return block, GrowingTables().arrays(), _output()
