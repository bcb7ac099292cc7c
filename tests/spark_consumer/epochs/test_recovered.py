"""What `tailrace recover` applied is passed over in the epoch log: all of it, nothing else, never in part."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import LogError
from schemas.wire.epoch import BEGIN, END, ROWS, CopyStep, EpochCommitted
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import LoggedEpoch, RelaySlice
from spark_consumer.job.recovered import skip_recovered
from tests.support.epochs.records import epoch_record

UUID = "00000000-0000-0000-0000-00000000cafe"
DIR = f"{UUID}.000001"


def gtids(last: int, *, flavor: str = "mysql") -> str:
    if not last or flavor == "none":
        return ""
    return f"{UUID}:1-{last}" if flavor == "mysql" else f"0-1-{last}"


def epoch(number: int, first: int, last: int, *, flavor: str = "mysql", relay_dir: str = DIR) -> LoggedEpoch:
    """An epoch of the transactions ``first`` to ``last``, each of 1000 bytes, ten to a relay file."""
    record = epoch_record(number, executed=gtids(last, flavor=flavor), transactions=last - first + 1, rows=1)
    gtid = gtids(last, flavor=flavor).replace("1-", "") or None
    file, place = f"mysql-bin.{last // 10:06}", last % 10 * 1000 + 4
    return LoggedEpoch(
        replace(
            record,
            last_gtid=gtid,
            relay_dir=relay_dir,
            relay_file=file,
            relay_pos=place,
            source_file=file,
            source_pos=place,
        ),
        number * 2,
    )


def log(sizes: list[int], **options: str) -> list[LoggedEpoch]:
    """Epochs 1, 2, … of so many transactions each."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [epoch(i + 1, end - sizes[i] + 1, end, **options) for i, end in enumerate(ends)]


def recovered(last: int, *, flavor: str = "mysql", relay_log: str | None = DIR) -> Position:
    """A channel at epoch 0 that was recovered to the end of transaction ``last``."""
    position = Position(0, 0, gtids(last, flavor=flavor), 1, -1, "", 0, 0, "intent", epoch_gtids="")
    if relay_log is None:
        return position
    file, place = f"mysql-bin.{last // 10:06}", last % 10 * 1000 + 4
    return replace(
        position, relay_log=f"{relay_log}/{file}", relay_pos=place, source_log=file, source_pos=place
    )


@pytest.mark.parametrize("flavor", ["mysql", "mariadb", "none"])
@given(st.data())
def test_whole_epochs_are_passed_and_a_part_of_one_stops(flavor: str, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    last = data.draw(st.integers(1, sum(sizes)))
    epochs, position = log(sizes, flavor=flavor), recovered(last, flavor=flavor)
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    if last not in ends:
        with pytest.raises(LogError, match="TR562"):
            skip_recovered(position, epochs)
        return
    after, rest = skip_recovered(position, epochs)
    passed = ends.index(last) + 1
    assert rest == epochs[passed:]
    assert (after.epoch, after.epochs_offset) == (passed, passed * 2)
    assert after.epoch_gtids is None
    # The data is where it was, and so is a DDL in hand.
    keep = ("executed_gtids", "relay_log", "relay_pos", "ddl_intent", "ledger_seq")
    assert [getattr(after, name) for name in keep] == [getattr(position, name) for name in keep]


@given(st.lists(st.integers(1, 5), min_size=2, max_size=8), st.data())
def test_it_goes_on_from_batch_to_batch(sizes: list[int], data: st.DataObject) -> None:
    epochs = log(sizes)
    cut = data.draw(st.integers(1, len(sizes) - 1))
    position, rest = skip_recovered(recovered(sum(sizes)), epochs[:cut])
    assert rest == []
    assert position.epoch_gtids == position.gtids_of_epoch == epochs[cut - 1].record.executed_gtids
    position, rest = skip_recovered(position, epochs[cut:])
    assert (rest, position.epoch, position.epoch_gtids) == ([], len(sizes), None)


@pytest.mark.parametrize("relay_log", [None, f"{UUID}.000002"])
def test_epochs_of_another_relay_log_are_told_by_their_gtids(relay_log: str | None) -> None:
    after, rest = skip_recovered(recovered(7, relay_log=relay_log), log([3, 4, 5]))
    assert ([logged.record.epoch for logged in rest], after.epoch) == ([3], 2)
    with pytest.raises(LogError, match="TR562"):
        skip_recovered(recovered(8, relay_log=relay_log), log([3, 4, 5]))
    with pytest.raises(LogError, match="TR562"):
        skip_recovered(recovered(7, relay_log=relay_log, flavor="none"), log([3, 4, 5], flavor="none"))


def test_a_place_that_says_applied_is_not_enough_if_the_gtids_say_otherwise() -> None:
    """A relay log made anew under the same name, of a server that was reset."""
    other = [
        LoggedEpoch(replace(one.record, executed_gtids=f"{UUID[:-1]}a:1-3"), one.offset) for one in log([3])
    ]
    with pytest.raises(LogError, match="TR562"):
        skip_recovered(recovered(9), other)


@pytest.mark.parametrize(("step", "rows"), [(BEGIN, 0), (ROWS, 3), (ROWS, 0), (END, 0)])
def test_a_copy_among_the_passed_epochs_stops_if_it_has_rows(step: str, rows: int) -> None:
    first, second = log([3, 4])
    copy = replace(first.record, epoch=2, rows=rows, transactions=0, copy=CopyStep("", "d", "t", step))
    epochs = [first, LoggedEpoch(copy, 3), LoggedEpoch(replace(second.record, epoch=3), 4)]
    if step == BEGIN or rows:
        with pytest.raises(LogError, match=r"TR579: .* that come after epoch 2 of its copy"):
            skip_recovered(recovered(7), epochs)
    else:
        assert skip_recovered(recovered(7), epochs)[1] == []
    # A copy at the position where the recovery ended comes after all that it applied.
    assert skip_recovered(recovered(3), epochs)[1] == epochs[1:]


def test_without_a_recovery_nothing_is_passed() -> None:
    epochs, position = log([1, 2]), replace(recovered(3), epoch_gtids=None)
    assert skip_recovered(position, epochs) == (position, epochs)


def relay_slice(record: EpochCommitted, position: Position) -> RelaySlice:
    return RelaySlice((LoggedEpoch(record, 0),), (position.relay_log, position.relay_pos))


def test_a_slice_of_the_relay_log_leaves_the_place_in_the_epoch_log_alone() -> None:
    before = Position(5, 10, gtids(2), 1, 3, "", 0, 7, None, f"{DIR}/mysql-bin.000000", 2004)
    first = relay_slice(epoch(6, 3, 4).record, before)
    assert first.is_next(before)
    assert not first.is_applied(before)
    after = first.position_after(before)
    assert first.is_applied(after)
    assert not first.is_next(after)
    assert (after.epoch, after.epochs_offset, after.structures_version) == (5, 10, 3)
    assert (after.executed_gtids, after.epoch_gtids) == (gtids(4), gtids(2))
    assert (after.relay_log, after.relay_pos) == (f"{DIR}/mysql-bin.000000", 4004)
    second = relay_slice(epoch(6, 5, 6).record, after)
    assert second.is_next(after)
    assert second.position_after(after).epoch_gtids == gtids(2)
    assert [record.epoch for record in second.audit_epochs(8)] == [-8]
