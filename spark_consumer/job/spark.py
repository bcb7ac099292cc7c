"""The Spark session of the consumer: local unless configured otherwise, tuned for small, frequent batches."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import structlog
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from schemas.access.private_files import make_folder
from schemas.errors import ConfigError, TailraceError
from spark_consumer.job.jvm.launch import JvmEnded, launch
from spark_consumer.job.jvm.process import JVM_TIMEOUT, JvmStart, exit_code, how_ended, lost, runs
from spark_consumer.rows.failures import SparkFailed, cause_of
from spark_consumer.rules.config import ConsumerConfig

# Without the optimizing compiler the start is a second faster and takes a third less CPU. The JVM only moves bytes,
# and a killed consumer should be back soon. The heap is small, so the simplest collector is the fastest.
# It plans and waits: rows are in Python. So it gives memory back that it does not need.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms32m -XX:MinHeapFreeRatio=15 -XX:MaxHeapFreeRatio=30"
_LOGGING = Path(__file__).with_name("log4j2.xml")
_CONNECT_S = 600
_DEFAULTS = {
    "spark.app.name": "tailrace",
    # A task is tried four times, because a Python worker may be killed; local[*] alone would try it once.
    "spark.master": "local[*,4]",
    # Connections need a secret of this run. Spark creates it itself in local mode.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # No Python worker listens on a port.
    "spark.python.unix.domain.socket.enabled": "true",
    # Hadoop sets the permissions of a checkpoint's files itself, without the umask of the process.
    "spark.hadoop.fs.permissions.umask-mode": "077",
    "spark.ui.enabled": "false",
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # The state is one row for each table, and each shuffle partition costs a commit of its state store per batch.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # The default manager starts some thirty programs for each micro-batch, to ask for permissions and links.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "10",
    "spark.ui.retainedStages": "10",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "spark_consumer.job.daemon",
    # Spark passes it in the environment of some workers only, and starts one daemon for each environment.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # The time that Python and the JVM have to connect on a busy machine.
    "spark.python.authenticate.socketTimeout": f"{_CONNECT_S}s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.driver.maxResultSize": "0",
    # Otherwise consumers of finished slices would stay open for five minutes.
    "spark.kafka.consumer.cache.timeout": "1m",
    "spark.driver.memory": "1g",
    "spark.executor.extraJavaOptions": _JVM,
    # Spark's own expression, with the options of Kafka's login and key. Spark hides the values of matching options.
    "spark.redaction.regex": r"(?i)secret|password|token|access[.]?key|jaas|keystore",
}
# Executors on other machines have to reach the driver.
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_log = structlog.get_logger()

# Lines with a reason in the output of a JVM that does not start.
_REASON = re.compile(r"ERROR|Error|Exception|Invalid|Unrecognized|Could not|Improperly")

# The JVM silently ignores an archive that is missing or does not match the JVM or the class path.
_ARCHIVE = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off -XX:SharedArchiveFile="


def _not_py4j(record: logging.LogRecord) -> bool:
    # About a lost JVM py4j writes to the root logger.
    return "py4j" not in record.pathname


def start_spark(config: ConsumerConfig, start: JvmStart | None = None) -> SparkSession:
    """Start Spark with our settings, overridden by the configuration's.

    Args:
        start: lets another thread give up. Then this raises LogError TR563.
    """
    # py4j would log a stack trace for every error that is raised anyway.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_py4j)
    # The workers must use the same environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", str(_CONNECT_S))
    log = (config.channel_dir / "spark.log").absolute()
    if others := make_folder(config.checkpoint_dir, chosen=True):
        _log.warning("folder_open_to_others", folder=str(config.checkpoint_dir), others_may=others)
    make_folder(config.channel_dir)
    settings = {**_DEFAULTS, **config.spark_conf}
    if settings["spark.master"].startswith("local"):
        settings = {**_LOCAL, **settings}
    shared = f"{_ARCHIVE}{config.class_archive}" if config.class_archive else ""
    java = f"{_JVM} {shared} -Dlog4j2.configurationFile=file:{_LOGGING} -Dtailrace.spark.log={log}"
    extra = settings.get("spark.driver.extraJavaOptions", "")
    settings["spark.driver.extraJavaOptions"] = f"{java} {extra}".strip()
    if config.jars:
        jars = ",".join(str(jar) for jar in config.jars)
        settings["spark.jars"] = ",".join(filter(None, (settings.get("spark.jars"), jars)))
        # Only classes on the JVM's class path can come from the archive, or take precedence over Spark's.
        paths = filter(None, (*jars.split(","), settings.get("spark.driver.extraClassPath")))
        settings["spark.driver.extraClassPath"] = os.pathsep.join(paths)
    begin = log.stat().st_size if log.exists() else 0
    try:
        session = _session(settings, config.secrets, log, start or JvmStart())
    except JvmEnded as ended:
        raise _ended_early(config, ended.code, log, begin) from None
    except Exception as error:
        # A JVM that answers is alive; the end of another one is known a moment after a call has failed.
        answered = isinstance(error, CapturedException | Py4JJavaError)
        if (code := exit_code(0.0 if answered else JVM_TIMEOUT)) is not None:
            raise _ended_early(config, code, log, begin) from error
        raise _refused(config, cause_of(error), log) from error
    # It would print a stack trace when the JVM ends, which the session's user gets as an exception.
    accumulators: Any = session.sparkContext._accumulatorServer
    accumulators.handle_error = lambda request, address: None
    return session


def _session(
    settings: Mapping[str, str], secrets: Mapping[str, str], log: Path, start: JvmStart
) -> SparkSession:
    if SparkContext._gateway is None:
        SparkContext._gateway = launch(settings, secrets, log, start)
        SparkContext._jvm = SparkContext._gateway.jvm
        runs(SparkContext._gateway.proc)
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    session: SparkSession = SparkSession.builder.config(conf=conf).getOrCreate()
    # Spark checks the settings of spark.sql only now.
    session.conf.get("spark.sql.shuffle.partitions")
    return session


def _ended_early(config: ConsumerConfig, code: int, log: Path, begin: int) -> TailraceError:
    """Return the error for a JVM that ended while Spark started, with the reason from its log after ``begin``."""
    if code < 0:
        return lost(how_ended(code))
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").splitlines()
    said = ((line, after) for line, after in pairwise([*lines, ""]) if _REASON.search(line))
    # After "Error occurred during initialization of VM" the next line is the reason.
    why = next((line if ":" in line else f"{line}: {after}".strip(": ") for line, after in said), "")
    return _refused(config, cause_of(Exception(why)) if why else f"its JVM ended {how_ended(code)}", log)


def _refused(config: ConsumerConfig, why: str, log: Path) -> TailraceError:
    """Return the error for a Spark that does not start."""
    what, hint = f"Spark failed to start: {why[:300]}", f"see {log}"
    if "spark.authenticate.secret" in why:
        hint = "if spark.master is not local[N], set a secret for Spark's ports: docs/SECURITY.md"
    if not config.spark_conf:
        return SparkFailed("TR556", what, hint=hint)
    return ConfigError("TR108", what, hint=f"check [consumer] {', '.join(sorted(config.spark_conf))}; {hint}")
