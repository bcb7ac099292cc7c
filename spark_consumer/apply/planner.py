"""Plans slices against the downstream's tables as they are."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from schemas.structure import TableStructure
from spark_consumer.apply.applier import Applier
from spark_consumer.apply.repeatable import check_tables, deviating
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.causality import causality_of
from spark_consumer.plan.plan import SlicePlan, plan_slice, structures_of, targets_of
from spark_consumer.plan.safe_mode import SafeMode
from spark_consumer.plan.statements import Limits
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.foreign_keys import ForeignKeyCatalog
from spark_consumer.target.tables import TargetCatalog


class Planner:
    """Plans the slices of one channel. It reads on the applier's connection, so it runs in the applier's thread."""

    def __init__(self, config: ConsumerConfig, applier: Applier) -> None:
        self._applier = applier
        self._rules = config.rules
        self._safe_mode = SafeMode(config.safe_mode, config.safe_mode_duration)
        self._catalog = TargetCatalog()
        self._foreign = ForeignKeyCatalog()
        self._in_parts = config.workers > 1
        self._deviates = deviating(applier.decided.values(), applier.flavor)
        self._by_tables = config.causality == "tables"
        # Room for the statement's own words and the packet's header.
        most = min(1 << 20, applier.session.max_allowed_packet - 65536)
        self._limits = Limits(most, config.statement_rows if config.multiple_rows else 1)

    def plan(
        self, slice_: Slice, structures: Mapping[str, TableStructure], *, row_by_row: bool = False
    ) -> SlicePlan:
        """The plan of a slice whose rows were written with these structures, by fingerprint.

        Args:
            row_by_row: each change as a statement of its own, traced.

        Raises:
            LogError: a structure is missing.
            DownstreamError: the downstream's tables do not fit.
        """
        needed = structures_of(slice_, structures)
        rules = replace(self._rules, hidden=self._applier.hidden)
        names = targets_of(needed, rules).values()
        targets = self._applier.with_retries(lambda: self._catalog.load(self._applier.session, names))
        again = self._applier.position.repeats(slice_.order)
        safe = again or self._safe_mode.active(time.monotonic())
        plan = plan_slice(
            needed,
            targets,
            rules,
            self._limits,
            slice_.where,
            safe=safe,
            again=again,
            unfinished=self._applier.unfinished,
        )
        if again:
            check_tables(plan, targets, rules)
            tables = (replace(table, gives_way=not self._deviates(table)) for table in plan.tables)
            plan = replace(plan, tables=tuple(tables))
        plan = replace(plan, window=slice_.window)
        if row_by_row:
            return plan.row_by_row()
        # What is applied again, or an epoch's part, is one transaction's.
        if not self._in_parts or again or slice_.window is not None:
            return plan
        foreign = self._applier.with_retries(lambda: self._foreign.load(self._applier.session, names))
        causality = causality_of(plan, targets, foreign, by_tables=self._by_tables)
        touched = [table for logged in slice_.epochs for table in logged.record.tables]
        updated = frozenset((table.db, table.table) for table in touched if table.updates)
        return replace(plan, causality=replace(causality, updated=updated))

    def forget(self) -> None:
        """A DDL has run: look at the tables anew."""
        self._catalog.forget()
        self._foreign.forget()
