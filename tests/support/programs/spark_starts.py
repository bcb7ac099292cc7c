"""Starts the consumer's Spark with the class archive and ends it. Arguments: a folder, the log of loaded classes."""

from __future__ import annotations

import sys
from pathlib import Path

from schemas.access.server_url import ServerUrl
from spark_consumer.job.spark import start_spark
from spark_consumer.rules.config import ConsumerConfig
from tailrace.artifacts.spark import class_archive, spark_jars

if __name__ == "__main__":
    folder, log = Path(sys.argv[1]), sys.argv[2]
    config = ConsumerConfig(
        "127.0.0.1:1",
        "starts",
        ServerUrl("127.0.0.1"),
        checkpoint_dir=folder,
        spark_conf={"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={log}"},
        jars=spark_jars(),
        class_archive=class_archive(),
    )
    start_spark(config).stop()
