"""Spark's limits on the start of Python workers, in the release that is installed."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pyspark
import pytest

from tailrace.artifacts.spark import with_patience, write_jar

[CORE] = Path(pyspark.__file__).parent.glob("jars/spark-core_*.jar")


def test_both_limits_are_ten_minutes(tmp_path: Path) -> None:
    write_jar(CORE, tmp_path / "workers.jar")
    with zipfile.ZipFile(tmp_path / "workers.jar") as jar, zipfile.ZipFile(CORE) as core:
        [name] = jar.namelist()
        ours, theirs = jar.read(name), core.read(name)
    assert len(ours) == len(theirs)
    # Of a 64-bit constant and a 32-bit one the last three bytes differ.
    assert sum(one != other for one, other in zip(ours, theirs, strict=True)) <= 6
    for form in (">Bq", ">Bi"):
        tag = 5 if form == ">Bq" else 3
        assert ours.count(struct.pack(form, tag, 600_000)) == 1


def test_another_class_is_left_alone() -> None:
    with pytest.raises(ValueError, match="is another one than expected"):
        with_patience(b"\xca\xfe\xba\xbe")
