"""How long the consumer waits for what is lost, and which of a server's errors are worth waiting for."""

from __future__ import annotations

import threading
from typing import Any

import pymysql
import pytest

from schemas.access.server_url import ServerUrl
from schemas.errors import LogError
from spark_consumer.apply.retry import RetryTimer, pause_before
from spark_consumer.job import run as job
from spark_consumer.rows.failures import explain
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.server_errors import is_denied, is_lost, is_passing
from tailrace.assemble.consumer import consumer


class _Clock:
    """A clock that pauses move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        self.set = False

    def __call__(self) -> float:
        return self.now

    def is_set(self) -> bool:
        return self.set

    def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.now += seconds
        return self.set


def _timer(clock: _Clock, limit: float) -> RetryTimer:
    return RetryTimer(limit, clock, clock)  # type: ignore[arg-type]


def test_pauses_grow_and_end_with_the_limit() -> None:
    clock = _Clock()
    timer = _timer(clock, 60)
    while timer.wait_for_retry():
        pass
    assert sum(clock.pauses) == pytest.approx(60)
    assert clock.pauses[:3] == [0.2, 0.4, 0.8]
    assert max(clock.pauses) == pause_before(50) == 10
    assert timer.attempts == len(clock.pauses)


def test_progress_makes_it_new() -> None:
    clock = _Clock()
    timer = _timer(clock, 1)
    assert timer.wait_for_retry()
    clock.now += 1
    assert not timer.wait_for_retry()
    timer.reset()
    assert timer.wait_for_retry()
    assert timer.attempts == 1


def test_nobody_waits_for_what_was_given_up_and_0_is_no_second_attempt() -> None:
    clock = _Clock()
    timer = _timer(clock, 60)
    clock.set = True
    assert not timer.wait_for_retry()
    assert not RetryTimer(0, threading.Event()).wait_for_retry()


@pytest.mark.parametrize(
    ("error", "lost", "passing", "denied"),
    [
        (ConnectionResetError("reset"), True, True, False),
        (pymysql.OperationalError(2013, "Lost connection"), True, True, False),
        (pymysql.err.InternalError(1053, "shutdown in progress"), True, True, False),
        (pymysql.OperationalError(1317, "Query execution was interrupted"), True, True, False),
        (pymysql.OperationalError(1213, "Deadlock found"), False, True, False),
        (pymysql.OperationalError(1205, "Lock wait timeout exceeded"), False, True, False),
        (pymysql.OperationalError(1290, "running with the --super-read-only option"), False, True, False),
        (pymysql.OperationalError(1836, "Running in read-only mode"), False, True, False),
        (pymysql.OperationalError(1114, "The table 't' is full"), False, True, False),
        (pymysql.OperationalError(1021, "Disk full"), False, True, False),
        (pymysql.OperationalError(1040, "Too many connections"), False, True, False),
        (pymysql.OperationalError(1030, "Got error 28 from storage engine"), False, True, False),
        (pymysql.OperationalError(1030, "Got error 28 - 'No space left' from storage"), False, True, False),
        (pymysql.OperationalError(1030, "Got error 168 from storage engine"), False, False, False),
        (pymysql.IntegrityError(1062, "Duplicate entry"), False, False, False),
        (pymysql.OperationalError(1142, "INSERT command denied"), False, False, True),
        (pymysql.ProgrammingError(1146, "no such table"), False, False, False),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_a_servers_error_means(error: BaseException, lost: bool, passing: bool, denied: bool) -> None:
    assert (is_lost(error), is_passing(error), is_denied(error)) == (lost, passing, denied)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        (
            "org.apache.kafka.common.errors.TimeoutException: Timeout of 60000ms expired before the position",
            True,
        ),
        ("Caused by: org.apache.kafka.common.errors.DisconnectException", True),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", True),
        (
            "[STREAMING_PYTHON_RUNNER_INITIALIZATION_COMMUNICATION_FAILURE] Streaming Runner initialization failed"
            " during initial config communication. Cause: null SQLSTATE: XXKST",
            True,
        ),
        (
            "org.apache.spark.SparkException: EOFException occurred while reading the port number from"
            " spark_consumer.job.daemon's stdout and terminated with code: 137.",
            True,
        ),
        (
            "SparkException: TransformWithStateInPySpark driver worker exited unexpectedly (crashed)",
            True,
        ),
        (
            "Lost task 0.0: java.io.EOFException\n\tat java.base/java.io.DataInputStream.readInt(Unknown Source)\n"
            "\tat org.apache.spark.api.python.PythonWorkerFactory.createWorker$1(PythonWorkerFactory.scala:157)",
            True,
        ),
        (
            "java.io.EOFException\n\tat java.base/java.io.DataInputStream.readInt(Unknown Source)\n"
            "\tat org.apache.spark.sql.execution.streaming.OffsetSeqLog.read(OffsetSeqLog.scala:1)",
            False,
        ),
        ("org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Offsets out of range", False),
        ("pyspark.errors.exceptions.base.PySparkAssertionError: no", False),
        ("java.io.EOFException: a checkpoint file that was cut", False),
    ],
)
def test_which_failures_of_spark_pass(text: str, passes: bool) -> None:
    error = explain(RuntimeError(text), None, None)
    assert isinstance(error, LogError)
    assert error.retryable == passes


@pytest.mark.parametrize(
    ("bounds", "tries"), [({}, 2), ({"until": "now"}, 2), ({"until_caught_up": True}, 1)], ids=str
)
def test_only_a_run_until_caught_up_does_not_wait_at_its_start(
    bounds: dict[str, Any], tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def away(config: ConsumerConfig, log: object) -> ConsumerConfig:
        asked.append(config.prefix)
        raise LogError("TR557" if len(asked) == 1 else "TR508", "no answer", retryable=len(asked) == 1)

    monkeypatch.setattr(job, "with_servers_letter_case", away)
    config = ConsumerConfig("nobody:1", "p", ServerUrl("unused"), **bounds)
    with pytest.raises(LogError, match="TR557" if tries == 1 else "TR508"):
        consumer(config, lambda: pytest.fail("Spark is not needed yet")).run(threading.Event())
    assert len(asked) == tries
