"""Translates Spark's failures into Tailrace's errors."""

from __future__ import annotations

import re

from schemas.access.kafka_security import CERTIFICATE_HINT, LOGIN_HINT, KafkaRefused
from schemas.errors import NOTHING_APPLIED, LogError, TailraceError, Where
from spark_consumer.epochs.fetch import RangeReadError, read_error
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.slices import Slice

_CAUSE = re.compile(r"(?:Caused by: )?([A-Za-z_.$]*(?:Exception|Error)): ([^\n]+)")
# Temporary: Kafka is unavailable, or one of Spark's Python processes was killed, which Spark reports by when it was:
# at work, before it had connected, or before it had said its port or its id.
_PASSING = re.compile(
    r"org\.apache\.kafka\.[\w.]*\.(?:Timeout|Network|Disconnect|Retriable|BrokerNotAvailable|LeaderNotAvailable"
    r"|NotLeaderOrFollower|UnknownTopicOrPartition|GroupCoordinatorNotAvailable|CoordinatorNotAvailable)\w*Exception"
    r"|Python worker exited unexpectedly|driver worker exited unexpectedly|Python worker failed to connect"
    r"|STREAMING_PYTHON_RUNNER_INITIALIZATION_(?:COMMUNICATION|TIMEOUT)_FAILURE"
    r"|EOFException occurred while reading the port number"
    r"|EOFException\s+(?:at java\.[^\n]+\s+)+at org\.apache\.spark\.api\.python\.PythonWorkerFactory"
    r"|java\.net\.(?:Socket|Connect)\w*Exception|Broken pipe|Connection reset"
)
_REFUSED = re.compile(r"org\.apache\.kafka\.common\.errors\.(Sasl|Ssl)\w*Exception: ([^\n]+)")


class SparkFailed(LogError):
    """TR556: Spark does not start, or a Spark job has failed."""


def explain(error: BaseException, slice_: Slice | None, log: LogReader) -> TailraceError:
    """Return a Tailrace error for a Spark exception, without the JVM's stack trace."""
    if isinstance(error, TailraceError):
        return error
    if slice_ is not None and (lost := _lost_rows(slice_, log)):
        return lost
    if isinstance(error, RangeReadError):
        return read_error(error, slice_.where if slice_ else Where())
    if (refusal := _REFUSED.search(str(error))) is not None:
        hint = LOGIN_HINT if refusal[1] == "Sasl" else CERTIFICATE_HINT
        return KafkaRefused("TR508", f"Kafka refused Spark's login: {refusal[2][:300]}", hint=hint)
    return SparkFailed(
        "TR556",
        f"a Spark job failed: {cause_of(error)[:300]}",
        where=slice_.where if slice_ else Where(),
        hint="spark.log beside the checkpoint has the details",
        applied=NOTHING_APPLIED,
        retryable=bool(_PASSING.search(str(error))),
    )


def cause_of(error: BaseException) -> str:
    """Return the last cause in a Spark exception, in one line."""
    causes = _CAUSE.findall(str(error))
    return f"{causes[-1][0].rsplit('.', 1)[-1]}: {causes[-1][1]}" if causes else str(error).split("\n", 1)[0]


def _lost_rows(slice_: Slice, log: LogReader) -> LogError | None:
    for part in slice_.ranges:
        low = log.first_row_offset(part.partition)
        if low is not None and low > part.start:
            return LogError(
                "TR555",
                f"rows of partition {part.partition} from offset {part.start} are needed, and the topic"
                f" starts with {low}: retention deleted them",
                where=slice_.where,
                hint="rebuild the downstream from a copy, and keep the topics longer than a consumer may be down",
            )
    return None
