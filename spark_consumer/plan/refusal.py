"""The event that the downstream refused: which one it is, and how it is shown."""

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
    """TR620 to TR629: a DDL cannot be applied as it is."""


class DdlInDoubt(DdlRefused):
    """TR621: unknown whether an interrupted DDL ran."""


@dataclass(frozen=True)
class Event:
    """One row's change, or one DDL.

    Attributes:
        epoch: its epoch.
        seq: its number within that, ``DDL`` for a DDL.
        digest: CRC-32 of the record, or of the DDL's text: the same numbers in another log are another event.
        key: what finds the row on the downstream.
        file: upstream binlog file; ``pos`` is the place of the event in it.
        relay: relay file and the position in it at which the epoch ends.
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
        """What must be the same for it to be the same event."""
        return self.epoch, self.seq, self.gtid, self.digest

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class EventRefused(DownstreamError):
    """The downstream refused this event; ``refusal`` is its error."""

    def __init__(self, error: TailraceError, event: Event, table: str | None, statement: str) -> None:
        where = Where(event.gtid, event.file, event.pos, table, event.epoch, event.id, event.relay)
        row = "" if event.seq == DDL else f". Row: {event.key}."
        hint = (
            f"{error.hint}. Or let it go: `tailrace error skip`, or `tailrace error replace --sql '…'`, for event"
            f" {event.id}"
        )
        super().__init__(
            error.code, error.what + row, where=where, hint=hint, applied=error.applied, statement=statement
        )
        self.event, self.refusal = event, error


def ddl_event(slice_: Slice) -> Event:
    """The event of a slice's DDL."""
    one = slice_.first
    text = one.ddl.statement if one.ddl else ""
    relay = f"{one.relay_dir}/{one.relay_file}:{one.relay_pos}"
    return Event(
        one.epoch, DDL, one.last_gtid, crc32(text.encode()), "", one.source_file, one.source_pos, relay
    )


def cut_values(sql: str, most: int = _MOST) -> str:
    """A statement for people: long values cut short, and all of it to ``most`` characters."""

    def shorter(found: re.Match[str]) -> str:
        if found[1] is not None:
            return f"'{found[1]}…'"
        return f"{found[2]}{found[3]}…" + ("'" if found[2].endswith("'") else "")

    # What comes much later is not shown anyway, and a value may have megabytes.
    text = _LITERAL.sub(shorter, sql[: 1 << 20])
    return text if len(text) <= most else text[:most] + "…"
