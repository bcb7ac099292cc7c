"""Runs the consumer's job: position, what applies the log before Spark, the query, and its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from schemas.access.kafka_security import KafkaRefused
from schemas.errors import LogError, TailraceError
from schemas.interpreter import tuned_interpreter
from schemas.tally import retried
from spark_consumer.apply.retry import RetryTimer
from spark_consumer.epochs.letter_case import with_servers_letter_case
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.start import resume_offset
from spark_consumer.epochs.stop_condition import StopCondition, stop_condition_of
from spark_consumer.job.batches import BatchRunner
from spark_consumer.job.checkpoint import Checkpoint, in_use
from spark_consumer.job.direct import DirectBatches
from spark_consumer.job.driver_worker import is_awaited_in_vain
from spark_consumer.job.jvm.process import JVM_TIMEOUT, JvmLost, jvm_end, lost
from spark_consumer.job.progress import Counters
from spark_consumer.job.sharing import executors_share
from spark_consumer.rows.failures import SparkFailed, explain
from spark_consumer.rows.slice_rows import SliceRows
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.sinks.sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_POLL = 0.05
_LOOK = 5.0  # seconds between two looks at a query that has no batch yet
_MOMENT = 1.0  # seconds
_COMMIT_TIMEOUT = 5.0
_T = TypeVar("_T")
_log = structlog.get_logger()


class Consumer:
    """One run of one channel.

    Args:
        open_sink: opens the sink, as the channel's only writer. Raises TailraceError.
        queries: makes the queries, once the sink is open.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        log: LogReader,
        open_sink: Callable[[ConsumerConfig], Sink[Any]],
        queries: Callable[[ConsumerConfig, Sink[Any], StopCondition, threading.Event], Queries],
        counters: Counters,
    ) -> None:
        self._config, self._log, self._counters = config, log, counters
        self._open_sink, self._make_queries = open_sink, queries

    @tuned_interpreter()
    def run(self, stop: threading.Event) -> None:
        """Apply the epoch log to the downstream until stopped, or until the configuration's stop condition is reached.

        Args:
            stop: set it to end the run: the current batch is finished first, if that takes no longer than
                ``config.pause_time``; otherwise the next run applies it.

        Raises:
            TailraceError: the reason why the run stopped; nothing is applied in part.
        """
        config, log = self._config, self._log
        # Such a run needs only what the log has at the start, so it does not wait.
        timer = RetryTimer(0 if config.until_caught_up else config.retry_time, stop)
        config = with_retries(timer, lambda: with_servers_letter_case(self._config, log))
        if stop.is_set():
            return
        with in_use(config.channel_dir):
            with log.connected():
                sink = with_retries(timer, partial(self._open_sink, config))
            with closing(sink):
                self._apply(config, sink, stop)

    def _apply(self, config: ConsumerConfig, sink: Sink[Any], stop: threading.Event) -> None:
        try:
            self._counters.at(sink.position)
            stop_condition = stop_condition_of(config, sink.position, self._log)
            if self._make_queries(config, sink, stop_condition, stop).run():
                sink.record_end()
        except TailraceError as error:
            # A signal to all processes may have ended Spark a moment before it reached this process.
            if not (isinstance(error, SparkFailed | JvmLost) and stop.wait(_MOMENT)):
                sink.record_end(error)
            raise


def with_retries(timer: RetryTimer, work: Callable[[], _T]) -> _T:
    """Run work that needs servers, and retry while they are not available."""
    while True:
        try:
            return work()
        except TailraceError as error:
            if not error.retryable or not timer.wait_for_retry():
                raise
            _log.warning("start_retry", attempt=timer.attempts, reason=str(error))
            retried("kafka" if isinstance(error, LogError) else "downstream", error.code)


class Queries:
    """What applies the log in one run: Spark's queries, one after another, and this process before and beside them.

    Args:
        spark: returns the session, or None while Spark starts. Raises TailraceError.
        use_executors: has executors read the rows of slices, and write large parts, from then on.
        log: a reader for the run's own thread.
        direct: makes what applies epochs in this process.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        spark: Callable[[], SparkSession | None],
        use_executors: Callable[[SparkSession], None],
        sink: Sink[Any],
        log: LogReader,
        rows: SliceRows,
        runner: BatchRunner,
        checkpoint: Checkpoint,
        stop_condition: StopCondition,
        stop: threading.Event,
        direct: Callable[[], DirectBatches],
    ) -> None:
        self._config, self._start, self._sink, self._log = config, spark, sink, log
        self._use_executors, self._new_direct = use_executors, direct
        self._rows, self._runner, self._checkpoint = rows, runner, checkpoint
        self._stop_condition, self._stop = stop_condition, stop
        self._left = False
        self._warming: threading.Thread | None = None
        self._spark: SparkSession | None = None
        self._direct: DirectBatches | None = None

    def run(self) -> bool:
        """Run queries until the end. Returns False if a batch was abandoned; it is applied completely or not at all."""
        resume_offset(self._sink.position, self._log)
        timer = RetryTimer(self._config.retry_time, self._stop)
        try:
            while True:
                before = self._sink.position.epoch
                error = self._run_query_once()
                if error is None or self._left:
                    return not self._left
                if self._sink.position.epoch > before:
                    timer.reset()
                if not (self._is_worth_retrying(error) and timer.wait_for_retry()):
                    raise error from None
                _log.warning("log_retry", attempt=timer.attempts, reason=str(error))
                retried("kafka", error.code)
                self._runner.reset()
        finally:
            self._runner.close()
            if self._warming is not None:
                self._warming.join()

    def _run_query_once(self) -> TailraceError | None:
        """Run one query, and again with a new checkpoint if the old one is the reason for its failure."""
        try:
            if not self._config.applies_directly:
                if (spark := self._await_spark()) is None:
                    return None
                self._share_rows(spark)
            self._sink.resume(self._rows)
            if self._stop_condition.reached(self._sink.position):
                return None
            failure = self._apply()
        except TailraceError as error:
            return error
        except Exception as error:
            # Calls to the JVM fail slightly before its exit is visible to the system.
            if jvm_end(JVM_TIMEOUT) is None:
                raise
            failure = error
        if (ended := jvm_end()) is not None:
            return self._without_jvm(ended)
        failure = self._runner.failure or failure
        return None if failure is None else explain(failure, None, self._log)

    def _apply(self) -> BaseException | None:
        """Apply the log directly and by a query. Returns the query's failure."""
        if self._config.applies_directly:
            self._direct = self._new_direct()
            self._direct.start()
        try:
            while self._direct and not (self._direct.spark_may_start.wait(_POLL) or self._runner.ended):
                pass
            spark = self._await_spark()
            return None if spark is None else self._apply_with(spark)
        finally:
            if self._direct is not None:
                self._direct.ends()
                self._finish_batch(lambda: True)
                self._direct.join()
                self._direct = None

    def _await_spark(self) -> SparkSession | None:
        """Wait for Spark's start. Returns None if the run has ended before."""
        while self._spark is None and not self._runner.ended:
            if (session := self._start()) is not None:
                self._spark = session
            else:
                self._stop.wait(_POLL)
        return None if self._runner.ended else self._spark

    def _apply_with(self, spark: SparkSession) -> BaseException | None:
        # Spark's modules take a second to import, so this is done only once it has started.
        from spark_consumer.job.warm_up import warm_up

        self._warming = self._warming or warm_up(spark, self._config, self._log)
        kept = self._checkpoint.ready(self._sink.position, self._log)
        failure = self._query(spark)
        reason = self._runner.failure if self._runner.failed_in_tracker else failure
        if reason is not None and kept and self._checkpoint_is_at_fault(reason):
            self._checkpoint.set_aside(f"the query cannot resume from it: {_first_line(reason)}")
            self._runner.reset()
            failure = self._query(spark)
        return failure

    def _micro_batch(self, spark: SparkSession, frame: DataFrame, number: int) -> None:
        # By now the executors' workers have started.
        self._share_rows(spark)
        self._runner(frame, number)

    def _share_rows(self, spark: SparkSession) -> None:
        if executors_share(self._config):
            self._use_executors(spark)

    def _without_jvm(self, ended: str) -> TailraceError:
        deadline = time.monotonic() + self._config.pause_time
        while self._runner.busy and time.monotonic() < deadline:
            time.sleep(_POLL)
        return lost(ended)

    def _is_worth_retrying(self, error: TailraceError) -> bool:
        """Whether to start another query after a failure. Downstream errors were already retried by the applier."""
        # If Spark failed outside of a batch, the checkpoint may be the reason, which `_run_query_once` finds.
        failed_between_batches = (
            isinstance(error, SparkFailed) and self._runner.failure is None and self._runner.finished >= 0
        )
        return isinstance(error, LogError) and (error.retryable or failed_between_batches)

    def _checkpoint_is_at_fault(self, failure: BaseException) -> bool:
        """Whether a query failed because of its checkpoint: the tracker's state or Spark's own records."""
        if self._runner.finished >= 0 or self._stop.is_set():
            return False
        read = self._runner.failure is not None and not self._runner.failed_in_tracker
        error = explain(failure, None, self._log)
        return not read and not isinstance(error, KafkaRefused) and not error.retryable

    def _query(self, spark: SparkSession) -> BaseException | None:
        """Run one streaming query to its end. Returns its failure; None if we ended it ourselves."""
        from spark_consumer.job.stream import query_after

        position, apply = self._sink.position, partial(self._micro_batch, spark)
        writer = query_after(position, spark, self._config, self._log, self._checkpoint, apply)
        try:
            query = writer.start()
        except Exception as error:
            # Part of the checkpoint is read before the query exists.
            return error
        dead = self._await_end(spark, query)
        self._finish_batch(lambda: bool(query.isActive))
        self._await_commit(query)
        failure: Any = dead or query.exception()
        with suppress(Exception):
            query.stop()
        return (
            None if self._runner.ended else (failure or SparkFailed("TR556", "the query ended unexpectedly"))
        )

    def _await_end(self, spark: SparkSession, query: Any) -> SparkFailed | None:
        """Wait until the query or the run ends. Returns the failure of a query that would wait for a dead process."""
        look = time.monotonic() + _LOOK
        while query.isActive and not self._runner.ended:
            self._stop.wait(_POLL)
            if self._runner.finished < 0 and not self._runner.busy and time.monotonic() > look:
                if query.status["isTriggerActive"] and is_awaited_in_vain(spark):
                    return SparkFailed("TR556", "Spark's driver worker died at its start", retryable=True)
                look = time.monotonic() + _LOOK
        return None

    def _finish_batch(self, is_active: Callable[[], bool]) -> None:
        """Wait for the current batch, because stopping the query would cancel its jobs; a stop limits the wait."""
        deadline: float | None = None
        while self._runner.busy and is_active():
            now = time.monotonic()
            if deadline is None and self._stop.is_set():
                deadline = now + self._config.pause_time
            if deadline is not None and now > deadline and not self._left:
                self._left = True
                _log.warning(
                    "batch_left", waited_s=self._config.pause_time, position=self._sink.position.epoch
                )
            if self._left:
                # Repeatedly, because a connection or a job may start only now.
                self._sink.abort()
                if self._spark is not None:
                    self._spark.sparkContext.cancelAllJobs()
            time.sleep(_POLL)

    def _await_commit(self, query: Any) -> None:
        """Wait until Spark has committed the last micro-batch, so the next run continues from it."""
        done = self._checkpoint.path / "commits" / str(self._runner.finished)
        deadline = time.monotonic() + _COMMIT_TIMEOUT
        while self._runner.finished >= 0 and query.isActive and not (done.exists() or self._left):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL)


def _first_line(error: BaseException | None) -> str:
    return str(error).split("\n", 1)[0][:200]
