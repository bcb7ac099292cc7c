"""Counts of what each stage of the pipeline did with the rows of a slice."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from schemas.wire.rows import schema_name
from spark_consumer.epochs.slices import RunSlice, Slice
from spark_consumer.plan.plan import ApplyMode, SlicePlan


@dataclass(frozen=True)
class RowCounts:
    """Sums over the log's row changes.

    Attributes:
        filtered: changes that a table pattern or an event filter leaves out.
        routed: changes that are applied under another name than the upstream's.
        expression_filtered: changes that an expression leaves out.
        compacted: changes that are not written because another change of the same row replaces them.
        causality_groups: groups of rows that conflict with no row of another group.
        conflicts: rows that joined the group of another row.
        parts: the parts that workers apply.
        merged: changes that were added to the statement of another change.
    """

    filtered: int = 0
    routed: int = 0
    expression_filtered: int = 0
    compacted: int = 0
    causality_groups: int = 0
    conflicts: int = 0
    parts: int = 0
    merged: int = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @classmethod
    def of_plan(cls, slice_: Slice, plan: SlicePlan) -> RowCounts:
        """Return the counts that follow from the plan and the row counts in the epochs' records.

        They say nothing about a run of an epoch's rows.
        """
        if isinstance(slice_, RunSlice):
            return cls()
        tables = {schema_name(table.header).hex(): table for table in plan.tables}
        filtered = routed = 0
        for touched in slice_.touched:
            table = tables[touched.fingerprint]
            inserts = touched.inserts + touched.reads
            counts = {"insert": inserts, "update": touched.updates, "delete": touched.deletes}
            rows = sum(counts.values())
            dropped = rows if table.mode is ApplyMode.SKIP else sum(counts[event] for event in table.dropped)
            filtered += dropped
            if table.mode is not ApplyMode.SKIP and table.routed:
                routed += rows - dropped
        return cls(filtered=filtered, routed=routed)


NOTHING_COUNTED = RowCounts()


@dataclass(frozen=True)
class Applied:
    """What applying a slice came to.

    Attributes:
        statements: that were run, or files that were written.
        row_counts: what became of its rows.
    """

    statements: int
    row_counts: RowCounts = NOTHING_COUNTED

    def __add__(self, other: Applied) -> Applied:
        return Applied(self.statements + other.statements, self.row_counts + other.row_counts)
