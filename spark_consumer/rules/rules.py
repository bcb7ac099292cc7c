"""A channel's rules as one value: tables, events, routes, expressions."""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.tables import TableFilter
from spark_consumer.rules.event_filter import DML, EventFilter
from spark_consumer.rules.expressions.filter import ExpressionRule
from spark_consumer.rules.route import Router


@dataclass(frozen=True)
class Rules:
    """A channel's rules, in the order in which they apply.

    Attributes:
        compact: whether the changes of a row in one slice become one.
        hidden: upstream tables of an online schema change, which the downstream does not have.
    """

    tables: TableFilter = field(default_factory=TableFilter)
    events: EventFilter = field(default_factory=EventFilter)
    router: Router = field(default_factory=Router)
    expressions: tuple[ExpressionRule, ...] = ()
    compact: bool = True
    hidden: frozenset[tuple[str, str]] = frozenset()

    def expressions_of(self, db: str, table: str) -> tuple[ExpressionRule, ...]:
        """Return the expression filter's rules for an upstream table."""
        return tuple(rule for rule in self.expressions if (rule.schema_, rule.table) == (db, table))

    def may_write_to(self, db: str, table: str) -> bool:
        """Whether the rules allow that rows of an upstream table go into a downstream table."""
        return any(self._may_send(*source) for source in self.router.sources(db, table))

    def _may_send(self, db: str, table: str) -> bool:
        if any(sign in db + table for sign in "*?"):
            # A pattern of tables that are not known yet.
            return True
        if self.router.folded is not None:
            # The upstream's names may be in any letter case.
            return TableFilter(self.tables.include, self.tables.exclude, folds=True).allows(db, table)
        return self.tables.allows(db, table) and len(self.events.dropped_dml(db, table)) < len(DML)
