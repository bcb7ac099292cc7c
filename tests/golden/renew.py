"""Makes what the code does now what the golden files expect: ``make golden``, then read the diff.

It needs no server. The binlogs themselves are made by ``python -m tests.golden.binlogs.make``.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import structlog

from schemas.gtid.sets import Flavor
from tests.support.binlogs.decoded import decoded_lines
from tests.support.golden import ddl_golden, online_golden, pipeline_golden
from tests.support.golden.golden_binlogs import BINLOGS, FILE, SUBDIR


def renewed() -> Iterator[tuple[Path, str]]:
    """Each golden file, and the text that it would have to have."""
    for path in ddl_golden.files():
        yield path, ddl_golden.renewed(path)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch("tailrace.artifacts.spark.spark_jars", tuple),
        patch("tailrace.artifacts.spark.class_archive", lambda: None),
    ):
        for path in pipeline_golden.files():
            yield path, pipeline_golden.renewed(path, Path(folder))
    yield online_golden.FILE, online_golden.renewed()
    for path in sorted(BINLOGS.glob("*/expected.txt")):
        flavor: Flavor = "mariadb" if path.parent.name.startswith("mariadb") else "mysql"
        lines = decoded_lines(path.parent, SUBDIR, FILE, flavor)
        yield path, "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for path, text in renewed():
        if text != path.read_text():
            path.write_text(text)
            print(path)
