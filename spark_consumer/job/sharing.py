"""Whether Spark's executors share the rows of a backlog, or the consumer's own process reads all of them."""

from __future__ import annotations

import os

from spark_consumer.rules.config import ConsumerConfig

# Fewer are at work already, with the consumer's process and, often, the servers and the producer.
_ENOUGH = 4


def executors_share(config: ConsumerConfig) -> bool:
    """Return whether executors have more to give than they and Spark's start take.

    One connection writes rows more slowly than compiled code makes them here. Executors of this machine have no such
    code, and each row passes through the JVM. So they help only where several connections write, or where the rows
    become files, and if there are cores for them.
    """
    if not config.spark_conf.get("spark.master", "local").startswith("local"):
        return True
    writes_more = config.workers > 1 or config.files is not None
    return writes_more and len(os.sched_getaffinity(0)) >= _ENOUGH
