"""Applies epochs in the consumer's own process as they arrive, before Spark has started and between its batches."""

from __future__ import annotations

import threading
import time

import structlog

from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.start import resume_offset
from spark_consumer.epochs.tracker import MemoryVersions, TrackerOutput, learn, tracked
from spark_consumer.job.batches import BatchRunner, Look, StopQuery
from spark_consumer.job.sharing import executors_share
from spark_consumer.rules.config import ConsumerConfig

_MAX_EPOCHS = 100
# The executors share a larger transaction that is not applied in runs, also if they are not there yet.
_LARGE_EPOCH_ROWS = 200_000
# Seconds of work, and without any, before Spark starts, which takes cores from what is being applied, unless executors
# share that.
_LONGEST_WAIT, _IDLE = 600.0, 5.0
_POLL, _MOMENT = 0.05, 0.01  # seconds
_log = structlog.get_logger()


class DirectBatches:
    """A thread that applies what the log has after the position, beside Spark's query.

    Its error is the runner's ``failure``.

    Args:
        log: a reader of its own.
    """

    def __init__(self, config: ConsumerConfig, runner: BatchRunner, log: LogReader) -> None:
        self._config, self._runner, self._log = config, runner, log
        #: set once Spark's start, several seconds of CPU on every core, holds up nothing more urgent
        self.spark_may_start = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="direct", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ends(self) -> None:
        """Have the thread end after its slice."""
        self._over.set()
        self._runner.give_way.set()

    def join(self) -> None:
        """Wait for the thread's end."""
        self._thread.join()
        self._runner.give_way.clear()

    def _work(self) -> None:
        try:
            self._follow()
        except BaseException as error:
            self._runner.failure = self._runner.failure or error
        finally:
            self.spark_may_start.set()

    @property
    def _ended(self) -> bool:
        return self._over.is_set() or self._runner.ended

    def _follow(self) -> None:
        runner, topic = self._runner, self._config.epochs_topic
        position = runner.position
        with self._log.connected():
            offset, versions = resume_offset(position, self._log), MemoryVersions()
            for one in self._log.structures(position.epoch):
                learn(versions, f"{one.db}.{one.table}", one.fingerprint, one.epoch, one.structure)
        _log.info("applies_directly", epoch=position.epoch)
        at_once = executors_share(self._config)
        latest = time.monotonic() + (0 if at_once else _LONGEST_WAIT)
        idle = time.monotonic() + (0 if at_once else _IDLE)
        with self._log.following(offset) as read:

            def arrived(wait: float) -> TrackerOutput | None:
                records = read(_MAX_EPOCHS, wait)
                return TrackerOutput.of(list(tracked(versions, records, topic))) if records else None

            coming: list[TrackerOutput] = []

            def look() -> TrackerOutput | None:
                if not coming and (found := arrived(0)):
                    coming.append(found)
                # Spark reads what is left to it.
                return coming[0] if coming and self._left_to_spark(coming[0]) < 0 else None

            while not self._ended:
                output = coming.pop() if coming else arrived(_POLL)
                if output is not None:
                    self._apply(output, look)
                    idle = time.monotonic() + (0 if at_once else _IDLE)
                if self.spark_may_start.is_set():
                    continue
                now = time.monotonic()
                if now > latest:
                    self.spark_may_start.set()
                elif output is None and now > idle:
                    # A large transaction may be on its way.
                    if self._log.has_open_rows():
                        idle = now + _IDLE
                    else:
                        self.spark_may_start.set()

    def _apply(self, output: TrackerOutput, look: Look) -> None:
        """Apply epochs, or wait until Spark has."""
        large = self._left_to_spark(output)
        while not self._ended and self._runner.position.epochs_offset < large:
            self.spark_may_start.set()
            self._over.wait(_POLL)
        while not self._ended:
            try:
                self._runner.apply(output, look)
                return
            except StopQuery:
                # Spark's batch comes between two slices, or the run ends.
                self._over.wait(_MOMENT)

    def _left_to_spark(self, output: TrackerOutput) -> int:
        """The offset of the last epoch that Spark has to apply; -1 if there is none."""
        in_parts = self._config.workers > 1
        shared = (one for one in output.epochs if in_parts or not one.record.runs)
        return max((one.offset for one in shared if one.record.rows > _LARGE_EPOCH_ROWS), default=-1)
