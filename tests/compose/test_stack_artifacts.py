"""The cache: pinned, whole or absent, built once."""

from __future__ import annotations

import json
import multiprocessing
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import compose
import tailrace.artifacts
from compose.processes import ProcessId, free_port
from schemas.errors import ConfigError, StackError
from tailrace.artifacts import maven
from tailrace.artifacts.cache import bundle
from tailrace.artifacts.spark import spark_kafka_jars
from tailrace.commands.app import app

LOCKS = [
    Path(package.__file__ or "").with_name("artifacts.lock") for package in (compose, tailrace.artifacts)
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_every_jar_is_pinned_by_its_digest() -> None:
    jars = [
        jar
        for lock in LOCKS
        for name in ("kafka", "spark-kafka", "mariadb")
        for jar in maven.pinned(lock, name)
    ]
    assert len(jars) == 51
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in jars)


def test_a_bundle_is_built_once(own_cache: Path) -> None:
    built: list[Path] = []
    first = bundle("thing", built.append)
    assert first == bundle("thing", built.append) == own_cache / "thing"
    assert len(built) == 1


def test_a_failed_build_leaves_nothing(own_cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise StackError("TR700 broken", "on the way")

    with pytest.raises(StackError):
        bundle("thing", fail)
    assert [path.name for path in own_cache.iterdir()] == [".thing.lock"]


def _build_slowly(log: str) -> None:
    def build(folder: Path) -> None:
        with Path(log).open("a") as lines:
            lines.write("built\n")

    bundle("thing", build)


def test_two_processes_build_it_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    fork = multiprocessing.get_context("spawn")
    processes = [fork.Process(target=_build_slowly, args=(str(log),)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert log.read_text() == "built\n"


def test_a_changed_jar_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def deliver_something_else(module: str, folder: Path) -> None:
        for jar in maven.pinned(LOCKS[1], "spark-kafka"):
            (folder / jar.filename).write_bytes(b"something else")

    monkeypatch.setattr(maven, "_run_ivy", deliver_something_else)
    with pytest.raises(ConfigError, match=r"TR190.* is not the file that artifacts\.lock pins"):
        spark_kafka_jars()


def test_jars_that_are_missing_or_changed_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jars = maven.pinned(LOCKS[1], "spark-kafka")
    folder = tmp_path / maven.bundle_name(jars)
    folder.mkdir()
    (folder / jars[1].filename).write_bytes(b"something else")
    monkeypatch.setenv("TAILRACE_CACHE", str(tmp_path))
    done = CliRunner().invoke(app, ["artifacts", "verify", "--json"])
    states = {Path(one["file"]).name: one["state"] for one in json.loads(done.stdout)}
    wanted = {jar.filename: "missing" for jar in jars} | {jars[1].filename: "changed"}
    assert (done.exit_code, states) == (5, wanted)


def test_a_pid_file_of_nonsense_names_no_process(tmp_path: Path) -> None:
    (tmp_path / "pid").write_text("not a pid")
    assert ProcessId.read(tmp_path / "pid") is None
    assert ProcessId.read(tmp_path / "absent") is None


def test_ports_are_below_the_ephemeral_range() -> None:
    assert all(15000 <= free_port() < 32000 for _ in range(20))


def test_no_process_gets_a_port_that_another_one_was_given() -> None:
    given = [free_port() for _ in range(3)]
    program = (
        "import random; from compose.processes import free_port\n"
        f"drawn = iter([*{given}, *range(15000, 32000)])\n"
        "random.randrange = lambda *_: next(drawn)\n"
        "print(free_port())"
    )
    drawn = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    # nobody listens on any of them
    assert int(drawn) not in given
