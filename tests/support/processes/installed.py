"""A wheel of the checkout, installed into an environment of its own outside of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tailrace.artifacts.cache import cache_dir
from tests.support.paths import CHECKOUT

_PACKAGES = ("schemas", "relay_store", "producer", "spark_consumer", "tailrace", "compose")


class Installed:
    """An environment that has Tailrace from a wheel, and what it depends on from the present one.

    Attributes:
        program: its ``tailrace``.
        wheel: the wheel's path.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheel = _build_wheel(folder)
        environment = folder / "environment"
        self._uv("venv", "-q", "--python", sys.executable, str(environment))
        python = environment / "bin" / "python"
        self._uv("pip", "install", "-q", "--no-deps", "--python", str(python), str(self.wheel))
        [packages] = environment.glob("lib/python*/site-packages")
        # Such a line adds the folder's packages, but does not run its own .pth files: not our editable checkout.
        (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        self.python, self.program = python, python.with_name("tailrace")

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``tailrace ARGUMENTS`` in an empty folder."""
        folder = self.folder / "elsewhere"
        folder.mkdir(exist_ok=True)
        return subprocess.run(
            [self.program, *arguments],
            cwd=folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with the present cache."""
        return {**os.environ, "TAILRACE_CACHE": str(cache_dir())}

    @staticmethod
    def _uv(*arguments: str) -> None:
        subprocess.run([sys.executable, "-m", "uv", *arguments, "--offline"], check=True)


def _build_wheel(folder: Path) -> Path:
    # A build leaves files beside the sources.
    sources = folder / "sources"
    for name in _PACKAGES:
        shutil.copytree(CHECKOUT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, sources)
    command = [sys.executable, "-m", "uv", "build", "-q", "--wheel", "--offline", "--no-build-isolation"]
    subprocess.run([*command, "--python", sys.executable, "-o", folder, sources], check=True)
    [wheel] = folder.glob("*.whl")
    return wheel
