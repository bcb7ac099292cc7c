"""A paused channel: where its runner stands, and what ends that besides the operator."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.access.server_url import ServerUrl
from spark_consumer.job import batches
from spark_consumer.job.batches import BatchRunner, StopQuery
from spark_consumer.job.progress import Counters
from spark_consumer.rules.config import ConsumerConfig


class _Sink:
    """Answers one question from a list; the last answer stays."""

    position = None

    def __init__(self, *answers: str | None) -> None:
        self.answers, self.asked = list(answers), 0

    def paused_since(self) -> str | None:
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(batches, "_PAUSE_LOOK", 0.001)

    def make(sink: _Sink) -> BatchRunner:
        never = SimpleNamespace(reached=lambda position: False)
        config, unused = ConsumerConfig("b", "p", ServerUrl("h")), SimpleNamespace()
        parts: Any = (config, sink, unused, unused, never, threading.Event(), Counters(position_epoch=3))
        return BatchRunner(*parts)

    return make


def test_it_stands_until_it_is_resumed_and_looks_again_a_second_later(runner: Any) -> None:
    sink = _Sink("now", "now", None)
    one = runner(sink)
    for _ in range(3):
        one._wait_while_paused()
    assert sink.asked == 3
    assert one._counters.paused is None


@pytest.mark.parametrize("why", ["stop", "give_way"])
def test_a_stop_and_sparks_turn_end_the_wait(runner: Any, why: str) -> None:
    one = runner(_Sink("now"))
    (one._stop if why == "stop" else one.give_way).set()
    with pytest.raises(StopQuery):
        one._wait_while_paused()
    assert one._counters.paused == "now"
