"""A part of a slice: what one worker writes in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.access.server_url import ServerUrl
from schemas.errors import TailraceError, Where
from spark_consumer.apply.ledger import Ledger
from spark_consumer.apply.writes import Writes
from spark_consumer.epochs.position import Position
from spark_consumer.rules.channel import ChannelKey


@dataclass(frozen=True)
class WorkerPart:
    """One worker's share of a slice.

    Attributes:
        number: the worker, from 1.
        applied: its rows as ``Checkpoint_group_bitmap``.
    """

    number: int
    writes: Writes
    applied: bytes = b""


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
class Outcome:
    """What became of a part: it is applied, unless there is an error."""

    number: int
    error: TailraceError | None = None
