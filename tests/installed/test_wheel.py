"""A wheel has all that runs outside of a checkout."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

from tests.support.paths import CHECKOUT
from tests.support.processes.installed import Installed


def test_the_wheel_has_every_file_of_the_packages(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = set(wheel.namelist())
    tracked = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    packages = ("schemas/", "relay_store/", "producer/", "spark_consumer/", "tailrace/")
    ours = {line for line in tracked.stdout.splitlines() if line.startswith(packages)}
    assert ours - names == set()


def test_commands_run_from_the_wheel_in_any_folder(installed: Installed, tmp_path: Path) -> None:
    code = "import tailrace, schemas; print(tailrace.__file__, schemas.__file__)"
    where = subprocess.run(
        [installed.python, "-c", code], cwd=tmp_path, capture_output=True, text=True
    ).stdout
    assert [Path(path).is_relative_to(installed.folder) for path in where.split()] == [True, True]

    example = installed.run("config", "example")
    assert "[source]" in example.stdout, example.stderr
    units = installed.run("systemd", str(tmp_path))
    assert units.returncode == 0, units.stderr
    assert f"ExecStart={installed.program} produce" in (tmp_path / "tailrace-producer.service").read_text()
    assert installed.run("artifacts", "verify").returncode == 0


def test_a_machine_without_a_way_out_is_told_what_to_bring(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "tailrace.toml").write_text('[target]\nurl = "mysql://tailrace@127.0.0.1:1/"\n')
    # A proxy that is not there keeps Ivy from the registry, as if there were no network.
    proxy = " ".join(f"-D{one}.proxyHost=127.0.0.1 -D{one}.proxyPort=1" for one in ("http", "https"))
    away = {"TAILRACE_CACHE": str(tmp_path / "cache"), "JAVA_TOOL_OPTIONS": proxy}
    done = installed.run("consume", "--config", str(tmp_path / "tailrace.toml"), **away)
    said = json.loads(done.stderr.splitlines()[-1])
    assert (done.returncode, said["code"]) == (2, "TR190")
    assert "tailrace artifacts fetch" in said["hint"]
    assert str(tmp_path / "cache") in said["hint"]
