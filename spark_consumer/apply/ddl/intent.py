"""The statements of a DDL in progress and the index of the current one, in the position's ``ddl_intent``.

The rules may change between two starts, and with them the statements. A DDL that was started is finished with the
statements that it was started with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from schemas.ddl.kinds import family
from schemas.wire.epoch import EpochCommitted, SchemaChanged
from spark_consumer.apply.ddl.snapshot import ACCOUNTS, Snapshot
from spark_consumer.apply.tables.error_log import Directive
from spark_consumer.ddl import online_tables
from spark_consumer.ddl.online_tables import OnlineTables, statement_of


class LeftOut(StrEnum):
    """The reason why a channel does not run the upstream's statement.

    Attributes:
        FILTERED: tables, filters or routes leave it out.
        IGNORED: [ddl] leaves it out.
        PASSED_OVER: the merged table does not need it.
        ONLINE: it is part of an online schema change.
        IN_PART: only some of its tables are replicated.
        SKIPPED, REPLACED: an operator decided so.
        EXISTS: a copy starts, and its empty table is there.
        EMPTIED: a copy starts again, and its table was emptied.
    """

    FILTERED = "filtered"
    IGNORED = "ignored"
    PASSED_OVER = "passed over"
    ONLINE = "online"
    IN_PART = "in part"
    SKIPPED = "skipped"
    REPLACED = "replaced"
    EXISTS = "exists"
    EMPTIED = "emptied"


@dataclass(frozen=True)
class TranslatedDdl:
    """The statements that a channel runs for a DDL.

    Attributes:
        statements: the statements to run, in order.
        tables: the hidden tables of online schema changes after it.
        left_out: why the upstream's statement is not run.
    """

    statements: Sequence[SchemaChanged]
    tables: OnlineTables
    left_out: Sequence[LeftOut] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers to add to the channel's counters."""
        nothing = not self.statements
        return {
            "ddl_applied": int(not nothing),
            "ddl_left_out": int(nothing),
            "ddl_ignored": int(nothing and LeftOut.IGNORED in self.left_out),
            "ddl_passed_over": int(nothing and LeftOut.PASSED_OVER in self.left_out),
        }


@dataclass(frozen=True)
class Intent:
    """A DDL in progress.

    Attributes:
        place: the DDL's position upstream, not the epoch's number: after a crash `tailrace recover` may finish it.
        translated: the statements of the DDL, without the text of statements on accounts.
        index: the index of the current statement; those before it have run.
        number: the current statement's number in the ledger.
        before: its objects before it ran; None if the downstream has refused it and it is not running.
        directive: the operator's decision that the statements come from.
    """

    place: str
    translated: TranslatedDdl
    index: int
    number: int
    before: Snapshot | None
    directive: int | None = None

    @property
    def statement(self) -> SchemaChanged:
        """The current statement."""
        return self.translated.statements[self.index]

    def to_json(self) -> str:
        """Return the JSON text for the position."""
        fields: dict[str, Any] = {
            "place": self.place,
            "statements": [asdict(_without_secrets(one)) for one in self.translated.statements],
            "tables": self.translated.tables.to_json(),
            "left_out": list(self.translated.left_out),
            "index": self.index,
            "number": self.number,
            "before": self.before and self.before.to_fields(),
            "directive": self.directive,
        }
        return json.dumps(fields)


def intent_of(text: str | None, place: str | None = None) -> Intent | None:
    """Parse the intent in a position; None if there is none, or if ``place`` is given and it has another one."""
    fields: dict[str, Any] = json.loads(text) if text else {}
    if not fields or place not in (None, fields["place"]):
        return None
    translated = TranslatedDdl(
        tuple(map(statement_of, fields["statements"])),
        online_tables.from_json(fields["tables"]),
        tuple(map(LeftOut, fields["left_out"])),
    )
    before = fields["before"] and Snapshot.of(fields["before"])
    return Intent(fields["place"], translated, fields["index"], fields["number"], before, fields["directive"])


def upstream_position_of(epoch: EpochCommitted) -> str:
    """Return the epoch's position upstream."""
    return upstream_position(epoch.last_gtid, epoch.source_file, epoch.source_pos)


def upstream_position(gtid: str | None, file: str, pos: int) -> str:
    """Return a position upstream as text: a GTID, or without one a position in a binlog file."""
    return gtid or f"{file}:{pos}"


def _without_secrets(ddl: SchemaChanged) -> SchemaChanged:
    return replace(ddl, statement="") if family(ddl.kind) == ACCOUNTS else ddl


@dataclass(frozen=True)
class PendingDdl:
    """The statements of a DDL that are still to run.

    Attributes:
        translated: all statements of the DDL.
        index: the index of the next statement.
        number: the last used number of the ledger.
        remaining: the rest of that statement if it was interrupted; ``before`` is the snapshot of its objects.
        directive: the operator's decision that the statements come from.
    """

    translated: TranslatedDdl
    number: int
    index: int = 0
    remaining: SchemaChanged | None = None
    before: Snapshot | None = None
    directive: int | None = None

    @property
    def pending(self) -> range:
        """The indexes of the statements that are still to run."""
        return range(self.index, len(self.translated.statements))

    def statement(self, index: int) -> SchemaChanged:
        """Return the statement with this index, or the rest of it."""
        halfway = index == self.index and self.remaining is not None
        return self.remaining if halfway and self.remaining else self.translated.statements[index]

    def intent(self, place: str, index: int, before: Snapshot) -> Intent:
        """Return the intent to record before a statement runs; ``before`` is the snapshot of its objects now."""
        kept = self.before if index == self.index and self.remaining is not None else None
        number = self.number + 1 + index - self.index
        return Intent(place, self.translated, index, number, kept or before, self.directive)


@dataclass(frozen=True)
class DdlWork:
    """The work for the DDL of a slice.

    Attributes:
        instead: an operator's statements that are not DDL; they run after it in the slice's transaction.
        used: the operator's decision.
    """

    progress: PendingDdl
    instead: Sequence[str] = ()
    used: tuple[Directive, ...] = ()
