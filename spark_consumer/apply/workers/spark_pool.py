"""The workers of a slice in parts: threads of the consumer, or Spark's Python workers."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from spark_consumer.apply.prepared import WorkerPart
from spark_consumer.apply.workers.apply_part import run_parts
from spark_consumer.apply.workers.pool import PartContext, PartResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Of all parts together. A Spark job takes longer than these, and Python sends no more with one core.
_FEW_STATEMENTS = 1_000


class Workers:
    """Applies all parts at once, whatever the number of cores; a ``WorkerPool``."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None

    def use(self, spark: SparkSession) -> None:
        """From now on have Spark's Python workers apply slices of many statements."""
        self._spark = spark

    def __call__(self, order: PartContext, parts: Sequence[WorkerPart]) -> list[PartResult]:
        if self._spark is None or sum(part.writes.statements for part in parts) <= _FEW_STATEMENTS:
            return list(run_parts(order, parts))
        context = self._spark.sparkContext
        packed = [pickle.dumps(part, pickle.HIGHEST_PROTOCOL) for part in parts]
        tasks = min(len(packed), max(1, context.defaultParallelism))
        done: list[PartResult] = (
            context.parallelize(packed, tasks).mapPartitions(partial(_unpacked, order)).collect()
        )
        return done


def _unpacked(order: PartContext, packed: Iterable[bytes]) -> Iterator[PartResult]:
    return run_parts(order, (pickle.loads(one) for one in packed))
