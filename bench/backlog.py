"""A fixed backlog: tables on a fresh MySQL, a copy of that state, and then the events."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.shapes import DATABASE, Changes, Sysbench
from compose.databases import Database, MySQL
from schemas.errors import StackError

TABLES = 8
TABLE_ROWS = 50_000
THREADS = 4


@dataclass(frozen=True)
class Pair:
    """An upstream, and a copy of its data from before anything is in its binlog."""

    upstream: MySQL
    base: Path

    def copy(self, directory: Path, server_id: int) -> MySQL:
        """Start a MySQL with that data."""
        directory.mkdir(parents=True)
        subprocess.run(
            ["cp", "-a", "--reflink=auto", "--sparse=always", self.base, directory / "data"], check=True
        )
        server = MySQL(directory, role="downstream", server_id=server_id)
        server.start()
        return server


@dataclass(frozen=True)
class Backlog(Pair):
    """The upstream with its backlog, and the end of the backlog."""

    gtids: str
    file: str
    position: int
    binlog_bytes: int


def make_backlog(
    directory: Path,
    shape: Sysbench | Changes,
    rows: int,
    *more: str,
    prepare: Callable[[Pair], None] | None = None,
) -> Backlog:
    """Start an upstream and fill its binlog with about ``rows`` row events.

    Args:
        more: statements that make more tables.
        prepare: is called before the events are written.
    """
    pair = make_pair(directory, shape, rows, *more)
    upstream = pair.upstream
    if prepare:
        prepare(pair)
    if isinstance(shape, Sysbench):
        events = max(1, rows // shape.row_events)
        run_sysbench(upstream, shape, "run", directory, f"--events={events}", "--time=0")
    else:
        write_changes(upstream, shape, rows)
    [status] = upstream.execute("SHOW BINARY LOG STATUS")
    size = sum(int(row[1]) for row in upstream.execute("SHOW BINARY LOGS"))
    gtids = str(status[4]).replace("\n", "")
    return Backlog(upstream, pair.base, gtids, str(status[0]), int(status[1]), size)


def make_pair(directory: Path, shape: Sysbench | Changes, rows: int, *more: str) -> Pair:
    """Start an upstream with the tables that a shape needs for so many row events.

    Args:
        more: statements that make more tables.
    """
    upstream = MySQL(directory / "upstream", role="upstream", server_id=1, args=shape.server_options)
    upstream.start()
    _hurry(upstream)
    if isinstance(shape, Sysbench):
        upstream.execute(f"CREATE DATABASE {DATABASE}")
        run_sysbench(upstream, shape, "prepare", directory)
        if shape.alter:
            upstream.execute(*(f"ALTER TABLE {DATABASE}.sbtest{n + 1} {shape.alter}" for n in range(TABLES)))
    else:
        upstream.execute(*shape.preparation(rows))
    upstream.execute(*more, "RESET BINARY LOGS AND GTIDS")
    base = _copy_data(upstream, directory / "base")
    upstream.start()
    _hurry(upstream)
    return Pair(upstream, base)


def _hurry(upstream: MySQL) -> None:
    # Writing is not measured; the downstream has durable settings during the drain.
    upstream.execute("SET GLOBAL sync_binlog = 0", "SET GLOBAL innodb_flush_log_at_trx_commit = 2")


def write_changes(upstream: Database, shape: Changes, rows: int) -> None:
    """Run all transactions of a shape, each connection its own."""

    def write(number: int) -> None:
        with upstream.connect(autocommit=False) as connection, connection.cursor() as cursor:
            if shape.sessions:
                cursor.execute(f"SET {shape.sessions[number % len(shape.sessions)]}")
            for statements in shape.transactions(rows, number):
                for statement in statements:
                    cursor.execute(statement)
                connection.commit()

    with ThreadPoolExecutor(shape.connections) as pool:
        list(pool.map(write, range(shape.connections)))


def run_sysbench(server: MySQL, shape: Sysbench, command: str, directory: Path, *options: str) -> None:
    """Run one of sysbench's commands to its end; raises StackError if it fails."""
    program = shutil.which("sysbench")
    if program is None:
        raise StackError("TR720", "sysbench is not installed", hint="run `make bench`, which installs it")
    log = directory / f"sysbench-{command}.log"
    arguments = [
        program, shape.script, "--db-driver=mysql", "--mysql-host=127.0.0.1", f"--mysql-port={server.port}",
        "--mysql-user=root", f"--mysql-db={DATABASE}", f"--tables={TABLES}", f"--table-size={TABLE_ROWS}",
        f"--threads={THREADS}", "--rand-seed=1", *shape.options, *options, command,
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
