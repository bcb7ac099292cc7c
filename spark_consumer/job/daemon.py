"""The daemon of Spark's Python workers, which imports their modules before it forks.

Spark starts it by ``spark.python.daemon.module``. Otherwise each worker would import pandas, Arrow and our modules
itself, at one to two seconds of CPU.

Like the JVM, the daemon and its workers ignore signals that are meant for the driver
(``spark_consumer.job.jvm.ignored_signals``).
"""

from __future__ import annotations

import signal
from importlib import import_module
from typing import Any

import pyspark.daemon

from schemas.interpreter import collect_seldom
from spark_consumer.job.jvm.ignored_signals import SIGNALS

_MODULES = (
    "pandas",
    "pyarrow",
    "google.protobuf.internal.decoder",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.streaming.stateful_processor_util",
    "confluent_kafka",
    "schemas.sql.literals",
    "spark_consumer.apply.prepared",
    "spark_consumer.rows.render",
    "spark_consumer.epochs.spark_tracker",
    "spark_consumer.rows.executors",
)


class _Signals:
    """A replacement of the module ``signal`` for Spark's daemon, so that it and its workers ignore these signals."""

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    def signal(self, number: int, handler: Any) -> Any:
        # Spark ends the workers with a hangup.
        is_ignored = number in SIGNALS and number != signal.SIGHUP
        return signal.signal(number, signal.SIG_IGN if is_ignored else handler)


if __name__ == "__main__":
    for name in _MODULES:
        import_module(name)
    collect_seldom()
    pyspark.daemon.signal = _Signals()
    pyspark.daemon.manager()
