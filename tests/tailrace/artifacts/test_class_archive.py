"""Spark's class archive is made, and its JVM loads the classes from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tailrace.artifacts.spark import class_archive
from tests.support.paths import PROGRAMS

pytestmark = pytest.mark.servers

_SHARED = "source: shared objects file (top)"


def test_spark_loads_nearly_all_classes_from_it(tmp_path: Path) -> None:
    assert class_archive() is not None, "see training.log in the newest .cache/spark-classes-*"
    log = tmp_path / "classes.log"
    program = PROGRAMS / "spark_starts.py"
    command = [sys.executable, str(program), str(tmp_path / "checkpoint"), str(log)]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": os.getcwd()}, check=True)
    loaded = [line for line in log.read_text().splitlines() if " org.apache.spark." in line]
    # Lambdas are made while it runs.
    from_jars = [line for line in loaded if "source: file:" in line]
    assert sum(_SHARED in line for line in loaded) > 1000
    assert len(from_jars) < 100


def test_one_that_cannot_be_made_is_left_out_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    monkeypatch.setattr("tailrace.artifacts.spark.spark_jars", lambda: (tmp_path / "no.jar",))
    monkeypatch.setattr("tailrace.artifacts.spark._TRAINING", "tailrace.__main__")
    with capture_logs() as logs:
        assert class_archive() is None
    [entry] = [entry for entry in logs if entry["event"] == "class_archive_left_out"]
    assert "training.log" in entry["hint"]
