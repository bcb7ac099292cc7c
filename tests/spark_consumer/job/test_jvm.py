"""The consumer's JVM: what it is told, and how its end at the start is explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from schemas.access.server_url import ServerUrl
from schemas.errors import TailraceError
from spark_consumer.job.jvm.launch import _UnauthenticatedStream, _write_properties
from spark_consumer.job.spark import _ended_early
from spark_consumer.rules.config import ConsumerConfig


def test_properties_that_java_reads_as_they_were(tmp_path: Path) -> None:
    settings = {"spark.a": " a b=c:d#\\\n\t☃𝄞 ", "spark.ü": ""}
    _write_properties(tmp_path / "file", settings)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    lines = (tmp_path / "file").read_text("ascii").splitlines()

    def read(text: str) -> str:
        units = re.sub(r"\\u(....)|(.)", lambda m: m[1] or f"{ord(m[2]):04x}", text)
        return bytes.fromhex(units).decode("utf-16-be")

    assert {read(name): read(value) for name, value in (line.split("=") for line in lines)} == settings


@pytest.mark.parametrize(
    ("code", "log", "spark", "said"),
    [
        (-9, "", {}, "TR563: Spark's JVM terminated, killed by SIGKILL"),
        (
            1,
            "Invalid maximum heap size: -Xmxa\nError: Could not create",
            {"spark.a": "1"},
            "TR108: .*Xmxa.*spark.a",
        ),
        (1, "Error occurred\nToo small\n", {"spark.a": "1"}, "TR108: .*Error occurred: Too small"),
        (
            1,
            "Picked up\nException in thread x.SparkException: no master\n\tat a.b(C.scala)",
            {},
            "TR556: Spark failed to start: SparkException: no master Hint",
        ),
        (53, "", {}, "TR556: Spark failed to start: its JVM ended with exit code 53"),
    ],
)
def test_a_jvm_that_ends_at_the_start(
    code: int, log: str, spark: dict[str, str], said: str, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text(f"Error of before\n{log}")
    config = ConsumerConfig("b", "p", ServerUrl("h"), spark_conf=spark)
    error: TailraceError = _ended_early(config, code, tmp_path / "log", len("Error of before\n"))
    assert re.match(said, str(error)), error


def test_a_strangers_lines_are_short() -> None:
    class Endless:
        def readline(self, size: int = -1) -> bytes:
            assert size > 0 or self.trusted
            return b"x" * (5000 if size < 0 else size)

        trusted = False

    stream = Endless()
    lines = _UnauthenticatedStream(stream)
    assert [len(lines.readline()) for _ in range(3)] == [1024] * 3
    stream.trusted = True
    assert len(lines.readline()) == 5000
