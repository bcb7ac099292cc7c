"""The parent of Spark's Python workers, with what every worker needs imported before it is forked.

Spark starts it by ``spark.python.daemon.module``. Without it every worker imports pandas, Arrow and our
modules for itself, at a second or two of CPU each.
"""

from __future__ import annotations

from importlib import import_module

from pyspark.daemon import manager

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
    "schemas.sql",
    "spark_consumer.epochs_stream",
    "spark_consumer.prepare",
    "spark_consumer.rows",
    "spark_consumer.tracker",
)

if __name__ == "__main__":
    for name in _MODULES:
        import_module(name)
    manager()
