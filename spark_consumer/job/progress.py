"""The counters of a run, for logs, progress and status."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, field

import structlog

from schemas.wire.epoch import operations_of
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.counters import NOTHING_COUNTED, Applied, RowCounts

_log = structlog.get_logger()


@dataclass
class Counters:
    """Sums since the start. One thread writes them and any thread reads them; plain numbers need no lock."""

    batches: int = 0
    epochs: int = 0
    rows: int = 0
    statements: int = 0
    ddl: int = 0
    row_counts: RowCounts = NOTHING_COUNTED
    position: Position | None = None  # None until it has been read
    position_epoch: int = -1
    executed_gtids: str = ""
    operations: Counter[str] = field(default_factory=Counter)  # rows: insert, update, delete, copy
    complete_ms: int = 0  # of the last epoch that was applied in this run
    read_s: float = 0.0  # seconds that slices were waited for
    apply_s: float = 0.0  # seconds that slices took to be applied
    rows_per_s: float = 0.0
    in_hand: Slice | None = None
    in_hand_since: float = 0.0  # seconds since 1970
    paused: str | None = None  # since when an operator has paused the channel, while that is obeyed
    started: float = field(default_factory=time.monotonic)

    def at(self, position: Position) -> None:
        """Set the current position."""
        self.position = position
        self.position_epoch = position.epoch
        self.executed_gtids = position.executed_gtids

    def pauses(self, since: str | None) -> None:
        """Record and log that the channel stands still, or goes on."""
        if since is not None and self.paused is None:
            _log.info(
                "channel_paused", since=since, epoch=self.position_epoch, remedy="tailrace resume channel"
            )
        elif since is None and self.paused is not None:
            _log.info("channel_resumed", epoch=self.position_epoch)
        self.paused = since

    def begins(self, slice_: Slice) -> None:
        """Record the start of a slice."""
        self.in_hand, self.in_hand_since = slice_, time.time()

    def applied(
        self, slice_: Slice, position: Position, applied: Applied, read_s: float, apply_s: float
    ) -> None:
        """Record an applied slice, and the seconds that it was waited for and took."""
        seconds = read_s + apply_s
        self.read_s += read_s
        self.apply_s += apply_s
        self.at(position)
        if position.epoch == slice_.last.epoch:
            self.complete_ms = slice_.last.complete_ms
        self.operations += operations_of(logged.record for logged in slice_.epochs)
        self.in_hand = None
        self.batches += 1
        self.epochs += len(slice_.epochs)
        self.rows += slice_.rows
        self.statements += applied.statements
        self.ddl += slice_.ddl is not None
        self.row_counts += applied.row_counts
        self.rows_per_s = slice_.rows / seconds if seconds > 0 else 0.0
        oldest = next((one.record.first_commit_ms for one in slice_.epochs if one.record.transactions), 0)
        latency = round(max(0.0, time.time() - oldest / 1000), 3) if oldest else None
        emit = _log.info if slice_.rows or slice_.ddl else _log.debug
        emit(
            "batch_applied",
            first_epoch=slice_.first.epoch,
            last_epoch=slice_.last.epoch,
            rows=slice_.rows,
            statements=applied.statements,
            **{stage: count for stage, count in asdict(applied.row_counts).items() if count},
            rows_per_s=round(self.rows_per_s),
            # Seconds since the upstream's commit of the batch's oldest transaction.
            latency_s=latency,
            source=f"{slice_.last.source_file}:{slice_.last.source_pos}",
            gtid=slice_.last.last_gtid,
        )
