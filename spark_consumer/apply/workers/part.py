"""A part of a slice: what one worker writes in one transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.access.server_url import ServerUrl
from schemas.errors import Where
from spark_consumer.apply.ledger import Ledger
from spark_consumer.epochs.position import Position
from spark_consumer.plan.plan import Name, TablePlan
from spark_consumer.plan.statements import Statement
from spark_consumer.rows.ordered import OrderedStatement
from spark_consumer.rules.channel import ChannelKey


@dataclass(frozen=True)
class WorkerPart:
    """One worker's share of a slice.

    Attributes:
        number: the worker, from 1.
        rows: how many rows it writes or removes.
        applied: its rows as ``Checkpoint_group_bitmap``.
    """

    number: int
    deletes: tuple[tuple[TablePlan, Statement], ...]
    inserts: tuple[tuple[TablePlan, Statement], ...]
    ordered: tuple[OrderedStatement, ...]
    rows: int = 0
    applied: bytes = b""

    @property
    def statements(self) -> int:
        return len(self.deletes) + len(self.inserts) + len(self.ordered)

    @property
    def written(self) -> dict[Name, TablePlan]:
        """The downstream's tables that it writes, by name."""
        return written_by(self.deletes, self.inserts, self.ordered)


def written_by(
    deletes: Iterable[tuple[TablePlan, Statement]],
    inserts: Iterable[tuple[TablePlan, Statement]],
    ordered: Iterable[OrderedStatement],
) -> dict[Name, TablePlan]:
    """The downstream's tables that statements write, by name."""
    tables = (*(t for t, _ in deletes), *(t for t, _ in inserts), *(one.table for one in ordered))
    return {table.target_name: table for table in tables if table.definition}


@dataclass(frozen=True)
class Order:
    """What the workers of one slice are told.

    Attributes:
        token: the consumer's; another one in the channel's row ends the work.
        before, after: the position at the slice's begin and end.
        slice_id: no other attempt to cut and share these epochs has it.
        parts: how many there are.
        compact: whether the slice is compacted.
        retry_time: seconds that a worker waits for a downstream that is lost or busy.
    """

    target: ServerUrl
    channel: ChannelKey
    token: int
    ledger: Ledger
    before: Position
    after: Position
    where: Where
    slice_id: str
    first_epoch: int
    last_epoch: int
    parts: int
    compact: bool
    retry_time: float


@dataclass(frozen=True)
class Failure:
    """An error on its way from a worker to the driver."""

    code: str
    what: str
    where: Where
    hint: str
    retryable: bool


@dataclass(frozen=True)
class Outcome:
    """What became of a part: it is applied, unless there is a failure."""

    number: int
    failure: Failure | None = None
