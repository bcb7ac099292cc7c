"""Where the publisher's time goes: its thread, looked at a thousand times a second."""

from __future__ import annotations

import signal
from collections import Counter
from types import FrameType
from typing import Any

_EVERY_S = 0.001
_OTHER = "other"
# The innermost frame that one of these fits says the stage; a None stands for every function of the file.
_STAGES: tuple[tuple[str, str | None, str], ...] = (
    ("relay_store/read/reader.py", "_whole_events", "events' sizes and checksums"),
    ("relay_store/read/reader.py", None, "relay files read"),
    ("producer/kafka/partitioner.py", None, "partitions of keys"),
    ("producer/kafka/epoch_log.py", "_call", "waiting for Kafka"),
    ("producer/kafka/epoch_log.py", None, "digest, and rows handed to librdkafka"),
    ("producer/publish.py", "_finish", "waiting for Kafka"),
    ("producer/decode/walk.py", "_walk", "events and table maps"),
    ("producer/decode/walk.py", None, "transactions: GTID, BEGIN, XID"),
)
_ROWS = "rows to Avro"


class Where:
    """Samples the main thread while it is entered; wall clock, so waiting counts too."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()
        self._before: Any = None

    def __enter__(self) -> Where:
        self._before = signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, _EVERY_S, _EVERY_S)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def shares(self) -> dict[str, float]:
        """Per cent by stage, the largest first."""
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
    """The stage that a function belongs to by itself, None for one that any stage may call."""
    if file.startswith("<") and " rows of " in file:
        return _ROWS
    for ending, name, stage in _STAGES:
        if file.endswith(ending) and name in (None, function):
            return stage
    return None
