"""Cuts the epochs behind a position into slices that begin and end exactly where they must."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_consumer.epochs.epoch_transactions import part_of
from spark_consumer.epochs.log_position import LogPosition, end_of, order_of
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import LoggedEpoch, PartSlice, Slice, cut
from spark_consumer.epochs.start import TransactionsOf


def slice_epochs(
    position: Position,
    epochs: Sequence[LoggedEpoch],
    end: LogPosition | None,
    transactions_of: TransactionsOf,
    max_rows: int,
    max_bytes: int,
) -> list[Slice]:
    """The slices from a position to ``end``, or to the last epoch.

    One of them ends where the position was rewound from. Nearly always no epoch is divided, and none is looked into.

    Args:
        epochs: those behind the position's last whole one, without a gap.
        transactions_of: an epoch's transactions, asked for where a place lies inside it.
    """
    repeat_until = position.repeat_until
    slices: list[Slice] = []
    run: list[LoggedEpoch] = []
    for logged in epochs:
        begin, behind = order_of(logged.record.epoch - 1, None), order_of(logged.record.epoch, None)
        if end is not None and end.order <= begin:
            break
        points = [
            point for point in (repeat_until, end) if point is not None and begin < point.order < behind
        ]
        stops = [point for point in points if end is None or point.order <= end.order]
        if stops or (not slices and not run and position.epoch_rows is not None):
            slices += cut(run, max_rows, max_bytes)
            run = []
            whole = end is None or end.order >= behind
            slices += _parts(position, logged, stops, whole, transactions_of)
            continue
        run.append(logged)
        if repeat_until is not None and repeat_until.order == behind:
            slices += cut(run, max_rows, max_bytes)
            run = []
    return [*slices, *cut(run, max_rows, max_bytes)]


def _parts(
    position: Position,
    logged: LoggedEpoch,
    stops: Sequence[LogPosition],
    whole: bool,
    transactions_of: TransactionsOf,
) -> Iterator[Slice]:
    """One epoch from the position, if that lies inside it, to the last of the places, or to its end."""
    found = transactions_of(logged)
    here = position.log_position if position.epoch + 1 == logged.record.epoch else None
    ends = sorted(stops, key=lambda point: point.order)
    if whole:
        ends.append(end_of(logged.record, logged.offset))
    for end in ends:
        if here is None or not end.reached(here.order, here.executed):
            start = (here and here.rows) or 0
            stop = logged.record.rows if end.rows is None else end.rows
            yield PartSlice((part_of(logged, found, start, stop),), start, end)
            here = end
