"""Runs tasks on Spark's executors.

Results are pickled and pass through the JVM between a Python worker and the driver. Its heap is small, so large pickles
are sent in pieces, which are joined here. Spark and Arrow take a second to import, so only this module and those of the
query import them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_consumer.rows.reader import Process, RunTasks, outcomes
from spark_consumer.rows.results import ChangeToShare, InsertedRows, Result

SCHEMA = pa.schema([("piece", pa.binary()), ("last", pa.bool_())])
SCHEMA_DDL = "piece binary, last boolean"
# Results that are pickled together. A statement with many rows has up to 1 MiB.
_GROUP_RESULTS = 1024
_GROUP_BYTES = 4 << 20
_PIECE_BYTES = 4 << 20


def task(process: Process) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark runs in each task; its input is numbers, its output what ``process`` returns.

    Failures are results too, because Spark would retry a failed task immediately.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        yield from encoded(outcomes(process, numbers))

    return run


def on_executors(spark: SparkSession) -> RunTasks:
    """Return a function that runs tasks in Spark's Python workers."""

    def run(numbers: int, most: int, process: Process) -> list[Result]:
        # Where no more can run at a time anyway, each number is a task, and a worker that is done takes the next one.
        tasks = numbers if spark.sparkContext.defaultParallelism <= most else min(numbers, most)
        return decoded(spark.range(0, numbers, 1, tasks).mapInArrow(task(process), SCHEMA_DDL).toArrow())

    return run


def encoded(results: Iterable[Result]) -> Iterator[pa.RecordBatch]:
    """Encode results as record batches of ``SCHEMA``."""
    group: list[Result] = []
    size = 0
    for result in results:
        group.append(result)
        size += _size(result)
        if len(group) == _GROUP_RESULTS or size >= _GROUP_BYTES:
            yield from _pieces(group)
            group, size = [], 0
    if group:
        yield from _pieces(group)


def decoded(table: Any) -> list[Result]:
    """Decode results from the Arrow table of all record batches; those of each task are in order."""
    found: list[Result] = []
    pieces: list[Any] = []
    for piece, last in zip(*table.columns, strict=True):
        pieces.append(piece.as_buffer())
        if last.as_py():
            found += pickle.loads(b"".join(pieces))
            pieces.clear()
    return found


def _pieces(group: list[Result]) -> Iterator[pa.RecordBatch]:
    whole = pickle.dumps(group, pickle.HIGHEST_PROTOCOL)
    for begin in range(0, len(whole), _PIECE_BYTES):
        end = begin + _PIECE_BYTES
        piece = [pa.array([whole[begin:end]], pa.binary()), pa.array([end >= len(whole)])]
        yield pa.RecordBatch.from_arrays(piece, schema=SCHEMA)


def _size(result: Result) -> int:
    size = 0
    for field in result.change if type(result) is ChangeToShare else result:
        if type(field) is bytes:
            size += len(field)
    if type(result) is InsertedRows:
        size += sum(map(len, result.values))
    return size
