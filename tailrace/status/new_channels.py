"""Tells from where a new channel could begin."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from schemas.wire.epoch import COPY, ORIGIN, EpochCommitted


@dataclass(frozen=True)
class NewChannels:
    """Where a new channel begins with the topics as they are now.

    Attributes:
        begin: at the beginning of the log, or with a complete copy; None if no channel can begin.
        epoch: the epoch after which it begins; if it cannot, the oldest one that is kept.
        whole: whether it lacks nothing that was written before.
    """

    begin: Literal["log", "copy"] | None
    epoch: int
    whole: bool

    @classmethod
    def of(cls, first: EpochCommitted, copied: int | None, *, has_first_rows: bool) -> NewChannels:
        """Find it out.

        Args:
            first: the oldest epoch that is kept.
            copied: the epoch with which the oldest complete copy began that is kept; None if there is none.
            has_first_rows: whether no rows were deleted.
        """
        begins = first.epoch == 0 and has_first_rows
        if begins and first.log_begins in (ORIGIN, COPY):
            return cls("log", first.epoch, whole=True)
        if copied is not None:
            return cls("copy", copied, whole=True)
        return cls("log" if begins else None, first.epoch, whole=False)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @property
    def text(self) -> str:
        """The same in words."""
        if self.begin == "copy":
            return f"a new channel begins with the complete copy after epoch {self.epoch}"
        if self.begin is None:
            return (
                "the log's beginning was deleted, and no complete copy is in it, so no new channel can begin"
            )
        lacks = "" if self.whole else ", and needs a copy of the tables as they were there"
        return f"a new channel begins at the log's beginning{lacks}"
