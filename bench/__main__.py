"""``python -m bench [--copy] [--rows N]``: measure, compare, print, write a JSON file in ``bench/out``."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from bench import drain
from bench.backlog import Backlog, make_backlog
from bench.copy import TURNS, measure_copy
from bench.copy_result import CopyResult, print_copy
from bench.processes import run_part
from bench.report import Result, Turn, print_table
from compose.databases import MySQL
from compose.kafka import Kafka
from schemas.access.server_url import ServerUrl
from schemas.errors import ExitCode, TailraceError
from tailrace.service.console import console
from tailrace.validate import compare_servers

_OUT = Path(__file__).parent / "out"
_ROWS, _COPIED_ROWS = 600_000, 2_000_000
# The publisher and mysql-replication take turns, since a shared machine's speed may halve within seconds.
_TURNS = 5
talk = console(stderr=True)


def main() -> int:
    """Run the benchmark; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--copy", action="store_true", help="measure a first copy of tables instead, beside mysqldump"
    )
    parser.add_argument(
        "--rows",
        type=int,
        help=f"row events of the backlog (default: {_ROWS}), or rows to copy ({_COPIED_ROWS})",
    )
    parser.add_argument(
        "--turns", type=int, default=TURNS, help="how often to copy each way (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, help="the JSON file (default: latest.json or copy.json in bench/out)"
    )
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    directory = Path(tempfile.mkdtemp(prefix="tailrace-bench-"))
    try:
        result: Result | CopyResult
        if arguments.copy:
            result = measure_copy(directory, arguments.rows or _COPIED_ROWS, arguments.turns, talk)
        else:
            result = measure(directory, arguments.rows or _ROWS)
    except KeyboardInterrupt:
        talk.print("interrupted; everything is stopped")
        return 130
    except TailraceError as error:
        talk.print(str(error), style="red", markup=False)
        talk.print(f"the logs are in {directory}")
        return ExitCode.FAILED
    shutil.rmtree(directory, ignore_errors=True)
    print_copy(result, console()) if isinstance(result, CopyResult) else print_table(result, console())
    out = arguments.out or _OUT / ("copy.json" if arguments.copy else "latest.json")
    result.write(out)
    talk.print(f"written to {out}")
    return ExitCode.OK if result.equal else ExitCode.DIVERGED


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def measure(directory: Path, rows: int) -> Result:
    """Run all measurements, one after the other, so that they do not compete for the processor."""
    result = Result()
    with ExitStack() as stack:
        talk.print(f"creating a backlog of {rows:,} row events")
        stack.callback(_stop_servers, directory)
        backlog = make_backlog(directory, rows)
        kafka = Kafka(directory / "kafka")
        stack.callback(kafka.stop)
        kafka.start()
        _measure_parts(result, directory, backlog, kafka, rows)
        equal = _measure_consumer(result, directory, backlog, kafka)
        result.equal = _measure_drain(result, directory, backlog, kafka) and equal
        kafka.stop()
        _measure_peers(result, directory, backlog)
    return result


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


def _measure_drain(result: Result, directory: Path, backlog: Backlog, kafka: Kafka) -> bool:
    talk.print("whole drain")
    target = backlog.copy(directory / "drain", server_id=3)
    config = drain.write_config(target.directory, backlog, kafka, target, "drain")
    result.seconds["drain"], usages = drain.drain(config, target, kafka, backlog.gtids)
    result.usage |= usages
    equal = _equal(backlog, target)
    target.stop()
    return equal


def _measure_peers(result: Result, directory: Path, backlog: Backlog) -> None:
    talk.print("peer: a MySQL replica")
    target = backlog.copy(directory / "replica", server_id=4)
    result.seconds["replica"], result.usage["mysql_replica"] = drain.replica(backlog, target)
    target.stop()


def _equal(backlog: Backlog, target: MySQL) -> bool:
    talk.print("comparing")
    compared = compare_servers(ServerUrl.parse(backlog.upstream.url()), ServerUrl.parse(target.url()))
    for line in compared.not_equal:
        talk.print(line, style="red", markup=False)
    return compared.is_equal


def _stop_servers(directory: Path) -> None:
    for folder in directory.iterdir():
        if (folder / "pid").exists() and folder.name != "kafka":
            MySQL(folder).kill()


if __name__ == "__main__":
    sys.exit(main())
