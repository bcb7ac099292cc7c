"""Fetches jars from a Maven registry with PySpark's Ivy and checks them against the SHA-256 in a lock file."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import StackError
from tailrace.artifacts.cache import bundle, cache_dir, print_progress


@dataclass(frozen=True)
class Jar:
    """One pinned jar: Maven coordinates and the SHA-256 of its bytes."""

    bundle: str
    organisation: str
    name: str
    revision: str
    sha256: str

    @property
    def filename(self) -> str:
        return f"{self.name}-{self.revision}.jar"


def java() -> str:
    """Return the ``java`` program, from ``JAVA_HOME`` or the path. Raises StackError if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None) or shutil.which("java")
    if not found:
        raise StackError(
            "TR700 no-java", "no java program was found", hint="install Java 17, or set JAVA_HOME"
        )
    return found


def pyspark_jars() -> Path:
    """Return the folder of PySpark's own jars without importing PySpark. Raises StackError."""
    spec = importlib.util.find_spec("pyspark")
    if not spec or not spec.origin:
        raise StackError(
            "TR700 no-pyspark",
            "PySpark, which includes Ivy, is not installed",
            hint="install what Tailrace requires",
        )
    return Path(spec.origin).with_name("jars")


def pinned(lock: Path, name: str) -> list[Jar]:
    """Return the jars that a lock file lists for the bundle ``name``."""
    jars = []
    for line in lock.read_text().splitlines():
        if line and not line.startswith("#"):
            bundle_of, coordinates, sha256 = line.split()
            organisation, artifact, revision = coordinates.split(":")
            jars.append(Jar(bundle_of, organisation, artifact, revision, sha256))
    return [jar for jar in jars if jar.bundle == name]


def bundle_name(jars: Sequence[Jar]) -> str:
    """Return the cache's name for a bundle of jars."""
    # The digest is part of the name, so that a changed lock file never finds an older bundle.
    text = "".join(f"{jar.filename}{jar.sha256}" for jar in jars)
    return f"{jars[0].bundle}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def cached_jars(jars: Sequence[Jar]) -> list[Path]:
    """Return the files of a bundle of jars; fetch them if necessary. Raises StackError if that fails."""
    folder = bundle(bundle_name(jars), lambda scratch: fetch_jars(jars, scratch))
    return [folder / jar.filename for jar in jars]


def fetch_jars(jars: Sequence[Jar], folder: Path) -> None:
    """Fetch jars into a folder. Raises StackError if a jar is missing or its SHA-256 is another one."""
    print_progress(f"fetching {jars[0].bundle}: {len(jars)} jar{'s' if len(jars) > 1 else ''}")
    _run_ivy(_ivy_module(jars), folder)
    for jar in jars:
        if wrong_with(jar, folder / jar.filename):
            raise StackError(
                "TR700 artifact-changed",
                f"{jar.filename} is missing or is not the file that artifacts.lock pins",
                hint="check the registry or mirror that serves the jars; nothing was kept",
            )


def wrong_with(jar: Jar, path: Path) -> str:
    """Return what is wrong with a jar's file: ``missing``, ``changed``, or nothing."""
    if not path.is_file():
        return "missing"
    return "" if _sha256(path) == jar.sha256 else "changed"


def run_program(
    command: Sequence[str],
    word: str,
    hint: str = "",
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """Run a program that fetches something. Raises StackError ``TR700 <word>`` if it fails."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=cwd, check=False
    )
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-8:])
        what = f"{Path(command[0]).name} ended with {done.returncode}:\n{last}\n"
        raise StackError(f"TR700 {word}", what, hint=hint)


def _ivy_module(jars: Sequence[Jar]) -> str:
    wanted = "".join(
        f'<dependency org="{jar.organisation}" name="{jar.name}" rev="{jar.revision}"'
        ' conf="default->default" transitive="false"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="tailrace" module="stack"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


def _run_ivy(module: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".ivy-", dir=cache_dir()) as scratch:
        module_file = Path(scratch, "ivy.xml")
        module_file.write_text(module)
        pattern = f"{folder}/[artifact]-[revision].[ext]"
        command = [java(), "-jar", str(next(pyspark_jars().glob("ivy-2*.jar"))), "-cache", f"{scratch}/cache"]
        command += ["-ivy", str(module_file), "-confs", "default", "-types", "jar", "bundle"]
        run_program(
            [*command, "-retrieve", pattern],
            "artifact-unavailable",
            "check the connection to the Maven registry",
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
