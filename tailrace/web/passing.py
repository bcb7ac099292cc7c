"""Follows the epochs topic for the page: the last epochs with their DDL, and how many rows have passed."""

from __future__ import annotations

from collections import deque
from typing import Any

from schemas.errors import LogError
from schemas.wire.epoch import EpochCommitted
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.plan.refusal import cut_values
from spark_consumer.rules.config import LogAddress

Part = dict[str, Any]
_KEPT = 200  # epochs
_SHOWN_TABLES = 5
_SHOWN_DDL = 300  # characters
_BACK = 2_000  # offsets; each transaction of Kafka's takes one more, and a quiet upstream has epochs too


class PassingEpochs:
    """The end of the log, read a piece further with each call of ``read``; epochs without content are left out.

    Attributes:
        rows: row changes that were published since the first read.
    """

    def __init__(self, log: LogAddress) -> None:
        self._log = log
        self._offset: int | None = None
        self._kept: deque[Part] = deque(maxlen=_KEPT)
        self.rows = 0

    def read(self) -> None:
        """Read what is new. Raises LogError."""
        reader = LogReader(self._log)
        low, high = reader.bounds()
        is_first = self._offset is None or self._offset >= high
        if is_first:
            # The topic was created again if it is shorter than before.
            self._offset = max(low, high - _BACK) - 1
            self._kept.clear()
        assert self._offset is not None
        try:
            for logged in reader.epochs(max(self._offset + 1, low)):
                self._take(logged.record, logged.offset, is_first)
        except LogError as error:
            if error.code != "TR551":
                raise
            # Kafka has deleted epochs while nobody looked.
            self._offset = None

    def last(self, count: int) -> list[Part]:
        """Return the last epochs, the newest first."""
        return list(self._kept)[: -count - 1 : -1]

    def _take(self, record: EpochCommitted, offset: int, is_first: bool) -> None:
        self._offset = offset
        self.rows += 0 if is_first else record.rows
        # Of a quiet upstream there is one every ten seconds.
        if not record.is_quiet:
            self._kept.append(epoch_part(record))


def epoch_part(record: EpochCommitted) -> Part:
    """Return what the page shows of an epoch, as plain data."""
    names = [f"{table.db}.{table.table}" for table in record.tables]
    copy = record.copy
    return {
        "epoch": record.epoch,
        "published_ms": record.published_ms,
        "committed_ms": record.last_commit_ms if record.transactions else None,
        "transactions": record.transactions,
        "rows": record.rows,
        "first_gtid": record.first_gtid,
        "last_gtid": record.last_gtid,
        "tables": names[:_SHOWN_TABLES],
        "more_tables": max(0, len(names) - _SHOWN_TABLES),
        # Values may be secrets, such as a password in a comment or a default.
        "ddl": cut_values(record.ddl.shown, _SHOWN_DDL) if record.ddl is not None else None,
        "copy": None if copy is None else f"{copy.step} {copy.db}.{copy.table}",
    }
