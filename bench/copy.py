"""A first copy of a server, by Tailrace and by ``mysqldump --single-transaction | mysql``, in turns."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from bench import copy_lag, probe
from bench.copy_result import CopyResult, CopyTurn
from bench.drain import PAUSE_S, Ask, kept_connection, wait_until
from bench.meter import Meter
from bench.processes import measured, running_kafka
from compose.databases import MySQL
from compose.kafka import Kafka
from producer.kafka.connection import KafkaConnection
from producer.kafka.topics import Topics
from schemas.access.kafka_security import OPEN
from schemas.access.server_url import ServerUrl
from schemas.errors import StackError
from tailrace.config.model import Kafka as KafkaSection
from tailrace.validate import compare_servers

DATABASE = "copied"
TURNS = 3
_SYSBENCH_TABLES = 3
#: rows with texts of their own; the others repeat these, too far apart for Kafka's compression
_BLOCK = 10_000
_PATIENCE_S = 10.0


def measure_copy(directory: Path, rows: int, turns: int, talk: Console) -> CopyResult:
    """Copy the same tables ``turns`` times each way, always to a new server with the same settings."""
    with ExitStack() as stack:
        talk.print(f"creating {rows:,} rows")
        upstream = MySQL(directory / "upstream", role="upstream", server_id=1)
        stack.callback(upstream.kill)
        upstream.start()
        fill(upstream, rows)
        kafka = stack.enter_context(running_kafka(directory / "kafka"))
        result = CopyResult(rows)
        for turn in range(1, turns + 1):
            talk.print(f"turn {turn} of {turns}: Tailrace")
            copied = _by_tailrace(result, directory / f"tailrace{turn}", upstream, kafka, talk)
            talk.print(f"turn {turn} of {turns}: mysqldump | mysql")
            result.turns.append(
                copied._replace(mysqldump=_by_mysqldump(result, directory / f"dump{turn}", upstream))
            )
        talk.print("another table's changes during a copy")
        result.lag = _lag(directory / "lag", upstream, kafka, rows)
        return result


def fill(upstream: MySQL, rows: int) -> None:
    """Create sysbench's tables, and one with a composite key and more indexes, which has a quarter of the rows."""
    share = rows // (_SYSBENCH_TABLES + 1)
    # Loading is not measured, and the copy reads no binlog of it.
    upstream.execute("SET GLOBAL sync_binlog = 0", "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    upstream.execute(f"CREATE DATABASE {DATABASE}")
    for number in range(1, _SYSBENCH_TABLES + 1):
        name = f"{DATABASE}.sbtest{number}"
        _fill(upstream, name, _SYSBENCH, _SYSBENCH_ROW, "k, c, pad", "RAND() * 1e6, c, pad", share)
    rest = rows - _SYSBENCH_TABLES * share
    columns = "customer, code, status, total, placed, note"
    again = "customer, UUID(), status, total, placed, note"
    _fill(upstream, f"{DATABASE}.orders", _ORDERS, _ORDERS_ROW, columns, again, rest)


_DIGITS = "LPAD(FLOOR(RAND() * 1e11), 11, '0')"
_SYSBENCH = (
    "id INT AUTO_INCREMENT PRIMARY KEY, k INT NOT NULL DEFAULT 0, c CHAR(120) NOT NULL DEFAULT '',"
    " pad CHAR(60) NOT NULL DEFAULT '', KEY k_1 (k)"
)
_SYSBENCH_ROW = (
    f"RAND() * 1e6, CONCAT_WS('-', {', '.join([_DIGITS] * 10)}), CONCAT_WS('-', {', '.join([_DIGITS] * 5)})"
)
_ORDERS = (
    "number INT UNSIGNED NOT NULL AUTO_INCREMENT, customer INT UNSIGNED NOT NULL, code CHAR(36) NOT NULL,"
    " status ENUM('new', 'paid', 'sent', 'back') NOT NULL, total DECIMAL(12,2) NOT NULL,"
    " placed DATETIME(6) NOT NULL, note TEXT, PRIMARY KEY (customer, number), UNIQUE KEY (code),"
    " KEY (number), KEY (placed), KEY (status, total)"
)
_ORDERS_ROW = (
    "RAND() * 1e5, UUID(), 1 + FLOOR(RAND() * 4), RAND() * 1e6,"
    " TIMESTAMP('2026-01-01') + INTERVAL RAND() * 3e13 MICROSECOND, IF(RAND() < 0.5, NULL, REPEAT('é ', RAND() * 50))"
)


def _fill(upstream: MySQL, name: str, definition: str, row: str, columns: str, again: str, rows: int) -> None:
    """Create a table of so many rows: a block of random ones, then the same ones with other keys."""
    numbers = (
        f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {min(rows, _BLOCK)})"
    )
    unlogged = ("SET sql_log_bin = 0", "SET cte_max_recursion_depth = 1000000")
    upstream.execute(
        f"CREATE TABLE {name} ({definition})",
        *unlogged,
        f"INSERT INTO {name} ({columns}) {numbers} SELECT {row} FROM n",
    )
    there = min(rows, _BLOCK)
    while there < rows:
        more = min(there, rows - there)
        upstream.execute(*unlogged, f"INSERT INTO {name} ({columns}) SELECT {again} FROM {name} LIMIT {more}")
        there += more


def _by_tailrace(
    result: CopyResult, directory: Path, upstream: MySQL, kafka: Kafka, talk: Console
) -> CopyTurn:
    """Copy with both processes, which start at the same time."""
    with ExitStack() as stack:
        target = stack.enter_context(_empty_server(directory))
        arguments = ["--config", str(_write_config(directory, upstream, kafka, target))]
        meters = {"kafka": _meter(kafka.pid), "downstream": _meter(target.pid)}
        begin = time.perf_counter()
        produce = stack.enter_context(
            measured("produce", ["tailrace", "produce", *arguments, "--until-caught-up"], directory)
        )
        consume = stack.enter_context(measured("consume", ["tailrace", "consume", *arguments], directory))
        result.usage["produce"] = produce.usage_at_end()
        produced = time.perf_counter() - begin
        last = _last_epoch(kafka, directory.name)
        with kept_connection(target) as ask:
            wait_until(lambda: _applied(ask) >= last, PAUSE_S, consume)
        whole = time.perf_counter() - begin
        result.usage["consume"] = consume.usage_at_end(stop=True)
        result.usage |= {name: meter.stop() for name, meter in meters.items()}
        talk.print("comparing")
        compared = compare_servers(ServerUrl.parse(upstream.url()), ServerUrl.parse(target.url()))
        for line in compared.not_equal:
            talk.print(line, style="red", markup=False)
        result.equal = result.equal and compared.is_equal
    return CopyTurn(result.rows / whole, result.rows / produced, 0.0)


def _lag(directory: Path, upstream: MySQL, kafka: Kafka, rows: int) -> copy_lag.Lag:
    """Copy the tables twice, the second time while a channel is at work on another table's changes."""
    upstream.execute(*probe.CREATE_TABLE)
    with ExitStack() as stack:
        target = stack.enter_context(_empty_server(directory))
        arguments = ["--config", str(_write_config(directory, upstream, kafka, target, probe.DATABASE))]
        stack.enter_context(measured("produce", ["tailrace", "produce", *arguments], directory))
        consume = stack.enter_context(measured("consume", ["tailrace", "consume", *arguments], directory))

        def copy() -> None:
            stack.enter_context(
                measured("copy", ["tailrace", "copy", f"{DATABASE}.*", *arguments], directory)
            )

        with kept_connection(target) as ask:
            return copy_lag.measure_lag(upstream, ask, consume, rows, copy)


def _by_mysqldump(result: CopyResult, directory: Path, upstream: MySQL) -> float:
    """Copy with a pipe; returns rows per second."""
    options = ["--single-transaction", "--set-gtid-purged=OFF", "--databases", DATABASE]
    dump = [*upstream.client_program("mysqldump"), *_login(upstream), *options]
    log = directory / "mysqldump.log"
    with _empty_server(directory) as target, log.open("wb") as errors:
        load = [*target.client_program("mysql"), *_login(target)]
        meters = {"mysqldump.downstream": _meter(target.pid)}
        begin = time.perf_counter()
        dumping = subprocess.Popen(dump, stdout=subprocess.PIPE, stderr=errors)
        loading = subprocess.Popen(load, stdin=dumping.stdout, stderr=errors)
        assert dumping.stdout is not None
        dumping.stdout.close()
        meters |= {"mysqldump": _meter(dumping.pid), "mysql": _meter(loading.pid)}
        failed = loading.wait() or dumping.wait()
        seconds = time.perf_counter() - begin
        result.usage |= {name: meter.stop() for name, meter in meters.items()}
    if failed:
        raise StackError("TR723", "mysqldump or mysql failed", hint=f"see {log}")
    return result.rows / seconds


def _login(server: MySQL) -> list[str]:
    # On one machine, like Tailrace's connections here.
    return ["--host=127.0.0.1", f"--port={server.port}", "--user=root", "--ssl-mode=DISABLED"]


@contextmanager
def _empty_server(directory: Path) -> Iterator[MySQL]:
    """Yield a new server, which is gone afterwards."""
    directory.mkdir()
    server = MySQL(directory / "server", role="downstream", server_id=2)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(server.directory)


def _meter(pid: int | None) -> Meter:
    assert pid is not None
    return Meter(pid)


def _write_config(directory: Path, upstream: MySQL, kafka: Kafka, target: MySQL, *others: str) -> Path:
    """Write a configuration with only addresses, so that everything else has its default.

    Args:
        others: databases besides the one that is always copied.
    """
    include = ", ".join(f'"{name}.*"' for name in (DATABASE, *others))
    path = directory / "tailrace.toml"
    path.write_text(
        f'[source]\nurl = "{upstream.url("tailrace")}?ssl-mode=disabled"\nserver-id = 7101\nstart = "copy"\n'
        f'[kafka]\nbootstrap-servers = "{kafka.bootstrap}"\nprefix = "{directory.name}"\n'
        f'[target]\nurl = "{target.url("tailrace")}?ssl-mode=disabled"\n[tables]\ninclude = [{include}]\n'
        '[metrics]\nlisten = ""\n'
    )
    return path


def _last_epoch(kafka: Kafka, prefix: str) -> int:
    connection = KafkaConnection(kafka.bootstrap, OPEN, _PATIENCE_S)
    last = Topics(connection, prefix, KafkaSection().partitions).peek_last_epoch()
    assert last is not None
    return last.epoch


def _applied(ask: Ask) -> int:
    """The last epoch that the downstream has, -1 before the first."""
    rows = ask("SELECT epoch FROM tailrace.relay_log_info")
    return int(rows[0][0]) if rows else -1
