"""A slice that is ready to be applied: its statements, its six forms, and how the executors' results become one.

Rows that are already read are verified: they are exactly those of the epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from typing import TypeVar

import structlog

from schemas.errors import DownstreamError, EventId
from schemas.tables import QualifiedName
from spark_consumer.apply.repeatable import repeatable_statement
from spark_consumer.apply.tables.error_log import Directive
from spark_consumer.apply.tables.nontransactional_info import RowPosition, TableMark
from spark_consumer.apply.tables.worker_info import UnfinishedPart
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.counters import NOTHING_COUNTED, RowCounts
from spark_consumer.plan.plan import ApplyMode, SlicePlan, TablePlan
from spark_consumer.plan.refusal import Event, cut_values
from spark_consumer.plan.statements import Limits, Statement
from spark_consumer.rows.ordered import (
    OrderedRow,
    OrderedStatement,
    idempotent_statement,
    one_by_one,
    statements,
)
from spark_consumer.rows.render import TableRenderer
from spark_consumer.rows.results import (
    Deletes,
    InsertedRows,
    Inserts,
    OnlyInOrder,
    OrderedChange,
    Result,
    TracedRow,
    UnwrittenCounts,
    Updates,
)
from spark_consumer.rows.slice_rows import SliceRows, verify
from spark_consumer.target.session import Flavor

_T = TypeVar("_T")
_log = structlog.get_logger()
TableStatements = tuple[tuple[TablePlan, Statement], ...]


@dataclass(frozen=True)
class Writes:
    """The statements of one transaction.

    Attributes:
        deletes: the DELETEs of all tables; those of a table run first.
        inserts: the INSERTs of all tables; those of a table run next.
        updates: the changes in place of all tables; those of a table run then: they may be of rows that were just
            inserted.
        ordered: the statements of tables in the upstream's order, which run last.
    """

    deletes: TableStatements = ()
    updates: TableStatements = ()
    inserts: TableStatements = ()
    ordered: tuple[OrderedStatement, ...] = ()

    @property
    def merged(self) -> TableStatements:
        """The statements of compacted rows."""
        return (*self.deletes, *self.inserts, *self.updates)

    @property
    def statements(self) -> int:
        """The number of statements."""
        return len(self.merged) + len(self.ordered)

    @property
    def rows(self) -> int:
        """The number of rows that they must change according to the log."""
        merged = sum(statement.rows for _, statement in self.merged)
        return merged + sum(one.rows for one in self.ordered)

    @property
    def tables(self) -> dict[QualifiedName, TablePlan]:
        """The downstream's tables to which they write, by name."""
        merged = [table for table, _ in self.merged]
        tables = [*merged, *(one.table for one in self.ordered)]
        return {table.target_name: table for table in tables if table.definition}

    def divided(self, most: int) -> Iterator[Writes]:
        """Yield them by tables, at most so many together; last the ordered ones, which may depend on each other."""
        numbers: dict[QualifiedName, int] = {}
        for table, _ in self.merged:
            numbers.setdefault(table.target_name, len(numbers))
        if len(numbers) <= most:
            yield self
            return
        kinds = self.deletes, self.updates, self.inserts
        parts: list[list[list[tuple[TablePlan, Statement]]]]
        parts = [[[] for _ in range(0, len(numbers), most)] for _ in kinds]
        for its, of_kind in zip(kinds, parts, strict=True):
            for one in its:
                of_kind[numbers[one[0].target_name] // most].append(one)
        for deletes, updates, inserts in zip(*parts, strict=True):
            yield Writes(tuple(deletes), tuple(updates), tuple(inserts))
        yield Writes(ordered=self.ordered)


@dataclass(frozen=True)
class Step:
    """One change of a table without transactions, which is written outside of the transaction.

    Attributes:
        first: the index of its first row among the table's rows of the slice.
        idempotent: the statement that gives the same result if the change was already made.
        match: the predicate that finds its row.
        alone: whether it must be confirmed before the next change.
    """

    first: int
    statement: OrderedStatement
    idempotent: OrderedStatement
    match: bytes
    alone: bool


@dataclass(frozen=True)
class TableSteps:
    """The changes of a slice in one table without transactions.

    Attributes:
        places: the positions of all its rows in the log, also of those that are left out.
    """

    table: TablePlan
    places: Sequence[RowPosition]
    steps: Sequence[Step]

    @property
    def name(self) -> QualifiedName:
        return self.table.target_name

    def doubtful(self, mark: TableMark | None) -> tuple[int, int] | None:
        """Return the rows that are in doubt by a mark, as ``[begin, end)``: rows before them are applied, rows after
        them are not. None if the mark's row is not one of these rows."""
        if mark is None:
            return 0, 0
        if mark.place is None:
            return 0, mark.rows
        if mark.place not in self.places:
            return None
        begin = self.places.index(mark.place)
        return begin, begin + mark.rows


@dataclass(frozen=True)
class CopiedStatement:
    """An INSERT of rows of a copy, with their Kafka keys."""

    table: TablePlan
    insert: Statement
    keys: Sequence[bytes]
    limits: Limits

    @property
    def deletes(self) -> Iterator[Statement]:
        """DELETEs of the same rows, if some are there already."""
        return TableRenderer(0, self.table).copied_deletes(self.keys, self.limits)


@dataclass(frozen=True)
class PreparedRows:
    """Rows that are written in the transaction that moves the position.

    Attributes:
        row_counts: the counts of the stages.
        written: the number of statements that have run already: for rows of copies, or for runs of the slice's rows.
        nontransactional: the changes of tables without transactions.
        events: the row changes of a slice that is applied row by row.
        directives: an operator's decisions about some of them.
        rest_of: if this is the rest of a slice of which workers have applied parts, one of these workers.
    """

    slice_: Slice
    writes: Writes = field(default_factory=Writes)
    row_counts: RowCounts = NOTHING_COUNTED
    written: int = 0
    nontransactional: tuple[TableSteps, ...] = ()
    events: Mapping[EventId, Event] = field(default_factory=dict)
    directives: tuple[Directive, ...] = ()
    rest_of: UnfinishedPart | None = None

    @property
    def doubtful(self) -> set[QualifiedName]:
        """The downstream's tables whose compacted rows it may refuse, and accept their changes in another form."""
        return {table.target_name for table, _ in self.writes.merged if table.is_doubtful}

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers to add to the channel's counters."""
        return _counts(self.slice_, self.statements, self.row_counts)

    @property
    def beside(self) -> Writes:
        """The statements for tables without transactions."""
        return Writes(ordered=tuple(step.statement for one in self.nontransactional for step in one.steps))

    @property
    def statements(self) -> int:
        return self.writes.statements + self.beside.statements + self.written

    @property
    def tables(self) -> dict[QualifiedName, TablePlan]:
        """The downstream's tables to which it writes in that transaction or beside it, by name."""
        return self.writes.tables | self.beside.tables


@dataclass(frozen=True)
class PreparedRuns:
    """The rows of a large transaction, which are read and written run by run, so that few are in memory at a time.

    Attributes:
        read: reads a run.
    """

    slice_: Slice
    plan: SlicePlan
    read: Callable[[Slice], PreparedRows]

    @property
    def row_counts(self) -> RowCounts:
        """The counts that are known before they are written."""
        return RowCounts.of_plan(self.slice_, self.plan)

    @property
    def doubtful(self) -> set[QualifiedName]:
        """The downstream's tables whose compacted rows it may refuse, and accept their changes in another form."""
        return {table.target_name for table in self.plan.tables if table.is_doubtful}

    @contextmanager
    def reading(self) -> Iterator[Iterator[PreparedRows]]:
        """Yield the runs; each is read while the one before it is written."""
        with ThreadPoolExecutor(1, "runs") as ahead:
            yield self._each(ahead)

    def _each(self, ahead: ThreadPoolExecutor) -> Iterator[PreparedRows]:
        coming: Future[PreparedRows] | None = None
        for run in self.slice_.runs:
            following = ahead.submit(self.read, run)
            if coming is not None:
                yield coming.result()
            coming = following
        if coming is not None:
            yield coming.result()


@dataclass(frozen=True)
class PreparedCopy:
    """Rows of copies, which executors read and write before the transaction that moves the position.

    Attributes:
        rows: reads them.
    """

    slice_: Slice
    plan: SlicePlan
    rows: SliceRows

    @property
    def row_counts(self) -> RowCounts:
        """The counts that are known before they are written."""
        return RowCounts.of_plan(self.slice_, self.plan)

    @property
    def tables(self) -> dict[QualifiedName, TablePlan]:
        """The downstream's tables to which they are written, by name."""
        used = (table for table in self.plan.tables if table.mode is not ApplyMode.SKIP)
        return {table.target_name: table for table in used}


@dataclass(frozen=True)
class WorkerPart:
    """One worker's share of a slice.

    Attributes:
        number: the worker's number, from 1.
        applied: the offsets of its rows, in the format of ``Checkpoint_group_bitmap``.
    """

    number: int
    writes: Writes
    applied: bytes = b""


@dataclass(frozen=True)
class PreparedParts:
    """Parts that workers write, each in a transaction of its own, before the one that moves the position.

    Attributes:
        slice_id: the unique id of this attempt, which the workers get.
        row_counts: the counts of the stages.
    """

    slice_: Slice
    parts: tuple[WorkerPart, ...]
    slice_id: str
    row_counts: RowCounts = NOTHING_COUNTED

    @property
    def statements(self) -> int:
        return sum(part.writes.statements for part in self.parts)

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers to add to the channel's counters."""
        return _counts(self.slice_, self.statements, self.row_counts)


def _counts(slice_: Slice, statements: int, row_counts: RowCounts) -> dict[str, int]:
    counts = {"skipped": slice_.skipped} if slice_.skipped else {}
    if slice_.rows:
        counts |= {"row_changes": slice_.rows, "statements": statements, **asdict(row_counts)}
    return counts


@dataclass(frozen=True)
class AfterDdl:
    """The rows of a DDL, such as CREATE TABLE … SELECT: they can be planned only after the DDL has created their table.

    Attributes:
        read: plans and reads them after the DDL.
    """

    slice_: Slice
    read: Callable[[], PreparedRows | PreparedRuns]


@dataclass(frozen=True)
class Divided:
    """A slice whose parts are planned and applied one after the other. Nothing is read yet."""

    slice_: Slice
    parts: Sequence[Slice]


#: a slice that is one transaction, perhaps after those of workers
Transaction = PreparedRows | PreparedRuns | PreparedParts | AfterDdl
SingleSlice = Transaction | PreparedCopy
Prepared = SingleSlice | Divided


def assemble_slice(slice_: Slice, plan: SlicePlan, results: Sequence[Result]) -> PreparedRows:
    """Assemble the slice from the results of ``render``. Raises LogError if rows are missing or extra."""
    verify(slice_, results)
    assert not any(isinstance(one, OnlyInOrder) for one in results)
    return sort_results(slice_, plan, results)


def assemble_copy(slice_: Slice, plan: SlicePlan, results: Sequence[Result]) -> list[CopiedStatement]:
    """Return the INSERTs of rows of copies. Raises LogError if rows are missing or extra."""
    verify(slice_, results)
    return [
        CopiedStatement(table, insert, list(islice(keys, insert.rows)), plan.limits)
        for table, inserts, keys in _in_log_order(plan, results)
        for insert in inserts
    ]


def _in_log_order(
    plan: SlicePlan, results: Iterable[Result]
) -> Iterator[tuple[TablePlan, Iterator[Statement], Iterator[bytes]]]:
    """Yield the INSERTs of each table, and the keys of rows of copies.

    The key's hash has spread the rows over the partitions. In another order than the log's, which is that of most keys,
    InnoDB would divide pages that are full.
    """
    found: dict[tuple[int, bool], list[InsertedRows]] = {}
    for one in results:
        if isinstance(one, InsertedRows):
            found.setdefault((one.table, one.nulls is None), []).append(one)
    for (index, literal), parts in found.items():
        table = plan.tables[index]
        places, keys = _joined(one.places for one in parts), _joined(one.keys for one in parts)
        nulls, values = _joined(one.nulls or [] for one in parts), _joined(one.values for one in parts)
        order = sorted(range(len(places)), key=places.__getitem__)
        inserts = TableRenderer(index, table).inserts(
            None if literal else [nulls[row] for row in order], [values[row] for row in order], plan.limits
        )
        yield table, inserts, (keys[row] for row in order)


def _joined(lists: Iterable[Sequence[_T]]) -> list[_T]:
    return list(chain.from_iterable(lists))


def sort_results(slice_: Slice, plan: SlicePlan, results: Sequence[Result]) -> PreparedRows:
    """Return the statements from the results of all partitions, in the order in which they are applied."""

    def merged(kind: type[Deletes | Updates | Inserts]) -> TableStatements:
        found = (one for one in results if isinstance(one, kind))
        return tuple((plan.tables[one.table], _statement(one)) for one in found)

    in_order = ordered_rows(plan, (one for one in results if isinstance(one, OrderedChange)))
    traced = {EventId(one.epoch, one.seq): one for one in results if isinstance(one, TracedRow)}
    events = {event: row_event(slice_, one) for event, one in traced.items()}
    beside = {
        event: (table, events[event])
        for event, one in traced.items()
        if not (table := plan.tables[one.table]).transactional
    }
    copied = frozenset(one.record.epoch for one in slice_.epochs if one.record.copy is not None)
    steps = steps_of((row for row in in_order if not row.table.transactional), beside, copied)
    ordered = tuple(statements((row for row in in_order if row.table.transactional), plan.limits))
    inserts = ((table, one) for table, made, _ in _in_log_order(plan, results) for one in made)
    writes = Writes(merged(Deletes), merged(Updates), (*inserts, *merged(Inserts)), ordered)
    own = [*ordered, *(step.statement for one in steps for step in one.steps)]
    row_counts = row_counts_of(slice_, plan, results, in_order, [replace(writes, ordered=tuple(own))])
    return PreparedRows(slice_, writes, row_counts, nontransactional=steps, events=events)


def _statement(one: Deletes | Updates | Inserts) -> Statement:
    if isinstance(one, Deletes):
        return Statement(one.sql, one.rows, different=one.different)
    return Statement(one.sql, one.rows, one.values)


def steps_of(
    rows: Iterable[OrderedRow],
    events: Mapping[EventId, tuple[TablePlan, Event]],
    copied: Collection[int] = (),
) -> tuple[TableSteps, ...]:
    """Return the steps for rows of tables without transactions, by table.

    Args:
        events: all rows of these tables in the slice, also those that are left out.
        copied: the epochs of copies. Several of them may have the same position, so their rows are numbered by epoch.
    """
    found: dict[QualifiedName, TableSteps] = {}
    indexes: dict[EventId, int] = {}
    numbers: dict[tuple[QualifiedName, str | None, str, int], int] = {}
    steps: dict[QualifiedName, list[Step]] = {}
    places: dict[QualifiedName, list[RowPosition]] = {}
    for key, (table, event) in sorted(events.items(), key=lambda item: item[0]):
        name, place = table.target_name, (event.gtid, event.file, event.pos)
        if name not in found:
            found[name] = TableSteps(table, places.setdefault(name, []), steps.setdefault(name, []))
        if key.epoch in copied:
            number = (key.epoch << 32) + key.seq
        else:
            number = numbers[(name, *place)] = numbers.get((name, *place), -1) + 1
        indexes[key] = len(places[name])
        places[name].append(RowPosition(*place, number))
    for row, second, one in one_by_one(rows):
        alone = row.table.alone or second is not None
        step = Step(indexes[one.event], one, idempotent_statement(row, second, one), row.match or b"", alone)
        steps[row.table.target_name].append(step)
    return tuple(found.values())


def row_event(slice_: Slice, row: TracedRow) -> Event:
    """Return the event of a row of a slice."""
    end = next((one.record for one in slice_.epochs if one.record.epoch == row.epoch), slice_.last)
    relay = f"{end.relay_dir}/{end.relay_file}:{end.relay_pos}"
    shown = cut_values((row.shown or b"").decode(errors="replace"))
    return Event(row.epoch, row.seq, row.gtid, row.digest, shown, row.file, row.pos, relay)


def row_counts_of(
    slice_: Slice,
    plan: SlicePlan,
    results: Sequence[Result],
    in_order: Sequence[OrderedRow],
    made: Sequence[Writes],
) -> RowCounts:
    """Return the row counters of a slice."""
    planned = RowCounts.of_plan(slice_, plan)
    not_written = [one for one in results if isinstance(one, UnwrittenCounts)]
    # The halves of a key change come from two executors, so only the driver knows whether both are left out.
    left_out = sum(one.left_out for one in not_written) + len(in_order)
    left_out -= sum(one.changes for writes in made for one in writes.ordered)
    compacted = sum(one.compacted for one in not_written)
    # A change may write two rows: it deletes one and inserts it again.
    changes = slice_.rows - planned.filtered - left_out - compacted
    together = min(changes, sum(writes.rows for writes in made) - sum(writes.statements for writes in made))
    return planned + RowCounts(expression_filtered=left_out, compacted=compacted, merged=together)


def apply_directives(
    prepared: PreparedRows,
    directives: Mapping[EventId, Directive],
    flavor: Flavor,
    *,
    is_repeat: bool = False,
) -> PreparedRows:
    """Apply operator directives to a slice prepared row by row.

    Args:
        flavor: the downstream's flavor.
        is_repeat: whether the slice is applied again after a rewind.

    Raises:
        EventRefused: a directive is for another event.
        DownstreamError: TR642, a directive is for an event that does not exist; TR578, the replacement of an event
            cannot be repeated.
    """
    first, behind = prepared.slice_.window or (0, 1 << 62)
    of_slice = [
        one for one in directives.values() if prepared.slice_.holds(one.epoch) and first <= one.seq < behind
    ]
    if not of_slice:
        return prepared
    for one in of_slice:
        if (event := prepared.events.get(one.event)) is None:
            raise DownstreamError(
                "TR642",
                f"a `tailrace error` directive refers to event {one.event}, which does not exist",
                where=prepared.slice_.where,
                hint="the log was replaced since the directive was made",
            )
        one.check(event)
    statements: list[OrderedStatement] = []
    for made in prepared.writes.ordered:
        chosen = directives.get(made.event)
        statements += (
            [made] if chosen is None else _replace_statement(made, chosen, flavor, is_repeat=is_repeat)
        )
    beside = []
    for table in prepared.nontransactional:
        left = [step for step in table.steps if step.statement.event not in directives]
        beside.append(replace(table, steps=left))
        for step in table.steps:
            # A change that is left out is not written; its replacement runs in the position's transaction.
            chosen = directives.get(step.statement.event)
            statements += (
                []
                if chosen is None
                else _replace_statement(step.statement, chosen, flavor, is_repeat=is_repeat)
            )
    writes = replace(prepared.writes, ordered=tuple(statements))
    return replace(prepared, writes=writes, nontransactional=tuple(beside), directives=tuple(of_slice))


def _replace_statement(
    made: OrderedStatement, chosen: Directive, flavor: Flavor, *, is_repeat: bool
) -> list[OrderedStatement]:
    instead = chosen.statements
    if chosen.used and is_repeat:
        instead = tuple(repeatable_statement(chosen, sql, flavor).sql for sql in instead)
    _log.warning("event_directed", which=str(chosen.event), statements=instead)
    plain = made._replace(fallbacks=(), cascade_from=None, clear_first=None, is_operators=True)
    return [plain._replace(sql=sql.encode()) for sql in instead]


def ordered_rows(plan: SlicePlan, changes: Iterable[OrderedChange]) -> list[OrderedRow]:
    """Return the changes with the plans of their tables."""
    return [OrderedRow.of(plan.tables[one.table], one) for one in changes]
