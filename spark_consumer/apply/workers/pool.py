"""On the driver: having the parts of a slice applied, again until all are."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import structlog
from pyspark.sql import SparkSession

from schemas.errors import DownstreamError, TailraceError
from spark_consumer.apply.workers.apply_part import run_parts
from spark_consumer.apply.workers.info import slices_ahead, unfinished
from spark_consumer.apply.workers.part import Order, Outcome, WorkerPart
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.target.session import Session
from spark_consumer.target.tables import TableMoved

#: applies parts and tells what became of each
WorkerPool = Callable[[Order, Sequence[WorkerPart]], list[Outcome]]
_ATTEMPTS = 4
_log = structlog.get_logger()


def executors(spark: SparkSession) -> WorkerPool:
    """The pool of Spark's Python workers; all parts at once, whatever the number of cores."""
    context = spark.sparkContext

    def work(order: Order, parts: Sequence[WorkerPart]) -> list[Outcome]:
        packed = [pickle.dumps(part, pickle.HIGHEST_PROTOCOL) for part in parts]
        tasks = min(len(packed), max(1, context.defaultParallelism))
        done: list[Outcome] = (
            context.parallelize(packed, tasks).mapPartitions(partial(_unpacked, order)).collect()
        )
        return done

    return work


def _unpacked(order: Order, packed: Iterable[bytes]) -> Iterator[Outcome]:
    return run_parts(order, (pickle.loads(one) for one in packed))


def check_caught_up(
    session: Session, channel: ChannelKey, slice_id: str | None, parts: int | None = None
) -> set[int]:
    """The workers that are ahead with this slice; DownstreamError if others are, or not as many as there should be."""
    found = slices_ahead(session, channel)
    if any(name != slice_id for _, name in found) or (parts is not None and len(found) != parts):
        raise unfinished(channel)
    return {number for number, _ in found}


def run_all(
    session: Session,
    worker_pool: WorkerPool,
    order: Order,
    parts: Sequence[WorkerPart],
    renewed: Callable[[], Order],
) -> None:
    """Have all parts applied that are not.

    Args:
        renewed: the order with a new fencing token, after which no worker of before can write any more.

    Raises:
        TailraceError: what stopped a worker; parts of others may be applied, and stay so.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        done = check_caught_up(session, order.channel, order.slice_id)
        todo = [part for part in parts if part.number not in done]
        try:
            outcomes = worker_pool(order, todo) if todo else []
        except TailraceError:
            raise
        except Exception as error:
            # A Python worker was lost; others may be at work still.
            order = renewed()
            if attempt == _ATTEMPTS:
                raise
            _log.warning("workers_retry", attempt=attempt, reason=str(error).split("\n", 1)[0][:200])
            continue
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if errors:
            raise errors[0] if not done and len(errors) == len(outcomes) else _in_part(errors[0], len(parts))
        return


def _in_part(error: TailraceError, parts: int) -> TailraceError:
    """A worker's error behind which some parts of the slice are applied, so that no other plan helps."""
    if isinstance(error, TableMoved):
        error = DownstreamError(
            error.code, error.what, where=error.where, hint=error.hint, retryable=error.retryable
        )
    error.applied = applied_in_part(parts)
    return error


def applied_in_part(parts: int) -> str:
    """What is applied of a slice some parts of which are."""
    return f"of the {parts} parts of this batch others are applied, and the next start applies the rest"
