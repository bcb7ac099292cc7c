"""On the executors: the rows of a partition, each with what it claims and where it stands in Kafka.

A compacted row is one result: what to remove, what to write, and the offsets of all changes that it stands for. A
row that is applied in order is two, of which the first one has its claims and its offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress

from schemas.avro_schema import KEY_CHANGE, OP_AT
from schemas.epoch import OffsetRange
from schemas.varint import encode_bytes, read_bytes
from schemas.wire import HEADER_SIZE
from spark_consumer.compact import compact
from spark_consumer.fetch import Share, Source
from spark_consumer.pieces import Result
from spark_consumer.plan import Mode, SlicePlan
from spark_consumer.rows import TALLY, TableRows, all_widened, counted, render, tables_of, tally
from spark_consumer.workers.bitmap import Bits, lacking, pack_offsets
from spark_consumer.workers.causality import TableCausality
from spark_consumer.workers.claim import Claims, claims_of, of_halves, of_whole, pack

#: kinds of results beside those of ``spark_consumer.rows``
NET, CLAIM = 100, 101
_HAS_BEFORE, _DELETE = b"ud", ord("d")


def read_claims(source: Source, plan: SlicePlan, part: OffsetRange, share: Share) -> Iterator[Result]:
    """Read a share of a range, and render it for several workers."""
    offsets: list[int] = []
    keys, values = source.read(part, share, offsets)
    yield from claimed(plan, part.partition, keys, values, offsets)


def read_rest(
    source: Source, plan: SlicePlan, applied: Sequence[Bits], part: OffsetRange, share: Share
) -> Iterator[Result]:
    """Read a share of a range, and render what no worker has applied, for one transaction."""
    offsets: list[int] = []
    keys, values = source.read(part, share, offsets)
    yield from rest(plan, part.partition, keys, values, offsets, applied)


def rest(
    plan: SlicePlan,
    partition: int,
    keys: Sequence[bytes],
    values: Sequence[bytes],
    offsets: Sequence[int],
    applied: Sequence[Bits],
) -> Iterator[Result]:
    """The results for those of one partition's rows that are missing; all of them are counted."""
    yield tally(values)
    missing = lacking(partition, offsets, applied)
    results = render(plan, list(compress(keys, missing)), list(compress(values, missing)))
    yield from (result for result in results if result[0] != TALLY)


def claimed(
    plan: SlicePlan,
    partition: int,
    keys: Sequence[bytes],
    values: Sequence[bytes],
    offsets: Sequence[int],
) -> Iterator[Result]:
    """The results for one partition's rows in log order."""
    yield tally(values)
    values = all_widened(plan, values)
    tables = tables_of(plan)
    assert plan.causality is not None
    claimers = {
        header: _Claimer(table, causality)
        for (header, table), causality in zip(tables.items(), plan.causality.tables, strict=True)
        if table.plan.mode is not Mode.SKIP
    }
    compacted = [tables[value[:HEADER_SIZE]].plan.mode is Mode.COMPACT for value in values]
    others = [not one for one in compacted]
    for key, value, offset in compress(zip(keys, values, offsets, strict=True), others):
        header = value[:HEADER_SIZE]
        if (result := tables[header].in_order(key, value)) is not None:
            yield claimers[header].of_change(result, value, partition, offset)
            yield result
    keys, values = list(compress(keys, compacted)), list(compress(values, compacted))
    yield from _compacted(tables, claimers, partition, keys, values, list(compress(offsets, compacted)))


def _compacted(
    tables: dict[bytes, TableRows],
    claimers: dict[bytes, _Claimer],
    partition: int,
    keys: Sequence[bytes],
    values: Sequence[bytes],
    offsets: Sequence[int],
) -> Iterator[Result]:
    net = compact(keys, values)
    yield from counted(net, tables)
    gone, written = dict(net.gone), dict(net.written)
    places: dict[bytes, list[int]] = {}
    for key, offset in zip(keys, offsets, strict=True):
        places.setdefault(key, []).append(offset)
    for key in gone | written:
        before, after = gone.get(key), written.get(key)
        header = (after or before or b"")[:HEADER_SIZE]
        yield claimers[header].of_row(key, before, after, partition, places[key])


class _Claimer:
    """Makes the results of one table structure."""

    def __init__(self, table: TableRows, causality: TableCausality) -> None:
        self._table, self._causality = table, causality
        structure = table.plan.structure
        self._before: Claims = claims_of(structure, causality, before=True)
        self._after: Claims = claims_of(structure, causality, before=False)

    def of_row(
        self, key: bytes, before: bytes | None, after: bytes | None, partition: int, offsets: Sequence[int]
    ) -> Result:
        """A compacted row: ``before`` is its first change if it must be removed, ``after`` its last one if written."""
        return (
            NET,
            self._table.index,
            1,
            partition,
            0,
            0,
            0,
            None if before is None else self._table.found_by(key, before),
            _packed(offsets, self._claims(before, after)),
            None if after is None else self._table.renderers.after(after),
            0,
        )

    def of_change(self, result: Result, value: bytes, partition: int, offset: int) -> Result:
        """What a change that is applied in order claims."""
        _, index, _, epoch, seq, flags, op, *_ = result
        claims = self._claims(value, None if op == _DELETE else value)
        if flags & KEY_CHANGE:
            claims = [*claims, of_halves(epoch, seq if op == _DELETE else seq - 1)]
        return (CLAIM, index, 0, partition, 0, 0, 0, None, _packed([offset], claims), None, 0)

    def _claims(self, before: bytes | None, after: bytes | None) -> list[bytes]:
        if self._causality.whole is not None:
            return [of_whole(self._causality.whole)]
        claims: list[bytes] = []
        if before is not None and before[OP_AT] in _HAS_BEFORE:
            claims += self._before(before)
        if after is not None:
            claims += self._after(after)
        return list(dict.fromkeys(claims))


def _packed(offsets: Sequence[int], claims: Sequence[bytes]) -> bytes:
    return encode_bytes(pack_offsets(offsets)) + pack(claims)


def offsets_and_claims(packed: bytes) -> tuple[bytes, bytes]:
    """The offsets and the claims of a result, each still packed."""
    offsets, at = read_bytes(packed, 0)
    return offsets, packed[at:]
