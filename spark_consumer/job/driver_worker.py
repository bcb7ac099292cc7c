"""Notices that the Python process of Spark's driver was killed before it had connected.

Spark asks it for the schema of the tracker's state when a query starts. It waits as long as a busy machine may need for
the start (``tailrace/artifacts/spark.py``), even if the process no longer exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODULE = "transform_with_state_driver_worker"
_QUERY_THREAD = "stream execution thread"
_STARTS = "PythonWorkerFactory.createSimpleWorker"
_WAITS = "SelectorImpl.select"


def is_awaited_in_vain(spark: SparkSession) -> bool:
    """Whether a query waits for the connection of a process that does not exist. Asks the JVM for all its threads."""
    java: Any = spark._jvm
    # If it waits after the look as before, the process was not missing because it had finished.
    return _is_awaited(java) and not _exists(java) and _is_awaited(java)


def _is_awaited(java: Any) -> bool:
    stacks = (
        [str(frame) for frame in thread.getStackTrace()]
        for thread in java.java.lang.Thread.getAllStackTraces().keySet()
        if thread.getName().startswith(_QUERY_THREAD)
    )
    return any(any(_STARTS in f for f in stack) and any(_WAITS in f for f in stack) for stack in stacks)


def _exists(java: Any) -> bool:
    children = java.java.lang.ProcessHandle.current().children().toArray()
    return any(_MODULE in child.info().commandLine().orElse("") for child in children)
