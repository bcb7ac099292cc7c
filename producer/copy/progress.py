"""How far the copies of a log are, for displays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from producer.copy.state import Plan, Step, TableCopy
from schemas.tables import QualifiedName


@dataclass(frozen=True, kw_only=True)
class CopyProgress:
    """The tables of the copies that are running; if none is, of all that there were.

    Attributes:
        running: whether something is left to copy.
        tables_total: None while it is not known which tables there are.
        tables_done: their copies are complete in the log.
        rows_done: copied rows in the log.
        rows_estimated: of all tables, as the upstream guesses; None while a table's definition was not read yet.
        tables: those between their begin and their end.
        not_begun: those whose definitions are not in the log yet; their changes are not in the log either, unless
            the tables are copied again.
        paused: why nothing is read just now; None if that is not so.
        refused: tables that were left out because they cannot be copied, and why; they are not in the numbers.
        for_new_channels: whether what runs is a copy that only new channels apply.
    """

    running: bool
    tables_total: int | None
    tables_done: int
    rows_done: int
    rows_estimated: int | None
    tables: Mapping[QualifiedName, TableCopy]
    not_begun: tuple[QualifiedName, ...]
    paused: str | None = None
    refused: Mapping[QualifiedName, str] = field(default_factory=dict)
    for_new_channels: bool = False

    @classmethod
    def of(
        cls, plan: Plan | None, tables: Mapping[QualifiedName, TableCopy], paused: str | None = None
    ) -> CopyProgress:
        """Count the tables of a plan and of the log."""
        refused = {name: table.refused for name, table in sorted(tables.items()) if table.refused}
        tables = {name: table for name, table in tables.items() if name not in refused}
        running = {table.copy for table in tables.values() if table.step is not Step.DONE}
        if plan is not None:
            running.add(plan.copy)
        counted = {name: table for name, table in tables.items() if not running or table.copy in running}
        steps = {step: {n: t for n, t in counted.items() if t.step is step} for step in Step}
        is_listed = plan is None or plan.objects
        estimates = [t.rows if t.step is Step.DONE else max(t.rows, t.estimate) for t in counted.values()]
        return cls(
            running=bool(running),
            tables_total=len(counted) if is_listed else None,
            tables_done=len(steps[Step.DONE]),
            rows_done=sum(table.rows for table in counted.values()),
            rows_estimated=sum(estimates) if is_listed and not steps[Step.WAITING] else None,
            tables=steps[Step.RUNNING],
            not_begun=tuple(sorted(steps[Step.WAITING])),
            paused=paused if running else None,
            refused=refused,
            for_new_channels=(plan is not None and plan.for_new)
            or any(table.for_new and table.step is not Step.DONE for table in tables.values()),
        )


def incomplete_at(plan: Plan | None, tables: Mapping[QualifiedName, TableCopy], epoch: int) -> list[str]:
    """The tables whose copies are not complete behind an epoch; as patterns while it is not known which there are.

    Copies for new channels do not count.
    """
    is_unknown = plan is not None and not plan.objects and not plan.for_new
    unknown = (plan.tables or ("*.*",)) if plan is not None and is_unknown else ()
    known = (".".join(name) for name, table in tables.items() if table.is_incomplete_at(epoch))
    return [*unknown, *sorted(known)]
