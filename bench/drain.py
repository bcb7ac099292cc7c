"""Measures the consumer alone, the whole drain, and a MySQL replica with the same work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pymysql

from bench.backlog import Backlog, Pair
from bench.meter import Meter, Usage
from bench.processes import Measured, measured
from bench.shapes import DATABASE
from compose.databases import MySQL
from compose.kafka import Kafka
from schemas.errors import StackError
from schemas.gtid.sets import MysqlGtidSet

# A replica on slow cores needs half an hour for six million row events.
_PATIENCE_S = 7200.0
#: between two questions whether all is there
PAUSE_S = 0.1
Ask = Callable[[str], list[tuple[Any, ...]]]


class Drained(NamedTuple):
    """What was measured of a whole drain.

    Attributes:
        rows: row events that the consumer has applied.
        seconds: from the start of both processes until the downstream has everything.
        start_s: from the start of both processes until the first of the consumer's transactions.
        usage: by process.
    """

    rows: int
    seconds: float
    start_s: float
    usage: dict[str, Usage]


def write_config(directory: Path, pair: Pair, kafka: Kafka, target: MySQL, prefix: str, *others: str) -> Path:
    """Write a configuration with only addresses, so that everything else has its default.

    Args:
        others: databases besides the one that every shape has.
    """
    include = ", ".join(f'"{name}.*"' for name in (DATABASE, *others))
    path = directory / "tailrace.toml"
    path.write_text(
        f'[source]\nurl = "{pair.upstream.url("tailrace")}?ssl-mode=disabled"\nserver-id = 7101\n'
        f'start = "earliest"\n'
        f'[kafka]\nbootstrap-servers = "{kafka.bootstrap}"\nprefix = "{prefix}"\n'
        f'[target]\nurl = "{target.url("tailrace")}?ssl-mode=disabled"\n[tables]\ninclude = [{include}]\n'
        '[metrics]\nlisten = ""\n'
    )
    return path


def consume_alone(config: Path) -> tuple[float, float, Usage]:
    """Return the seconds of the running query and of the whole process, and its usage."""
    begin = time.perf_counter()
    arguments = ["tailrace", "consume", "--config", str(config), "--until-caught-up"]
    with measured("consume", arguments, config.parent) as program:
        usage = program.usage_at_end()
        whole = time.perf_counter() - begin
        return query_seconds(program.log), whole, usage


def query_seconds(log: Path) -> float:
    """Return the seconds from the query's start to the last batch, from the consumer's log."""
    begins = _events(log, "applies_directly", "tracker_seeded")
    return (_time(_batches(log)[-1]) - _time(begins[0])).total_seconds() if begins else _unclear(log)


def _batches(log: Path) -> list[dict[str, Any]]:
    return _events(log, "batch_applied") or _unclear(log)


def _events(log: Path, *names: str) -> list[dict[str, Any]]:
    lines = log.read_text(errors="replace").splitlines()
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    return [entry for entry in entries if entry["event"] in names]


def _time(entry: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(entry["timestamp"])


def _unclear(log: Path) -> NoReturn:
    raise StackError("TR724", "the consumer's log does not show when it started and ended", hint=f"see {log}")


def drain(config: Path, target: MySQL, kafka: Kafka, gtids: str) -> Drained:
    """Start both processes, and stop them when the downstream's position is the backlog's end."""
    wanted = MysqlGtidSet.parse(gtids)
    servers = {"drain.kafka": kafka.pid, "drain.downstream": target.pid}
    meters = {name: Meter(pid) for name, pid in servers.items() if pid}
    start, begin = datetime.now(UTC), time.perf_counter()
    with both(config) as (produce, consume):
        with kept_connection(target) as ask:
            wait_until(lambda: _applied(ask).contains(wanted), PAUSE_S, produce, consume)
        seconds = time.perf_counter() - begin
        usage = {each.name: each.usage_at_end(stop=True) for each in (produce, consume)}
    batches = _batches(consume.log)
    return Drained(
        sum(batch["rows"] for batch in batches),
        seconds,
        (_time(batches[0]) - start).total_seconds(),
        usage | {name: meter.stop() for name, meter in meters.items()},
    )


@contextmanager
def both(config: Path) -> Iterator[tuple[Measured, Measured]]:
    """Run the producer and the consumer, which start at the same time."""
    arguments = ["--config", str(config)]
    with (
        measured("drain.produce", ["tailrace", "produce", *arguments], config.parent) as produce,
        measured("drain.consume", ["tailrace", "consume", *arguments], config.parent) as consume,
    ):
        yield produce, consume


def _applied(ask: Ask) -> MysqlGtidSet:
    rows = ask("SELECT executed_gtid_set FROM tailrace.relay_log_info")
    return MysqlGtidSet.parse(rows[0][0]) if rows else MysqlGtidSet()


@contextmanager
def kept_connection(server: MySQL) -> Iterator[Ask]:
    """Yield a function that returns a query's rows, always on one connection: a new one costs the server more."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:

        def ask(sql: str) -> list[tuple[Any, ...]]:
            # The table may be just being created.
            with suppress(pymysql.err.ProgrammingError, pymysql.err.OperationalError):
                cursor.execute(sql)
                return list(cursor.fetchall())
            return []

        yield ask


def wait_until(done: Callable[[], bool], pause: float, *programs: Measured) -> None:
    """Wait until something is done. Raises StackError if that takes too long, or a program ends."""
    deadline = time.monotonic() + _PATIENCE_S
    while not done():
        for program in programs:
            program.check()
        if time.monotonic() > deadline:
            raise StackError("TR722", f"the backlog was not drained within {_PATIENCE_S:.0f} s")
        time.sleep(pause)


def replica(backlog: Backlog, target: MySQL) -> tuple[float, Usage]:
    """Return the seconds that a MySQL replica with default settings needs for the same backlog."""
    target.execute(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1',"
        f" SOURCE_PORT = {backlog.upstream.port}, SOURCE_USER = 'root', SOURCE_PASSWORD = '',"
        " SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
    )
    pid = target.pid
    assert pid is not None
    meter = Meter(pid)
    begin = time.perf_counter()
    target.execute("START REPLICA")
    sql = f"SELECT GTID_SUBSET('{backlog.gtids}', @@GLOBAL.gtid_executed)"
    with kept_connection(target) as ask:
        wait_until(lambda: bool(ask(sql)[0][0]) or _replica_failed(ask, target), PAUSE_S)
    seconds = time.perf_counter() - begin
    usage = meter.stop()
    target.execute("STOP REPLICA")
    return seconds, usage


def _replica_failed(ask: Ask, target: MySQL) -> bool:
    sql = (
        "SELECT LAST_ERROR_MESSAGE FROM performance_schema.replication_connection_status UNION ALL"
        " SELECT LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_worker"
    )
    errors = [str(row[0]) for row in ask(sql) if row[0]]
    if errors:
        raise StackError("TR725", f"the replica stopped: {errors[0]}", hint=f"see {target.log}")
    return False
