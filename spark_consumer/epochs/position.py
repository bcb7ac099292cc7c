"""A channel's position in the log, as a value; ``apply.tables.position_store`` keeps it on the downstream."""

from __future__ import annotations

import json
import uuid
import zlib
from dataclasses import asdict, dataclass, replace

from schemas.wire.epoch import EpochCommitted, PreparedTransaction
from spark_consumer.epochs.log_position import ChannelBegin, LogPosition, order_of


@dataclass(frozen=True)
class Position:
    """Where a channel stands; every field is as of the last commit.

    Attributes:
        epoch: the last one that is applied whole.
        executed_gtids: everything that is applied.
        relay_log: sub-directory and file of the relay log; None once that was forgotten.
        epoch_gtids: None where the epoch is all that is applied, else the executed set at its end: the position is
            inside the next epoch, or ``tailrace recover`` has gone on, up to the relay position.
        xa_prepared: JSON of the prepared transactions whose end is still to come; None without any.
        epoch_rows: inside the next epoch, how many of its rows are applied; None at an epoch's end.
        rewound_from: JSON of the place where the channel stood before it was rewound; None once it is there again.
        log_id: the epoch log that the place is in; None before the first epoch.
        origins: ids of the servers and logs that the rows come from, with spaces between them.
    """

    epoch: int
    epochs_offset: int
    executed_gtids: str
    fencing_token: int
    structures_version: int
    ledger_uuid: str
    ledger_domain: int
    ledger_seq: int
    ddl_intent: str | None
    relay_log: str | None = None
    relay_pos: int | None = None
    source_log: str | None = None
    source_pos: int | None = None
    epoch_gtids: str | None = None
    xa_prepared: str | None = None
    epoch_rows: int | None = None
    rewound_from: str | None = None
    online_tables: str | None = None
    log_id: str | None = None
    origins: str | None = None

    @classmethod
    def first(cls, begin: ChannelBegin) -> Position:
        """The position of a channel that has applied nothing."""
        ledger = str(uuid.uuid4())
        position = cls(
            epoch=begin.log_position.epoch,
            epochs_offset=begin.log_position.offset,
            executed_gtids=begin.log_position.executed,
            fencing_token=0,
            structures_version=-1,
            ledger_uuid=ledger,
            # Domain 0 is everybody's default, so it is never ours.
            ledger_domain=(zlib.crc32(ledger.encode()) or 1) & 0xFFFFFFFF,
            ledger_seq=0,
            ddl_intent=None,
        )
        if begin.last is not None:
            position = position.at_end_of(begin.last)
        return replace(
            position,
            executed_gtids=begin.log_position.executed,
            epoch_gtids=begin.log_position.epoch_gtids,
            epoch_rows=begin.log_position.rows,
            # The relay log's place says where to go on; of the upstream's nothing was executed yet.
            source_log=None,
            source_pos=None,
        )

    @property
    def order(self) -> tuple[int, int]:
        """Sorts positions and places of one log."""
        return order_of(self.epoch, self.epoch_rows)

    @property
    def log_position(self) -> LogPosition:
        """Where it is in the epoch log."""
        return LogPosition(
            self.epoch, self.epochs_offset, self.executed_gtids, self.epoch_rows, self.epoch_gtids
        )

    @property
    def repeat_until(self) -> LogPosition | None:
        """Up to where everything is applied for a second time, after a rewind."""
        return LogPosition.from_json(self.rewound_from) if self.rewound_from else None

    def repeats(self, order: tuple[int, int]) -> bool:
        """Whether what ends at a place is applied for a second time."""
        return self.repeat_until is not None and order <= self.repeat_until.order

    @property
    def recovered(self) -> bool:
        """Whether ``tailrace recover`` has applied what the epochs behind ``epoch`` hold."""
        return self.epoch_gtids is not None and self.epoch_rows is None

    @property
    def gtids_of_epoch(self) -> str:
        """The executed set at the end of ``epoch``."""
        return self.executed_gtids if self.epoch_gtids is None else self.epoch_gtids

    def at_end_of(self, record: EpochCommitted) -> Position:
        """With the data's place moved to the end of an epoch; the epoch's own number is another matter."""
        return replace(
            self,
            executed_gtids=record.executed_gtids,
            relay_log=f"{record.relay_dir}/{record.relay_file}",
            relay_pos=record.relay_pos,
            source_log=record.source_file,
            source_pos=record.source_pos,
            xa_prepared=json.dumps([asdict(p) for p in record.prepared]) if record.prepared else None,
            log_id=record.log_id or self.log_id,
            origins=" ".join(record.origins) or self.origins,
        )

    @property
    def prepared(self) -> tuple[PreparedTransaction, ...]:
        """The XA transactions that are prepared and undecided at the position."""
        return tuple(PreparedTransaction(**fields) for fields in json.loads(self.xa_prepared or "[]"))
