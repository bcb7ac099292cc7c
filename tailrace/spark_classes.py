"""The class archive of the consumer's JVM: made once for this Java, this Spark and these jars, kept in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from compose.artifacts import bundle, java, progress, spark_kafka_jars

_PATIENCE_S = 240.0


def class_archive() -> Path:
    """The archive's file. It may be missing: then the JVM reads every class from its jar, which takes longer."""
    jars = spark_kafka_jars()
    program = Path(java()).resolve()
    text = f"{program} {program.stat().st_mtime_ns} {version('pyspark')} {sys.prefix} {jars[0].parent.name}"
    name = f"spark-classes-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return bundle(name, lambda folder: _train(folder, jars)) / "classes.jsa"


def _train(folder: Path, jars: list[Path]) -> None:
    progress("preparing Spark's class archive")
    command = [sys.executable, "-m", "spark_consumer.class_archive", str(folder), *map(str, jars)]
    # Without an archive everything works, so a failure is only noted, in the log that stays.
    with (folder / "training.log").open("wb") as log, contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(command, stdout=log, stderr=log, check=False, timeout=_PATIENCE_S)


if __name__ == "__main__":
    class_archive()
