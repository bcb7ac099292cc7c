"""The Python process of Spark's driver, killed before it had connected."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_consumer.job.driver_worker import is_awaited_in_vain

_QUERY = "stream execution thread for tailrace-main-1 [id = 1, runId = 2]"
_WAITING = [
    "java.base@17.0.15/sun.nio.ch.EPoll.wait(Native Method)",
    "java.base@17.0.15/sun.nio.ch.SelectorImpl.select(SelectorImpl.java:141)",
    "org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:281)",
    "org.apache.spark.api.python.StreamingPythonRunner.init(StreamingPythonRunner.scala:80)",
]
_STARTING = ["java.base@17.0.15/java.lang.ProcessBuilder.start(ProcessBuilder.java:1073)", *_WAITING[2:]]
_WORKER = "python3 -m pyspark.sql.streaming.transform_with_state_driver_worker"
_DAEMON = "python3 -m spark_consumer.job.daemon pyspark.worker"


class _Jvm:
    """The calls of the JVM that are made. ``stacks`` are a thread's, one after another."""

    def __init__(self, thread: str, stacks: list[list[str]], commands: list[str | None]) -> None:
        self._stacks = iter(stacks)
        threads = SimpleNamespace(
            keySet=lambda: [
                SimpleNamespace(getName=lambda: thread, getStackTrace=lambda: next(self._stacks)),
                SimpleNamespace(getName=lambda: "main", getStackTrace=lambda: _WAITING),
            ]
        )
        children = SimpleNamespace(toArray=lambda: [_child(command) for command in commands])
        self.java = SimpleNamespace(
            lang=SimpleNamespace(
                Thread=SimpleNamespace(getAllStackTraces=lambda: threads),
                ProcessHandle=SimpleNamespace(current=lambda: SimpleNamespace(children=lambda: children)),
            )
        )


def _child(command: str | None) -> Any:
    line = SimpleNamespace(orElse=lambda other: other if command is None else command)
    return SimpleNamespace(info=lambda: SimpleNamespace(commandLine=lambda: line))


@pytest.mark.parametrize(
    ("thread", "stacks", "commands", "in_vain"),
    [
        (_QUERY, [_WAITING, _WAITING], [_DAEMON, None], True),
        (_QUERY, [_WAITING, _WAITING], [_DAEMON, _WORKER], False),
        (_QUERY, [_WAITING, ["it has connected and ended meanwhile"]], [_DAEMON], False),
        (_QUERY, [_STARTING], [], False),
        (_QUERY, [["it runs a batch"]], [], False),
        ("another thread", [], [], False),
    ],
)
def test_only_a_process_that_is_gone_is_awaited_in_vain(
    thread: str, stacks: list[list[str]], commands: list[str | None], in_vain: bool
) -> None:
    spark: Any = SimpleNamespace(_jvm=_Jvm(thread, stacks, commands))
    assert is_awaited_in_vain(spark) == in_vain
