"""Reads from the epoch log how far copies of tables are, and which of them a channel has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from producer.copy.progress import CopyProgress, incomplete_at
from producer.copy.state import COMPLETED_KEY, CompleteCopies, Plan, TableCopy, check_record, load
from schemas.tables import QualifiedName
from schemas.wire.log_records import At, no_record
from spark_consumer.epochs.log_reader import LogReader
from spark_consumer.rules.config import LogAddress
from tailrace.service.copy_progress import copy_part

Part = dict[str, Any]


class LoggedCopies:
    """What the log says of copies.

    Args:
        records: those of the tracked topic that are of copies.
    """

    def __init__(self, records: Mapping[bytes, bytes]) -> None:
        self._plan: Plan | None
        self._tables: dict[QualifiedName, TableCopy]
        self._plan, self._tables = load(records)
        completed = records.get(COMPLETED_KEY)
        self._complete = CompleteCopies() if completed is None else CompleteCopies.decode(completed)

    @classmethod
    def read(cls, log: LogAddress) -> LoggedCopies:
        """Read them. Raises LogError."""
        found: dict[bytes, bytes] = {}
        for offset, key, value in LogReader(log).tracked():
            if value is None:
                found.pop(key or b"", None)
                continue
            try:
                if check_record(key or b"", value):
                    found[key or b""] = value
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                at = At(log.tracked_topic, offset)
                raise no_record(at, "the record is of no table's copy", error) from error
        return cls(found)

    def part(self) -> Part:
        """Return the part of the report."""
        return copy_part(CopyProgress.of(self._plan, self._tables))

    def complete_after(self, epoch: int) -> int | None:
        """Return the epoch with which the oldest complete copy began, of those that began at an epoch or later."""
        return min((began for began in self._complete.began if began >= epoch), default=None)

    def next_for_new(self, every: float) -> int | None:
        """Return when the next copy for new channels is due, in ms since 1970; None if none is made, or one runs.

        Args:
            every: ``[copy] every``, in seconds.
        """
        if not every or CopyProgress.of(self._plan, self._tables).for_new_channels:
            return None
        return int(max(0, self._complete.asked) + every * 1000)

    def incomplete_at(self, epoch: int) -> list[str]:
        """Return the tables whose copies are not complete at the end of an epoch."""
        return incomplete_at(self._plan, self._tables, epoch)
