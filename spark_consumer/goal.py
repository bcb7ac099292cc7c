"""When a run ends by itself: caught up with the log as it was at the start, or exactly behind a GTID set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.errors import LogError, Where
from schemas.gtid import Flavor, GtidSet, parse_gtid_set
from spark_consumer.position import Position
from spark_consumer.slices import LoggedEpoch


@dataclass(frozen=True)
class Goal:
    """Both parts are optional; without any the run goes on until it is stopped.

    Attributes:
        epoch: the run may end once this epoch is applied.
        gtids: the run ends once these are applied, and nothing else behind them.
    """

    epoch: int | None = None
    gtids: GtidSet | None = None
    flavor: Flavor = "mysql"

    def reached(self, position: Position) -> bool:
        """Whether nothing is left to do."""
        if self.gtids is not None and position.executed_gtids:
            executed = parse_gtid_set(position.executed_gtids, self.flavor)
            if executed.contains(self.gtids):
                return True
        return self.epoch is not None and position.epoch >= self.epoch

    def up_to(self, position: Position, epochs: Sequence[LoggedEpoch]) -> list[LoggedEpoch]:
        """The epochs that may be applied. Raises LogError where the set ends inside one."""
        if self.gtids is None:
            return list(epochs)
        before = parse_gtid_set(position.executed_gtids, self.flavor)
        taken: list[LoggedEpoch] = []
        for logged in epochs:
            after = parse_gtid_set(logged.record.executed_gtids, self.flavor)
            if logged.record.transactions and not self.gtids.contains(after.minus(before)):
                if not before.contains(self.gtids):
                    raise self._inside(logged, taken)
                break
            taken.append(logged)
            before = after
        return taken

    @staticmethod
    def _inside(logged: LoggedEpoch, taken: Sequence[LoggedEpoch]) -> LogError:
        record = logged.record
        behind = taken[-1].record.executed_gtids if taken else "the present position"
        return LogError(
            "TR559",
            f"the GTID set to stop at ends inside epoch {record.epoch}, and an epoch is applied whole",
            where=Where(epoch=record.epoch, gtid=record.first_gtid),
            hint=f"stop at {behind} or at {record.executed_gtids}; a producer stopped with the same"
            " --stop-at-gtid ends its epoch there",
        )
