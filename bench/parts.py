"""Runs one part alone as a process: ``python -m bench.parts mirror|publish|decode SETTINGS``.

SETTINGS is a JSON file. The result is one JSON object on stdout, with the seconds of the part itself, without the
interpreter's start.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

Settings = dict[str, Any]
_SAMPLE_EVERY_S = 0.001
_OTHER = "other"
# The innermost frame whose file has such a part in its name says the stage; a None stands for all its functions.
_STAGES: tuple[tuple[str, str | None, str], ...] = (
    ("relay_store/read/reader.py", "_whole_events", "events' sizes and checksums"),
    ("relay_store/read/reader.py", None, "relay files read"),
    ("producer/kafka/partitioner.py", None, "partitions of keys"),
    ("producer/kafka/epoch_log.py", "_call", "waiting for Kafka"),
    ("producer/kafka/epoch_log.py", None, "digest, and rows handed to librdkafka"),
    ("producer/commit.py", "finish", "waiting for Kafka"),
    ("producer/decode/compiled/groups.py", "_pieces", "keys and values cut out"),
    ("producer/decode/compiled/groups.py", None, "compiled code"),
    ("producer/decode/", None, "decoded without it, and transactions added"),
    # Generated for a structure.
    (" rows of ", None, "decoded without it, and transactions added"),
)


def mirror(settings: Settings) -> dict[str, float]:
    """Copy the upstream's binlog into relay files, up to the end of the backlog."""
    from producer.mirror.loop import Mirror
    from producer.settings import RelaySettings
    from relay_store.write.writer import RelayWriter
    from schemas.access.server_url import ServerUrl
    from tailrace.artifacts.compiled import compiled_code

    relay = RelayWriter.open(Path(settings["relay_dir"]))
    running = Mirror(
        ServerUrl.parse(settings["source"]),
        relay,
        RelaySettings(),
        server_id=settings["server_id"],
        compiled=compiled_code,
    )
    begin = time.perf_counter()
    running.run(threading.Event(), (settings["file"], settings["position"]))
    seconds = time.perf_counter() - begin
    relay.close()
    return {"seconds": seconds}


def publish(settings: Settings) -> dict[str, Any]:
    """Publish relay files to Kafka; with ``sample`` also measure the stages, which slows it down a little."""
    from bench.meter import peak_rss_mb
    from producer.decode.decode_rules import DecodeRules
    from producer.epochs.open_epoch import EpochLimits
    from producer.kafka.epoch_log import EpochLog
    from producer.publish import Publisher
    from relay_store.layout.directory import RelayPosition, file_number
    from relay_store.write.writer import RelayWriter
    from schemas.tables import TableFilter
    from tailrace.artifacts.compiled import compiled_code
    from tailrace.config.model import Kafka

    after_a_tenth: list[float] = []

    def at_end(here: RelayPosition) -> bool:
        if not after_a_tenth and publisher.progress.rows >= settings["rows"] / 10:
            after_a_tenth.append(peak_rss_mb())
        return (file_number(here.file), here.pos) >= (file_number(settings["file"]), settings["position"])

    root = Path(settings["relay_dir"])
    log = EpochLog(settings["kafka"], settings["prefix"], Kafka().partitions)
    relay = RelayWriter.open(root)
    rules = DecodeRules("mysql", TableFilter(), EpochLimits())
    publisher = Publisher(log, root, relay.tail, rules, compiled=compiled_code)
    where = Where()
    begin = time.perf_counter()
    with where if settings.get("sample") else nullcontext():
        publisher.run(log.open(), threading.Event(), at_end)
    seconds = time.perf_counter() - begin
    relay.close()
    return {
        "seconds": seconds,
        "rows": publisher.progress.rows,
        "peak_rss_mb": {"tenth": after_a_tenth[0], "whole": peak_rss_mb()},
        "where": where.shares(),
    }


def decode(settings: Settings) -> dict[str, float]:
    """Read the same binlog over the network with mysql-replication's loop, as its users write it.

    It ends after ``rows`` rows.
    """
    from pymysqlreplication import BinLogStreamReader
    from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

    stream = BinLogStreamReader(
        connection_settings={"host": "127.0.0.1", "port": settings["port"], "user": "root", "passwd": ""},
        server_id=settings["server_id"],
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        log_file="mysql-bin.000001",
        log_pos=4,
        resume_stream=True,
    )
    rows = 0
    begin = time.perf_counter()
    for event in stream:
        for _ in event.rows:
            rows += 1
        if rows >= settings["rows"]:
            break
    seconds = time.perf_counter() - begin
    stream.close()
    return {"seconds": seconds, "rows": rows}


_PARTS: dict[str, Callable[[Settings], dict[str, Any]]] = {
    "mirror": mirror,
    "publish": publish,
    "decode": decode,
}


def main() -> None:
    from tailrace.service import logs

    logs.configure(f"bench-{sys.argv[1]}")
    print(json.dumps(_PARTS[sys.argv[1]](json.loads(Path(sys.argv[2]).read_text()))))


class Where:
    """Samples the main thread inside the ``with`` block, by wall clock, so waiting counts too."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._before: Any = None

    def __enter__(self) -> Where:
        self._before = signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, _SAMPLE_EVERY_S, _SAMPLE_EVERY_S)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def shares(self) -> dict[str, float]:
        """Return per cent by stage, largest first."""
        whole = sum(self._seen.values()) or 1
        return {stage: round(100 * count / whole, 1) for stage, count in self._seen.most_common()}

    def _look(self, number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if stage := stage_of(frame.f_code.co_filename, frame.f_code.co_name):
                self._seen[stage] += 1
                return
            frame = frame.f_back
        self._seen[_OTHER] += 1


def stage_of(file: str, function: str) -> str | None:
    """Return a function's stage; None for a function that any stage may call."""
    for part, name, stage in _STAGES:
        if part in file and name in (None, function):
            return stage
    return None


if __name__ == "__main__":
    main()
