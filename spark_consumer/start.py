"""Where a channel begins, and whether its position still fits the log."""

from __future__ import annotations

from datetime import datetime

from schemas.epoch import EpochCommitted
from schemas.errors import ConfigError, LogError, Where
from schemas.gtid import Flavor, GtidSet, parse_gtid_set
from spark_consumer.log_reader import LogReader
from spark_consumer.position import Position
from spark_consumer.slices import LoggedEpoch

Begin = tuple[int, int, str]
_BEFORE_ALL: Begin = (-1, -1, "")


def first_position(start: str, log: LogReader) -> Begin:
    """Epoch, offset and GTID set that count as applied for a channel without a position.

    Raises ConfigError for an unusable ``start``, LogError if the log does not hold it.
    """
    kind, _, value = start.partition(":")
    if start == "earliest":
        first = next(log.epochs(), None)
        if first is not None and first.record.epoch != 0:
            raise _not_kept(f"the log begins with epoch {first.record.epoch}", first.record.epoch)
        return _BEFORE_ALL
    if kind == "epoch" and value.isdigit():
        return _before_epoch(int(value), log)
    if kind == "gtid" and value:
        return _behind_gtids(value, log)
    if kind == "time" and value:
        return _before_time(value, log)
    raise ConfigError(
        "TR560",
        f"--from {start} is not a place in the log",
        hint="earliest, epoch:N, gtid:SET or time:2026-01-31T12:00:00Z",
    )


def _before_epoch(number: int, log: LogReader) -> Begin:
    if number == 0:
        return _BEFORE_ALL
    for logged in log.epochs():
        if logged.record.epoch == number - 1:
            return _at(logged)
    raise _not_kept(f"the log does not hold epoch {number - 1}, behind which epoch {number} begins", number)


def _behind_gtids(text: str, log: LogReader) -> Begin:
    flavor: Flavor = "mysql" if ":" in text else "mariadb"
    try:
        wanted = parse_gtid_set(text, flavor)
    except ValueError as error:
        raise ConfigError("TR560", f"--from gtid: {error}") from error
    best: LoggedEpoch | None = None
    for logged in log.epochs():
        executed = parse_gtid_set(logged.record.executed_gtids, flavor)
        if not wanted.contains(executed):
            if best is None:
                raise _not_kept("the log begins behind this GTID set", logged.record.epoch)
            break
        best = logged
    if best is None or not parse_gtid_set(best.record.executed_gtids, flavor).contains(wanted):
        raise LogError(
            "TR561",
            f"the GTID set ends inside an epoch or is not in the log yet: {text[:200]}",
            where=Where(epoch=best.record.epoch + 1 if best else None),
            hint=f"the nearest place is gtid:{best.record.executed_gtids}" if best else "",
        )
    return _at(best)


def _before_time(text: str, log: LogReader) -> Begin:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError("TR560", f"--from time: {error}") from error
    if moment.tzinfo is None:
        raise ConfigError("TR560", f"--from time:{text} has no time zone", hint=f"time:{text}Z is UTC")
    last: LoggedEpoch | None = None
    for logged in log.epochs():
        if logged.record.transactions and logged.record.last_commit_ms >= moment.timestamp() * 1000:
            break
        last = logged
    return _at(last) if last is not None else _BEFORE_ALL


def _at(logged: LoggedEpoch) -> Begin:
    return logged.record.epoch, logged.offset, logged.record.executed_gtids


def _not_kept(what: str, epoch: int) -> LogError:
    return LogError(
        "TR555",
        what,
        where=Where(epoch=epoch),
        hint="load the downstream from a snapshot, then name the epoch to go on with: --from epoch:N",
    )


def resume_offset(position: Position, log: LogReader) -> int:
    """The offset to read from, after a look at whether the log is the position's own. Raises LogError."""
    low, _ = log.bounds()
    at = max(position.epochs_offset, low, 0)
    first = next(log.epochs(at), None)
    if position.epoch < 0:
        if first is not None and first.record.epoch != 0:
            raise _lost(position, first.record)
        return low
    if low > position.epochs_offset:
        if first is None or first.record.epoch > position.epoch + 1:
            raise _lost(position, first.record if first else None)
        return low
    if first is None or first.offset != position.epochs_offset or not _same(position, first.record):
        raise LogError(
            "TR558",
            f"the position of the downstream is not in this log: it says epoch {position.epoch} at offset"
            f" {position.epochs_offset}",
            where=Where(epoch=position.epoch),
            hint="check prefix and channel; a topic that was deleted and made anew is another log",
        )
    return position.epochs_offset + 1


def _same(position: Position, record: EpochCommitted) -> bool:
    return (record.epoch, record.executed_gtids) == (position.epoch, position.gtids_of_epoch)


def _lost(position: Position, first: EpochCommitted | None) -> LogError:
    begins = f"begins with epoch {first.epoch}" if first else "is empty"
    return LogError(
        "TR555",
        f"epoch {position.epoch + 1} is needed, and the epochs topic {begins}: retention deleted it",
        where=Where(epoch=position.epoch + 1),
        hint="build the downstream anew from a snapshot,"
        " and keep the topics longer than a consumer may be down",
    )


def parse_stop_set(text: str) -> tuple[GtidSet, Flavor]:
    """The set of ``--stop-at-gtid`` and its flavour."""
    flavor: Flavor = "mysql" if ":" in text else "mariadb"
    try:
        return parse_gtid_set(text, flavor), flavor
    except ValueError as error:
        raise ConfigError("TR560", f"--stop-at-gtid: {error}") from error
