"""The plan of a slice: for each table structure, how the executors turn its rows into statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from schemas.ddl.table_definition import PERIOD
from schemas.errors import NOTHING_APPLIED, DownstreamError, LogError, Where
from schemas.quote import quoted
from schemas.sql.literals import Filled
from schemas.structure import TableStructure
from schemas.tables import QualifiedName
from schemas.wire.rows import value_header, widened
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.conflicts import Causality
from spark_consumer.plan.statements import Limits
from spark_consumer.rules.event_filter import DML
from spark_consumer.rules.expressions.filter import ExpressionRule, RowFilter, compile_filter
from spark_consumer.rules.rules import Rules
from spark_consumer.target.compatibility import incompatibilities
from spark_consumer.target.members import written_column
from spark_consumer.target.row_locator import BY_KEY, RowLocator, RowMatch, locator_of
from spark_consumer.target.table import TargetTable
from spark_consumer.target.versioned import keeps_history


class Mode(Enum):
    """How a table's rows are applied."""

    #: net effect by key, DELETEs and INSERTs of many rows
    COMPACT = "compact"
    #: one statement a row in the upstream's order
    ORDERED = "ordered"
    #: another channel's or nobody's table: counted, not applied
    SKIP = "skip"


@dataclass(frozen=True)
class TablePlan:
    """One table structure of a slice.

    Attributes:
        header: the bytes that every row value of this structure starts with, ``widened``.
        structure: its columns as they are written downstream.
        target_name: schema and table on the downstream.
        writable: the columns to write, in the log's order.
        cascades: whether foreign keys of the downstream act on this table's family.
        dropped: the kinds of row changes that are left out: insert, update, delete.
        expressions: rules by which single rows are left out.
        collations: how the expressions compare text: as the downstream's columns do, by names in lower case.
        safe: safe mode: the row may already exist or be deleted.
        locator: how rows are found on the downstream.
        definition: of the downstream's table, as this plan was made for it.
        again: the slice is reapplied after a rewind.
        gives_way: in a reapplied slice, whether a row with a conflicting unique value is deleted, because a later
            change writes it again.
        filled: what is written into columns that the row images lack.
        documents: text columns, such as MariaDB's JSON, that are JSON on the downstream.
        history: whether history rows are skipped because the downstream keeps its own.
        triggers: whether the downstream's table has any.
        transactional: whether the table's engine has transactions.
        alone: of one that is not: whether each change must be known to be there before the next one, since several,
            repeated from the first one on, might meet each other.
    """

    header: bytes
    structure: TableStructure
    mode: Mode
    target_name: tuple[str, str] = ("", "")
    writable: tuple[str, ...] = ()
    cascades: bool = False
    dropped: frozenset[str] = frozenset()
    expressions: tuple[ExpressionRule, ...] = ()
    collations: tuple[tuple[str, str], ...] = ()
    safe: bool = False
    locator: RowLocator = BY_KEY
    definition: str = ""
    again: bool = False
    gives_way: bool = False
    filled: Filled = ()
    documents: tuple[str, ...] = ()
    history: bool = False
    triggers: bool = False
    transactional: bool = True
    alone: bool = False

    @property
    def name(self) -> str:
        return self.structure.name

    @property
    def target(self) -> bytes:
        """The downstream table in backticks."""
        return quoted(*self.target_name).encode()

    @property
    def routed(self) -> bool:
        """Whether the downstream's table has another name than the upstream's."""
        return self.target_name != (self.structure.db, self.structure.table)

    @property
    def partial(self) -> bool:
        """Whether some changes of this table are left out, so that others may not find their row."""
        return bool(self.dropped or self.expressions)

    @property
    def knows_rows(self) -> bool:
        """Whether what is written is the whole row, so that it can be inserted."""
        return self.structure.after_columns is None or self.structure.before_columns == ()

    @property
    def insert_columns(self) -> tuple[str, ...]:
        """The columns that an INSERT names."""
        return (*self.writable, *(name for name, _ in self.filled))

    @property
    def filter(self) -> RowFilter | None:
        """The expressions as code. Raises ConfigError for one that cannot be evaluated over this structure."""
        if not self.expressions:
            return None
        return compile_filter(self.structure, self.expressions, self.collations)


@dataclass(frozen=True)
class SlicePlan:
    """All that an executor needs to know.

    Attributes:
        window: which of the one epoch's rows are meant, by their numbers; None: all that are read.
        causality: how its rows conflict, where several workers write them.
        traced: whether each row tells which event it is.
        compacted: what rows of tables begin with that are written row by row, and would be compacted otherwise.
    """

    tables: tuple[TablePlan, ...]
    limits: Limits
    window: tuple[int, int] | None = None
    causality: Causality | None = None
    traced: bool = False
    compacted: frozenset[bytes] = frozenset()

    def row_by_row(self) -> SlicePlan:
        """The same slice with each row's change as a statement of its own, in the upstream's order, and traced."""
        tables = tuple(
            replace(table, mode=Mode.ORDERED) if table.mode is Mode.COMPACT else table
            for table in self.tables
        )
        compacted = frozenset(table.header for table in self.tables if table.mode is Mode.COMPACT)
        limits = replace(self.limits, max_rows=1)
        return replace(self, tables=tables, limits=limits, traced=True, compacted=compacted)


def structures_of(slice_: Slice, known: Mapping[str, TableStructure]) -> dict[str, TableStructure]:
    """The structures of a slice's rows by fingerprint, as the tracker knows them."""
    if unknown := sorted(slice_.fingerprints - set(known)):
        raise LogError(
            "TR552",
            f"the schema tracker does not know the structure with fingerprint {unknown[0]}",
            where=slice_.where,
            hint="the schemas topic or the epoch that brought it is damaged",
            applied=NOTHING_APPLIED,
        )
    return {fingerprint: known[fingerprint] for fingerprint in slice_.fingerprints}


def targets_of(structures: Mapping[str, TableStructure], rules: Rules) -> dict[QualifiedName, QualifiedName]:
    """The downstream's name of each upstream table whose rows may be applied."""
    named = ((s.db, s.table) for s in structures.values())
    wanted = [name for name in named if name not in rules.hidden and rules.tables.allows(*name)]
    kept = [name for name in wanted if len(rules.events.dropped_dml(*name)) < len(DML)]
    return {name: rules.router.table(*name) for name in kept}


def plan_slice(
    structures: Mapping[str, TableStructure],
    targets: Mapping[QualifiedName, TargetTable | None],
    rules: Rules,
    limits: Limits,
    where: Where,
    *,
    safe: bool = False,
    again: bool = False,
    unfinished: Collection[QualifiedName] = (),
) -> SlicePlan:
    """Plan each structure against the downstream's table.

    Args:
        targets: the downstream's tables by their names there.
        safe: safe mode.
        again: the slice is applied for a second time.
        unfinished: tables in which an interrupted attempt has left rows, whatever they are now.

    Raises:
        DownstreamError: a table does not fit.
    """
    names = targets_of(structures, rules)
    into = Counter(names.values())
    tables = []
    for fingerprint, structure in sorted(structures.items()):
        header = widened(value_header(bytes.fromhex(fingerprint)))
        name = names.get((structure.db, structure.table))
        if name is None:
            tables.append(TablePlan(header, structure, Mode.SKIP))
        else:
            merged = into[name] > 1 or rules.router.merges(*name)
            table = _plan_table(header, structure, targets[name], name, rules, where, merged, unfinished)
            safely = safe and table.locator.find is not RowMatch.WHOLE
            tables.append(replace(table, safe=safely, again=again, gives_way=again))
    return SlicePlan(_level(tables), limits)


def _level(tables: list[TablePlan]) -> tuple[TablePlan, ...]:
    """One mode for all that goes into one downstream table: its rows may move from one to the other."""
    ordered = {table.target_name for table in tables if table.mode is Mode.ORDERED}
    return tuple(
        replace(table, mode=Mode.ORDERED)
        if table.mode is Mode.COMPACT and table.target_name in ordered
        else table
        for table in tables
    )


def _plan_table(
    header: bytes,
    structure: TableStructure,
    target: TargetTable | None,
    name: QualifiedName,
    rules: Rules,
    where: Where,
    merged: bool,
    unfinished: Collection[QualifiedName],
) -> TablePlan:
    place = replace(where, table=structure.name)
    if target is None or target.is_view:
        what = (
            "the downstream has no such table"
            if target is None
            else "the downstream has a view with this name"
        )
        raise DownstreamError("TR605", what, where=place, hint="create it like the upstream's")
    _check_fit(structure, target, place)
    structure = _as_written(structure, target)
    hidden = {c.name for c in structure.columns if c.is_row_hash and target.column(c.name) is None}
    history = keeps_history(structure, target)
    hidden |= set(PERIOD) if history else set()
    names = [
        column.name
        for column in structure.columns
        if column.name.lower() not in target.generated and column.name not in hidden
    ]
    after = {column.name for column in structure.after_image}
    absent = tuple(name for name in names if name not in after)
    # Values of columns that only the downstream has would not survive DELETE and INSERT.
    extra = target.writable - {name.lower() for name in names}
    # What is left out breaks the log's own logic of which rows exist, which compaction builds on.
    dropped = rules.events.dropped_dml(structure.db, structure.table)
    expressions = rules.expressions_of(structure.db, structure.table)
    if history and (dropped or expressions):
        raise DownstreamError(
            "TR655",
            "row filters cannot be used on a system-versioned table: its log does not distinguish UPDATE from DELETE",
            where=place,
            hint="leave the whole table out, or DROP SYSTEM VERSIONING downstream and add row_start and row_end"
            " TIMESTAMP(6) NOT NULL to columns and key: all rows are written then",
        )
    partial = bool(dropped or expressions)
    locator = locator_of(structure, target, merged=merged, partial=partial)
    if locator.find is RowMatch.WHOLE and structure.before_columns:
        raise DownstreamError(
            "TR609",
            "rows are matched by all columns, but their images lack some",
            where=place,
            hint="give the downstream's table a unique key of columns that the images have, or SET GLOBAL"
            " binlog_row_image = FULL upstream",
            applied=NOTHING_APPLIED,
        )
    transactional = target.transactional and name not in unfinished
    if not transactional:
        _check_repeatable(target, locator, place)
    # A trigger shall see the statements that the upstream ran, and not DELETE and INSERT for an UPDATE.
    apart = bool(extra or target.triggers) or not locator.sure
    ordered = apart or target.in_family or partial or not rules.compact
    # Nor would what an UPDATE's after image lacks. Of a DELETE nothing but the key is needed.
    ordered = ordered or bool(after and absent) or history or not transactional
    table = TablePlan(
        header,
        structure,
        Mode.ORDERED if ordered else Mode.COMPACT,
        name,
        tuple(name for name in names if name in after),
        target.in_family,
        dropped,
        expressions,
        target.collations if expressions else (),
        locator=locator,
        definition=target.definition,
        filled=_filled(structure, absent, target, place) if after else (),
        documents=_documents(structure, target),
        history=history,
        triggers=bool(target.triggers),
        transactional=transactional,
        alone=len(target.keys) > 1 or bool(target.triggers) or not structure.is_full,
    )
    # Report unsupported expressions here, not on an executor.
    _ = table.filter
    return table


def _as_written(structure: TableStructure, target: TargetTable) -> TableStructure:
    pairs = ((column, target.column(column.name)) for column in structure.columns)
    columns = tuple(column if there is None else written_column(column, there) for column, there in pairs)
    return structure if columns == structure.columns else replace(structure, columns=columns)


def _check_repeatable(target: TargetTable, locator: RowLocator, place: Where) -> None:
    """A table without transactions keeps what a failed attempt has written; only its key tells what that is."""
    if locator.find is not RowMatch.KEY:
        there = ".".join(target.name)
        raise DownstreamError(
            "TR656",
            f"the downstream's table has the engine {target.engine}, which has no transactions, and no unique key on"
            " the upstream's key: what an interrupted batch has written would be written twice",
            where=place,
            hint=f"ALTER TABLE {there} ENGINE=InnoDB on the downstream, or give it a primary key on both sides;"
            ' with [ddl] engines = "innodb" such tables are made in InnoDB',
            applied=NOTHING_APPLIED,
        )


def _documents(structure: TableStructure, target: TargetTable) -> tuple[str, ...]:
    texts = (column.name for column in structure.columns if column.charset)
    return tuple(name for name in texts if (there := target.column(name)) and there.type.base == "json")


def _check_fit(structure: TableStructure, target: TargetTable, place: Where) -> None:
    found = incompatibilities(structure, target)
    if not found:
        return
    first, others = found[0], len(found) - 1
    more = f" (and {others} more: {', '.join(one.column for one in found[1:6])})" if others else ""
    there = ".".join(target.name)
    raise DownstreamError(
        first.code,
        f"{first.what}{more}",
        where=place,
        hint=f"alter {there} on the downstream: {first.remedy}",
        applied=NOTHING_APPLIED,
    )


def _filled(structure: TableStructure, absent: tuple[str, ...], target: TargetTable, place: Where) -> Filled:
    """What to write into columns that after images lack."""
    there = {name: column for name in absent if (column := target.column(name))}
    if structure.before_columns != ():
        # The server would set these to its own time; they are as they were.
        return tuple((name, quoted(name).encode()) for name, column in there.items() if column.touched)
    if unknown := [name for name, column in there.items() if column.default_sql is None]:
        raise DownstreamError(
            "TR609",
            f"an INSERT's row image lacks column {unknown[0]}, whose default the downstream would compute differently",
            where=place,
            hint="give the column the upstream's default, or SET GLOBAL binlog_row_image = FULL on the upstream",
            applied=NOTHING_APPLIED,
        )
    return tuple(
        (name, column.default_sql) for name, column in there.items() if column.default_sql is not None
    )
