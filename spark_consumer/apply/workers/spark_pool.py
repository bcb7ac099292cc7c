"""The workers of a slice in parts: Spark's Python workers, or threads of the consumer."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from spark_consumer.apply.prepared import WorkerPart
from spark_consumer.apply.workers.apply_part import run_parts
from spark_consumer.apply.workers.pool import PartContext, PartResult, WorkerPool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Of all parts together. A Spark job takes longer than these, and Python sends no more with one core.
_FEW_STATEMENTS = 1_000


def workers(spark: Callable[[], SparkSession | None], *, direct: bool) -> WorkerPool:
    """The pool that applies all parts at once, whatever the number of cores.

    Args:
        spark: returns the session, or None while Spark starts.
        direct: whether threads of this process apply slices of few statements, and all while Spark starts.
    """

    def work(order: PartContext, parts: Sequence[WorkerPart]) -> list[PartResult]:
        session = spark()
        few = direct and sum(part.writes.statements for part in parts) <= _FEW_STATEMENTS
        if session is None or few:
            assert direct, "a channel that Spark applies waits for its start"
            return list(run_parts(order, parts))
        context = session.sparkContext
        packed = [pickle.dumps(part, pickle.HIGHEST_PROTOCOL) for part in parts]
        tasks = min(len(packed), max(1, context.defaultParallelism))
        done: list[PartResult] = (
            context.parallelize(packed, tasks).mapPartitions(partial(_unpacked, order)).collect()
        )
        return done

    return work


def _unpacked(order: PartContext, packed: Iterable[bytes]) -> Iterator[PartResult]:
    return run_parts(order, (pickle.loads(one) for one in packed))
