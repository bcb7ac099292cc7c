"""What the log says of copies and DDL decides whether a table can be judged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from producer.copy.state import PLAN_KEY, Plan, Step, TableCopy, topic_key
from schemas.wire.epoch import EpochCommitted, SchemaChanged, TableChanged
from spark_consumer.epochs.slices import LoggedEpoch
from tailrace.validate.history import BeingCopied, History
from tailrace.validate.tables import StructureChanged
from tests.support.epochs.records import epoch_record

COPY = TableCopy("c")
NAME = ("d", "t")


class Log:
    """The epochs and the tracked topic, in memory; offset and number of an epoch are the same."""

    def __init__(self, tracked: list[tuple[bytes, bytes | None]], *epochs: EpochCommitted) -> None:
        self._tracked, self._epochs = tracked, epochs

    def tracked(self, start: int) -> Iterator[tuple[int, bytes, bytes | None]]:
        return ((at, *record) for at, record in enumerate(self._tracked) if at >= start)

    def epochs_after(self, offset: int) -> Iterator[LoggedEpoch]:
        return (LoggedEpoch(epoch, at) for at, epoch in enumerate(self._epochs) if at > offset)


def _history(tracked: list[tuple[bytes, bytes | None]], *epochs: EpochCommitted) -> History:
    log: Any = Log(tracked, *epochs)
    return History(log, log)


@pytest.mark.parametrize(
    ("tracked", "complete"),
    [
        ([], True),
        ([(PLAN_KEY, Plan("c").encode())], False),
        ([(PLAN_KEY, Plan("c", objects=True).encode())], True),
        ([(PLAN_KEY, Plan("c").encode()), (PLAN_KEY, None)], True),
        ([(topic_key(NAME), COPY.encode())], False),
        ([(topic_key(NAME), replace(COPY, step=Step.RUNNING, incomplete=True).encode())], False),
        ([(topic_key(NAME), replace(COPY, step=Step.DONE, ended=5).encode())], True),
        ([(topic_key(NAME), replace(COPY, step=Step.DONE, ended=6).encode())], False),
        ([(topic_key(("d", "other")), COPY.encode())], True),
        ([(PLAN_KEY, Plan("c", again=True, is_complete=True, for_new=True).encode())], True),
        ([(topic_key(NAME), replace(COPY, step=Step.RUNNING, incomplete=True, for_new=True).encode())], True),
        ([(topic_key(NAME), replace(COPY, for_new=True, ended=6).encode())], False),
        ([(b'["d","t"]', b"a structure")], True),
    ],
)
def test_copies_in_the_tracked_topic(tracked: list[tuple[bytes, bytes | None]], complete: bool) -> None:
    history = _history(tracked)
    if complete:
        history.check_complete({NAME}, 5, is_new=False)
        with pytest.raises(BeingCopied):
            history.check_complete({NAME}, 5, is_new=True)
    else:
        with pytest.raises(BeingCopied):
            history.check_complete({NAME}, 5, is_new=False)


@pytest.mark.parametrize(("kind", "changed"), [("ALTER TABLE", True), ("TRUNCATE", False)])
def test_ddl_behind_the_structures(kind: str, changed: bool) -> None:
    ddl = SchemaChanged("...", "d", kind, (TableChanged("d", "t"),), "mysql", 0)
    history = _history([], epoch_record(0), replace(epoch_record(1), ddl=ddl))
    history.check_structure(lambda ddl: True, 1)
    history.check_structure(lambda ddl: False, 0)
    if changed:
        with pytest.raises(StructureChanged):
            history.check_structure(lambda ddl: True, 0)
    else:
        history.check_structure(lambda ddl: True, 0)
