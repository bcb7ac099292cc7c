"""Preparing a slice: its rows read and rendered on the executors, and verified here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import structlog
from pyspark.sql import SparkSession

from schemas.errors import DownstreamError, LogError, Where
from schemas.wire.epoch import DIGEST_MODULUS, OffsetRange
from schemas.wire.log_records import FOREIGN, UNFIT, At, check_rows, no_record
from spark_consumer.apply.error_log import Directive
from spark_consumer.apply.nontransactional import TableSteps, steps_of
from spark_consumer.apply.repeatable import repetition
from spark_consumer.apply.workers.part import WorkerPart, written_by
from spark_consumer.epochs.fetch import NoRow, Share, TopicReader, Unreadable
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.counters import NO_STAGES, Stages
from spark_consumer.plan.plan import Name, SlicePlan, TablePlan
from spark_consumer.plan.refusal import Event, row_event
from spark_consumer.plan.statements import Statement
from spark_consumer.rows.chunked_results import Result, joined
from spark_consumer.rows.ordered import OrderedRow, OrderedStatement, statements
from spark_consumer.rows.render import (
    COMPACTED,
    DAMAGED,
    DELETES,
    EVENT,
    INSERTS,
    LEFT_OUT,
    NO_ROW,
    ORDERED,
    REFUSED,
    RESULT_DDL,
    SILENT,
    TALLY,
    UNEVALUABLE,
    UNKNOWN,
    UNREADABLE,
    Results,
    UnevaluableRow,
    UnknownHeader,
    Work,
    render,
    task,
)
from spark_consumer.target.session import Flavor

# What a task holds at a time. Only a transaction larger than a slice usually is comes to more: its ranges are
# then read several times, rather than held whole by workers and by the JVM between them and the driver.
_TASK_ROWS = 100_000
# From here on it is looked whether there can be so many rows.
_MANY_SHARES = 20
_MOST_SHARES = 10_000
_log = structlog.get_logger()


@dataclass(frozen=True)
class Prepared:
    """A slice whose statements are ready, and whose rows were found to be exactly those of its epochs.

    Attributes:
        stages: what became of the rows on the way.
        parts: what workers write, each in a transaction of its own; then the rest is empty.
        slice_id: with parts, what the workers know the slice by.
        reserved: how many numbers of the ledger parts of the slice have, applied or not.
        late: makes the statements once the slice's DDL has run: CREATE TABLE … SELECT brings rows for a
            table that does not exist before.
        events: of a slice that is applied row by row, which row changes it has, by epoch and number.
        directives: what an operator has decided about some of them.
        apart: nothing is prepared: its epochs are to be applied one by one.
        nontransactional: what is written beside the transaction.
    """

    piece: Slice
    deletes: list[tuple[TablePlan, Statement]] = field(default_factory=list)
    inserts: list[tuple[TablePlan, Statement]] = field(default_factory=list)
    ordered: list[OrderedStatement] = field(default_factory=list)
    stages: Stages = NO_STAGES
    parts: tuple[WorkerPart, ...] = ()
    slice_id: str | None = None
    reserved: int = 0
    late: Callable[[], Prepared] | None = None
    events: Mapping[tuple[int, int], Event] = field(default_factory=dict)
    directives: tuple[Directive, ...] = ()
    apart: bool = False
    nontransactional: tuple[TableSteps, ...] = ()

    @property
    def beside(self) -> list[OrderedStatement]:
        """The statements for tables without transactions."""
        return [step.statement for one in self.nontransactional for step in one.steps]

    @property
    def statements(self) -> int:
        own = len(self.deletes) + len(self.inserts) + len(self.ordered) + len(self.beside)
        return own + sum(part.statements for part in self.parts)

    @property
    def written(self) -> dict[Name, TablePlan]:
        """The downstream's tables that it writes itself, by name."""
        return written_by(self.deletes, self.inserts, (*self.ordered, *self.beside))

    @property
    def counts(self) -> dict[str, int]:
        """What it adds to the channel's counters."""
        return {"row_changes": self.piece.rows, "statements": self.statements, **asdict(self.stages)}


class RowReader:
    """Reads offset ranges of a topic on the executors, one task each, or several where there are many rows."""

    def __init__(self, spark: SparkSession, source: TopicReader) -> None:
        self._spark, self.source = spark, source

    def run(self, ranges: Sequence[OffsetRange], work: Work, shares: int = 1) -> Any:
        """The results of ``work`` over the keys and values of each range, as one Arrow table.

        Args:
            shares: how many tasks divide the keys of a range among themselves; each reads it whole.
        """
        return self.run_over(ranges, partial(read_range, self.source, work), shares)

    def run_over(
        self, ranges: Sequence[OffsetRange], results: Results, shares: int = 1, most: int | None = None
    ) -> Any:
        """The same, where the reading is a part of the work.

        Args:
            most: rows that the ranges can have.
        """
        parts = tuple((part, Share(number, shares, most)) for part in ranges for number in range(shares))
        frame = self._spark.range(0, len(parts), 1, len(parts))
        return frame.mapInArrow(task(parts, results), RESULT_DDL).toArrow()

    def prepare(self, piece: Slice, plan: SlicePlan) -> Prepared:
        """Read, render and verify one slice."""
        work = partial(render, plan)
        return assembled(piece, plan, self.results(piece, partial(read_range, self.source, work), work))

    def results(self, piece: Slice, results: Results, work: Work) -> list[Result]:
        """The results of all ranges of a slice.

        Args:
            results: what reads a range, or a share of it, and works on its rows.
            work: what finds fault with a row that is none; asked row by row where ``results`` has failed.

        Raises:
            LogError: TR568, TR552 a record that is no row, or of no structure of the epochs; TR554 an epoch that
                cannot have its rows.
            Unreadable: a range cannot be read.
        """
        for logged in piece.epochs:
            check_rows(logged.record, logged.offset)
        if not piece.ranges:
            return []
        shares = shares_of(piece)
        if shares > _MANY_SHARES:
            for part in piece.ranges:
                self.source.check_end(part)
        found = results_of(self.run_over(piece.ranges, results, shares, piece.rows))
        for kind, number, *_, text, _, _, _ in found:
            said = (text or b"").decode(errors="replace")
            if kind in (UNREADABLE, NO_ROW):
                raise NoRow(said) if kind == NO_ROW else Unreadable(said)
            if kind in (UNKNOWN, DAMAGED):
                raise self._fault(piece, piece.ranges[number // shares], work, said)
        return found

    def _fault(self, piece: Slice, part: OffsetRange, work: Work, said: str) -> Exception:
        """The error for the first record of a range that is no row; what was said if there is none."""
        offsets: list[int] = []
        keys, values = self.source.read(part, offsets=offsets)
        for key, value, offset in zip(keys, values, offsets, strict=True):
            at = At(self.source.topic, offset, part.partition)
            try:
                deque(work([key], [value]), 0)
            except UnknownHeader as unknown:
                return LogError(
                    "TR552",
                    f"{at}: the row's header {unknown.args[0].hex()} names no structure that its epochs name",
                    where=piece.where,
                    hint=FOREIGN,
                )
            except UnevaluableRow:
                continue
            except UNFIT as error:
                return no_record(at, "the record holds no row", error, piece.where)
        return RuntimeError(said)


def read_range(source: TopicReader, work: Work, part: OffsetRange, share: Share) -> Iterable[Result]:
    """Read a share of a range, and work on its rows."""
    return work(*source.read(part, share))


def shares_of(piece: Slice) -> int:
    """How many tasks divide each range of a slice among themselves."""
    return min(_MOST_SHARES, max(1, -(-piece.rows // (len(piece.ranges) * _TASK_ROWS))))


def results_of(table: Any) -> list[Result]:
    """Results out of Spark's Arrow table."""
    return list(joined(zip(*(column.to_pylist() for column in table.columns), strict=True)))


def assembled(piece: Slice, plan: SlicePlan, results: Sequence[Result]) -> Prepared:
    """The slice from the results of ``render`` over all its rows. Raises LogError if these are not its rows."""
    check(piece, plan, results)
    return sorted_out(piece, plan, results)


def check(piece: Slice, plan: SlicePlan, results: Sequence[Result]) -> None:
    """Raises TailraceError if the results are not those of all rows of a slice."""
    _check_readable(piece, plan, results)
    verify(piece, results)


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
        if result[0] == REFUSED:
            what, _, hint = (result[7] or b"").decode().partition("\n")
            raise LogError("TR508", what, where=piece.where, hint=hint)
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

    in_order = list(ordered_rows(plan, results))
    ordered = list(statements((row for row in in_order if row.table.transactional), plan.limits))
    events = {(r[3], r[4]): row_event(piece, r) for r in results if r[0] == EVENT}
    beside = {
        (r[3], r[4]): (table, events[r[3], r[4]])
        for r in results
        if r[0] == EVENT and not (table := plan.tables[r[1]]).transactional
    }
    steps = steps_of((row for row in in_order if not row.table.transactional), beside)
    made = Prepared(piece, merged(DELETES), merged(INSERTS), ordered, events=events, nontransactional=steps)
    return replace(made, stages=stages_of(piece, plan, results, in_order, [made], made.beside))


def stages_of(
    piece: Slice,
    plan: SlicePlan,
    results: Sequence[Result],
    in_order: Sequence[OrderedRow],
    made: Sequence[Prepared | WorkerPart],
    beside: Sequence[OrderedStatement] = (),
) -> Stages:
    """What became of a slice's rows."""
    ordered = [s for one in made for s in one.ordered] + list(beside)
    planned = Stages.of_plan(piece, plan)
    # Halves of a key change come from two executors, and only here it is known whether both are left out.
    left_out = (
        sum(r[2] for r in results if r[0] == LEFT_OUT) + len(in_order) - sum(s.changes for s in ordered)
    )
    compacted = sum(r[2] for r in results if r[0] == COMPACTED)
    merged = [s for one in made for _, s in (*one.deletes, *one.inserts)]
    written = sum(s.rows for s in (*merged, *ordered))
    # A change may write two rows, to delete one and to insert it anew.
    changes = piece.rows - planned.filtered - left_out - compacted
    together = min(changes, written - len(merged) - len(ordered))
    return planned + Stages(expression_filtered=left_out, compacted=compacted, merged=together)


def directed(
    prepared: Prepared,
    directives: Mapping[tuple[int, int], Directive],
    flavor: Flavor,
    *,
    again: bool = False,
) -> Prepared:
    """A slice, prepared row by row, as an operator wants it.

    Args:
        flavor: of the downstream.
        again: whether the slice is applied for a second time.

    Raises:
        Refused: a directive for something else.
        DownstreamError: TR578, what ran in an event's place cannot run again.
    """
    first, behind = prepared.piece.window or (0, 1 << 62)
    of_piece = [
        one for one in directives.values() if prepared.piece.holds(one.epoch) and first <= one.seq < behind
    ]
    if not of_piece:
        return prepared
    for one in of_piece:
        if (event := prepared.events.get((one.epoch, one.seq))) is None:
            raise LogError(
                "TR642",
                f"a directive of `tailrace error` names event {one.name}, and there is no such event",
                where=prepared.piece.where,
                hint="another log has taken the place of the one it was made for",
            )
        one.check(event)
    statements: list[OrderedStatement] = []
    for made in prepared.ordered:
        chosen = directives.get((made.epoch, made.seq))
        statements += [made] if chosen is None else _instead(made, chosen, flavor, again=again)
    beside = []
    for table in prepared.nontransactional:
        left = [step for step in table.steps if (step.statement.epoch, step.statement.seq) not in directives]
        beside.append(replace(table, steps=left))
        for step in table.steps:
            # What is left out was not made; what runs in its place is in the transaction of the position.
            chosen = directives.get((step.statement.epoch, step.statement.seq))
            statements += [] if chosen is None else _instead(step.statement, chosen, flavor, again=again)
    return replace(prepared, ordered=statements, nontransactional=tuple(beside), directives=tuple(of_piece))


def _instead(
    made: OrderedStatement, chosen: Directive, flavor: Flavor, *, again: bool
) -> list[OrderedStatement]:
    instead = chosen.statements
    if chosen.used and again:
        instead = tuple(repetition(chosen, sql, flavor).sql for sql in instead)
    _log.warning("event_directed", which=chosen.name, statements=instead)
    plain = replace(made, otherwise=(), removes=None, clears=None, free=True)
    return [replace(plain, sql=sql.encode()) for sql in instead]


def ordered_rows(plan: SlicePlan, results: Sequence[Any]) -> Iterator[OrderedRow]:
    """The rows among results that are applied in order."""
    for kind, table, _, epoch, seq, flags, op, match, assignments, values, rules in results:
        if kind == ORDERED:
            yield OrderedRow(plan.tables[table], epoch, seq, flags, op, match, assignments, values, rules)
