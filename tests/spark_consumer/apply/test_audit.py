"""Epochs of a quiet upstream come without end, and are no rows of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.wire.epoch import CompleteCopy, EpochCommitted
from spark_consumer.apply.tables import audit
from spark_consumer.rules.channel import ChannelKey
from tests.support.epochs.records import epoch_record

CHANNEL = ChannelKey("shop", "main")


class AuditTable:
    """A session with the first and last epoch of the newest row; notes what is written."""

    def __init__(self, newest: tuple[int, int] | None) -> None:
        self._newest = newest
        self.written: list[str] = []

    def rows(self, sql: str, args: Any) -> list[tuple[int | None]]:
        assert tuple(args) == tuple(CHANNEL)
        return [(self._newest and self._newest[0],)]

    def run(self, sql: str, args: tuple[Any, ...]) -> int:
        if sql.startswith("UPDATE"):
            found = (args[3], args[4]) == self._newest
            self.written += [f"extended to {args[0]}"] * found
            return int(found)
        self.written.append(f"row {args[2]} to {args[3]}")
        return 1


def _quiet(number: int) -> EpochCommitted:
    return replace(epoch_record(number), complete_ms=1_000 * number)


@pytest.mark.parametrize(
    ("newest", "epochs", "written"),
    [
        ((5, 6), [_quiet(7), _quiet(8)], "extended to 8"),
        ((5, 6), [_quiet(7), replace(epoch_record(8, transactions=1), complete_ms=9)], "row 7 to 8"),
        ((5, 5), [_quiet(7)], "row 7 to 7"),
        (None, [_quiet(7)], "row 7 to 7"),
        ((5, 6), [epoch_record(7)], "row 7 to 7"),
        ((5, 6), [replace(_quiet(7), complete=CompleteCopy("x", ended=True))], "row 7 to 7"),
    ],
)
def test_quiet_epochs_are_added_to_the_row_before(
    newest: tuple[int, int] | None, epochs: list[EpochCommitted], written: str
) -> None:
    table = AuditTable(newest)
    audit.record(table, CHANNEL, epochs, 0)  # type: ignore[arg-type]
    assert table.written == [written]


def test_a_repetition_has_a_row_of_its_own() -> None:
    table = AuditTable((5, 6))
    audit.record(table, CHANNEL, [_quiet(7)], 0, first_epoch=-7)  # type: ignore[arg-type]
    assert table.written == ["row -7 to 7"]
