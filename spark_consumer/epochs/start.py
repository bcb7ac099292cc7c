"""Finds the start of a channel, and checks that its position matches the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog

from schemas.errors import ConfigError, LogError, Where
from schemas.gtid.sets import Flavor, GtidSet, flavor_of, parse_gtid_set
from schemas.wire.epoch import COPY, ORIGIN, EpochCommitted
from spark_consumer.epochs.epoch_transactions import (
    Transaction,
    TransactionReader,
    position_after_gtids,
    position_before_time,
)
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import (
    ChannelStart,
    LogPosition,
    NamedPosition,
    Position,
    end_of_epoch,
    parse_like,
)
from spark_consumer.epochs.slices import LoggedEpoch
from spark_consumer.rules.channel import ChannelKey
from spark_consumer.rules.config import ConsumerConfig

_log = structlog.get_logger()
#: the transactions of an epoch, in upstream order; see ``spark_consumer.epochs.epoch_transactions``
TransactionsOf = Callable[[LoggedEpoch], Sequence[Transaction]]


def channel_start(config: ConsumerConfig, log: LogReader) -> ChannelStart:
    """Return the start of a channel without a position. Raises as ``first_position`` does."""
    start = config.start or "earliest"
    if start == "earliest" and (copied := complete_copy(log)) is not None:
        _log.info("begins_with_a_copy", channel=config.channel, epoch=copied.record.epoch)
        return ChannelStart(_at(copied), copied.record, start, is_copied=True)
    log_position = first_position(start, log, TransactionReader(config, log))
    last = first_epoch(log) if log_position.epoch < 0 else next(log.epochs(log_position.offset))
    begin = ChannelStart(log_position, last.record, start)
    if not begin.whole:
        _log.warning(
            "history_not_known",
            channel=config.channel,
            begin=str(log_position),
            behind=begin.behind,
            log_begins=last.record.log_begins,
            hint="changes before this position are not applied, so the target needs a copy of the tables at exactly"
            " this position, which cannot be checked here; --from gtid:SET compares a copy's GTID set",
        )
    return begin


def complete_copy(log: LogReader) -> LoggedEpoch | None:
    """Return the epoch after which a new channel begins, if the log does not have its own beginning.

    The oldest copy of everything begins there of which Kafka still has all. None if the log has everything from the
    beginning on, or no such copy. Raises LogError: TR555, all epochs were deleted; TR566, there are none yet.
    """
    # Kafka deletes rows and epochs at different times.
    if first_kept(log).record.log_begins in (ORIGIN, COPY) and log.has_first_rows():
        return None
    begins: dict[str, LoggedEpoch] = {}
    ended: list[LoggedEpoch] = []
    for logged in log.epochs():
        complete = logged.record.complete
        if complete is not None and not complete.ended:
            begins[complete.copy] = logged
        elif complete is not None and complete.copy in begins:
            ended.append(begins.pop(complete.copy))
    return next((copied for copied in ended if _has_rows_after(copied, log)), None)


def _has_rows_after(begin: LoggedEpoch, log: LogReader) -> bool:
    """Whether Kafka still has all rows after an epoch."""
    checked = set[int]()
    for logged in log.epochs(begin.offset):
        for part in logged.record.ranges:
            if (
                part.end > part.start
                and part.partition not in checked
                and (log.first_row_offset(part.partition) or 0) > part.start
            ):
                return False
            checked.add(part.partition)
    return True


def first_position(start: str, log: LogReader, transactions_of: TransactionsOf) -> LogPosition:
    """Return the position of ``--from``, or of a rewind's ``--to``.

    Args:
        start: ``earliest``, the start of the log; ``epoch:N``, before epoch N; ``gtid:SET``, exactly this set is
            before it; ``time:RFC3339``, the first transaction after it was committed at this time or later.

    Raises ConfigError for an invalid ``start``, LogError if the log does not have the position: TR555, not any more;
    TR566, not yet.
    """
    named = NamedPosition.parse(start, "earliest")
    if named.epoch is not None:
        return _before_epoch(named.epoch, log)
    if named.gtids is not None:
        return _from_gtids(named.gtids, log, transactions_of)
    if named.time is not None:
        return _at_time(named.time, log, transactions_of)
    return LogPosition(-1, -1, first_epoch(log).record.executed_gtids)


def first_epoch(log: LogReader) -> LoggedEpoch:
    """Return epoch 0. Raises LogError: TR555, it was deleted; TR566, it does not exist yet."""
    first = first_kept(log)
    if first.record.epoch != 0:
        raise not_kept(first.record)
    return first


def first_kept(log: LogReader) -> LoggedEpoch:
    """Return the oldest epoch that the log still has. Raises LogError: TR555, all were deleted; TR566, none yet."""
    for logged in log.epochs():
        return logged
    log.refuse_emptied()
    raise LogError(
        "TR566",
        "the log has no epochs yet",
        hint="start the producer: it first writes the start of the log",
        retryable=True,
    )


def last_position(until: str, log: LogReader, transactions_of: TransactionsOf) -> LogPosition:
    """Return the position of ``--until``. It must be in the log, so it is the same each time.

    Args:
        until: ``now``, the current end of the log; ``epoch:N``, after epoch N; ``gtid:SET``, the first position at
            which all of the set is applied; ``time:RFC3339``, as for ``first_position``.

    Raises ConfigError for an invalid ``until``, LogError if the log does not have the position.
    """
    named = NamedPosition.parse(until, "now")
    if named.epoch is not None:
        return _behind_epoch(named.epoch, log)
    if named.gtids is not None:
        return _until_gtids(named.gtids, log, transactions_of)
    if named.time is not None:
        if named.time > time.time():
            raise _not_yet("that time is in the future", "now")
        return _at_time(named.time, log, transactions_of)
    return _at(log.last_epoch() or first_kept(log))


def check_log(channel: ChannelKey, position: Position, last: LoggedEpoch | None) -> None:
    """Check that the log, given by its last epoch, is the position's log. Call it before a token is taken.

    Raises LogError TR558: the channel belongs to another pipeline, or its topics were created again.
    """
    if position.log_id is None or (last is not None and last.record.log_id == position.log_id):
        return
    there = f"hold the log {last.record.log_id}" if last is not None else "hold no epoch"
    raise LogError(
        "TR558",
        f"channel {channel} follows log {position.log_id}, but the topics of {channel.prefix} {there}",
        where=Where(epoch=position.epoch),
        hint="if another pipeline has this prefix on another Kafka, use a different prefix or channel;"
        " if the topics were recreated, reload the tables and run `tailrace channel remove`",
    )


def check_began(config: ConsumerConfig, began: str | None) -> None:
    """Raise ConfigError if ``--from`` differs from that of the first run: the channel continues from its position."""
    if config.start is not None and began not in (None, config.start):
        raise LogError(
            "TR574",
            f"channel {config.channel} was started with --from {began} and continues from its position, not from"
            f" {config.start}",
            hint="omit --from to continue; use `tailrace channel rewind` to go back, or another --channel or"
            " `tailrace channel remove` to start over",
        )


def _before_epoch(number: int, log: LogReader) -> LogPosition:
    if number == 0:
        return first_position("earliest", log, lambda logged: ())
    first = first_kept(log)
    if number <= first.record.epoch:
        raise not_kept(first.record)
    last = first
    for last in log.epochs(first.offset):
        if last.record.epoch == number - 1:
            return _at(last)
    raise LogError(
        "TR555",
        f"the log does not reach epoch {number - 1}, after which epoch {number} starts: its last epoch is"
        f" {last.record.epoch}",
        hint=f"--from epoch:{last.record.epoch + 1} starts with the next epoch that is published",
    )


def _behind_epoch(number: int, log: LogReader) -> LogPosition:
    last = None
    for last in log.epochs():
        if last.record.epoch == number:
            return _at(last)
        if last.record.epoch > number:
            raise not_kept(last.record)
    raise _not_yet(
        f"its last epoch is {last.record.epoch}" if last else "it has no epochs yet", f"epoch {number}"
    )


def _from_gtids(text: str, log: LogReader, transactions_of: TransactionsOf) -> LogPosition:
    option = "--from gtid"
    wanted, flavor = parse_set(text, option)
    best: LoggedEpoch | None = None
    beyond: LoggedEpoch | None = None
    for logged in log.epochs():
        if not wanted.contains(executed_of(logged.record, flavor, option)):
            beyond = logged
            break
        best = logged
    if best is None:
        first = beyond or first_kept(log)
        raise not_kept(first.record, f"it starts after this GTID set, at {first.record.executed_gtids}")
    if executed_of(best.record, flavor, option).contains(wanted):
        return _at(best)
    if beyond is not None:
        log_position = _within_epoch(best, beyond, wanted, transactions_of)
        executed = parse_gtid_set(log_position.executed, flavor)
        if wanted.contains(executed) and executed.contains(wanted):
            return log_position
    raise LogError(
        "TR561",
        f"no position in the log has exactly this GTID set: {text[:200]}",
        where=Where(epoch=best.record.epoch + 1),
        hint=f"the nearest one is gtid:{best.record.executed_gtids}",
    )


def _until_gtids(text: str, log: LogReader, transactions_of: TransactionsOf) -> LogPosition:
    option = "--until gtid"
    wanted, flavor = parse_set(text, option)
    before: LoggedEpoch | None = None
    for logged in log.epochs():
        executed = executed_of(logged.record, flavor, option)
        if executed.contains(wanted):
            if wanted.contains(executed):
                return _at(logged)
            if before is None:
                raise not_kept(logged.record, "it starts after this GTID set")
            return _within_epoch(before, logged, wanted, transactions_of)
        before = logged
    missing = "the log is empty"
    if before is not None:
        missing = f"it lacks {wanted.minus(executed_of(before.record, flavor, option))}"
    raise _not_yet(missing, f"gtid:{text[:200]}")


def _within_epoch(
    before: LoggedEpoch, logged: LoggedEpoch, wanted: GtidSet, transactions_of: TransactionsOf
) -> LogPosition:
    return position_after_gtids(
        before.record.executed_gtids, logged, before.offset, transactions_of(logged), wanted
    )


def _at_time(wanted: float, log: LogReader, transactions_of: TransactionsOf) -> LogPosition:
    """Return the position before the first transaction that was committed at a time (seconds since 1970) or later."""
    before: LoggedEpoch | None = None
    ms, is_earlier_known = wanted * 1000, False
    for logged in log.epochs():
        record = logged.record
        # If epochs were deleted, an earlier commit that is still in the log shows that the position is not in them.
        is_earlier_known |= record.epoch == 0 or (record.transactions > 0 and record.first_commit_ms < ms)
        if record.transactions and max(record.first_commit_ms, record.last_commit_ms) >= ms:
            if before is None or not is_earlier_known:
                raise not_kept(record, "it starts after this time")
            if record.first_commit_ms >= ms or record.ddl is not None:
                return _at(before)
            executed = before.record.executed_gtids
            return position_before_time(executed, logged, before.offset, transactions_of(logged), ms)
        before = logged
    if before is None or not is_earlier_known:
        raise not_kept(first_kept(log).record, "it may start after this time")
    return _at(before)


def _at(logged: LoggedEpoch) -> LogPosition:
    return end_of_epoch(logged.record, logged.offset)


def _not_yet(what: str, wanted: str) -> LogError:
    return LogError(
        "TR572",
        f"the log does not reach --until {wanted} yet: {what}",
        hint="--until needs a position that already exists; --stop-at-gtid waits for its GTID set",
    )


def not_kept(first: EpochCommitted, what: str = "") -> LogError:
    """Return the error for a position before the first epoch that the log still has."""
    gtids = f" that is not older than {first.executed_gtids}, and start with --from gtid:SET"
    return LogError(
        "TR555",
        f"the log starts with epoch {first.epoch}" + (f": {what}" if what else ""),
        where=Where(epoch=first.epoch),
        hint="`tailrace copy --all` puts a copy into the log with which new channels begin; or load one of the tables"
        f"{gtids if first.executed_gtids else ''};"
        f" --from epoch:{first.epoch + 1} starts there without the deleted changes",
    )


def resume_offset(position: Position, log: LogReader) -> int:
    """Check that the log is the position's log, and return the offset to read from. Raises LogError."""
    low, high = log.bounds()
    if position.epoch < 0:
        return _from_begin(position, log, low)
    at = position.epochs_offset
    if at >= high:
        raise not_in_log_error(position, f"its last offset is {high - 1}")
    first = next(log.epochs(max(at, low)), None)
    if low <= at:
        if first is None or first.offset != at or not _same(position, first.record):
            raise not_in_log_error(position, f"that offset has {_named(first)}")
        return at + 1
    if first is not None and _is_another(position, first.record):
        raise not_in_log_error(position, f"it starts at offset {first.offset} with {_named(first)}")
    if first is None or first.record.epoch > position.epoch + 1:
        raise _lost(position, first.record if first else None)
    return low


def _from_begin(position: Position, log: LogReader, low: int) -> int:
    first = next(log.epochs(low), None)
    if first is not None and position.log_id not in (None, first.record.log_id):
        raise not_in_log_error(position, f"it starts with {_named(first)}")
    if (first is None and low > 0) or (first is not None and first.record.epoch != 0):
        raise _lost(position, first.record if first else None)
    return low


def _is_another(position: Position, later: EpochCommitted) -> bool:
    """Whether a later epoch shows that a position is not in its log."""
    if position.log_id not in (None, later.log_id) or later.epoch <= position.epoch:
        return True
    executed = parse_like(later.executed_gtids, position.gtids_of_epoch)
    return not executed.contains(parse_like(position.gtids_of_epoch, later.executed_gtids))


def _same(position: Position, record: EpochCommitted) -> bool:
    if position.log_id not in (None, record.log_id):
        return False
    if (record.epoch, record.executed_gtids) != (position.epoch, position.gtids_of_epoch):
        return False
    # Upstream positions can be compared without GTIDs, or in the same relay sub-directory.
    of_this = (position.relay_log or "").rpartition("/")[0] == record.relay_dir or not record.executed_gtids
    if position.recovered or position.source_log is None or not of_this:
        return True
    return (position.source_log, position.source_pos) == (record.source_file, record.source_pos)


def _named(logged: LoggedEpoch | None) -> str:
    if logged is None:
        return "no epoch"
    record = logged.record
    gtids = f", {record.executed_gtids}" if record.executed_gtids else ""
    return f"epoch {record.epoch}, the upstream's {record.source_file}:{record.source_pos}{gtids}"


def not_in_log_error(position: Position, there: str) -> LogError:
    """Return the error for a position of another log; ``there`` describes the log that is read."""
    return LogError(
        "TR558",
        f"the downstream's position is not in this log: it is epoch {position.epoch} at offset"
        f" {position.epochs_offset}; {there}",
        where=Where(epoch=position.epoch),
        hint="check prefix and channel; a recreated topic is a different log",
    )


def _lost(position: Position, first: EpochCommitted | None) -> LogError:
    begins = f"starts with epoch {first.epoch}" if first else "is empty"
    return LogError(
        "TR555",
        f"epoch {position.epoch + 1} is needed, and the epochs topic {begins}: retention deleted it",
        where=Where(epoch=position.epoch + 1),
        hint="rebuild the downstream from a copy, and keep the topics longer than a consumer may be down",
    )


def executed_of(record: EpochCommitted, flavor: Flavor, option: str) -> GtidSet:
    """Return the executed set at the end of an epoch. Raises ConfigError for GTIDs of the other flavor."""
    try:
        return parse_gtid_set(record.executed_gtids, flavor)
    except ValueError as error:
        raise other_kind(option, record.executed_gtids) from error


def other_kind(option: str, logged: str) -> ConfigError:
    """Return the error for an option whose GTID set is of the other flavor than the log's."""
    names = {"mysql": "MySQL", "mariadb": "MariaDB"}
    return ConfigError(
        "TR560",
        f"{option}: not a GTID set of {names[flavor_of(logged)]}, which the log contains",
        hint=f"the log's current GTID set is {logged[:200]}",
    )


def parse_set(text: str, what: str) -> tuple[GtidSet, Flavor]:
    """Parse the GTID set of the option ``what``; return it with its flavor. Raises ConfigError."""
    flavor = flavor_of(text)
    try:
        found = parse_gtid_set(text, flavor)
        if not found:
            raise ValueError("the set is empty")
    except ValueError as error:
        raise ConfigError("TR560", f"{what}: {error}") from error
    return found, flavor
