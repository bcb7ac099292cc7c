"""The binlog event filter: which kinds of events of which tables are replicated, with DM's semantics.

Every rule that matches the schema and table applies. A rule that ignores drops the events it names; a rule that
does drops all other events of its tables. An event is dropped if any rule drops it, so the order of rules does not
matter. A rule without a table pattern applies to the schema and all its tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from schemas.errors import ConfigError
from schemas.tables import compile_pattern

DML = ("insert", "update", "delete")
DDL = (
    *(
        f"{verb} {what}"
        for what in ("database", "table", "view", "sequence")
        for verb in ("create", "alter", "drop")
    ),
    "create index",
    "drop index",
    "rename table",
    "truncate table",
)
_GROUPS = ("all", "all dml", "all ddl", "none", "none dml", "none ddl")
#: the words that are allowed in `events`
EVENTS = (*_GROUPS, *DML, *DDL)


def event_name(text: str) -> str:
    """Return an event in the spelling of ``EVENTS``. Raises ConfigError TR133 for an unknown one."""
    name = " ".join(text.lower().split()).replace("schema", "database")
    if name not in EVENTS:
        raise ConfigError("TR133", f"filters: unknown event {text!r}", hint=f"events are {', '.join(EVENTS)}")
    return name


@dataclass(frozen=True)
class EventRule:
    """One rule of ``[[filters]]``. The first of its ``events`` that covers an event decides.

    Raises:
        ConfigError: TR133, an event or an expression is not valid.
    """

    schema_pattern: Annotated[
        str, Field(min_length=1, description="schemas, with * and ? as wildcards", examples=["shop"])
    ]
    action: Annotated[
        Literal["Do", "Ignore"],
        Field(
            description="Ignore drops these events, Do drops all others of these tables", examples=["Ignore"]
        ),
    ]
    table_pattern: Annotated[
        str | None,
        Field(
            min_length=1,
            description="tables; without it the rule applies to the schema's own DDL and all its tables",
            examples=["log_*"],
        ),
    ] = None
    events: Annotated[
        tuple[str, ...],
        Field(
            description="insert, update, delete, create table, …, all, all dml, all ddl, none, none dml, none ddl",
            examples=[["delete", "truncate table", "drop table"]],
        ),
    ] = ()
    sql_pattern: Annotated[
        tuple[str, ...],
        Field(
            description="regular expressions for the text of DDL, not case-sensitive",
            examples=[["^DROP\\s+PROCEDURE"]],
        ),
    ] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(map(event_name, self.events)))
        for text in self.sql_pattern:
            try:
                re.compile(text)
            except re.error as error:
                raise ConfigError(
                    "TR133",
                    f"filters: invalid regular expression {text!r}: {error}",
                    hint="write it in '…' in the TOML file",
                ) from None

    def fits(self, db: str, table: str | None) -> bool:
        """Whether the rule applies to a table, or (None) to the schema itself."""
        if not compile_pattern(self.schema_pattern).fullmatch(db):
            return False
        if self.table_pattern is None:
            return True
        return table is not None and bool(compile_pattern(self.table_pattern).fullmatch(table))

    def drops(self, event: str, sql: str | None) -> bool:
        """Whether the rule drops an event of a table to which it applies."""
        if self._names(event) == (self.action == "Ignore"):
            return True
        if sql is None or not self.sql_pattern:
            return False
        return (self._sql.search(sql) is not None) == (self.action == "Ignore")

    def _names(self, event: str) -> bool:
        kind = "dml" if event in DML else "ddl"
        for name in self.events:
            if name in ("all", f"all {kind}", event):
                return True
            if name in ("none", f"none {kind}"):
                return False
        return False

    @cached_property
    def _sql(self) -> re.Pattern[str]:
        return re.compile("|".join(f"(?:{text})" for text in self.sql_pattern), re.IGNORECASE)


@dataclass(frozen=True)
class EventFilter:
    """All event rules of a channel."""

    rules: tuple[EventRule, ...] = ()

    def drops(self, db: str, table: str | None, event: str, sql: str | None = None) -> bool:
        """Whether an event is dropped; ``table`` is None for DDL on the schema itself, ``sql`` DDL's text."""
        return any(rule.drops(event, sql) for rule in self.rules if rule.fits(db, table))

    def dropped_dml(self, db: str, table: str) -> frozenset[str]:
        """Return the kinds of row changes of a table that are dropped."""
        return frozenset(event for event in DML if self.drops(db, table, event))


def rule_hint(events: Iterable[str], db: str, table: str | None) -> str:
    """Return the text of a rule that ignores these events, for an error's hint."""
    where = f'schema-pattern = "{db}"' + (f', table-pattern = "{table}"' if table else "")
    names = ", ".join(f'"{event}"' for event in events)
    return f'[[filters]] {where}, events = [{names}], action = "Ignore"'
