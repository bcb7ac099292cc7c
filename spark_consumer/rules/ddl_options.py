"""What a channel does with DDL on other things than tables, and with the tables of online schema change tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from schemas.errors import ConfigError

Carry = Literal["apply", "ignore", "stop"]
#: DM's: gh-ost's _t_gho and pt-online-schema-change's _t_new; gh-ost's _t_ghc and _t_del, pt-osc's _t_old
SHADOW_RULES = ("^_(.+)_(?:new|gho)$",)
TRASH_RULES = ("^_(.+)_(?:ghc|del|old)$",)


@dataclass(frozen=True)
class DdlOptions:
    """One channel's ``[ddl]``.

    Attributes:
        triggers: never applied: the binlog holds the rows that they wrote upstream, so a trigger on the
            downstream would write them twice.
        events: ``apply`` makes them as disabled on a replica, for the same reason.
        engines: ``innodb`` makes tables of engines without transactions in InnoDB, ``upstream`` as they are there.
        online_ddl: whether a schema change tool's work is one ALTER of the real table.
        shadow_table_rules: names of the tables in which the tools build the new table: regular expressions
            whose first group is the real table's name.
        trash_table_rules: the same for what the tools throw away.

    Raises:
        ConfigError: TR135, a rule that cannot be one.
    """

    views: Carry = "apply"
    routines: Carry = "apply"
    events: Carry = "apply"
    triggers: Literal["ignore", "stop"] = "ignore"
    accounts: Carry = "ignore"
    engines: Literal["upstream", "innodb"] = "upstream"
    online_ddl: bool = False
    shadow_table_rules: tuple[str, ...] = SHADOW_RULES
    trash_table_rules: tuple[str, ...] = TRASH_RULES

    def __post_init__(self) -> None:
        for text in (*self.shadow_table_rules, *self.trash_table_rules):
            try:
                groups = re.compile(text).groups
            except re.error as error:
                raise _unusable(text, str(error)) from None
            if groups != 1:
                raise _unusable(text, f"it has {groups} groups")

    def of(self, family: str) -> Carry:
        """What becomes of a family of objects; tables and all that has no setting are applied."""
        found: Carry = getattr(self, family) if family else "apply"
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
        f"ddl: {text!r} is no rule for tables' names: {why}",
        hint="write a regular expression with one group, which is the real table's name, in '…'",
    )
