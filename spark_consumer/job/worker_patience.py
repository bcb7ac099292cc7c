"""Spark's limits on the start of a Python worker, raised to minutes.

The worker in which the driver looks at the schema tracker has ten seconds from its start until it connects, most of
which go into imports; one that the daemon forks has sixty. On a busy machine both limits were exceeded,
and the query failed with "Python worker failed to connect back". No setting changes them: they are constants of
``PythonWorkerFactory``. So that class comes from a jar in front of Spark's own, with other constants.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

_CLASS = "org/apache/spark/api/python/PythonWorkerFactory.class"
_LIMIT_MS = 600_000
# Entries of a class file's constant pool: a tag and a number of milliseconds.
_LIMITS = ((struct.pack(">Bq", 5, 10_000), ">Bq", 5), (struct.pack(">Bi", 3, 60_000), ">Bi", 3))


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
