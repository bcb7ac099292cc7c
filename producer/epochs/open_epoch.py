"""The epoch in hand: the rows, counts and GTIDs gathered since the last one was sealed."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from producer.decode.row_decoder import RowDecoder
from producer.epochs.records import Records
from schemas.varint import encode_long
from schemas.wire.avro_schema import OP_BEHIND
from schemas.wire.epoch import SchemaChanged, Skipped, StructureVersion, TableTouched
from schemas.wire.rows import header_size


@dataclass(frozen=True)
class EpochLimits:
    """When an epoch ends, at the next transaction boundary.

    Attributes:
        max_rows: records.
        max_bytes: bytes of binlog.
        max_delay: seconds since the epoch before it was sealed; so after a pause the first transaction goes out
            at once, and under load there are no more epochs than this allows.
        heartbeat: seconds after which an epoch without rows is written too, to carry the position forward.
    """

    max_rows: int
    max_bytes: int
    max_delay: float
    heartbeat: float = 5.0


@dataclass
class OpenEpoch:
    """One epoch while it grows.

    Attributes:
        records: what is not yet handed to Kafka; a huge transaction is handed over in parts.
        seq: the number of records so far, handed over or not.
        avro_number: ``number`` as Avro bytes.
        counts: per structure: records of INSERT, UPDATE and DELETE events (a key change counts two).
        skipped: events that a rule passed over, by schema, table and kind.
        log_begins: of epoch 0, as in its record.
    """

    number: int
    opened: float = field(default_factory=time.monotonic)
    records: Records = field(default_factory=Records)
    seq: int = 0
    bytes: int = 0
    transactions: int = 0
    first_gtid: str | None = None
    last_gtid: str | None = None
    first_commit_ms: int = 0
    last_commit_ms: int = 0
    counts: dict[RowDecoder, list[int]] = field(default_factory=dict)
    structures: dict[RowDecoder, StructureVersion] = field(default_factory=dict)
    skipped: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    ddl: SchemaChanged | None = None
    log_begins: str | None = None

    def __post_init__(self) -> None:
        self.avro_number = encode_long(self.number)

    @property
    def empty(self) -> bool:
        """Whether nothing is in it, not even a transaction without rows."""
        return not self.transactions and not self.seq and self.ddl is None

    def add_group(self, gtid: str | None, commit_ms: int, size: int) -> None:
        """One whole transaction group is in."""
        if not self.transactions:
            self.first_gtid, self.first_commit_ms = gtid, commit_ms
        self.last_gtid, self.last_commit_ms = gtid, commit_ms
        self.transactions += 1
        self.bytes += size

    def drop_last(self, number: int) -> None:
        """Take back the last records, which must not have been handed over."""
        columns = {ord("c"): 0, ord("u"): 1, ord("d"): 2}
        counts = {decoder.header: found for decoder, found in self.counts.items()}
        for value, moved in self.records.drop_last(number):
            header = value[: header_size(value)]
            # The halves of a key change count as updates.
            counts[header][1 if moved else columns[value[len(header) + OP_BEHIND]]] -= 1
        self.seq -= number

    def due_in(self, limits: EpochLimits) -> float:
        """Seconds until it is due by its age."""
        delay = limits.max_delay if self.seq else limits.heartbeat
        return delay - (time.monotonic() - self.opened)

    def is_full(self, limits: EpochLimits) -> bool:
        """Whether nothing more may come in behind the transaction that was the last."""
        return self.seq >= limits.max_rows or self.bytes >= limits.max_bytes or self.ddl is not None

    def is_late(self, limits: EpochLimits) -> bool:
        """Whether it is due by its age."""
        return not self.empty and self.due_in(limits) <= 0

    def is_due(self, limits: EpochLimits) -> bool:
        """Whether to seal it, given that it stands at a transaction boundary."""
        return self.is_full(limits) or self.is_late(limits)

    def tables_touched(self) -> tuple[TableTouched, ...]:
        """Counts per table for the epoch's record."""
        return tuple(
            TableTouched(d.structure.db, d.structure.table, d.fingerprint.hex(), *counts)
            for d, counts in self.counts.items()
        )

    def events_skipped(self) -> tuple[Skipped, ...]:
        """What was passed over, for the epoch's record."""
        return tuple(Skipped(*what, count) for what, count in sorted(self.skipped.items()))
