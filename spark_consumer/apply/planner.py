"""Plans slices with the downstream's current tables."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from schemas.errors import EventId
from schemas.structure import TableStructure
from schemas.tables import QualifiedName
from spark_consumer.apply.repeatable import check_tables, tables_with_decisions
from spark_consumer.apply.tables.error_log import Directive
from spark_consumer.epochs.position import Position
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.causality import causality_of
from spark_consumer.plan.plan import (
    ApplyMode,
    PlannedTables,
    SlicePlan,
    changes_in,
    check_copied,
    plan_slice,
    structures_of,
    targets_of,
)
from spark_consumer.plan.statements import Limits
from spark_consumer.rules.config import ConsumerConfig
from spark_consumer.target.session import Session
from spark_consumer.target.tables import ForeignKeyCatalog, TargetCatalog

_FIRST_REFUSAL, _LONGEST_REFUSAL = 600.0, 86_400.0


@dataclass(frozen=True)
class Downstream:
    """The state of the downstream for which a slice is planned.

    Attributes:
        position: the channel's position.
        decided: all operator decisions about refused events.
        hidden: the upstream's tables of online schema changes, which the downstream does not have.
        unfinished: the downstream's tables without transactions that are or may be ahead of the position.
    """

    session: Session
    position: Position
    decided: Mapping[EventId, Directive]
    hidden: frozenset[QualifiedName]
    unfinished: frozenset[QualifiedName]


class Planner:
    """Plans the slices of one channel, and caches the downstream's tables."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._rules = config.rules
        self._safe_mode = SafeMode(config.safe_mode, config.safe_mode_duration)
        self._catalog = TargetCatalog()
        self._planned: PlannedTables = {}
        self._foreign = ForeignKeyCatalog()
        self._in_parts = config.workers > 1
        self._may_be_refused = config.consistency == "batch"
        self._refusals = Refusals()
        self._by_tables = config.causality == "tables"
        self._max_rows = config.statement_rows if config.multiple_rows else 1

    def plan(
        self,
        slice_: Slice,
        structures: Mapping[str, TableStructure],
        downstream: Downstream,
        *,
        row_by_row: bool = False,
    ) -> SlicePlan:
        """Plan a slice.

        Args:
            structures: the structures of its rows, by fingerprint.
            row_by_row: whether each change is a traced statement of its own.

        Raises:
            LogError: a structure is missing.
            DownstreamError: the downstream's tables cannot hold the rows.
            pymysql.MySQLError, OSError: the tables cannot be read.
        """
        session = downstream.session
        needed = structures_of(slice_, structures)
        rules = replace(self._rules, hidden=downstream.hidden | slice_.absent)
        names = targets_of(needed, rules).values()
        targets = self._catalog.load(session, names)
        is_repeat = downstream.position.repeats(slice_.order)
        safe = is_repeat or self._safe_mode.active(time.monotonic())
        # Leave room for the rest of the statement and the packet's header.
        max_bytes = min(1 << 20, session.max_allowed_packet - 65536)
        plan = plan_slice(
            needed,
            targets,
            rules,
            Limits(self._max_rows, max_bytes),
            slice_.where,
            safe=safe,
            is_repeat=is_repeat,
            unfinished=downstream.unfinished,
            incomplete=slice_.incomplete,
            doubtful=lambda name: self._may_be_refused and not self._refusals.hold(name, time.monotonic()),
            changes=changes_in(slice_) if self._may_be_refused else None,
            planned=self._planned,
        )
        check_copied(plan, slice_)
        if is_repeat:
            check_tables(plan, targets, rules)
            deviates = tables_with_decisions(downstream.decided.values(), session.flavor)
            tables = (replace(table, gives_way=not deviates(table)) for table in plan.tables)
            plan = replace(plan, tables=tuple(tables))
        elif about_rows := [one for one in downstream.decided.values() if one.table is not None]:
            # A later change of a row that was left out brings all of it, and the row is equal again.
            deviates = tables_with_decisions(about_rows, session.flavor)
            tables = (replace(table, unchanged=None) if deviates(table) else table for table in plan.tables)
            plan = replace(plan, tables=tuple(tables))
        plan = replace(plan, window=slice_.window)
        if row_by_row:
            return plan.row_by_row()
        if slice_.is_copied and slice_.rows and not safe and slice_.window is None:
            used = [table for table in plan.tables if table.mode is not ApplyMode.SKIP]
            if all(table.any_order for table in used):
                return replace(plan, copied=True)
        # Slices in safe mode, parts of an epoch, and rows of a DDL are applied in one transaction.
        if not self._in_parts or safe or slice_.window is not None or slice_.ddl is not None:
            return plan
        foreign = self._foreign.load(session, names)
        causality = causality_of(plan, targets, foreign, by_tables=self._by_tables)
        if causality is None:
            return plan
        updated = frozenset((table.db, table.table) for table in slice_.touched if table.updates)
        return replace(plan, causality=replace(causality, updated=updated))

    def compact_less(self, tables: Collection[QualifiedName]) -> None:
        """For a while change these tables in order, or whole rows of them, where the downstream may refuse the rest."""
        self._refusals.add(tables, time.monotonic())

    def forget(self) -> None:
        """Invalidate the cached tables after a DDL."""
        self._catalog.forget()
        self._planned.clear()
        self._foreign.forget()


class Refusals:
    """Tables whose compacted rows the downstream has refused. What it refused once may have been a rare row.

    A refusal holds for ten minutes, and each one twice as long as the one before, up to a day. Times are those of the
    monotonic clock, in seconds.
    """

    def __init__(self) -> None:
        self._until: dict[QualifiedName, tuple[float, float]] = {}

    def add(self, tables: Collection[QualifiedName], now: float) -> None:
        """Note that they were refused."""
        for name in tables:
            _, last = self._until.get(name, (now, _FIRST_REFUSAL / 2))
            seconds = min(2 * last, _LONGEST_REFUSAL)
            self._until[name] = now + seconds, seconds

    def hold(self, table: QualifiedName, now: float) -> bool:
        """Whether a refusal of the table holds."""
        until = self._until.get(table)
        return until is not None and now < until[0]


class SafeMode:
    """Safe mode: applying changes that may have been applied before, by a copy or another replicator.

    The position makes every slice happen once, so no restart needs it. It is for a channel that starts or is rewound
    to a position before its downstream's state, so rows may already exist or be deleted.

    In tables with a key, INSERT and UPDATE become DELETE + INSERT, and a DELETE need not find its row. In tables that
    are applied in order, the row with that key is changed, and inserted if there is none
    (``spark_consumer.rows.ordered``). Rows are found by their key only, never by REPLACE or ON DUPLICATE KEY UPDATE,
    which would remove or change another row with the same secondary unique value. Such a row is an error. Tables
    without a key have no row identity and stay strict.

    Args:
        duration: seconds after the start for which it is on.
    """

    def __init__(self, always: bool, duration: float, now: float | None = None) -> None:
        self._always = always
        self._until = (time.monotonic() if now is None else now) + duration

    def active(self, now: float) -> bool:
        """Whether it is on at a time of the monotonic clock, in seconds."""
        return self._always or now < self._until
