"""Runs the parts of a slice from the driver, and retries until all are applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from schemas.access.server_url import ServerUrl
from schemas.errors import DownstreamError, TailraceError, Where
from spark_consumer.apply.ledger import Ledger
from spark_consumer.apply.prepared import PreparedParts, WorkerPart
from spark_consumer.apply.tables.worker_info import partly_applied, slices_ahead
from spark_consumer.epochs.position import Position
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session
from spark_consumer.target.tables import TableAltered

_ATTEMPTS = 4
_log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class PartContext:
    """Settings for the workers of one slice.

    Attributes:
        token: the consumer's fencing token; another one in the channel's row ends the work.
        before, after: the position at the slice's start and end.
        slice_id: the unique id of this attempt.
        parts: the number of parts.
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

    @classmethod
    def of(
        cls, config: ConsumerConfig, token: int, ledger: Ledger, before: Position, prepared: PreparedParts
    ) -> PartContext:
        """Return the settings for a slice that starts at a position."""
        slice_ = prepared.slice_
        return cls(
            target=config.target,
            channel=config.key,
            token=token,
            ledger=ledger,
            before=before,
            after=slice_.position_after(before),
            where=slice_.where,
            slice_id=prepared.slice_id,
            first_epoch=slice_.first.epoch,
            last_epoch=slice_.last.epoch,
            parts=len(prepared.parts),
            compact=config.compact,
            retry_time=config.retry_time,
        )


@dataclass(frozen=True)
class PartResult:
    """The result of a part; applied if ``error`` is None."""

    number: int
    error: TailraceError | None = None


#: applies parts and returns the result of each
WorkerPool = Callable[[PartContext, Sequence[WorkerPart]], list[PartResult]]


def check_caught_up(
    session: Session, channel: ChannelKey, slice_id: str | None, parts: int | None = None
) -> set[int]:
    """Return the workers that are ahead with this slice. Raises DownstreamError if others are, or some are missing."""
    found = slices_ahead(session, channel)
    if any(name != slice_id for _, name in found) or (parts is not None and len(found) != parts):
        raise partly_applied(channel)
    return {number for number, _ in found}


def run_all(
    session: Session,
    worker_pool: WorkerPool,
    context: PartContext,
    parts: Sequence[WorkerPart],
    renewed: Callable[[], PartContext],
) -> None:
    """Run the workers until all parts are applied.

    Args:
        renewed: returns the context with a new fencing token, so that workers of earlier attempts can no longer write.

    Raises:
        TailraceError: the error of a worker; other parts may be applied, and stay applied.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        done = check_caught_up(session, context.channel, context.slice_id)
        todo = [part for part in parts if part.number not in done]
        try:
            outcomes = worker_pool(context, todo) if todo else []
        except TailraceError:
            raise
        except Exception as error:
            # A Python worker was lost; others may still be running.
            context = renewed()
            if attempt == _ATTEMPTS:
                raise
            _log.warning("workers_retry", attempt=attempt, reason=str(error).split("\n", 1)[0][:200])
            continue
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if errors:
            raise errors[0] if not done and len(errors) == len(outcomes) else _in_part(errors[0], len(parts))
        return


def _in_part(error: TailraceError, parts: int) -> TailraceError:
    """Return a worker's error, with the information that other parts may be applied."""
    applied = applied_in_part(parts)
    if isinstance(error, TableAltered):
        # As another class, because a new plan cannot help.
        return DownstreamError(
            error.code,
            error.message,
            where=error.where,
            hint=error.hint,
            retryable=error.retryable,
            applied=applied,
        )
    return error.but(applied=applied)


def applied_in_part(parts: int) -> str:
    """Return the text about applied parts for an error."""
    return f"some of the {parts} parts of this batch are applied; the next start applies the rest"
