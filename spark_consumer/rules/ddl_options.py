"""The options for DDL on views, programs and accounts, and for the tables of online schema change tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from schemas.errors import ConfigError

DdlAction = Literal["apply", "ignore", "stop"]
#: DM's defaults: gh-ost's _t_gho and pt-online-schema-change's _t_new; gh-ost's _t_ghc and _t_del, pt-osc's _t_old
SHADOW_RULES = ("^_(.+)_(?:new|gho)$",)
TRASH_RULES = ("^_(.+)_(?:ghc|del|old)$",)


@dataclass(frozen=True)
class DdlOptions:
    """One channel's ``[ddl]``, with the default and the description of each field.

    Triggers are never applied, and events only as disabled on a replica: the binlog has the rows that they wrote
    upstream, so they would write them twice. The rules for table names are regular expressions whose first group is
    the real table's name.

    Raises:
        ConfigError: TR135, a rule is not valid.
    """

    views: Annotated[DdlAction, Field(description="CREATE, ALTER and DROP VIEW: apply, ignore or stop")] = (
        "apply"
    )
    routines: Annotated[
        DdlAction, Field(description="procedures, functions, packages, libraries: apply, ignore or stop")
    ] = "apply"
    events: Annotated[
        DdlAction,
        Field(
            description="events: apply (as disabled on a replica, because the binlog has the rows that they write),"
            " ignore or stop"
        ),
    ] = "apply"
    triggers: Annotated[
        Literal["ignore", "stop"],
        Field(description="triggers: ignore or stop; the binlog has the rows that they write"),
    ] = "ignore"
    accounts: Annotated[
        DdlAction,
        Field(
            description=(
                "users, roles, grants, passwords: apply, ignore or stop; the producer publishes them, passwords"
                " included, only if this is apply outside of [channel.…]"
            )
        ),
    ] = "ignore"
    engines: Annotated[
        Literal["upstream", "innodb"],
        Field(
            description=(
                "engine of tables that have an engine without transactions upstream (MyISAM, Aria, MEMORY, CSV,"
                " ARCHIVE): upstream (the same) or innodb"
            )
        ),
    ] = "upstream"
    online_ddl: Annotated[
        bool,
        Field(
            description="apply gh-ost and pt-online-schema-change migrations as one ALTER of the real table"
        ),
    ] = False
    shadow_table_rules: Annotated[
        tuple[str, ...],
        Field(
            description="regular expressions for the tables that the tools fill; the group is the real table"
        ),
    ] = SHADOW_RULES
    trash_table_rules: Annotated[
        tuple[str, ...],
        Field(description="regular expressions for the tools' temporary tables; the group is the real table"),
    ] = TRASH_RULES

    def __post_init__(self) -> None:
        for text in (*self.shadow_table_rules, *self.trash_table_rules):
            try:
                groups = re.compile(text).groups
            except re.error as error:
                raise _unusable(text, str(error)) from None
            if groups != 1:
                raise _unusable(text, f"it has {groups} groups")

    def of(self, family: str) -> DdlAction:
        """Return the action for DDL on a family of objects; "apply" for tables and families without a setting."""
        found: DdlAction = getattr(self, family) if family else "apply"
        return found

    def shadow_of(self, table: str) -> str | None:
        """Return the real table's name if ``table`` is a shadow table; otherwise None."""
        return _first(self.shadow_table_rules, table)

    def trash_of(self, table: str) -> str | None:
        """Return the real table's name if ``table`` is a tool's temporary table; otherwise None."""
        return _first(self.trash_table_rules, table)


def _first(rules: tuple[str, ...], table: str) -> str | None:
    for rule in rules:
        if match := re.search(rule, table):
            return match[1]
    return None


def _unusable(text: str, why: str) -> ConfigError:
    return ConfigError(
        "TR135",
        f"ddl: {text!r} is not a valid table name rule: {why}",
        hint="write a regular expression in '…' with one group, which is the real table's name",
    )
