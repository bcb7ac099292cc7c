"""What a channel does with DDL on other things than tables, and with the tables of online schema change tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from schemas.errors import ConfigError

DdlAction = Literal["apply", "ignore", "stop"]
#: DM's: gh-ost's _t_gho and pt-online-schema-change's _t_new; gh-ost's _t_ghc and _t_del, pt-osc's _t_old
SHADOW_RULES = ("^_(.+)_(?:new|gho)$",)
TRASH_RULES = ("^_(.+)_(?:ghc|del|old)$",)


@dataclass(frozen=True)
class DdlOptions:
    """One channel's ``[ddl]``: each field with its default and its meaning.

    Triggers are never applied, and events only as disabled on a replica: the binlog holds the rows that they wrote
    upstream, so they would write them twice. The rules for tables' names are regular expressions whose first group is
    the real table's name.

    Raises:
        ConfigError: TR135, a rule that cannot be one.
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
            description="events: apply (as disabled on a replica, since the binlog holds what they write), ignore"
            " or stop"
        ),
    ] = "apply"
    triggers: Annotated[
        Literal["ignore", "stop"],
        Field(description="triggers: ignore or stop; the binlog holds what they write"),
    ] = "ignore"
    accounts: Annotated[
        DdlAction,
        Field(
            description=(
                "users, roles, grants, passwords: apply, ignore or stop; only with apply outside of [channel.…]"
                " does the producer publish them, passwords and all"
            )
        ),
    ] = "ignore"
    engines: Annotated[
        Literal["upstream", "innodb"],
        Field(
            description=(
                "tables of engines without transactions (MyISAM, Aria, MEMORY, CSV, ARCHIVE): as upstream, or in"
                " InnoDB"
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
        Field(description="names of the tables that these tools fill; the group is the real one"),
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
        """What becomes of a family of objects; tables and all that has no setting are applied."""
        found: DdlAction = getattr(self, family) if family else "apply"
        return found

    def shadow_of(self, table: str) -> str | None:
        """The real table's name, if this is one of a shadow table."""
        return _first(self.shadow_table_rules, table)

    def trash_of(self, table: str) -> str | None:
        """The real table's name, if this is one of a table that a tool throws away."""
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
        hint="write a regular expression with one group, which is the real table's name, in '…'",
    )
