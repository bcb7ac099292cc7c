"""Spark's start in the background, once it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from schemas.errors import TailraceError
from spark_consumer.job.jvm.process import JVM_TIMEOUT, JvmStart, jvm_end, lost
from spark_consumer.rules.config import ConsumerConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StartingSpark:
    """A Spark that starts in the background once it is asked for.

    Attributes:
        session: the future session; None before the first question.
    """

    def __init__(self, start: Callable[[], Future[SparkSession]]) -> None:
        self._start = start
        self.session: Future[SparkSession] | None = None

    def __call__(self) -> SparkSession | None:
        """Return the session, or None while Spark starts. Raises TailraceError, if it has not started."""
        self.session = self.session or self._start()
        if not self.session.done():
            return None
        try:
            return self.session.result()
        except TailraceError:
            raise
        except Exception as error:
            if (ended := jvm_end(JVM_TIMEOUT)) is None:
                raise
            raise lost(ended) from error


@contextmanager
def running_spark(config: ConsumerConfig) -> Iterator[StartingSpark]:
    """Yield Spark, and stop it at the end, also if it is still starting."""
    start = JvmStart()
    with ThreadPoolExecutor(1, thread_name_prefix="spark") as starter:
        spark = StartingSpark(partial(starter.submit, _start, config, start))
        try:
            yield spark
        finally:
            if spark.session is not None:
                if not spark.session.done():
                    start.give_up()
                with suppress(Exception):
                    spark.session.result().stop()


def _start(config: ConsumerConfig, start: JvmStart) -> SparkSession:
    # It takes a second to import.
    from spark_consumer.job.spark import start_spark

    return start_spark(config, start)
