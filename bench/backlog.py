"""The fixed backlog: sysbench's tables on a fresh MySQL, a copy of that state, and then the events."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from compose.databases import MySQL
from schemas.errors import StackError

TABLES = 8
TABLE_ROWS = 50_000
THREADS = 4
#: oltp_write_only updates two rows, deletes one and inserts one in each transaction
ROWS_PER_TRANSACTION = 4
DATABASE = "sbtest"


@dataclass(frozen=True)
class Backlog:
    """The upstream with its backlog, and the end of the backlog."""

    upstream: MySQL
    base: Path
    gtids: str
    file: str
    position: int
    binlog_bytes: int

    def copy(self, directory: Path, server_id: int) -> MySQL:
        """Start a MySQL with the upstream's data from before the backlog."""
        directory.mkdir(parents=True)
        subprocess.run(
            ["cp", "-a", "--reflink=auto", "--sparse=always", self.base, directory / "data"], check=True
        )
        server = MySQL(directory, role="downstream", server_id=server_id)
        server.start()
        return server


def make_backlog(directory: Path, rows: int) -> Backlog:
    """Start an upstream and fill its binlog with ``rows`` row events."""
    upstream = MySQL(directory / "upstream", role="upstream", server_id=1)
    upstream.start()
    upstream.execute(f"CREATE DATABASE {DATABASE}")
    # Loading is not measured; the downstream has durable settings during the drain.
    upstream.execute("SET GLOBAL sync_binlog = 0", "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    _sysbench(upstream, "prepare", directory)
    upstream.execute("RESET BINARY LOGS AND GTIDS")
    base = _copy_data(upstream, directory / "base")
    upstream.start()
    upstream.execute("SET GLOBAL sync_binlog = 0", "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    _sysbench(upstream, "run", directory, f"--events={rows // ROWS_PER_TRANSACTION}", "--time=0")
    [status] = upstream.execute("SHOW BINARY LOG STATUS")
    size = sum(int(row[1]) for row in upstream.execute("SHOW BINARY LOGS"))
    return Backlog(upstream, base, str(status[4]).replace("\n", ""), str(status[0]), int(status[1]), size)


def _sysbench(server: MySQL, command: str, directory: Path, *options: str) -> None:
    program = shutil.which("sysbench")
    if program is None:
        raise StackError("TR720", "sysbench is not installed", hint="run `make bench`, which installs it")
    log = directory / f"sysbench-{command}.log"
    arguments = [
        program, "oltp_write_only", "--db-driver=mysql", "--mysql-host=127.0.0.1", f"--mysql-port={server.port}",
        "--mysql-user=root", f"--mysql-db={DATABASE}", f"--tables={TABLES}", f"--table-size={TABLE_ROWS}",
        f"--threads={THREADS}", "--rand-seed=1", *options, command,
    ]  # fmt: skip
    with log.open("wb") as output:
        done = subprocess.run(arguments, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
        raise StackError("TR721", f"sysbench {command} failed:\n{last}", hint=f"see {log}")


def _copy_data(server: MySQL, base: Path) -> Path:
    """Stop the server and keep a copy of its data, without identity and binlog."""
    server.stop()
    subprocess.run(["cp", "-a", "--reflink=auto", "--sparse=always", server.data, base], check=True)
    for left_over in (base / "auto.cnf", *base.glob("mysql-bin.*"), *base.glob("server.sock*")):
        left_over.unlink(missing_ok=True)
    return base
