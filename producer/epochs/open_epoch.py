"""The open epoch: the rows, counts and GTIDs gathered since the last one was sealed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from producer.settings import EpochSettings
from relay_store.layout.directory import RelayPosition, subdir_uuid
from schemas.structure import TableStructure
from schemas.tables import QualifiedName
from schemas.varint import encode_long
from schemas.wire.avro_schema import OP_BEHIND, row_schema
from schemas.wire.epoch import (
    CompleteCopy,
    CopyStep,
    EpochCommitted,
    OffsetRange,
    PreparedTransaction,
    RowRun,
    SchemaChanged,
    Skipped,
    StructureVersion,
    TableTouched,
)
from schemas.wire.rows import header_size, schema_name

#: of one record
Headers = list[tuple[str, bytes]]
#: an epoch's record, given the offset ranges of its rows, their digest, and the runs of a large transaction's rows
EpochWith = Callable[[tuple[OffsetRange, ...], int, tuple[RowRun, ...]], EpochCommitted]
#: the key of a tracked structure, and its record; None for one that is gone
TrackedRecord = tuple[bytes, bytes | None]
_NOTHING: Mapping[QualifiedName, str] = {}


@dataclass(frozen=True)
class LogState:
    """What an epoch log holds when its writer begins.

    Attributes:
        last_epoch: the last committed one; None for a new log.
        versions: the fingerprint of the newest structure that the log states of each table.
        tracked: the records of the tracked structures, as of the last epoch.
    """

    last_epoch: EpochCommitted | None
    versions: dict[tuple[str, str], str] = field(default_factory=dict)
    tracked: dict[bytes, bytes] = field(default_factory=dict)


class Now(NamedTuple):
    """The current time, passed in so that this code reads no clock.

    Attributes:
        monotonic: seconds.
        unix_ms: ms since 1970.
    """

    monotonic: float
    unix_ms: int


@dataclass(frozen=True)
class EpochLimits(EpochSettings):
    """When an epoch ends: the fields of ``[epoch]``, and one that is no setting.

    Attributes:
        heartbeat: seconds after which an empty epoch is written, to advance the position.
        quiet: seconds after which an empty epoch says that the upstream has nothing newer.
    """

    heartbeat: float = 5.0
    quiet: float = 10.0


@dataclass
class Records:
    """Consecutive row records of one epoch.

    Keys and values are in lists of their own, so that ``map`` can work on all of them.

    Attributes:
        first: the number in the epoch of the first.
        keys: one each.
        values: one each.
        headers: by number in the epoch, of those few that have some: the halves of a key change.
    """

    first: int = 0
    keys: list[bytes] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    headers: dict[int, Headers] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def split_off(self, number: int) -> Records:
        """The first records, which are no longer here then."""
        behind = self.first + number
        headers = {n: self.headers.pop(n) for n in [n for n in self.headers if n < behind]}
        taken = Records(self.first, self.keys[:number], self.values[:number], headers)
        del self.keys[:number], self.values[:number]
        self.first = behind
        return taken

    def extend(self, other: Records) -> None:
        """Add those that follow."""
        self.keys += other.keys
        self.values += other.values
        self.headers |= other.headers

    def drop_last(self, number: int) -> list[tuple[bytes, bool]]:
        """Forget the last records; returns the value of each, and whether it was half of a key change."""
        keep = len(self) - number
        dropped = [
            (value, self.headers.pop(n, None) is not None)
            for n, value in enumerate(self.values[keep:], self.first + keep)
        ]
        del self.keys[keep:], self.values[keep:]
        return dropped


#: records held before a transaction larger than an epoch is handed out in part, and bytes of binlog
PART_RECORDS = 50_000
PART_BYTES = 64 << 20


@dataclass
class OpenEpoch:
    """One epoch while it grows.

    Attributes:
        opened: when it began, seconds, monotonic.
        records: records not yet sent to Kafka; a huge transaction is sent in parts.
        held: bytes of binlog, unpacked, that were read since all records were last handed over.
        size: bytes of binlog of its whole transactions.
        seq: the number of records so far, handed over or not.
        avro_number: ``number`` as Avro bytes.
        counts: records of INSERT, UPDATE and DELETE events (a key change counts two), and of a copy, by the header of
            their values, which names their structure.
        touched: the structures by the same headers.
        structures: those that the log did not have as their table's so far.
        skipped: events that a rule passed over, by schema, table and kind.
        left_out: the DDL of tables whose changes are left out.
        saw_channel_table: whether the binlog has rows of another pipeline's positions here.
    """

    number: int
    opened: float
    records: Records = field(default_factory=Records)
    held: int = 0
    seq: int = 0
    size: int = 0
    transactions: int = 0
    first_gtid: str | None = None
    last_gtid: str | None = None
    first_commit_ms: int = 0
    last_commit_ms: int = 0
    counts: dict[bytes, list[int]] = field(default_factory=dict)
    touched: dict[bytes, TableStructure] = field(default_factory=dict)
    structures: list[StructureVersion] = field(default_factory=list)
    skipped: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    ddl: SchemaChanged | None = None
    left_out: list[SchemaChanged] = field(default_factory=list)
    saw_channel_table: bool = False

    def __post_init__(self) -> None:
        self.avro_number = encode_long(self.number)

    @property
    def empty(self) -> bool:
        """Whether nothing is in it, not even a transaction without rows."""
        return not self.transactions and not self.seq and self.ddl is None

    def add_group(self, gtid: str | None, commit_ms: int, size: int) -> None:
        """Add a completed transaction group to the counts."""
        self.add_groups((gtid, commit_ms), (gtid, commit_ms), 1, size)

    def add_groups(
        self, first: tuple[str | None, int], last: tuple[str | None, int], number: int, size: int
    ) -> None:
        """Add so many groups to the counts; GTID and ms of commit are of the first and the last of them."""
        if not self.transactions:
            self.first_gtid, self.first_commit_ms = first
        self.last_gtid, self.last_commit_ms = last
        self.transactions += number
        self.size += size

    def drop_last(self, number: int) -> None:
        """Remove the last records, which must not have been sent yet."""
        columns = {ord("c"): 0, ord("u"): 1, ord("d"): 2}
        for value, moved in self.records.drop_last(number):
            header = value[: header_size(value)]
            # The halves of a key change count as updates.
            self.counts[header][1 if moved else columns[value[len(header) + OP_BEHIND]]] -= 1
        self.seq -= number

    def touch(self, header: bytes, structure: TableStructure) -> list[int]:
        """The first rows of a structure come. Returns their counts, which whoever adds rows keeps up to date."""
        self.touched[header] = structure
        counts = self.counts[header] = [0, 0, 0, 0]
        return counts

    def hand_over_all(self) -> Records:
        """All records at hand, which are no longer here then."""
        self.held = 0
        return self.records.split_off(len(self.records))

    def hold(self, size: int) -> Iterator[Records]:
        """So many more bytes of events, unpacked, were read. Yields the records at hand if that is too much."""
        self.held += size
        if self.records and (self.held >= PART_BYTES or len(self.records) >= PART_RECORDS):
            yield self.hand_over_all()

    def hand_over_before(self, seq: int) -> Records:
        """The records at hand before the one of this number, which are no longer here then."""
        return self.records.split_off(max(0, seq - self.seq + len(self.records)))

    def due_in(self, limits: EpochLimits, now: Now) -> float:
        """Seconds until it is due by its age."""
        delay = limits.max_delay if self.seq else limits.heartbeat
        return delay - (now.monotonic - self.opened)

    def is_full(self, limits: EpochLimits) -> bool:
        """Whether the size limits are reached."""
        return self.seq >= limits.max_rows or self.size >= limits.max_bytes or self.ddl is not None

    def is_late(self, limits: EpochLimits, now: Now) -> bool:
        """Whether it is due by its age."""
        return not self.empty and self.due_in(limits, now) <= 0

    def is_due(self, limits: EpochLimits, now: Now) -> bool:
        """Whether to seal it, given that it stands at a transaction boundary."""
        return self.is_full(limits) or self.is_late(limits, now)

    def tables_touched(
        self, incomplete: Collection[QualifiedName], new_channels: Mapping[QualifiedName, str]
    ) -> tuple[TableTouched, ...]:
        """Counts per table for the epoch's record. The arguments are those of ``seal``."""
        return tuple(
            TableTouched(
                structure.db,
                structure.table,
                schema_name(header).hex(),
                *self.counts[header],
                incomplete=(structure.db, structure.table) in incomplete,
                new_channels=new_channels.get((structure.db, structure.table), ""),
            )
            for header, structure in self.touched.items()
        )

    def lacking(self) -> frozenset[QualifiedName]:
        """The tables that have row images that lack columns."""
        structures = self.touched.values()
        return frozenset((one.db, one.table) for one in structures if not one.is_full)

    def events_skipped(self) -> tuple[Skipped, ...]:
        """What was passed over, for the epoch's record."""
        return tuple(Skipped(*what, count) for what, count in sorted(self.skipped.items()))


@dataclass(frozen=True)
class SealedEpoch:
    """A completed epoch.

    Attributes:
        record: its record, without the fields that the committer fills in.
        records: its last records, behind those that were handed out while it was open.
        tracked: the tracked structures that changed with it.
        saw_channel_table: as of the open epoch.
        lacking: the tables that have row images that lack columns.
        left_out: the DDL of tables whose changes are left out.
    """

    record: EpochCommitted
    records: Records
    tracked: tuple[TrackedRecord, ...]
    saw_channel_table: bool = False
    lacking: frozenset[QualifiedName] = frozenset()
    left_out: tuple[SchemaChanged, ...] = ()

    @property
    def end(self) -> RelayPosition:
        """Where it ends in the relay log."""
        return RelayPosition(self.record.relay_dir, self.record.relay_file, self.record.relay_pos)


def seal(
    epoch: OpenEpoch,
    end: RelayPosition,
    executed_gtids: str,
    prepared: tuple[PreparedTransaction, ...] = (),
    tracked: tuple[TrackedRecord, ...] = (),
    *,
    folds: bool = False,
    log_begins: str | None = None,
    incomplete: Collection[QualifiedName] = (),
    copy: CopyStep | None = None,
    copying: bool = False,
    complete: CompleteCopy | None = None,
    new_channels: Mapping[QualifiedName, str] = _NOTHING,
    for_new: bool = False,
    complete_ms: int = 0,
) -> SealedEpoch:
    """End an epoch.

    Args:
        executed_gtids: the GTID set up to its end, as text.
        prepared: the XA transactions that are open there.
        folds: whether the upstream has all names in lower case.
        log_begins: of epoch 0, as in its record.
        incomplete: tables of which rows may be missing downstream.
        copy: the step of a table's copy that it is.
        copying: whether something is left to copy that all channels apply.
        complete: where a complete copy begins or ends.
        new_channels: what new channels lack of tables, as in ``TableTouched``.
        for_new: whether it is of a copy for new channels.
        complete_ms: until when the log is complete with it, as in its record.
    """
    record = EpochCommitted(
        epoch=epoch.number,
        first_gtid=epoch.first_gtid,
        last_gtid=epoch.last_gtid,
        executed_gtids=executed_gtids,
        source_id=subdir_uuid(end.subdir),
        source_file=end.upstream[0],
        source_pos=end.upstream[1],
        relay_dir=end.subdir,
        relay_file=end.file,
        relay_pos=end.pos,
        ranges=(),
        tables=epoch.tables_touched(incomplete, new_channels),
        structures=tuple(epoch.structures),
        ddl=epoch.ddl,
        rows=epoch.seq,
        transactions=epoch.transactions,
        digest=0,
        first_commit_ms=epoch.first_commit_ms,
        last_commit_ms=epoch.last_commit_ms,
        published_ms=0,
        prepared=prepared,
        names_in_lower_case=folds,
        skipped=epoch.events_skipped(),
        log_begins=log_begins,
        copy=copy,
        copying=copying,
        complete=complete,
        for_new_channels=for_new,
        complete_ms=complete_ms,
    )
    return SealedEpoch(
        record,
        epoch.hand_over_all(),
        tracked,
        epoch.saw_channel_table,
        epoch.lacking(),
        tuple(epoch.left_out),
    )


class StatedStructures:
    """The structures that the log states so far.

    Args:
        current: fingerprint (hex) of the last structure by schema and table; kept up to date.
    """

    def __init__(self, current: dict[tuple[str, str], str]) -> None:
        self._current = current
        self._partial: dict[tuple[str, str], set[str]] = {}

    def state_if_new(self, epoch: OpenEpoch, structure: TableStructure, fingerprint: str) -> None:
        """Let the epoch state a structure that the log does not have as its table's."""
        if self._is_news(structure, fingerprint):
            text, schema = structure.to_json(), row_schema(structure).text
            epoch.structures.append(
                StructureVersion(epoch.number, structure.db, structure.table, fingerprint, text, schema)
            )

    def _is_news(self, structure: TableStructure, fingerprint: str) -> bool:
        """Whether the log does not have a structure as its table's; from now on it does."""
        name = (structure.db, structure.table)
        if structure.is_full:
            known = self._current.get(name)
            self._current[name] = fingerprint
            return known != fingerprint
        # One table has many of these at a time, so none of them is current: each is stated once a run.
        stated = self._partial.setdefault(name, set())
        if fingerprint in stated:
            return False
        stated.add(fingerprint)
        return True

    def current(self, db: str, table: str) -> str | None:
        """The fingerprint of the structure that a table's last rows had; None if nobody knows."""
        return self._current.get((db, table))

    def forget(self, db: str, table: str) -> None:
        """Publish the table's structure again with its next rows."""
        self._current.pop((db, table), None)
        self._partial.pop((db, table), None)
