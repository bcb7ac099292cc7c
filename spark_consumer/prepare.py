"""Preparing a slice: its rows read and rendered on the executors, and verified here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from schemas.epoch import DIGEST_MODULUS, OffsetRange
from schemas.errors import DownstreamError, LogError, Where
from spark_consumer.fetch import Share, Source
from spark_consumer.merge import Statement
from spark_consumer.ordered import OrderedRow, OrderedStatement, statements
from spark_consumer.pieces import Result, joined
from spark_consumer.plan import SlicePlan, TablePlan
from spark_consumer.rows import (
    COMPACTED,
    DELETES,
    INSERTS,
    LEFT_OUT,
    ORDERED,
    RESULT_DDL,
    SILENT,
    TALLY,
    UNEVALUABLE,
    UNKNOWN,
    Work,
    render,
    task,
)
from spark_consumer.slices import Slice
from spark_consumer.stages import NO_STAGES, Stages

# What a task holds at a time. Only a transaction larger than a slice usually is comes to more: its ranges are
# then read several times, rather than held whole by workers and by the JVM between them and the driver.
_TASK_ROWS = 100_000


@dataclass(frozen=True)
class Prepared:
    """A slice whose statements are ready, and whose rows were found to be exactly those of its epochs.

    Attributes:
        stages: what became of the rows on the way.
        late: makes the statements once the slice's DDL has run: CREATE TABLE … SELECT brings rows for a
            table that does not exist before.
    """

    piece: Slice
    deletes: list[tuple[TablePlan, Statement]] = field(default_factory=list)
    inserts: list[tuple[TablePlan, Statement]] = field(default_factory=list)
    ordered: list[OrderedStatement] = field(default_factory=list)
    stages: Stages = NO_STAGES
    late: Callable[[], Prepared] | None = None

    @property
    def statements(self) -> int:
        return len(self.deletes) + len(self.inserts) + len(self.ordered)

    @property
    def definitions(self) -> dict[tuple[str, str], str]:
        """The downstream's tables that it writes, and what they looked like to its plan."""
        tables = (
            *(t for t, _ in self.deletes),
            *(t for t, _ in self.inserts),
            *(o.table for o in self.ordered),
        )
        return {table.target_name: table.definition for table in tables if table.definition}

    @property
    def counts(self) -> dict[str, int]:
        """What it adds to the channel's counters."""
        return {"row_changes": self.piece.rows, "statements": self.statements, **asdict(self.stages)}


class RowReader:
    """Reads offset ranges of a topic on the executors, one task each, or several where there are many rows."""

    def __init__(self, spark: SparkSession, source: Source) -> None:
        self._spark, self._source = spark, source

    def run(self, ranges: Sequence[OffsetRange], work: Work, shares: int = 1) -> Any:
        """The results of ``work`` over the keys and values of each range, as one Arrow table.

        Args:
            shares: how many tasks divide the keys of a range among themselves; each reads it whole.
        """
        parts = tuple((part, Share(number, shares)) for part in ranges for number in range(shares))
        frame = self._spark.range(0, len(parts), 1, len(parts))
        return frame.mapInArrow(task(self._source, parts, work), RESULT_DDL).toArrow()

    def prepare(self, piece: Slice, plan: SlicePlan) -> Prepared:
        """Read, render and verify one slice."""
        if not piece.ranges:
            results: list[Result] = []
        else:
            shares = -(-piece.rows // (len(piece.ranges) * _TASK_ROWS))
            table = self.run(piece.ranges, partial(render, plan), max(shares, 1))
            results = list(joined(zip(*(column.to_pylist() for column in table.columns), strict=True)))
        return assembled(piece, plan, results)


def assembled(piece: Slice, plan: SlicePlan, results: Sequence[Result]) -> Prepared:
    """The slice from the results of ``render`` over all its rows. Raises LogError if these are not its rows."""
    _check_readable(piece, plan, results)
    verify(piece, results)
    return sorted_out(piece, plan, results)


def _check_readable(piece: Slice, plan: SlicePlan, results: Sequence[Result]) -> None:
    for result in results:
        if result[0] == SILENT:
            raise LogError(
                "TR557",
                f"rows cannot be read: {(result[7] or b'').decode()}",
                where=piece.where,
                hint="check that Kafka runs; nothing of this batch was applied",
                retryable=True,
            )
        if result[0] == UNEVALUABLE:
            raise DownstreamError(
                "TR634",
                f"an expression of the expression-filter has no sure result for a row: {(result[7] or b'').decode()}",
                where=Where(
                    gtid=piece.where.gtid, epoch=piece.where.epoch, table=plan.tables[result[1]].name
                ),
                hint="change the expression, such as with COLLATE and a _bin collation, or where the row image lacks a"
                " column, binlog_row_image upstream; nothing of this batch was applied",
            )


def verify(piece: Slice, results: Sequence[Result]) -> None:
    """Compare what the executors read with what the epochs say was written."""
    for result in results:
        if result[0] == UNKNOWN:
            raise LogError(
                "TR552",
                f"a row's header {(result[7] or b'').hex()} names no structure that its epochs name",
                where=piece.where,
                hint="the rows topic is damaged or was written by something else; nothing was applied",
            )
    rows = sum(result[2] for result in results if result[0] == TALLY)
    digest = sum(result[4] for result in results if result[0] == TALLY) % DIGEST_MODULUS
    if (rows, digest) != (piece.rows, piece.digest):
        raise LogError(
            "TR554",
            f"the rows topic does not hold what epochs {piece.first.epoch} to {piece.last.epoch} say:"
            f" {rows} rows of {piece.rows}, digest {digest} for {piece.digest}",
            where=piece.where,
            hint="records were lost or changed; nothing of this batch was applied",
        )


def sorted_out(piece: Slice, plan: SlicePlan, results: Sequence[Result]) -> Prepared:
    """The statements among the results of all partitions, in the order in which they are applied."""

    def merged(kind: int) -> list[tuple[TablePlan, Statement]]:
        return [(plan.tables[r[1]], Statement(r[7] or b"", r[2])) for r in results if r[0] == kind]

    in_order = list(_ordered_rows(plan, results))
    ordered = list(statements(in_order, plan.limits))
    deletes, inserts = merged(DELETES), merged(INSERTS)
    written = sum(s.rows for _, s in (*deletes, *inserts)) + sum(one.rows for one in ordered)
    stages = Stages.of_plan(piece, plan) + Stages(
        # Halves of a key change come from two executors, and only here it is known whether both are left out.
        expression_filtered=sum(r[2] for r in results if r[0] == LEFT_OUT)
        + len(in_order)
        - sum(one.changes for one in ordered),
        compacted=sum(r[2] for r in results if r[0] == COMPACTED),
        merged=written - len(deletes) - len(inserts) - len(ordered),
    )
    return Prepared(piece, deletes, inserts, ordered, stages)


def _ordered_rows(plan: SlicePlan, results: Sequence[Any]) -> Iterator[OrderedRow]:
    for kind, table, _, epoch, seq, flags, op, match, assignments, values, rules in results:
        if kind == ORDERED:
            yield OrderedRow(plan.tables[table], epoch, seq, flags, op, match, assignments, values, rules)
