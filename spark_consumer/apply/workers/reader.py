"""Preparing a slice for several workers: its rows read on the executors, shared on the driver."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pymysql
from pyspark.sql import SparkSession

from schemas.access.server_url import ServerUrl
from spark_consumer.apply.prepare import assembled
from spark_consumer.apply.prepared import PreparedParts, PreparedRows
from spark_consumer.apply.workers.bitmap import Bits
from spark_consumer.apply.workers.pool import WorkerPool, executors
from spark_consumer.apply.workers.read_conflicts import read_conflict_keys, read_rest
from spark_consumer.apply.workers.share import shared_out
from spark_consumer.apply.workers.weights import weights
from spark_consumer.epochs.fetch import TopicReader
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.conflicts import ConflictColumn
from spark_consumer.plan.plan import SlicePlan
from spark_consumer.rows.failures import explain
from spark_consumer.rows.reader import SliceReader, read_range
from spark_consumer.rows.render import render
from spark_consumer.target.session import closing, connect, unreachable


class PartsReader(SliceReader):
    """Prepares slices whose plans say how their rows conflict as parts for so many workers.

    Args:
        worker_pool: applies the parts; Spark's Python workers without it.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: TopicReader,
        target: ServerUrl,
        workers: int,
        log: LogReader,
        worker_pool: WorkerPool | None = None,
    ) -> None:
        super().__init__(spark, source)
        self._target, self._workers, self.log = target, workers, log
        self.worker_pool = worker_pool or executors(spark)

    def prepare(self, slice_: Slice, plan: SlicePlan) -> PreparedRows | PreparedParts:
        """Read, render, verify and share one slice."""
        work = partial(render, plan)
        # Rows of a DDL belong into the transaction that moves the position behind it.
        if plan.causality is None or plan.causality.alone or slice_.ddl is not None or not slice_.ranges:
            return assembled(slice_, plan, self.results(slice_, partial(read_range, self.source, work), work))
        results = self.results(slice_, partial(read_conflict_keys, self.source, plan), work)
        return shared_out(slice_, plan, results, self._workers, self._weigh)

    def rest(self, slice_: Slice, plan: SlicePlan, applied: Sequence[Bits]) -> PreparedRows:
        """What is missing of a slice of which workers have applied some rows, for one transaction."""
        work = partial(read_rest, self.source, plan, applied)
        try:
            results = self.results(slice_, work, partial(render, plan))
        except Exception as error:
            raise explain(error, slice_, self.log) from error
        return assembled(slice_, plan, results)

    def _weigh(self, part: ConflictColumn, literals: Sequence[bytes]) -> list[bytes]:
        return weigh_at(self._target, part, literals)


def weigh_at(target: ServerUrl, part: ConflictColumn, literals: Sequence[bytes]) -> list[bytes]:
    """What literals weigh on a server. Raises DownstreamError."""
    try:
        with closing(connect(target)) as session:
            return weights(session, part, literals)
    except (pymysql.MySQLError, OSError) as error:
        raise unreachable(target, error) from error
