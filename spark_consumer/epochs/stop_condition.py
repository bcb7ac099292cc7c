"""The end of a run: a position in the log, or the first position with a GTID set that may not be in the log yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schemas.errors import LogError, Where
from schemas.gtid.sets import GtidSet, flavor_of
from spark_consumer.epochs.epoch_transactions import TransactionReader, position_after_gtids
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.epochs.position import LogPosition, Position, end_of_epoch, parse_like
from spark_consumer.epochs.slices import LoggedEpoch
from spark_consumer.epochs.start import TransactionsOf, executed_of, last_position, other_kind, parse_set
from spark_consumer.rules.config import ConsumerConfig

_OPTION = "--stop-at-gtid"


@dataclass(frozen=True)
class StopCondition:
    """The position or GTID set at which a run ends; with neither it runs until it is stopped.

    Attributes:
        end: the position at which the run ends.
        gtids: the run ends at the first position at which these are applied; ``found`` turns it into ``end``.
    """

    end: LogPosition | None = None
    gtids: GtidSet | None = None

    def reached(self, position: Position) -> bool:
        """Whether nothing is left to do."""
        gtids = self.gtids
        if gtids is not None and parse_like(position.executed_gtids, str(gtids)).contains(gtids):
            return True
        return self.end is not None and self.end.reached(position.order, position.executed_gtids)

    def found(
        self, position: Position, epochs: Sequence[LoggedEpoch], transactions_of: TransactionsOf
    ) -> StopCondition:
        """Return the condition with the position of the GTID set, if the epochs after the position have it."""
        if self.gtids is None:
            return self
        gtids, offset = position.gtids_of_epoch, position.epochs_offset
        for logged in epochs:
            after = executed_of(logged.record, flavor_of(str(self.gtids)), _OPTION)
            if after.contains(self.gtids):
                end = end_of_epoch(logged.record, logged.offset)
                if not self.gtids.contains(after.minus(parse_like(gtids, logged.record.executed_gtids))):
                    end = position_after_gtids(gtids, logged, offset, transactions_of(logged), self.gtids)
                return replace(self, end=end)
            gtids, offset = logged.record.executed_gtids, logged.offset
        return self


def stop_condition_of(config: ConsumerConfig, position: Position, log: LogReader) -> StopCondition:
    """Return the stop condition of the configuration.

    Raises:
        LogError: TR571, the channel is already after it; TR572, the log does not reach it.
        ConfigError: TR560, an option is not a valid position or has GTIDs of the other flavor.
    """
    until = config.until or ("now" if config.until_caught_up else None)
    end = None if until is None else last_position(until, log, TransactionReader(config, log))
    if end is not None and until != "now" and end.order < position.order:
        raise LogError(
            "TR571",
            f"--until {until} is {end}, but the channel is already at {position.log_position}",
            where=Where(epoch=position.epoch),
            hint="nothing was done; use `tailrace channel rewind` to go back, or another --channel to start over",
        )
    if config.stop_at_gtid is None:
        return StopCondition(end)
    gtids, flavor = parse_set(config.stop_at_gtid, _OPTION)
    if position.executed_gtids and flavor_of(position.executed_gtids) != flavor:
        raise other_kind(_OPTION, position.executed_gtids)
    return StopCondition(end, gtids)
