"""Slices: whole epochs, in order, none twice, none missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import LogError
from schemas.wire.epoch import (
    ABSENT,
    BEGIN,
    END,
    INCOMPLETE,
    ROWS,
    CompleteCopy,
    CopyStep,
    OffsetRange,
    SchemaChanged,
    TableTouched,
)
from spark_consumer.epochs.epoch_transactions import Transaction, epoch_part
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import LoggedEpoch, Slice, as_channel_sees, contiguous_after, cut, growing
from tests.support.epochs.records import epoch_record


def logged(number: int, *, rows: int = 0, ddl: bool = False) -> LoggedEpoch:
    changed = SchemaChanged("DROP TABLE t", "d", "DROP TABLE", (), "mysql", 0) if ddl else None
    return LoggedEpoch(epoch_record(number, rows=rows, ddl=changed), number * 2)


AT_TWO = Position(2, 4, "", 1, -1, "", 0, 0, None)


def test_what_is_applied_is_left_out_and_order_is_restored() -> None:
    assert [
        e.record.epoch for e in contiguous_after(AT_TWO, [logged(4), logged(2), logged(3), logged(1)])
    ] == [3, 4]


def test_a_gap_stops_the_channel() -> None:
    with pytest.raises(LogError, match="TR551: epoch 4 is missing"):
        contiguous_after(AT_TWO, [logged(3), logged(5)])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_number_that_is_there_already_stops_the_channel(number: int) -> None:
    again = LoggedEpoch(epoch_record(number), 7)
    with pytest.raises(LogError, match=f"TR567: duplicate epoch {number} at offset 7"):
        contiguous_after(AT_TWO, [logged(3), again])


@given(st.lists(st.tuples(st.integers(0, 60_000), st.booleans()), max_size=20))
def test_growing_slices_keep_epochs_whole_and_in_order(shape: list[tuple[int, bool]]) -> None:
    epochs = [logged(n, rows=rows, ddl=ddl) for n, (rows, ddl) in enumerate(shape)]
    whole = list(cut(epochs, 100_000, 1 << 30))
    pieces = growing(whole)
    assert [one for piece in pieces for one in piece.epochs] == epochs
    added = len(pieces) - len(whole)
    assert pieces[added + 1 :] == whole[1:]
    for number, piece in enumerate(pieces[: added + 1]):
        assert len(piece.epochs) == 1 or piece.rows <= 20_000 << number


def test_a_slice_of_copied_rows_is_not_divided() -> None:
    one = epoch_record(0, rows=50_000)
    copied = [LoggedEpoch(replace(one, epoch=n, copy=CopyStep("", "d", "t", ROWS)), n) for n in range(3)]
    assert growing([Slice(tuple(copied))]) == [Slice(tuple(copied))]


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=20), st.integers(1, 40))
def test_slices_keep_epochs_whole_and_in_order(shape: list[tuple[int, bool]], most: int) -> None:
    epochs = [logged(n, rows=rows, ddl=ddl) for n, (rows, ddl) in enumerate(shape)]
    pieces = list(cut(epochs, most, 1 << 30))
    assert [e for slice_ in pieces for e in slice_.epochs] == epochs
    for slice_ in pieces:
        assert len(slice_.epochs) == 1 or slice_.rows <= most
        assert len(slice_.epochs) == 1 or all(e.record.ddl is None for e in slice_.epochs)


def test_a_copy_starts_in_a_slice_of_its_own_and_its_end_ends_one() -> None:
    def step(number: int, step: str, *, ddl: bool = False) -> LoggedEpoch:
        epoch = logged(number, ddl=ddl)
        return LoggedEpoch(replace(epoch.record, copy=CopyStep("", "d", "t", step)), epoch.offset)

    touched = TableTouched("d", "t", "", 1, 0, 0, incomplete=True)
    change = LoggedEpoch(replace(epoch_record(4, rows=1), tables=(touched,)), 4)
    steps = [step(2, BEGIN, ddl=True), step(3, ROWS), change, step(5, ROWS), step(6, END), step(7, ROWS)]
    found = list(cut([logged(1), *steps, logged(8), logged(9)], 100, 1 << 30))
    assert [[e.record.epoch for e in slice_.epochs] for slice_ in found] == [
        [1],
        [2],
        [3],
        [4],
        [5, 6],
        [7],
        [8, 9],
    ]
    assert [slice_.is_copied for slice_ in found] == [False, True, True, False, True, True, False]
    assert [bool(slice_.incomplete) for slice_ in found] == [False, False, False, True, False, False, False]


def copied_for_new_channels() -> list[LoggedEpoch]:
    """A copy for new channels of one table, and its changes in between; each epoch has one row, but the last two."""

    def change(number: int, state: str) -> LoggedEpoch:
        touched = TableTouched("d", "t", "f", 1, 0, 0, new_channels=state)
        return made(number, tables=(touched,), transactions=1)

    def made(number: int, *, rows: int = 1, **fields: Any) -> LoggedEpoch:
        ranges = (OffsetRange(0, 10 * number, 10 * number + 1),) if rows else ()
        return LoggedEpoch(
            replace(epoch_record(number, rows=rows, ranges=ranges), digest=rows * number, **fields), number
        )

    def step(number: int, step: str, **fields: Any) -> LoggedEpoch:
        return made(number, copy=CopyStep("c", "d", "t", step), for_new_channels=True, **fields)

    ddl = logged(0, ddl=True).record.ddl
    read = TableTouched("d", "t", "f", 0, 0, 0, 1, new_channels=INCOMPLETE)
    return [
        change(1, ABSENT),
        step(2, BEGIN, rows=0, ddl=ddl),
        change(3, INCOMPLETE),
        step(4, ROWS, tables=(read,)),
        step(5, ROWS, tables=(read,)),
        change(6, INCOMPLETE),
        step(7, END, rows=0),
        change(8, ""),
        made(9, rows=0, complete=CompleteCopy("c", ended=True), for_new_channels=True),
        # Another one begins.
        change(10, ABSENT),
        step(11, BEGIN, rows=0, ddl=ddl),
    ]


AT_ZERO = Position(0, 0, "", 1, -1, "", 0, 0, None)


def slices_of(position: Position) -> list[tuple[list[int], Slice]]:
    seen = as_channel_sees(copied_for_new_channels(), is_new=position.is_new)
    return [([e.record.epoch for e in one.epochs], one) for one in cut(seen, 100, 1 << 30)]


def test_a_whole_channel_passes_over_a_copy_for_new_ones() -> None:
    found = slices_of(AT_ZERO)
    assert [numbers for numbers, _ in found] == [[1, 2], [3, 4, 5], [6, 7], [8, 9], [10, 11]]
    position = AT_ZERO
    for numbers, slice_ in found:
        assert (slice_.rows, slice_.digest, slice_.ddl, slice_.is_copied) == (1, numbers[0], None, False)
        assert slice_.ranges == (OffsetRange(0, 10 * numbers[0], 10 * numbers[0] + 1),)
        assert slice_.fingerprints == {"f"}
        assert not slice_.incomplete
        assert not slice_.absent
        slice_.check_next(position)
        position = slice_.position_after(position)
        assert (position.epoch, position.copying) == (numbers[-1], False)


def test_a_new_channel_applies_the_copy_with_which_it_began() -> None:
    position, tables = replace(AT_ZERO, is_new=True), {("d", "t")}
    found = slices_of(position)
    assert [numbers for numbers, _ in found] == [[1], [2], [3], [4, 5], [6], [7], [8, 9, 10, 11]]
    assert [one.absent for _, one in found] == [tables, *[set()] * 6]
    assert [one.incomplete for _, one in found] == [set(), set(), *[tables] * 3, set(), set()]
    assert [one.is_copied for _, one in found] == [False, True, False, True, False, True, False]
    assert [one.rows for _, one in found] == [1, 0, 1, 2, 1, 0, 2]
    for numbers, slice_ in found:
        position = slice_.position_after(position)
        assert position.is_new == position.copying == (numbers[0] < 8)


def test_chunks_of_a_copy_share_a_slice_up_to_the_limit_of_bytes() -> None:
    chunk = replace(epoch_record(1, rows=10), copy=CopyStep("", "d", "t", ROWS))
    epochs = [LoggedEpoch(replace(chunk, epoch=number), number) for number in range(1, 10)]
    found = list(cut(epochs, 1000, 64 << 20))
    assert [[e.record.epoch for e in slice_.epochs] for slice_ in found] == [[1, 2, 3, 4], [5, 6, 7, 8], [9]]
    # Where nobody holds a whole slice of them it may be larger, by rows as well.
    found = list(cut(epochs, 20, 64 << 20, copied=4))
    assert [[e.record.epoch for e in slice_.epochs] for slice_ in found] == [[*range(1, 9)], [9]]
    changes = [LoggedEpoch(epoch_record(number, rows=10), number) for number in range(1, 4)]
    assert [slice_.rows for slice_ in cut(changes, 20, 64 << 20, copied=4)] == [20, 10]


def test_a_part_of_an_epoch_knows_that_a_table_is_being_copied() -> None:
    touched = (TableTouched("d", "t", "f", 1, 0, 0), TableTouched("d", "u", "g", 0, 1, 0))
    found = [Transaction(f"g:{n}", 0, 1, n, (table,)) for n, table in enumerate(touched)]
    tables = (replace(touched[0], incomplete=True), replace(touched[1], new_channels=ABSENT))
    whole = LoggedEpoch(replace(epoch_record(1, rows=2, transactions=2), tables=tables), 1)
    parts = [epoch_part(whole, found, n, n + 1).record.tables for n in range(2)]
    assert parts == [(tables[0],), (tables[1],)]


def test_a_slice_of_few_large_rows_ends_early() -> None:
    ends = [("a", 100), ("a", 150), ("a", 260), ("b", 70), ("b", 80)]
    epochs = [
        LoggedEpoch(replace(epoch_record(n, rows=1), relay_file=file, relay_pos=end), n)
        for n, (file, end) in enumerate(ends)
    ]
    found = [[e.record.epoch for e in slice_.epochs] for slice_ in cut(epochs, 100, max_bytes=120)]
    assert found == [[0, 1], [2], [3, 4]]


def test_ranges_of_a_slice_span_its_epochs() -> None:
    first = LoggedEpoch(epoch_record(1, ranges=(OffsetRange(0, 5, 9), OffsetRange(2, 0, 1))), 3)
    second = LoggedEpoch(epoch_record(2, ranges=(OffsetRange(0, 10, 14),)), 5)
    [slice_] = cut([first, second], 100, 1 << 30)
    assert slice_.ranges == (OffsetRange(0, 5, 14), OffsetRange(2, 0, 1))
