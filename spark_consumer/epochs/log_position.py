"""Positions in the epoch log: between two upstream transactions, at an epoch's end or inside one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from schemas.counted import counted
from schemas.gtid.sets import GtidSet, MariadbGtidSet, MysqlGtidSet, flavor_of, parse_gtid_set
from schemas.wire.epoch import ORIGIN, EpochCommitted


@dataclass(frozen=True)
class LogPosition:
    """What lies before it is applied, what lies behind it is not.

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
        return parsed(executed, self.executed).contains(parsed(self.executed, executed))

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
        return f"behind {counted(self.rows, 'row')} of epoch {self.epoch + 1}"


BEFORE_ALL = LogPosition(-1, -1, "")


@dataclass(frozen=True)
class ChannelBegin:
    """Where a channel begins, for the first time.

    Attributes:
        log_position: what lies before it counts as applied.
        last: the epoch at whose end the place is, or behind whose end inside the next; at the log's begin epoch 0,
            which holds nothing. None where nothing is known.
        start: the ``--from`` that it is the place of.
    """

    log_position: LogPosition
    last: EpochCommitted | None
    start: str

    @property
    def whole(self) -> bool:
        """Whether nothing is missing before it: the operator says exactly what the tables hold, or nothing ever was."""
        origin = self.last is not None and self.last.epoch == 0 and self.last.log_begins == ORIGIN
        return self.start.startswith("gtid:") or (origin and self.log_position.rows is None)

    @property
    def behind(self) -> str:
        """All that lies before it: a GTID set, or a place in the upstream's binlog where there are no GTIDs."""
        file = f"{self.last.source_file}:{self.last.source_pos}" if self.last is not None else ""
        return self.log_position.executed or file


def order_of(epoch: int, rows: int | None) -> tuple[int, int]:
    """What sorts places: an epoch's end comes before the first place inside the next one."""
    return epoch, -1 if rows is None else rows


def end_of(record: EpochCommitted, offset: int) -> LogPosition:
    """The place behind an epoch."""
    return LogPosition(record.epoch, offset, record.executed_gtids)


def parsed(text: str, *others: str) -> GtidSet:
    """The set, in the flavor of all the texts together: an empty one says nothing."""
    return parse_gtid_set(text, flavor_of(text, *others))


def common(one: GtidSet, other: GtidSet) -> GtidSet:
    """What is in both sets."""
    if isinstance(one, MariadbGtidSet) and isinstance(other, MariadbGtidSet):
        mine, theirs = one.domains, other.domains
        both = {d: min(mine[d], theirs[d], key=lambda g: g.sequence) for d in mine if d in theirs}
        return MariadbGtidSet(both)
    assert isinstance(one, MysqlGtidSet)
    assert isinstance(other, MysqlGtidSet)
    return one.minus(one.minus(other))


def filled(gtids: GtidSet) -> GtidSet:
    """The set with all that its sources numbered before: where nothing else tells, numbers grow with the log."""
    if isinstance(gtids, MysqlGtidSet):
        return MysqlGtidSet({source: (1, bounds[-1]) for source, bounds in gtids.sources.items()})
    return gtids
