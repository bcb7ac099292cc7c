"""Finds transactions inside an epoch, and the positions between them.

An epoch's record describes the epoch as a whole. Each of its rows has its transaction's GTID and a number in upstream
order, and the rows of a transaction are consecutive. So a position inside an epoch is a number of rows. Transactions
without rows are in the epoch's GTID set only: their order among the others follows only from their numbers. They
changed nothing, so the order matters only if one of them is given as a position.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import fastavro
from zlib_ng.zlib_ng import crc32

from schemas.counted import counted
from schemas.errors import LogError, Where
from schemas.gtid.sets import GtidSet
from schemas.structure import TableStructure
from schemas.wire.avro_schema import KEY_CHANGE, read_record, row_schema
from schemas.wire.epoch import DIGEST_MODULUS, EpochCommitted, OffsetRange, TableTouched
from schemas.wire.log_records import UNFIT, At, LoggedVersion, no_record, structure_of
from schemas.wire.rows import header_size, schema_name
from spark_consumer.epochs.fetch import RangeReadError, TopicReader, read_error
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import LogPosition, end_of_epoch, fill_gaps, intersection, parse_like
from spark_consumer.epochs.slices import LoggedEpoch
from spark_consumer.rules.config import LogAddress


class RowHeader(NamedTuple):
    """The fields of a row that describe its event."""

    seq: int
    gtid: str | None
    ts_ms: int
    fingerprint: str
    db: str
    table: str
    event: int  # 0 insert, 1 update, 2 delete, 3 read by a copy
    crc: int


@dataclass(frozen=True)
class Transaction:
    """One upstream transaction's rows in an epoch.

    Attributes:
        ts_ms: the commit time upstream, in ms since 1970.
        digest: the sum of the rows' CRC-32.
    """

    gtid: str | None
    ts_ms: int
    rows: int
    digest: int
    tables: tuple[TableTouched, ...]


def transactions(heads: Iterable[RowHeader]) -> list[Transaction]:
    """Return the transactions of an epoch's rows, in upstream order."""
    in_order = sorted(heads)
    return [_transaction(list(group)) for _, group in groupby(in_order, key=lambda head: head.gtid)]


def _transaction(heads: Sequence[RowHeader]) -> Transaction:
    counts: dict[tuple[str, str, str], list[int]] = {}
    for head in heads:
        counts.setdefault((head.db, head.table, head.fingerprint), [0, 0, 0, 0])[head.event] += 1
    first = heads[0]
    return Transaction(
        first.gtid,
        first.ts_ms,
        len(heads),
        sum(head.crc for head in heads),
        tuple(TableTouched(*name, *numbers) for name, numbers in counts.items()),
    )


def position_after_gtids(
    before: str, logged: LoggedEpoch, offset: int, found: Sequence[Transaction], wanted: GtidSet
) -> LogPosition:
    """Return the first position in an epoch at which all of its transactions that are in a set are applied.

    Args:
        before: the executed set before the epoch.
        offset: the offset of the epoch before it.
    """
    after = logged.record.executed_gtids
    here = intersection(wanted, parse_like(after, before).minus(parse_like(before, after)))
    silent = fill_gaps(here.minus(_executed("", found, after)))
    ends = (
        n
        for n, one in enumerate(found, 1)
        if here.contains(_gtid(one, logged)) or silent.contains(_gtid(one, logged))
    )
    executed = _executed(before, found[: (last := max(ends, default=0))], after).union(here)
    return _place(before, logged, offset, found[:last], executed)


def position_before_time(
    before: str, logged: LoggedEpoch, offset: int, found: Sequence[Transaction], moment_ms: float
) -> LogPosition:
    """Return the position in an epoch before its first transaction that was committed at a time or later."""
    count = next((n for n, one in enumerate(found) if one.ts_ms >= moment_ms), len(found))
    for one in found:
        _gtid(one, logged)
    executed = _executed(before, found[:count], logged.record.executed_gtids)
    if count == 0:
        return LogPosition(logged.record.epoch - 1, offset, before)
    return _place(before, logged, offset, found[:count], executed)


def _place(
    before: str, logged: LoggedEpoch, offset: int, taken: Sequence[Transaction], executed: GtidSet
) -> LogPosition:
    record = logged.record
    rows = sum(one.rows for one in taken)
    if rows == record.rows and executed.contains(parse_like(record.executed_gtids, before)):
        return end_of_epoch(record, logged.offset)
    return LogPosition(record.epoch - 1, offset, str(executed), rows, before)


def _executed(before: str, taken: Sequence[Transaction], after: str) -> GtidSet:
    tracker = parse_like(before, after).tracker()
    for one in taken:
        tracker.merge(parse_like(one.gtid or "", after))
    return tracker.snapshot()


def _gtid(one: Transaction, logged: LoggedEpoch) -> str:
    if one.gtid is None:
        raise LogError(
            "TR559",
            f"the position is inside epoch {logged.record.epoch}, whose transactions have no GTIDs",
            where=Where(epoch=logged.record.epoch),
            hint=f"name the epoch: epoch:{logged.record.epoch}",
        )
    return one.gtid


def epoch_part(logged: LoggedEpoch, found: Sequence[Transaction], start: int, end: int) -> LoggedEpoch:
    """Return an epoch's record cut down to its rows from ``start`` to ``end``.

    Raises LogError if a transaction does not end at each of them: then the position is of another log.
    """
    taken, at, bounds = [], 0, {0}
    for one in found:
        if start <= at < end:
            taken.append(one)
        at += one.rows
        bounds.add(at)
    if not {start, end} <= bounds:
        raise LogError(
            "TR558",
            f"no transaction of epoch {logged.record.epoch} ends at row {start} or {end}",
            where=Where(epoch=logged.record.epoch),
            hint="the position belongs to another log; check prefix and channel",
        )
    record = logged.record
    states = {(t.db, t.table): (t.incomplete, t.new_channels) for t in record.tables}
    touched: dict[tuple[str, str, str], list[int]] = {}
    for table in (table for one in taken for table in one.tables):
        numbers = touched.setdefault((table.db, table.table, table.fingerprint), [0, 0, 0, 0])
        for n, more in enumerate((table.inserts, table.updates, table.deletes, table.reads)):
            numbers[n] += more
    return LoggedEpoch(
        replace(
            record,
            tables=tuple(
                TableTouched(
                    *name, *numbers, incomplete=states[name[:2]][0], new_channels=states[name[:2]][1]
                )
                for name, numbers in touched.items()
            ),
            ranges=record.ranges if taken else (),
            runs=(),
            rows=sum(one.rows for one in taken),
            # Transactions without rows are counted with the last part of the epoch.
            transactions=len(taken) + (record.transactions - len(found) if end == record.rows else 0),
            digest=sum(one.digest for one in taken) % DIGEST_MODULUS,
            first_gtid=taken[0].gtid if taken else None,
            last_gtid=taken[-1].gtid if taken else None,
            first_commit_ms=taken[0].ts_ms if taken else record.first_commit_ms,
            last_commit_ms=taken[-1].ts_ms if taken else record.last_commit_ms,
        ),
        logged.offset,
    )


class TransactionReader:
    """Reads the transactions of single epochs from Kafka, and caches those of the last one."""

    def __init__(self, address: LogAddress, log: LogReader) -> None:
        self._log = log
        group = f"tailrace-{address.prefix}-inside"
        self._source = TopicReader(
            address.bootstrap_servers, address.rows_topic, group, address.kafka_security
        )
        self._kept: tuple[int, list[Transaction]] = (-1, [])

    def __call__(self, logged: LoggedEpoch) -> list[Transaction]:
        """Return the transactions of an epoch.

        Raises LogError: TR554, the rows do not match the epoch's record; TR557, Kafka does not respond; TR552, a
        structure is not known.
        """
        record = logged.record
        if self._kept[0] != record.epoch:
            heads = list(self._heads(record))
            if len(heads) != record.rows or sum(h.crc for h in heads) % DIGEST_MODULUS != record.digest:
                raise LogError(
                    "TR554",
                    f"the rows topic does not match the record of epoch {record.epoch}: {counted(len(heads), 'row')} of"
                    f" {record.rows}",
                    where=Where(epoch=record.epoch),
                    hint="records were lost or changed",
                )
            self._kept = (record.epoch, transactions(heads))
        return self._kept[1]

    def _heads(self, record: EpochCommitted) -> Iterator[RowHeader]:
        schemas = {v.fingerprint: v for v in self._log.structures(record.epoch)} if record.rows else {}
        for part in record.ranges:
            if part.end > part.start:
                yield from self._of_range(part, schemas, record)

    def _of_range(
        self, part: OffsetRange, schemas: dict[str, LoggedVersion], record: EpochCommitted
    ) -> Iterator[RowHeader]:
        offsets: list[int] = []
        try:
            _, values = self._source.read(part, offsets=offsets)
        except RangeReadError as error:
            low = self._log.first_row_offset(part.partition)
            gone = low is not None and low > part.start
            if not gone:
                raise read_error(error, Where(epoch=record.epoch)) from error
            raise LogError(
                "TR555",
                f"the rows of epoch {record.epoch} were deleted by retention: {error}",
                where=Where(epoch=record.epoch),
            ) from error
        for value, offset in zip(values, offsets, strict=True):
            at = At(self._source.topic, offset, part.partition)
            name = schema_name(value).hex()
            if name not in schemas:
                raise LogError(
                    "TR552",
                    f"{at}: the row's header {name} is not the fingerprint of a structure of the log",
                    where=Where(epoch=record.epoch),
                    hint="the rows topic is damaged or another program has written to it",
                )
            structure = structure_of(schemas[name])
            try:
                yield _head(value, name, structure)
            except UNFIT as error:
                raise no_record(at, "the record is not a row", error, Where(epoch=record.epoch)) from error


def _head(value: bytes, name: str, structure: TableStructure) -> RowHeader:
    envelope = read_record(_parsed(row_schema(structure).text), value[header_size(value) :])
    source = envelope["source"]
    event = 1 if source["flags"] & KEY_CHANGE else {"c": 0, "u": 1, "d": 2, "r": 3}[envelope["op"]]
    return RowHeader(
        source["seq"],
        source["gtid"],
        source["ts_ms"],
        name,
        source["db"],
        source["table"],
        event,
        crc32(value),
    )


@lru_cache(maxsize=256)
def _parsed(schema: str) -> Any:
    return fastavro.parse_schema(json.loads(schema))
