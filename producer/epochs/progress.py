"""How far publishing has come, for displays and logs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from relay_store.layout.directory import RelayPosition
from schemas.wire.epoch import EpochCommitted, operations_of


@dataclass
class PublishProgress:
    """Counters of this run; one thread writes, any thread may read.

    Attributes:
        read: up to here the relay log is decoded.
        waiting: first commit time of each sealed epoch that is not in Kafka yet, ms since 1970; 0 without one.
        paused: since when an operator has paused publishing, while that is obeyed.
        open_ms: of the oldest transaction behind them that was decoded; 0 without one.
        operations: rows by what happened to them: insert, update, delete, copy.
        commit_s: seconds that commits took.
        commit_began: when the commit that is under way began, seconds, monotonic; None if none is.
        complete_ms: until when the log has all that was committed upstream, ms since 1970; 0 while nobody knows.
    """

    rows: int = 0
    epochs: int = 0
    transactions: int = 0
    epoch: int = -1
    position: RelayPosition | None = None
    gtid: str | None = None
    executed_gtids: str = ""
    read: RelayPosition | None = None
    waiting: list[int] = field(default_factory=list)
    open_ms: int = 0
    paused: str | None = None
    skipped: Counter[str] = field(default_factory=Counter)
    operations: Counter[str] = field(default_factory=Counter)
    commit_s: float = 0.0
    commit_began: float | None = None
    complete_ms: int = 0

    def lag_s(self, durable: RelayPosition | None, now: float) -> float | None:
        """Age of the oldest transaction in the relay log that is not in Kafka, seconds; 0 if there is none.

        Args:
            durable: the relay log's end.
            now: seconds since 1970.

        Returns None while it is unknown: the relay log, or what is in it, was not read yet.
        """
        oldest = next(filter(None, (*self.waiting, self.open_ms)), None)
        if oldest is not None:
            return max(0.0, now - oldest / 1000)
        is_read = self.read is not None and durable is not None and self.read.order >= durable.order
        return 0.0 if is_read else None

    def resumes(self, begin: RelayPosition, last: EpochCommitted | None) -> None:
        """Publishing begins here, behind the log's last epoch."""
        self.read = begin
        if last is not None:
            self.complete_ms = last.complete_ms
            self.epoch, self.position, self.executed_gtids = last.epoch, begin, last.executed_gtids

    def decoded(self, here: RelayPosition, oldest_ms: int) -> None:
        """The relay log is decoded up to here. Args: ``oldest_ms`` as ``open_ms``."""
        self.read, self.open_ms = here, oldest_ms

    def sealed(self, first_commit_ms: int) -> None:
        """The open epoch is to be committed."""
        self.waiting.append(first_commit_ms)
        self.open_ms = 0

    def begins_commit(self, now: float) -> None:
        """An epoch is handed to Kafka; ``now`` as ``commit_began``."""
        self.commit_began = now

    def ends_commit(self, now: float) -> None:
        """Kafka has it; ``now`` as ``commit_began``."""
        self.commit_s += now - (self.commit_began or now)
        self.commit_began = None

    def committed(self, epoch: EpochCommitted) -> None:
        """Count an epoch that is in Kafka."""
        self.rows += epoch.rows
        self.operations += operations_of([epoch])
        self.complete_ms = epoch.complete_ms
        self.transactions += epoch.transactions
        self.epochs += 1
        self.epoch = epoch.epoch
        self.position = RelayPosition(epoch.relay_dir, epoch.relay_file, epoch.relay_pos)
        self.executed_gtids, self.gtid = epoch.executed_gtids, epoch.last_gtid
        del self.waiting[:1]
        for passed in epoch.skipped:
            self.skipped[f"{passed.db}.{passed.table} {passed.kind}"] += passed.events
