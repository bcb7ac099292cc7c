"""The jars that the consumer's JVM loads, and their class archive, built once for each version of Java and Spark.

Spark limits the start of a Python worker: to ten seconds until it connects where the driver asks the schema tracker,
most of which go into imports, and to sixty where the daemon forks one. On a busy machine both limits were exceeded, and
the query failed with "Python worker failed to connect back". No setting changes them: they are constants of
``PythonWorkerFactory``. So a jar in front of Spark's own has that class with other constants.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import structlog

from schemas.errors import ConfigError, StackError
from tailrace.artifacts.cache import bundle, cache_dir, print_progress
from tailrace.artifacts.maven import Jar, bundle_name, cached_jars, java, pinned, pyspark_jars, wrong_with

_LOCK_FILE = Path(__file__).with_name("artifacts.lock")
_TIMEOUT_S = 240.0
_TRAINING = "spark_consumer.job.class_archive"
_CLASS = "org/apache/spark/api/python/PythonWorkerFactory.class"
_LIMIT_MS = 600_000
# Entries of a class file's constant pool: a tag and a number of milliseconds.
_LIMITS = ((struct.pack(">Bq", 5, 10_000), ">Bq", 5), (struct.pack(">Bi", 3, 60_000), ">Bi", 3))
_log = structlog.get_logger()


def spark_kafka_jars() -> list[Path]:
    """Return Spark's Kafka connector and the three jars that it needs; fetch them if necessary.

    Raises ConfigError TR190 if that fails.
    """
    jars = _connector()
    try:
        return cached_jars(jars)
    except (StackError, OSError) as error:
        text = error.message if isinstance(error, StackError) else str(error)
        reason = " ".join(word for word in text.split() if word.strip(":"))  # Ivy's frames
        name, folder = bundle_name(jars), cache_dir()
        raise ConfigError(
            "TR190",
            f"Spark's connector for Kafka is not in {folder / name}, and could not be fetched: {reason}",
            hint="run `tailrace artifacts fetch` where the Maven registry can be reached, and copy the folder"
            f" {name} of its cache into {folder}",
        ) from error


def verify() -> dict[Path, str]:
    """Compare the connector's jars with the pinned checksums.

    Returns:
        each file, and what is wrong with it: ``missing``, ``changed`` or nothing.
    """
    jars = _connector()
    folder = cache_dir() / bundle_name(jars)
    return {folder / jar.filename: wrong_with(jar, folder / jar.filename) for jar in jars}


def _connector() -> list[Jar]:
    return pinned(_LOCK_FILE, "spark-kafka")


def spark_jars() -> tuple[Path, ...]:
    """Return the jars in class path order: the class that waits longer for Python workers, then the connector."""
    [spark_core] = pyspark_jars().glob("spark-core_*.jar")
    try:
        folder = bundle(
            f"spark-workers-{version('pyspark')}",
            lambda folder: write_jar(spark_core, folder / "workers.jar"),
        )
    except (ValueError, OSError) as error:
        _log.warning("worker_patience_left_out", reason=str(error))
        return tuple(spark_kafka_jars())
    return folder / "workers.jar", *spark_kafka_jars()


def with_patience(code: bytes) -> bytes:
    """Patch the class to limits of ten minutes. Raises ValueError if it is not the expected version."""
    for limit, form, tag in _LIMITS:
        if code.count(limit) != 1:
            raise ValueError(
                f"{_CLASS} is another one than expected: {code.count(limit)} times {limit.hex()}"
            )
        code = code.replace(limit, struct.pack(form, tag, _LIMIT_MS))
    return code


def write_jar(spark_core: Path, jar: Path) -> None:
    """Write the jar, from Spark's own ``spark-core`` jar. Raises ValueError, OSError."""
    with zipfile.ZipFile(spark_core) as source, zipfile.ZipFile(jar, "w") as made:
        made.writestr(_CLASS, with_patience(source.read(_CLASS)))


def class_archive() -> Path | None:
    """Return the archive's path; None if it could not be made, or the cache cannot be written.

    Without it the JVM starts more slowly, from the jars. Raises ConfigError TR190.
    """
    jars = spark_jars()
    program, folders = Path(java()).resolve(), [jar.parent.name for jar in jars]
    text = f"{program} {program.stat().st_mtime_ns} {version('pyspark')} {pyspark_jars()} {folders}"
    training = find_spec(_TRAINING)
    assert training is not None
    assert training.origin is not None
    digest = hashlib.sha256(text.encode() + Path(training.origin).read_bytes())
    name = f"spark-classes-{digest.hexdigest()[:8]}"
    try:
        folder = bundle(name, lambda folder: _train(folder, jars))
    except OSError as error:
        _log.warning("class_archive_left_out", reason=str(error))
        return None
    archive = folder / "classes.jsa"
    if not archive.exists():
        hint = f"see {folder / 'training.log'}; without this folder it is tried again"
        _log.warning("class_archive_left_out", reason="it could not be made", hint=hint)
        return None
    return archive


def _train(folder: Path, jars: Sequence[Path]) -> None:
    print_progress("preparing Spark's class archive")
    command = [sys.executable, "-m", _TRAINING, str(folder), *map(str, jars)]
    # Everything works without an archive, so a failure only leaves its log.
    with (folder / "training.log").open("wb") as log, contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(command, stdout=log, stderr=log, check=False, timeout=_TIMEOUT_S)


if __name__ == "__main__":
    class_archive()
