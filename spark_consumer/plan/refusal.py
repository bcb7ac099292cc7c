"""The errors for an event that the downstream refused, and the event's identity."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from schemas.errors import DDL, DownstreamError, EventId, TailraceError, Where

if TYPE_CHECKING:
    from spark_consumer.epochs.slices import Slice

_LITERAL = re.compile(r"'((?:[^']|''){40})(?:[^']|'')*'|\b(0[xX]|[xX]')([0-9a-fA-F]{40})[0-9a-fA-F]*'?")
_MOST = 2000


class RowRefused(DownstreamError):
    """TR603, TR604, TR608: the downstream refused a row, or changed other rows than the log says."""


class DdlRefused(DownstreamError):
    """TR620 to TR629: a DDL cannot be applied."""


class DdlInDoubt(DdlRefused):
    """TR621: it is not known whether an interrupted DDL ran."""


@dataclass(frozen=True)
class Event:
    """One row's change, or one DDL.

    Attributes:
        epoch: the event's epoch.
        seq: the row's number in the epoch; ``DDL`` for a DDL.
        digest: CRC-32 of the record or of the DDL's text, because another log may have the same numbers.
        key: the condition that finds the row on the downstream.
        file: the upstream's binlog file; ``pos`` is the event's position in it.
        relay: the relay file and the position in it at which the epoch ends.
    """

    epoch: int
    seq: int
    gtid: str | None
    digest: int
    key: str
    file: str
    pos: int
    relay: str

    @property
    def id(self) -> EventId:
        return EventId(self.epoch, self.seq)

    @property
    def identity(self) -> tuple[int, int, str | None, int]:
        """The fields that identify the event in all logs."""
        return self.epoch, self.seq, self.gtid, self.digest

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class EventRefused(DownstreamError):
    """The downstream refused this event; ``refusal`` is its error."""

    def __init__(self, error: TailraceError, event: Event, table: str | None, statement: str) -> None:
        where = Where(event.gtid, event.file, event.pos, table, event.epoch, event.id, event.relay)
        row = "" if event.seq == DDL else f". Row: {event.key}."
        hint = (
            f"{error.hint}. Or leave it out: `tailrace error skip`, or `tailrace error replace --sql '…'`, for event"
            f" {event.id}"
        )
        super().__init__(
            error.code,
            error.message + row,
            where=where,
            hint=hint,
            applied=error.applied,
            statement=statement,
        )
        self.event, self.refusal = event, error


def ddl_event(slice_: Slice) -> Event:
    """Return the event of a slice's DDL."""
    one = slice_.first
    text = one.ddl.statement if one.ddl else ""
    relay = f"{one.relay_dir}/{one.relay_file}:{one.relay_pos}"
    return Event(
        one.epoch, DDL, one.last_gtid, crc32(text.encode()), "", one.source_file, one.source_pos, relay
    )


def cut_values(sql: str, most: int = _MOST) -> str:
    """Shorten a statement for messages: long values, and the whole text to ``most`` characters."""

    def shorter(found: re.Match[str]) -> str:
        if found[1] is not None:
            return f"'{found[1]}…'"
        return f"{found[2]}{found[3]}…" + ("'" if found[2].endswith("'") else "")

    # Only the start is shown, and a value may have megabytes.
    text = _LITERAL.sub(shorter, sql[: 1 << 20])
    return text if len(text) <= most else text[:most] + "…"
