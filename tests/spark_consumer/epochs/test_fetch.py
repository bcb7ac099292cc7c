"""Reading offset ranges, without a broker."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.wire.epoch import OffsetRange
from spark_consumer.epochs.fetch import NoResponse, TopicReader
from spark_consumer.rows.reader import in_this_process
from spark_consumer.rows.results import Result, TaskFailure
from tests.support.processes.child import in_child


def test_a_process_whose_threads_have_read_may_fork() -> None:
    """Python frees the variables of the other threads in the child, where librdkafka has no threads."""
    topic = TopicReader("127.0.0.1:1", "topic", "group", timeout=0.1)

    def process(number: int) -> Iterable[Result]:
        topic.read(OffsetRange(number, 0, 1))
        raise AssertionError("there is no broker")

    for found in in_this_process(4, 4, process):
        assert isinstance(found, TaskFailure)
        assert isinstance(found.error, NoResponse)
    assert in_child(lambda: None, "") == 0
