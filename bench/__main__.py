"""``python -m bench [--copy | --backlog NAME | --all | --cluster]``: measure, compare, print, write a JSON file."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

from bench import debezium, drain
from bench.backlog import Backlog, make_backlog
from bench.cluster import measure_cluster
from bench.copy import TURNS, measure_copy
from bench.copy_result import print_copy
from bench.lag import measure_lag
from bench.processes import run_part, running_kafka
from bench.report import BacklogResult, Result, Turn, print_backlogs, print_table, write_merged
from bench.shapes import SHAPES
from compose.databases import MySQL
from compose.kafka import Kafka
from schemas.access.server_url import ServerUrl
from schemas.errors import ExitCode, StackError, TailraceError
from tailrace.service.console import console
from tailrace.validate import compare_servers

_OUT = Path(__file__).parent / "out"
_COPIED_ROWS = 4_000_000
# The publisher and mysql-replication take turns, since a shared machine's speed may halve within seconds.
_TURNS = 5
talk = console(stderr=True)


def main() -> int:
    """Run the benchmark; returns the exit code."""
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.peer and not (arguments.backlog or arguments.all):
        parser.error("--peer goes with --backlog or --all")
    signal.signal(signal.SIGTERM, _interrupt)
    out = arguments.out or _OUT / ("copy.json" if arguments.copy else "latest.json")
    if arguments.backlog or arguments.all:
        names = list(SHAPES) if arguments.all else [arguments.backlog]
        codes = [_run(partial(_backlog, name, arguments.rows, arguments.peer, out)) for name in names]
    elif arguments.copy:
        codes = [_run(partial(_copy, arguments.rows or _COPIED_ROWS, arguments.turns, out))]
    elif arguments.cluster:
        codes = [_run(partial(_cluster, arguments.rows or SHAPES["hot"].rows, out))]
    else:
        codes = [_run(partial(_whole, arguments.rows or SHAPES["hot"].rows, out))]
    return max(codes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--copy", action="store_true", help="measure a first copy of tables instead, beside mysqldump"
    )
    shapes = "; ".join(f"{name}: {shape.about}" for name, shape in SHAPES.items())
    kind.add_argument(
        "--backlog",
        choices=SHAPES,
        metavar="NAME",
        help=f"measure only the whole drain of one backlog ({shapes})",
    )
    kind.add_argument("--all", action="store_true", help="measure the whole drain of each backlog")
    kind.add_argument(
        "--cluster",
        action="store_true",
        help="measure the consumer on a Spark cluster of one and two executors",
    )
    parser.add_argument(
        "--peer",
        choices=["debezium"],
        help="with --backlog and --all: measure this peer too, which takes long",
    )
    sizes = ", ".join(f"{name} {shape.rows:,}" for name, shape in SHAPES.items())
    parser.add_argument(
        "--rows",
        type=int,
        help=f"row events of the backlog (default: {sizes}), or rows to copy ({_COPIED_ROWS:,})",
    )
    parser.add_argument(
        "--turns", type=int, default=TURNS, help="how often to copy each way (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, help="the JSON file (default: latest.json or copy.json in bench/out)"
    )
    return parser


def _run(measure: Callable[[Path], bool]) -> int:
    """Measure in a folder that stays only if it failed; returns the exit code."""
    directory = Path(tempfile.mkdtemp(prefix="tailrace-bench-"))
    try:
        equal = measure(directory)
    except KeyboardInterrupt:
        talk.print("interrupted; everything is stopped")
        sys.exit(130)
    except TailraceError as error:
        talk.print(str(error), style="red", markup=False)
        talk.print(f"the logs are in {directory}")
        return ExitCode.FAILED
    shutil.rmtree(directory, ignore_errors=True)
    return ExitCode.OK if equal else ExitCode.DIVERGED


def _copy(rows: int, turns: int, out: Path, directory: Path) -> bool:
    result = measure_copy(directory, rows, turns, talk)
    print_copy(result, console())
    result.write(out)
    talk.print(f"written to {out}")
    return result.equal


def _cluster(rows: int, out: Path, directory: Path) -> bool:
    with _backlog_and_kafka(directory, "hot", rows) as (backlog, kafka):
        found = measure_cluster(directory, backlog, kafka, rows, talk).as_dict()
    ratio, one, two = (found[name] for name in ("ratio", "one_rows_per_s", "two_rows_per_s"))
    console().print(
        f"two executors {two:,.0f} rows/s, one {one:,.0f}: {ratio} times, on {found['cores']} cores"
    )
    write_merged(out, {"cluster": found, "backlogs": {}})
    talk.print(f"written to {out}")
    return bool(found["equal"])


def _whole(rows: int, out: Path, directory: Path) -> bool:
    result = measure(directory, rows)
    print_table(result, console())
    write_merged(out, result.as_dict())
    talk.print(f"written to {out}")
    return result.equal


def _backlog(name: str, rows: int | None, peer: str | None, out: Path, directory: Path) -> bool:
    result = measure_backlog(directory, name, rows or SHAPES[name].rows, peer is not None)
    found = {name: result.as_dict()}
    print_backlogs(found, console())
    write_merged(out, {"backlogs": found})
    talk.print(f"written to {out}")
    return result.equal


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def measure(directory: Path, rows: int) -> Result:
    """Run all measurements, one after the other, so that they do not compete for the processor."""
    result = Result()
    with _backlog_and_kafka(directory, "hot", rows) as (backlog, kafka):
        _measure_parts(result, directory, backlog, kafka, rows)
        equal = _measure_consumer(result, directory, backlog, kafka)
        result.hot = hot = _measure_whole(directory, backlog, kafka)
        result.seconds |= {"drain": hot.drained.seconds, "replica": hot.replica}
        result.usage |= {**hot.drained.usage, "mysql_replica": hot.replica_usage}
        result.equal = hot.equal and equal
        backlog.upstream.stop()
        talk.print("lag at a steady rate")
        kafka.start()
        result.lag = measure_lag(directory / "lag", kafka)
    return result


def measure_backlog(directory: Path, name: str, rows: int, with_debezium: bool) -> BacklogResult:
    """Measure only the whole drain of a backlog, and its peers."""
    with _backlog_and_kafka(directory, name, rows, with_debezium) as (backlog, kafka):
        result = _measure_whole(directory, backlog, kafka)
        if with_debezium:
            talk.print("peer: Debezium")
            kafka.start()
            target = backlog.copy(directory / "by-debezium", server_id=6)
            try:
                result = replace(
                    result, debezium=debezium.drain(directory / "connect", backlog, kafka, target)
                )
            except StackError as error:
                # It cannot replicate each backlog; the other figures hold.
                talk.print(str(error), style="red", markup=False)
            target.stop()
        return result


@contextmanager
def _backlog_and_kafka(
    directory: Path, name: str, rows: int, with_debezium: bool = False
) -> Iterator[tuple[Backlog, Kafka]]:
    with ExitStack() as stack:
        talk.print(f"creating a backlog of {rows:,} row events: {name}")
        stack.callback(_stop_servers, directory)
        kafka = stack.enter_context(running_kafka(directory / "kafka"))
        more: tuple[str, ...] = ()
        prepare = None
        if with_debezium:
            more, prepare = debezium.CREATE_TABLE, partial(debezium.prepare, directory / "connect", kafka)
        yield make_backlog(directory, SHAPES[name], rows, *more, prepare=prepare), kafka


def _measure_parts(result: Result, directory: Path, backlog: Backlog, kafka: Kafka, rows: int) -> None:
    settings = {
        # On one machine, like the earlier figures.
        "source": backlog.upstream.url("tailrace") + "?ssl-mode=disabled",
        "port": backlog.upstream.port,
        "server_id": 7100,
        "file": backlog.file,
        "position": backlog.position,
        "relay_dir": str(directory / "relay"),
        "kafka": kafka.bootstrap,
        "prefix": "parts",
        "rows": rows,
    }
    talk.print(f"mirror alone: {backlog.binlog_bytes / 1e6:.0f} MB of binlog")
    found, result.usage["mirror"] = run_part("mirror", settings, directory)
    result.seconds["mirror"] = found["seconds"]
    for turn in range(1, _TURNS + 1):
        talk.print(f"publisher alone, and mysql-replication decoding: turn {turn} of {_TURNS}")
        prefix = "parts" if turn == 1 else f"parts{turn}"
        published, result.usage["publish"] = run_part("publish", {**settings, "prefix": prefix}, directory)
        result.rows, result.publisher_peak_mb = int(published["rows"]), published["peak_rss_mb"]
        peer_settings = {**settings, "rows": rows // _TURNS}
        decoded, used = run_part("decode", peer_settings, directory)
        whole = used.cpu_seconds * result.rows / max(1.0, decoded["rows"])
        result.usage["mysql_replication"] = used._replace(cpu_seconds=whole)
        # It counts the rows that it reads; its rate is from its own count.
        result.turns.append(
            Turn(published["rows"] / published["seconds"], decoded["rows"] / decoded["seconds"])
        )
    result.seconds["publish"] = sum(result.rows / turn.publish for turn in result.turns) / _TURNS
    result.seconds["decode"] = sum(result.rows / turn.decode for turn in result.turns) / _TURNS
    talk.print("publisher again, to see where its time goes")
    result.where = run_part("publish", {**settings, "prefix": "where", "sample": True}, directory)[0]["where"]


def _measure_consumer(result: Result, directory: Path, backlog: Backlog, kafka: Kafka) -> bool:
    talk.print("consumer alone")
    target = backlog.copy(directory / "consumer", server_id=2)
    config = drain.write_config(target.directory, backlog, kafka, target, "parts")
    query, whole, result.usage["consume"] = drain.consume_alone(config)
    result.seconds |= {"consume": query, "consume_whole": whole}
    equal = _equal(backlog, target)
    target.stop()
    return equal


def _measure_whole(directory: Path, backlog: Backlog, kafka: Kafka) -> BacklogResult:
    """Drain the backlog with both processes, and after that with a replica, for which Kafka is stopped."""
    talk.print(f"whole drain: {backlog.binlog_bytes / 1e6:.0f} MB of binlog")
    target = backlog.copy(directory / "drain", server_id=3)
    config = drain.write_config(target.directory, backlog, kafka, target, "drain")
    drained = drain.drain(config, target, kafka, backlog.gtids)
    equal = _equal(backlog, target)
    target.stop()
    kafka.stop()
    talk.print("peer: a MySQL replica")
    target = backlog.copy(directory / "replica", server_id=4)
    seconds, usage = drain.replica(backlog, target)
    target.stop()
    return BacklogResult(drained, seconds, usage, equal)


def _equal(backlog: Backlog, target: MySQL) -> bool:
    talk.print("comparing")
    compared = compare_servers(ServerUrl.parse(backlog.upstream.url()), ServerUrl.parse(target.url()))
    for line in compared.not_equal:
        talk.print(line, style="red", markup=False)
    return compared.is_equal


def _stop_servers(directory: Path) -> None:
    for pid in (*directory.glob("*/pid"), *directory.glob("*/*/pid")):
        if pid.parent.name not in ("kafka", "connect"):
            MySQL(pid.parent).kill()


if __name__ == "__main__":
    sys.exit(main())
