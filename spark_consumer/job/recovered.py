"""Skips the epochs whose transactions ``tailrace recover`` has already applied from the relay log.

If a position is ``recovered``, everything up to the relay position is applied, which is after the end of ``epoch``. The
epochs in between are skipped. The producer ends an epoch exactly at the recovered position, so none of them extends
beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from schemas.errors import LogError, Where
from schemas.gtid.sets import Flavor, parse_gtid_set
from schemas.wire.epoch import BEGIN, EpochCommitted
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import LoggedEpoch, position_after


def skip_recovered(position: Position, epochs: Sequence[LoggedEpoch]) -> tuple[Position, list[LoggedEpoch]]:
    """Return the position after the epochs that are already applied, and the epochs after it.

    Raises:
        LogError: TR562, an epoch is applied in part; TR579, an epoch of a table's copy, which only the log has.
    """
    for number, logged in enumerate(epochs):
        if not position.recovered:
            return position, list(epochs[number:])
        if not _is_within(logged.record, position):
            raise LogError(
                "TR562",
                f"epoch {logged.record.epoch} is applied in part: `tailrace recover` applied up to"
                f" {position.relay_log}:{position.relay_pos}, and the epoch continues to"
                f" {logged.record.relay_dir}/{logged.record.relay_file}:{logged.record.relay_pos}",
                where=Where(epoch=logged.record.epoch, gtid=logged.record.last_gtid),
                hint="stop the producer and run `tailrace recover` again: it applies the rest from the relay log,"
                " which has the whole epoch",
            )
        copy = logged.record.copy
        is_passed = logged.record.for_new_channels
        if copy is not None and not is_passed and (copy.step == BEGIN or logged.record.rows):
            raise LogError(
                "TR579",
                f"`tailrace recover` has applied changes of {copy.db}.{copy.table} that come after epoch"
                f" {logged.record.epoch} of its copy, and the relay log does not have the rows of the copy",
                where=Where(epoch=logged.record.epoch, table=f"{copy.db}.{copy.table}"),
                hint="load the tables again: run `tailrace channel remove`, empty them, and start the channel anew",
            )
        gtids = None if _ends_it(logged.record, position) else logged.record.executed_gtids
        position = replace(position_after(position, [logged]), epoch_gtids=gtids)
    return position, []


def _is_within(epoch: EpochCommitted, position: Position) -> bool:
    """Whether all of an epoch's transactions are applied."""
    if not _contains(position.executed_gtids, epoch.executed_gtids):
        return False
    if _comparable(epoch, position):
        return _upstream_position(epoch.source_file, epoch.source_pos) <= _upstream_position(
            position.source_log, position.source_pos
        )
    # Positions of another relay log cannot be compared, only GTIDs.
    return bool(position.executed_gtids) and (not epoch.transactions or epoch.last_gtid is not None)


def _ends_it(epoch: EpochCommitted, position: Position) -> bool:
    """Whether an applied epoch ends at the recovered position."""
    if _comparable(epoch, position):
        return _upstream_position(epoch.source_file, epoch.source_pos) == _upstream_position(
            position.source_log, position.source_pos
        )
    return _contains(epoch.executed_gtids, position.executed_gtids)


def _comparable(epoch: EpochCommitted, position: Position) -> bool:
    """Whether both are positions in the same sub-directory of a relay log."""
    return position.relay_log is not None and position.relay_log.rpartition("/")[0] == epoch.relay_dir


def _upstream_position(file: str | None, pos: int | None) -> tuple[int, int]:
    """Return a position in the upstream's files. A relay log that is fetched again may divide them otherwise."""
    return int((file or "").rpartition(".")[2]), pos or 0


def _contains(outer: str, inner: str) -> bool:
    flavor: Flavor = "mysql" if ":" in outer + inner else "mariadb"
    return parse_gtid_set(outer, flavor).contains(parse_gtid_set(inner, flavor))
