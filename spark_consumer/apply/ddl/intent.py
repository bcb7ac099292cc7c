"""The statements that a DDL becomes and which one runs now: the position's ``ddl_intent``, until all have run.

Between two starts the rules may change, and with them the statements. A DDL that was started is finished with the
statements it was started with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from schemas.ddl.classify import family
from schemas.wire.epoch import EpochCommitted, SchemaChanged
from spark_consumer.apply.ddl.snapshot import ACCOUNTS, Snapshot
from spark_consumer.apply.tables.error_log import Directive
from spark_consumer.ddl import online_tables
from spark_consumer.ddl.online_tables import OnlineTables, statement_of


class LeftOut(StrEnum):
    """Why a channel does not run what the upstream ran.

    Attributes:
        FILTERED: by tables, filters or routes.
        IGNORED: by [ddl].
        PASSED_OVER: the merged table needs nothing of it.
        ONLINE: it is an online schema change's.
        IN_PART: the channel has only some of the tables.
        SKIPPED, REPLACED: by an operator.
    """

    FILTERED = "filtered"
    IGNORED = "ignored"
    PASSED_OVER = "passed over"
    ONLINE = "online"
    IN_PART = "in part"
    SKIPPED = "skipped"
    REPLACED = "replaced"


@dataclass(frozen=True)
class TranslatedDdl:
    """The statements that a channel runs for a DDL.

    Attributes:
        statements: what it runs, in order.
        tables: the tables of online schema changes behind it.
        left_out: why it does not run what the upstream ran.
    """

    statements: Sequence[SchemaChanged]
    tables: OnlineTables
    left_out: Sequence[LeftOut] = ()

    @property
    def counts(self) -> dict[str, int]:
        """For the channel's counters."""
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
        place: the DDL's in the upstream. Not the epoch's number: after a crash `tailrace recover` may go on with it.
        translated: what it becomes. The text of a statement on accounts is left out.
        index: the statement in hand; those before it have run.
        number: the one that it has in the ledger.
        before: its objects before it ran; None: the downstream has refused it and it is not running.
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
        """The one in hand."""
        return self.translated.statements[self.index]

    def to_json(self) -> str:
        """For the position."""
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
    """The DDL in hand that a position holds; with ``place`` only if it is the one of that place."""
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
    """The epoch's place in the upstream."""
    return upstream_position(epoch.last_gtid, epoch.source_file, epoch.source_pos)


def upstream_position(gtid: str | None, file: str, pos: int) -> str:
    """A place in the upstream: a GTID, or without one a place in a binlog file."""
    return gtid or f"{file}:{pos}"


def _without_secrets(ddl: SchemaChanged) -> SchemaChanged:
    return replace(ddl, statement="") if family(ddl.kind) == ACCOUNTS else ddl


@dataclass(frozen=True)
class PendingDdl:
    """What remains to run of a DDL.

    Attributes:
        translated: what the channel makes of it.
        index: the next one of its statements.
        number: the last number of the ledger that is used.
        remaining: the rest of that statement if it was interrupted; ``before`` is what its objects were.
        directive: the operator's decision that it comes from.
    """

    translated: TranslatedDdl
    number: int
    index: int = 0
    remaining: SchemaChanged | None = None
    before: Snapshot | None = None
    directive: int | None = None

    @property
    def pending(self) -> range:
        """The statements that are to run."""
        return range(self.index, len(self.translated.statements))

    def statement(self, index: int) -> SchemaChanged:
        """What to run of one of them."""
        halfway = index == self.index and self.remaining is not None
        return self.remaining if halfway and self.remaining else self.translated.statements[index]

    def intent(self, place: str, index: int, before: Snapshot) -> Intent:
        """To write down before one of them runs; ``before`` is what its objects are now."""
        kept = self.before if index == self.index and self.remaining is not None else None
        number = self.number + 1 + index - self.index
        return Intent(place, self.translated, index, number, kept or before, self.directive)


@dataclass(frozen=True)
class DdlWork:
    """What is to be done about the DDL of a slice.

    Attributes:
        instead: an operator's statements that are no DDL, which run behind it in the slice's transaction.
        used: the operator's decision.
    """

    progress: PendingDdl
    instead: Sequence[str] = ()
    used: tuple[Directive, ...] = ()
