"""Positions as values: one in the epoch log, one that an option names, a channel's start, and its present position.

``apply/tables/position_store.py`` keeps a channel's position on the downstream.
"""

from __future__ import annotations

import json
import re
import uuid
import zlib
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from schemas.errors import ConfigError
from schemas.gtid.sets import GtidSet, MariadbGtidSet, MysqlGtidSet, flavor_of, parse_gtid_set
from schemas.wire.epoch import COPY, ORIGIN, EpochCommitted, PreparedTransaction


@dataclass(frozen=True)
class LogPosition:
    """A position in the epoch log between two transactions.

    Attributes:
        epoch: the last epoch that is completely before it; -1 before the first.
        offset: the offset of that epoch in the epochs topic; -1 before the first.
        executed: the GTID set of everything before it.
        rows: None at an epoch's end; inside the next epoch, the number of its rows before the position.
        epoch_gtids: inside an epoch, the executed set at the end of ``epoch``.
    """

    epoch: int
    offset: int
    executed: str
    rows: int | None = None
    epoch_gtids: str | None = None

    @property
    def order(self) -> tuple[int, int]:
        """A sort key for positions of one log."""
        return order_of(self.epoch, self.rows)

    def reached(self, order: tuple[int, int], executed: str) -> bool:
        """Whether another position, given as its order and executed set, is at this position or after it."""
        if order != self.order or self.rows is None:
            return order >= self.order
        # Transactions without rows are only in the set.
        return parse_like(executed, self.executed).contains(parse_like(self.executed, executed))

    def to_json(self) -> str:
        """Return the JSON text for the position's row."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> LogPosition:
        """The inverse of ``to_json``."""
        return cls(**json.loads(text))

    @property
    def shown(self) -> dict[str, object]:
        """Return the fields for the output of commands with --json."""
        return {"epoch": self.epoch, "epoch_rows": self.rows, "gtids": self.executed}

    def __str__(self) -> str:
        if self.rows is None:
            return f"the end of epoch {self.epoch}" if self.epoch >= 0 else "the log's start"
        return f"row {self.rows} of epoch {self.epoch + 1}"


BEFORE_ALL = LogPosition(-1, -1, "")


@dataclass(frozen=True)
class NamedPosition:
    """A position in the epoch log as an option names it: by one of these, or without any by a word.

    Attributes:
        time: seconds since 1970.
    """

    epoch: int | None = None
    gtids: str | None = None
    time: float | None = None

    @classmethod
    def parse(cls, text: str, word: str) -> NamedPosition:
        """Parse ``epoch:N``, ``gtid:SET``, ``time:RFC3339`` or the option's own word. Raises ConfigError TR560."""
        kind, _, value = text.partition(":")
        if text == word:
            return cls()
        if kind == "epoch" and re.fullmatch(r"[0-9]{1,18}", value):
            return cls(epoch=int(value))
        if kind == "gtid" and value.strip():
            return cls(gtids=value)
        if kind == "time":
            return cls(time=_seconds(value))
        hint = f"{word}, epoch:N, gtid:SET or time:2026-01-31T12:00:00Z"
        raise ConfigError("TR560", f"{text} is not a valid log position", hint=hint)


def _seconds(text: str) -> float:
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise ValueError("it has no time zone; Z at its end is UTC")
        return found.timestamp()
    except (ValueError, OverflowError) as error:
        hint = "such as time:2026-01-31T12:00:00Z"
        raise ConfigError("TR560", f"time:{text}: {error}", hint=hint) from error


@dataclass(frozen=True)
class ChannelStart:
    """The start of a channel.

    Attributes:
        log_position: the position; everything before it counts as applied.
        last: the last epoch that is completely before it; at the log's start epoch 0, which is empty; None if it is
            not known.
        start: the ``--from`` value.
        is_copied: whether a complete copy begins there.
    """

    log_position: LogPosition
    last: EpochCommitted | None
    start: str
    is_copied: bool = False

    @property
    def whole(self) -> bool:
        """Whether it is certain that the target has everything before it, or that a copy in the log brings it."""
        if self.is_copied:
            return True
        begins = self.last.log_begins if self.last is not None and self.last.epoch == 0 else None
        return self.start.startswith("gtid:") or (begins in (ORIGIN, COPY) and self.log_position.rows is None)

    @property
    def is_new(self) -> bool:
        """Whether it begins with a copy for new channels."""
        return self.is_copied and self.last is not None and self.last.for_new_channels

    @property
    def behind(self) -> str:
        """Everything before it: a GTID set, or without GTIDs a position in the upstream's binlog."""
        file = f"{self.last.source_file}:{self.last.source_pos}" if self.last is not None else ""
        return self.log_position.executed or file


@dataclass(frozen=True)
class Position:
    """A channel's position at its last commit.

    Attributes:
        epoch: the last epoch that is completely applied.
        executed_gtids: the GTID set of everything that is applied.
        relay_log: sub-directory and file of the relay log; None if that was deleted.
        epoch_gtids: None if nothing after ``epoch`` is applied; otherwise the executed set at its end, because the
            position is inside the next epoch, or ``tailrace recover`` has applied more, up to the relay position.
        xa_prepared: JSON of the prepared transactions that are not decided yet; None without any.
        epoch_rows: inside the next epoch, the number of its rows that are applied; None at an epoch's end.
        rewound_from: JSON of the position before a rewind; None once the channel has reached it again.
        log_id: the id of the epoch log; None before the first epoch.
        origins: ids of the servers and logs that the rows come from, separated by spaces.
        copying: whether a copy of tables had not come to its end at the end of ``epoch``, so rows may be missing.
        is_new: whether the channel began with a copy for new channels that had not come to its end there.
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
    copying: bool = False
    is_new: bool = False

    @classmethod
    def first(cls, begin: ChannelStart) -> Position:
        """Return the position of a channel that has applied nothing."""
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
            position = replace(position, is_new=begin.is_new).at_end_of(begin.last)
        return replace(
            position,
            executed_gtids=begin.log_position.executed,
            epoch_gtids=begin.log_position.epoch_gtids,
            epoch_rows=begin.log_position.rows,
            # A recovery continues from the position in the relay log; nothing of the upstream's log is applied yet.
            source_log=None,
            source_pos=None,
        )

    @property
    def order(self) -> tuple[int, int]:
        """A sort key for positions of one log."""
        return order_of(self.epoch, self.epoch_rows)

    @property
    def log_position(self) -> LogPosition:
        """The position in the epoch log."""
        return LogPosition(
            self.epoch, self.epochs_offset, self.executed_gtids, self.epoch_rows, self.epoch_gtids
        )

    @property
    def repeat_until(self) -> LogPosition | None:
        """After a rewind: the position up to which changes are repeated."""
        return LogPosition.from_json(self.rewound_from) if self.rewound_from else None

    def repeats(self, order: tuple[int, int]) -> bool:
        """Whether changes that end at a position are applied again."""
        return self.repeat_until is not None and order <= self.repeat_until.order

    @property
    def recovered(self) -> bool:
        """Whether ``tailrace recover`` has applied transactions after ``epoch``."""
        return self.epoch_gtids is not None and self.epoch_rows is None

    @property
    def gtids_of_epoch(self) -> str:
        """The executed set at the end of ``epoch``."""
        return self.executed_gtids if self.epoch_gtids is None else self.epoch_gtids

    def at_end_of(self, record: EpochCommitted) -> Position:
        """Return the position with GTIDs, relay and upstream position of an epoch's end, without its number."""
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
            copying=record.copying or self.is_new,
        )

    @property
    def prepared(self) -> tuple[PreparedTransaction, ...]:
        """The XA transactions that are prepared and not decided at the position."""
        return tuple(PreparedTransaction(**fields) for fields in json.loads(self.xa_prepared or "[]"))


def order_of(epoch: int, rows: int | None) -> tuple[int, int]:
    """Return a sort key: an epoch's end comes before the first position inside the next epoch."""
    return epoch, -1 if rows is None else rows


def end_of_epoch(record: EpochCommitted, offset: int) -> LogPosition:
    """Return the position after an epoch."""
    return LogPosition(record.epoch, offset, record.executed_gtids)


def parse_like(text: str, *others: str) -> GtidSet:
    """Parse a GTID set in the flavor that all the texts together have; empty texts are ignored."""
    return parse_gtid_set(text, flavor_of(text, *others))


def intersection(one: GtidSet, other: GtidSet) -> GtidSet:
    """Return the GTIDs that are in both sets."""
    if isinstance(one, MariadbGtidSet) and isinstance(other, MariadbGtidSet):
        mine, theirs = one.domains, other.domains
        both = {d: min(mine[d], theirs[d], key=lambda g: g.sequence) for d in mine if d in theirs}
        return MariadbGtidSet(both)
    assert isinstance(one, MysqlGtidSet)
    assert isinstance(other, MysqlGtidSet)
    return one.minus(one.minus(other))


def fill_gaps(gtids: GtidSet) -> GtidSet:
    """Return the set with all lower numbers of its sources, assuming that numbers grow with the log."""
    if isinstance(gtids, MysqlGtidSet):
        return MysqlGtidSet({source: (1, bounds[-1]) for source, bounds in gtids.sources.items()})
    return gtids
