"""Where a channel begins, and whether its position still fits the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime

from schemas.epoch import EpochCommitted
from schemas.errors import ConfigError, LogError, Where
from schemas.gtid import Flavor, GtidSet, parse_gtid_set
from spark_consumer.channel import ChannelKey
from spark_consumer.config import ConsumerConfig
from spark_consumer.inside import Transaction, before_time, behind_gtids
from spark_consumer.log_reader import LogReader
from spark_consumer.place import BEFORE_ALL, Place, end_of, flavor_of
from spark_consumer.position import Position
from spark_consumer.slices import LoggedEpoch

#: the transactions of an epoch, in upstream order; see ``spark_consumer.inside``
Inside = Callable[[LoggedEpoch], Sequence[Transaction]]


def first_position(start: str, log: LogReader, inside: Inside) -> Place:
    """The place behind which a range begins: of ``--from``, and of a rewind's ``--to``.

    Args:
        start: ``earliest``; ``epoch:N``, N is the first one behind the place; ``gtid:SET``, exactly this lies before
            it; ``time:RFC3339``, the first transaction behind it was committed then or later.

    Raises ConfigError for an unusable ``start``, LogError if the log does not hold it.
    """
    kind, _, value = start.partition(":")
    if start == "earliest":
        first = next(log.epochs(), None)
        if first is not None and first.record.epoch != 0:
            raise _not_kept(f"the log begins with epoch {first.record.epoch}", first.record.epoch)
        return BEFORE_ALL
    if kind == "epoch" and value.isdigit():
        return _before_epoch(int(value), log)
    if kind == "gtid" and value:
        return _from_gtids(value, log, inside)
    if kind == "time" and value:
        return _at_time(moment(value), log, inside)
    raise ConfigError(
        "TR560",
        f"{start} is not a place in the log",
        hint="earliest, epoch:N, gtid:SET or time:2026-01-31T12:00:00Z",
    )


def last_position(until: str, log: LogReader, inside: Inside) -> Place:
    """The place at which a range ends, of ``--until``. It is in the log, so the same one each time it is asked for.

    Args:
        until: ``now``, the end of the log as it is; ``epoch:N``, N is the last one before the place; ``gtid:SET``, the
            first place before which all of the set lies; ``time:RFC3339``, as for ``first_position``.

    Raises ConfigError for an unusable ``until``, LogError if the log does not hold it.
    """
    kind, _, value = until.partition(":")
    if until == "now":
        last = log.last_epoch()
        return _at(last) if last is not None else BEFORE_ALL
    if kind == "epoch" and value.isdigit():
        return _behind_epoch(int(value), log)
    if kind == "gtid" and value:
        return _until_gtids(value, log, inside)
    if kind == "time" and value:
        if moment(value) > time.time():
            raise _not_yet("that moment is still to come", "now")
        return _at_time(moment(value), log, inside)
    raise ConfigError(
        "TR560",
        f"--until {until} is not a place in the log",
        hint="now, epoch:N, gtid:SET or time:2026-01-31T12:00:00Z",
    )


def check_log(channel: ChannelKey, position: Position, last: LoggedEpoch | None) -> None:
    """Whether the log, given by its last epoch, is the one that the position is in. Call before a token is taken.

    Raises LogError TR558: then the channel is another pipeline's, or its topics were made anew.
    """
    if position.log_id is None or (last is not None and last.record.log_id == position.log_id):
        return
    there = f"hold the log {last.record.log_id}" if last is not None else "hold no epoch"
    raise LogError(
        "TR558",
        f"channel {channel} follows the log {position.log_id}, and the topics of {channel.prefix} {there}",
        where=Where(epoch=position.epoch),
        hint="if another pipeline has this prefix on another Kafka, give this one a prefix or a channel of its own;"
        " if the topics were deleted and made anew, load the tables anew and `tailrace channel remove`",
    )


def check_began(config: ConsumerConfig, began: str | None) -> None:
    """A channel with a position goes on from there: another ``--from`` than its first run's is a mistake."""
    if config.start is not None and began not in (None, config.start):
        raise LogError(
            "TR574",
            f"channel {config.channel} began at {began} and goes on from its position, not from {config.start}",
            hint="leave --from out to go on; `tailrace channel rewind` moves it back,"
            " another --channel or `tailrace channel remove` begins anew",
        )


def _before_epoch(number: int, log: LogReader) -> Place:
    if number == 0:
        return first_position("earliest", log, lambda logged: ())
    for logged in log.epochs():
        if logged.record.epoch == number - 1:
            return _at(logged)
    raise _not_kept(f"the log does not hold epoch {number - 1}, behind which epoch {number} begins", number)


def _behind_epoch(number: int, log: LogReader) -> Place:
    last = None
    for last in log.epochs():
        if last.record.epoch == number:
            return _at(last)
        if last.record.epoch > number:
            raise _not_kept(f"the log begins with epoch {last.record.epoch}", number)
    raise _not_yet(f"the last epoch is {last.record.epoch if last else 'still to come'}", f"epoch {number}")


def _from_gtids(text: str, log: LogReader, inside: Inside) -> Place:
    wanted, flavor = parse_set(text, "--from gtid")
    best: LoggedEpoch | None = None
    beyond: LoggedEpoch | None = None
    for logged in log.epochs():
        if not wanted.contains(parse_gtid_set(logged.record.executed_gtids, flavor)):
            beyond = logged
            break
        best = logged
    if best is None:
        raise _not_kept("the log begins behind this GTID set", beyond.record.epoch if beyond else 0)
    if parse_gtid_set(best.record.executed_gtids, flavor).contains(wanted):
        return _at(best)
    if beyond is not None:
        place = _inside_gtids(best, beyond, wanted, inside)
        executed = parse_gtid_set(place.executed, flavor)
        if wanted.contains(executed) and executed.contains(wanted):
            return place
    raise LogError(
        "TR561",
        f"the log has no place at which exactly this GTID set is executed: {text[:200]}",
        where=Where(epoch=best.record.epoch + 1),
        hint=f"the nearest one is gtid:{best.record.executed_gtids}",
    )


def _until_gtids(text: str, log: LogReader, inside: Inside) -> Place:
    wanted, flavor = parse_set(text, "--until gtid")
    before: LoggedEpoch | None = None
    for logged in log.epochs():
        executed = parse_gtid_set(logged.record.executed_gtids, flavor)
        if executed.contains(wanted):
            if wanted.contains(executed):
                return _at(logged)
            if before is None:
                raise _not_kept("the log begins behind this GTID set", logged.record.epoch)
            return _inside_gtids(before, logged, wanted, inside)
        before = logged
    missing = "the log is empty"
    if before is not None:
        missing = f"it lacks {wanted.minus(parse_gtid_set(before.record.executed_gtids, flavor))}"
    raise _not_yet(missing, f"gtid:{text[:200]}")


def _inside_gtids(before: LoggedEpoch, logged: LoggedEpoch, wanted: GtidSet, inside: Inside) -> Place:
    return behind_gtids(before.record.executed_gtids, logged, before.offset, inside(logged), wanted)


def _at_time(wanted: float, log: LogReader, inside: Inside) -> Place:
    """Before the first transaction that was committed at a moment, in seconds since 1970, or later."""
    before: LoggedEpoch | None = None
    ms = wanted * 1000
    for logged in log.epochs():
        record = logged.record
        if record.transactions and max(record.first_commit_ms, record.last_commit_ms) >= ms:
            if before is None and record.epoch != 0:
                raise _not_kept(f"the log begins with epoch {record.epoch}", record.epoch)
            if before is None or record.first_commit_ms >= ms or record.ddl is not None:
                return _at(before) if before is not None else BEFORE_ALL
            executed = before.record.executed_gtids
            return before_time(executed, logged, before.offset, inside(logged), ms)
        before = logged
    return _at(before) if before is not None else BEFORE_ALL


def moment(text: str) -> float:
    """Seconds since 1970 of a time with its zone. Raises ConfigError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            "TR560", f"time:{text}: {error}", hint="such as time:2026-01-31T12:00:00Z"
        ) from error
    if found.tzinfo is None:
        raise ConfigError("TR560", f"time:{text} has no time zone", hint=f"time:{text}Z is UTC")
    return found.timestamp()


def _at(logged: LoggedEpoch) -> Place:
    return end_of(logged.record, logged.offset)


def _not_yet(what: str, wanted: str) -> LogError:
    return LogError(
        "TR572",
        f"the log does not reach --until {wanted} yet: {what}",
        hint="--until names a place that is in the log; --stop-at-gtid waits for its GTID set",
    )


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
    if first is not None and position.log_id not in (None, first.record.log_id):
        raise not_in_log(position)
    if position.epoch < 0:
        if first is not None and first.record.epoch != 0:
            raise _lost(position, first.record)
        return low
    if low > position.epochs_offset:
        if first is None or first.record.epoch > position.epoch + 1:
            raise _lost(position, first.record if first else None)
        return low
    if first is None or first.offset != position.epochs_offset or not _same(position, first.record):
        raise not_in_log(position)
    return position.epochs_offset + 1


def not_in_log(position: Position) -> LogError:
    """The error for a position that is of another log than what is read."""
    return LogError(
        "TR558",
        f"the position of the downstream is not in this log: it says epoch {position.epoch} at offset"
        f" {position.epochs_offset}",
        where=Where(epoch=position.epoch),
        hint="check prefix and channel; a topic that was deleted and made anew is another log",
    )


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


def parse_set(text: str, what: str) -> tuple[GtidSet, Flavor]:
    """A GTID set of the option ``what``, and its flavour. Raises ConfigError."""
    flavor = flavor_of(text)
    try:
        return parse_gtid_set(text, flavor), flavor
    except ValueError as error:
        raise ConfigError("TR560", f"{what}: {error}") from error
