"""Spark's Python workers as the workers of a slice in parts."""

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


def executors(spark: Callable[[], SparkSession]) -> WorkerPool:
    """The pool of Spark's Python workers; all parts at once, whatever the number of cores.

    Args:
        spark: called for the session when the first part is to be applied.
    """

    def work(order: PartContext, parts: Sequence[WorkerPart]) -> list[PartResult]:
        context = spark().sparkContext
        packed = [pickle.dumps(part, pickle.HIGHEST_PROTOCOL) for part in parts]
        tasks = min(len(packed), max(1, context.defaultParallelism))
        done: list[PartResult] = (
            context.parallelize(packed, tasks).mapPartitions(partial(_unpacked, order)).collect()
        )
        return done

    return work


def _unpacked(order: PartContext, packed: Iterable[bytes]) -> Iterator[PartResult]:
    return run_parts(order, (pickle.loads(one) for one in packed))
