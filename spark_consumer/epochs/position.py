"""Positions as values: a place in the epoch log, where a channel begins, and where a channel stands.

``apply/tables/position_store.py`` keeps a channel's position on the downstream.
"""

from __future__ import annotations

import json
import uuid
import zlib
from dataclasses import asdict, dataclass, replace

from schemas.gtid.sets import GtidSet, MariadbGtidSet, MysqlGtidSet, flavor_of, parse_gtid_set
from schemas.wire.epoch import ORIGIN, EpochCommitted, PreparedTransaction


@dataclass(frozen=True)
class LogPosition:
    """A position between two transactions: everything before it is applied, nothing after it.

    Attributes:
        epoch: the last epoch that lies before it whole, -1 before the first.
        offset: of that epoch in the epochs topic, -1 before the first.
        executed: the GTID set of everything before it.
        rows: None at an epoch's end; inside the next epoch, how many of its rows lie before it.
        epoch_gtids: inside an epoch: the executed set at the end of ``epoch``.
    """

    epoch: int
    offset: int
    executed: str
    rows: int | None = None
    epoch_gtids: str | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Sorts places of one log."""
        return order_of(self.epoch, self.rows)

    def reached(self, order: tuple[int, int], executed: str) -> bool:
        """Whether a position, given as its order and executed set, is here or further on."""
        if order != self.order or self.rows is None:
            return order >= self.order
        # Of transactions without rows only the set tells.
        return parse_like(executed, self.executed).contains(parse_like(self.executed, executed))

    def to_json(self) -> str:
        """As kept in the position's row."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LogPosition:
        """The inverse of ``to_json``."""
        return cls(**json.loads(text))

    @property
    def shown(self) -> dict[str, object]:
        """As commands with --json have it."""
        return {"epoch": self.epoch, "epoch_rows": self.rows, "gtids": self.executed}

    def __str__(self) -> str:
        if self.rows is None:
            return f"the end of epoch {self.epoch}" if self.epoch >= 0 else "the log's begin"
        return f"row {self.rows} of epoch {self.epoch + 1}"


BEFORE_ALL = LogPosition(-1, -1, "")


@dataclass(frozen=True)
class ChannelStart:
    """Where a channel begins, for the first time.

    Attributes:
        log_position: what lies before it counts as applied.
        last: the epoch at whose end the place is, or after whose end inside the next; at the log's begin epoch 0,
            which holds nothing. None where nothing is known.
        start: the ``--from`` value.
    """

    log_position: LogPosition
    last: EpochCommitted | None
    start: str

    @property
    def whole(self) -> bool:
        """Whether the target is known to have everything before it."""
        origin = self.last is not None and self.last.epoch == 0 and self.last.log_begins == ORIGIN
        return self.start.startswith("gtid:") or (origin and self.log_position.rows is None)

    @property
    def behind(self) -> str:
        """All that lies before it: a GTID set, or a place in the upstream's binlog where there are no GTIDs."""
        file = f"{self.last.source_file}:{self.last.source_pos}" if self.last is not None else ""
        return self.log_position.executed or file


@dataclass(frozen=True)
class Position:
    """A channel's position as of its last commit.

    Attributes:
        epoch: the last one that is applied whole.
        executed_gtids: everything that is applied.
        relay_log: sub-directory and file of the relay log; None once that was forgotten.
        epoch_gtids: None where the epoch is all that is applied, else the executed set at its end: the position is
            inside the next epoch, or ``tailrace recover`` has gone on, up to the relay position.
        xa_prepared: JSON of the prepared transactions whose end is still to come; None without any.
        epoch_rows: inside the next epoch, how many of its rows are applied; None at an epoch's end.
        rewound_from: JSON of the place where the channel stood before it was rewound; None once it is there again.
        log_id: the epoch log that the place is in; None before the first epoch.
        origins: ids of the servers and logs that the rows come from, with spaces between them.
    """

    epoch: int
    epochs_offset: int
    executed_gtids: str
    fencing_token: int
    structures_version: int
    ledger_uuid: str
    ledger_domain: int
    ledger_seq: int
    ddl_intent: str | None
    relay_log: str | None = None
    relay_pos: int | None = None
    source_log: str | None = None
    source_pos: int | None = None
    epoch_gtids: str | None = None
    xa_prepared: str | None = None
    epoch_rows: int | None = None
    rewound_from: str | None = None
    online_tables: str | None = None
    log_id: str | None = None
    origins: str | None = None

    @classmethod
    def first(cls, begin: ChannelStart) -> Position:
        """The position of a channel that has applied nothing."""
        ledger = str(uuid.uuid4())
        position = cls(
            epoch=begin.log_position.epoch,
            epochs_offset=begin.log_position.offset,
            executed_gtids=begin.log_position.executed,
            fencing_token=0,
            structures_version=-1,
            ledger_uuid=ledger,
            # Domain 0 is the servers' default, so it is never used.
            ledger_domain=(zlib.crc32(ledger.encode()) or 1) & 0xFFFFFFFF,
            ledger_seq=0,
            ddl_intent=None,
        )
        if begin.last is not None:
            position = position.at_end_of(begin.last)
        return replace(
            position,
            executed_gtids=begin.log_position.executed,
            epoch_gtids=begin.log_position.epoch_gtids,
            epoch_rows=begin.log_position.rows,
            # The relay log's place says where to go on; of the upstream's nothing was executed yet.
            source_log=None,
            source_pos=None,
        )

    @property
    def order(self) -> tuple[int, int]:
        """Sorts positions and places of one log."""
        return order_of(self.epoch, self.epoch_rows)

    @property
    def log_position(self) -> LogPosition:
        """Where it is in the epoch log."""
        return LogPosition(
            self.epoch, self.epochs_offset, self.executed_gtids, self.epoch_rows, self.epoch_gtids
        )

    @property
    def repeat_until(self) -> LogPosition | None:
        """After a rewind: the position up to which changes are repeated."""
        return LogPosition.from_json(self.rewound_from) if self.rewound_from else None

    def repeats(self, order: tuple[int, int]) -> bool:
        """Whether what ends at a place is applied for a second time."""
        return self.repeat_until is not None and order <= self.repeat_until.order

    @property
    def recovered(self) -> bool:
        """Whether ``tailrace recover`` has applied what the epochs after ``epoch`` hold."""
        return self.epoch_gtids is not None and self.epoch_rows is None

    @property
    def gtids_of_epoch(self) -> str:
        """The executed set at the end of ``epoch``."""
        return self.executed_gtids if self.epoch_gtids is None else self.epoch_gtids

    def at_end_of(self, record: EpochCommitted) -> Position:
        """With the data's place moved to the end of an epoch; the epoch's own number is another matter."""
        return replace(
            self,
            executed_gtids=record.executed_gtids,
            relay_log=f"{record.relay_dir}/{record.relay_file}",
            relay_pos=record.relay_pos,
            source_log=record.source_file,
            source_pos=record.source_pos,
            xa_prepared=json.dumps([asdict(p) for p in record.prepared]) if record.prepared else None,
            log_id=record.log_id or self.log_id,
            origins=" ".join(record.origins) or self.origins,
        )

    @property
    def prepared(self) -> tuple[PreparedTransaction, ...]:
        """The XA transactions that are prepared and undecided at the position."""
        return tuple(PreparedTransaction(**fields) for fields in json.loads(self.xa_prepared or "[]"))


def order_of(epoch: int, rows: int | None) -> tuple[int, int]:
    """What sorts places: an epoch's end comes before the first place inside the next one."""
    return epoch, -1 if rows is None else rows


def end_of_epoch(record: EpochCommitted, offset: int) -> LogPosition:
    """The place after an epoch."""
    return LogPosition(record.epoch, offset, record.executed_gtids)


def parse_like(text: str, *others: str) -> GtidSet:
    """The set, in the flavor of all the texts together: empty texts are ignored."""
    return parse_gtid_set(text, flavor_of(text, *others))


def intersection(one: GtidSet, other: GtidSet) -> GtidSet:
    """What is in both sets."""
    if isinstance(one, MariadbGtidSet) and isinstance(other, MariadbGtidSet):
        mine, theirs = one.domains, other.domains
        both = {d: min(mine[d], theirs[d], key=lambda g: g.sequence) for d in mine if d in theirs}
        return MariadbGtidSet(both)
    assert isinstance(one, MysqlGtidSet)
    assert isinstance(other, MysqlGtidSet)
    return one.minus(one.minus(other))


def fill_gaps(gtids: GtidSet) -> GtidSet:
    """The set with all that its sources numbered before: where nothing else tells, numbers grow with the log."""
    if isinstance(gtids, MysqlGtidSet):
        return MysqlGtidSet({source: (1, bounds[-1]) for source, bounds in gtids.sources.items()})
    return gtids
