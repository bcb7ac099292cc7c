"""Makes the plan of a slice: for each table structure, how the executors turn its rows into statements."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from schemas.ddl.lexer import Flavor
from schemas.ddl.table_definition import PERIOD
from schemas.errors import NOTHING_APPLIED, DownstreamError, LogError, Where
from schemas.quote import quoted
from schemas.sql.literals import Filled
from schemas.structure import TableStructure
from schemas.tables import QualifiedName
from schemas.wire.rows import value_header, widened
from spark_consumer.epochs.slices import Slice
from spark_consumer.plan.conflicts import Causality
from spark_consumer.plan.statements import Limits, delete_head
from spark_consumer.rules.event_filter import DML
from spark_consumer.rules.expressions.filter import ExpressionRule, RowFilter, compile_filter
from spark_consumer.rules.rules import Rules
from spark_consumer.target.compatibility import incompatibilities
from spark_consumer.target.members import written_column
from spark_consumer.target.row_locator import BY_KEY, RowLocator, RowMatch, locator_of, misses_in_lists
from spark_consumer.target.table import TargetColumn, TargetTable
from spark_consumer.target.versioned import keeps_history

# A placeholder may break it. MariaDB's JSON has one, and there are placeholders for it.
_CONSTRAINT = re.compile(r"CHECK \((?!json_valid\()")
# All letters of such a member differ in such a collation, but for their case.
_PLAIN_MEMBER = re.compile("[A-Za-z0-9]+(?:_[A-Za-z0-9]+)*")
_PLAIN_COLLATION = re.compile(
    "[a-z0-9]+_(?:bin|general_ci|0900_a[is]_c[is]|unicode(?:_520)?_ci|uca1400_a[is]_c[is])|latin1_swedish_ci"
)


class ApplyMode(Enum):
    """The way in which a table's rows are applied."""

    #: net effect by key, DELETEs and INSERTs of many rows
    COMPACT = "compact"
    #: one statement for each row, in the upstream's order
    ORDERED = "ordered"
    #: not replicated by this channel: counted, not applied
    SKIP = "skip"


class Change(Enum):
    """The kinds of changes of a row for which foreign keys may act."""

    DELETE = "delete"
    KEY_CHANGE = "key change"
    UPDATE = "update"


class Unchanged(NamedTuple):
    """What an INSERT … ON DUPLICATE KEY UPDATE says of columns that keep their values.

    Attributes:
        placeholders: values for those that the INSERT has to name; no row is inserted with them.
        kept: what the columns are set to that the server would change by itself.
    """

    placeholders: Filled
    kept: Filled


@dataclass(frozen=True)
class TablePlan:
    """One table structure of a slice.

    Attributes:
        header: the bytes that every row value of this structure starts with, ``widened``.
        structure: the columns in the form in which they are written downstream.
        target_name: schema and table on the downstream.
        writable: the columns to write, in the log's order.
        cascades: whether a chain of the downstream's foreign keys connects the table with a cascading one. Then it is
            compacted only if no foreign key acts in the slice.
        dropped: the kinds of row changes that are left out: insert, update, delete.
        expressions: the rules that leave out single rows.
        collations: the downstream's collations for the expressions, by column names in lower case.
        safe: the row may already exist or be missing: in safe mode, and while a copy of the table runs.
        incomplete: a copy of the table runs: each row is missing, or as it is upstream at this point of the log.
        locator: how rows are found on the downstream.
        definition: the definition of the downstream's table that the plan was made for.
        acting: if ``cascades``, the kinds of its changes for which foreign keys change other rows.
        is_repeat: the slice is reapplied after a rewind.
        gives_way: in a reapplied slice, whether a row with a conflicting unique value is deleted, because a later
            change writes it again.
        filled: the values for columns that the row images lack.
        documents: text columns, such as MariaDB's JSON, that are JSON on the downstream.
        history: whether history rows are skipped because the downstream keeps its own.
        triggers: whether the downstream's table has triggers.
        transactional: whether the table's engine has transactions.
        alone: for a table without transactions, whether each change must be confirmed before the next one is written,
            because several changes that are repeated from the first one on could conflict.
        any_order: whether rows of a copy can be inserted in any order, many with one statement.
        by_predicate: whether rows are found by predicates, because a list of keys may miss some.
        in_place: the kind of server if changed rows can be changed in place; None if they are deleted and inserted.
        unique: columns of other unique keys than the upstream's; only rows in which they stay are changed in place.
        by_image: whether the rows of a table without a key are compacted by their images.
        lacks_columns: whether after images lack columns that are written.
        placeholders: if UPDATEs whose images lack columns are changes in place, values for the columns that the INSERT
            has to name; no row is inserted with them. None if they are made in order.
        unchanged: if changes in place may set some columns of the rows; None if they set all.
        index: the unique key of the downstream's table by which rows are found, if it is a MySQL.
    """

    header: bytes
    structure: TableStructure
    mode: ApplyMode
    target_name: tuple[str, str] = ("", "")
    writable: tuple[str, ...] = ()
    cascades: bool = False
    dropped: frozenset[str] = frozenset()
    expressions: tuple[ExpressionRule, ...] = ()
    collations: tuple[tuple[str, str], ...] = ()
    safe: bool = False
    incomplete: bool = False
    acting: frozenset[Change] = frozenset(Change)
    locator: RowLocator = BY_KEY
    definition: str = ""
    is_repeat: bool = False
    gives_way: bool = False
    filled: Filled = ()
    documents: tuple[str, ...] = ()
    history: bool = False
    triggers: bool = False
    transactional: bool = True
    alone: bool = False
    any_order: bool = False
    by_predicate: bool = False
    in_place: Flavor | None = None
    unique: frozenset[str] = frozenset()
    by_image: bool = False
    lacks_columns: bool = False
    placeholders: Filled | None = None
    unchanged: Unchanged | None = None
    index: str = ""

    @property
    def name(self) -> str:
        return self.structure.name

    @property
    def upstream(self) -> QualifiedName:
        """The upstream's schema and table."""
        return self.structure.db, self.structure.table

    @property
    def sets(self) -> bool:
        """Whether its rows are UPDATEs that set some columns of rows that are there, many with one statement."""
        return self.placeholders is not None

    @property
    def is_doubtful(self) -> bool:
        """Whether the downstream may refuse what it would accept in another form: in order, or as whole rows."""
        return self.by_image or self.sets or self.unchanged is not None or bool(self.unique)

    @property
    def target(self) -> bytes:
        """The downstream table in backticks."""
        return quoted(*self.target_name).encode()

    @property
    def delete_head(self) -> bytes:
        """``DELETE FROM … WHERE`` for many rows."""
        return delete_head(self.target_name, self.index)

    @property
    def routed(self) -> bool:
        """Whether the downstream's table has another name than the upstream's."""
        return self.target_name != self.upstream

    @property
    def partial(self) -> bool:
        """Whether some changes of this table are left out, so that other changes may not find their row."""
        return bool(self.dropped or self.expressions)

    @property
    def knows_rows(self) -> bool:
        """Whether the values of the whole row are known, so that it can be inserted."""
        return self.structure.after_columns is None or self.structure.before_columns == ()

    @property
    def insert_columns(self) -> tuple[str, ...]:
        """The columns that an INSERT names."""
        return (*self.writable, *(name for name, _ in self.filled))

    def in_order(self) -> TablePlan:
        """Return the plan with changes that are made in the upstream's order."""
        return replace(
            self,
            mode=ApplyMode.ORDERED,
            by_image=False,
            placeholders=None,
            unchanged=None,
            unique=frozenset(),
        )

    @property
    def filter(self) -> RowFilter | None:
        """The expressions as code. Raises ConfigError if one cannot be evaluated for this structure."""
        if not self.expressions:
            return None
        return compile_filter(self.structure, self.expressions, self.collations)


@dataclass(frozen=True)
class SlicePlan:
    """The plan of a slice, for the executors.

    Attributes:
        window: for a part of an epoch, the numbers of its rows; None for all rows that are read.
        causality: how the rows conflict, if several workers write them.
        copied: whether there are only rows of copies, which may be inserted in any order, and again.
        traced: whether each row's result names its event.
        compacted: the headers of tables that are written row by row here and would be compacted otherwise.
    """

    tables: tuple[TablePlan, ...]
    limits: Limits
    window: tuple[int, int] | None = None
    causality: Causality | None = None
    copied: bool = False
    traced: bool = False
    compacted: frozenset[bytes] = frozenset()

    def in_order(self, names: Collection[QualifiedName]) -> SlicePlan:
        """Return the plan in which these downstream tables' changes are made in the upstream's order."""
        tables = (table.in_order() if table.target_name in names else table for table in self.tables)
        return replace(self, tables=tuple(tables))

    def row_by_row(self) -> SlicePlan:
        """Return the plan with one traced statement for each row change, in the upstream's order."""
        tables = tuple(
            table.in_order() if table.mode is ApplyMode.COMPACT else table for table in self.tables
        )
        compacted = frozenset(
            table.header
            for table in self.tables
            if table.mode is ApplyMode.COMPACT and not (table.by_image or table.sets)
        )
        limits = replace(self.limits, max_rows=1)
        return replace(self, tables=tables, limits=limits, traced=True, compacted=compacted)


def check_copied(plan: SlicePlan, slice_: Slice) -> None:
    """Check that the changes of tables that are being copied can be made without some of their rows.

    Raises:
        DownstreamError: TR665, no key finds one row of a changed table downstream.
    """
    changed = {
        (table.db, table.table) for table in slice_.touched if table.incomplete and table.rows > table.reads
    }
    for table in plan.tables:
        if table.upstream not in changed or table.mode is ApplyMode.SKIP:
            continue
        if table.locator.find is RowMatch.WHOLE:
            raise DownstreamError(
                "TR665",
                "the table changes while a copy of it runs, and no key finds its rows on the downstream",
                where=replace(slice_.where, table=table.name),
                hint="give the downstream's table the upstream's primary key, and start again",
                applied=NOTHING_APPLIED,
            )


def structures_of(slice_: Slice, known: Mapping[str, TableStructure]) -> dict[str, TableStructure]:
    """Return the structures of a slice's rows by fingerprint. Raises LogError TR552 if the tracker lacks one."""
    if unknown := sorted(slice_.fingerprints - set(known)):
        raise LogError(
            "TR552",
            f"the schema tracker does not know the structure with fingerprint {unknown[0]}",
            where=slice_.where,
            hint="the schemas topic, or the epoch that introduced it, is damaged",
            applied=NOTHING_APPLIED,
        )
    return {fingerprint: known[fingerprint] for fingerprint in slice_.fingerprints}


def targets_of(structures: Mapping[str, TableStructure], rules: Rules) -> dict[QualifiedName, QualifiedName]:
    """Return the downstream's name of each upstream table whose rows may be applied."""
    named = ((s.db, s.table) for s in structures.values())
    wanted = [name for name in named if name not in rules.hidden and rules.tables.allows(*name)]
    kept = [name for name in wanted if len(rules.events.dropped_dml(*name)) < len(DML)]
    return {name: rules.router.table(*name) for name in kept}


#: by fingerprint, the downstream's name, and whether several tables go into it and it is unfinished: for which objects
#: a table was planned, and its plan
PlannedTables = dict[
    tuple[str, QualifiedName, bool, bool], tuple[TableStructure, TargetTable | None, TablePlan]
]
_MOST_PLANNED = 10_000


def plan_slice(
    structures: Mapping[str, TableStructure],
    targets: Mapping[QualifiedName, TargetTable | None],
    rules: Rules,
    limits: Limits,
    where: Where,
    *,
    safe: bool = False,
    is_repeat: bool = False,
    unfinished: Collection[QualifiedName] = (),
    incomplete: Collection[QualifiedName] = (),
    doubtful: Callable[[QualifiedName], bool] = lambda name: False,
    changes: Mapping[str, Collection[Change]] | None = None,
    planned: PlannedTables | None = None,
) -> SlicePlan:
    """Plan each structure against the downstream's table.

    Args:
        targets: the downstream's tables by their names there.
        safe: safe mode.
        is_repeat: whether the slice is reapplied after a rewind.
        unfinished: tables in which an interrupted attempt has left rows, even if they have transactions now.
        incomplete: the upstream's tables of which a copy runs in the slice.
        doubtful: whether the rows of this downstream table may be compacted where the downstream may refuse that: by
            their images if it has no key, if their images lack columns, to the columns that changed, in place
            beside other unique keys, and where a foreign key might act, if the upstream has logged what it did.
        changes: the kinds of changes that rows of each structure may have, by fingerprint. None if tables with
            cascading foreign keys are changed in order in any case.
        planned: what was planned before with the same rules, and is kept for the next slices.

    Raises:
        DownstreamError: a table cannot hold the rows.
    """
    planned = {} if planned is None else planned
    names = targets_of(structures, rules)
    into = Counter(names.values())
    tables = []
    cascade_in_order = is_repeat or safe or changes is None
    for fingerprint, structure in sorted(structures.items()):
        header = widened(value_header(bytes.fromhex(fingerprint)))
        name = names.get((structure.db, structure.table))
        if name is None:
            tables.append(TablePlan(header, structure, ApplyMode.SKIP))
        else:
            merged = into[name] > 1 or rules.router.merges(*name)
            key, target = (fingerprint, name, merged, name in unfinished), targets[name]
            known = planned.get(key)
            if known is None or known[0] is not structure or known[1] is not target:
                table = _plan_table(header, structure, target, name, rules, where, merged, unfinished)
                known = structure, target, table
                if len(planned) >= _MOST_PLANNED:
                    planned.clear()
                planned[key] = known
            table = known[2]
            copied = (structure.db, structure.table) in incomplete
            careful = is_repeat or safe or not doubtful(name)
            if (table.by_image and careful) or (table.lacks_columns and (careful or copied)):
                table = table.in_order()
            if careful or copied:
                in_place = None if table.unique else table.in_place
                table = replace(table, unchanged=None, in_place=in_place, unique=frozenset())
            safely = (safe or copied) and table.locator.find is not RowMatch.WHOLE
            table = replace(table, safe=safely, incomplete=copied, is_repeat=is_repeat, gives_way=is_repeat)
            if safely or is_repeat:
                table = replace(table, in_place=None)
            if table.cascades and changes is not None:
                acts = not table.acting.isdisjoint(changes.get(fingerprint, ()))
                cascade_in_order |= copied or (acts and careful)
            tables.append(table)
    if cascade_in_order:
        tables = [table.in_order() if table.cascades else table for table in tables]
    return SlicePlan(_level(tables), limits)


def changes_in(slice_: Slice) -> dict[str, set[Change]]:
    """Return the kinds of changes that a slice's rows may have, by the fingerprints of their structures."""
    found: dict[str, set[Change]] = {}
    for table in slice_.touched:
        kinds = found.setdefault(table.fingerprint, set())
        kinds |= {Change.DELETE} if table.deletes else set()
        # The halves of a key change count as updates.
        kinds |= {Change.UPDATE, Change.KEY_CHANGE} if table.updates else set()
    return found


def _level(tables: list[TablePlan]) -> tuple[TablePlan, ...]:
    """Give all tables that go into one downstream table the same mode, because rows may move between them."""
    ordered = {table.target_name for table in tables if table.mode is ApplyMode.ORDERED}
    # A row's first whole image may stand behind an UPDATE of some columns.
    setting = {table.target_name for table in tables if table.sets}

    def level(table: TablePlan) -> TablePlan:
        if table.mode is ApplyMode.COMPACT and table.target_name in ordered:
            return table.in_order()
        return replace(table, unchanged=None) if table.target_name in setting else table

    return tuple(map(level, tables))


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
    # DELETE and INSERT would lose the values of columns that only the downstream has.
    extra = target.writable - {name.lower() for name in names}
    # Compaction concludes from the log which rows exist; with changes left out, that is wrong.
    dropped = rules.events.dropped_dml(structure.db, structure.table)
    expressions = rules.expressions_of(structure.db, structure.table)
    if history and (dropped or expressions):
        raise DownstreamError(
            "TR655",
            "row filters cannot be used on a system-versioned table: its log does not distinguish UPDATE from DELETE",
            where=place,
            hint="leave the whole table out, or DROP SYSTEM VERSIONING downstream and add row_start and row_end"
            " TIMESTAMP(6) NOT NULL to the columns and the key: then all rows are written",
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
    # Triggers must run for the upstream's kinds of changes, not for DELETE and INSERT instead of UPDATE.
    apart = bool(extra or target.triggers)
    ordered = apart or partial or not rules.compact
    ordered = ordered or history or not transactional
    # Of equal rows any one is meant, so only their number counts.
    may_be_counted = structure.is_full and not (structure.key or target.keys or merged or target.in_family)
    by_image = may_be_counted and not ordered
    ordered = ordered or not (locator.sure or by_image)
    # DELETE and INSERT would also lose values that an UPDATE's after image lacks. A DELETE needs only the key.
    lacks_columns = bool(after and absent)
    sets = lacks_columns and structure.before_columns != ()
    unique = _staying(names, structure, target, locator, sets=sets) if not (ordered or merged) else None
    in_place = None if unique is None else target.flavor
    placeholders = None
    if sets and not ordered:
        placeholders = _placeholders(absent, target) if in_place else None
        ordered = placeholders is None
    unchanged = None
    if in_place and structure.is_full:
        unchanged = _unchanged(structure, names, target, place)
    table = TablePlan(
        header,
        structure,
        ApplyMode.ORDERED if ordered else ApplyMode.COMPACT,
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
        acting=_acting(structure, target),
        transactional=transactional,
        alone=len(target.keys) > 1 or bool(target.triggers) or not structure.is_full,
        # No foreign key acts when a row is inserted.
        any_order=not ordered and not merged and locator.find is RowMatch.KEY,
        by_predicate=misses_in_lists(structure, target, locator),
        in_place=in_place,
        unique=frozenset(unique or ()),
        by_image=by_image,
        lacks_columns=lacks_columns,
        placeholders=placeholders,
        unchanged=unchanged,
        index=locator.index if target.flavor == "mysql" else "",
    )
    # Report unsupported expressions here, not on an executor.
    _ = table.filter
    return table


def _as_written(structure: TableStructure, target: TargetTable) -> TableStructure:
    pairs = ((column, target.column(column.name)) for column in structure.columns)
    columns = tuple(column if there is None else written_column(column, there) for column, there in pairs)
    return structure if columns == structure.columns else replace(structure, columns=columns)


def _staying(
    names: list[str], structure: TableStructure, target: TargetTable, locator: RowLocator, *, sets: bool
) -> list[str] | None:
    """Return the columns that have to stay so that a row can be changed in place; None if it never can.

    INSERT … ON DUPLICATE KEY UPDATE then finds the row with the upstream's key by any unique key, and sets its values.
    A server takes ENUM and SET over as text, and finds the first of members that are alike to the collation. Where
    UPDATEs set some columns nothing else is possible, and the server may refuse a unique value that moves.

    Args:
        sets: whether the structure's rows are such UPDATEs.
    """
    own = {name.lower() for name in structure.key}
    keys = [key for key in target.keys if key.plain and not key.nullable and own.issuperset(key.columns)]
    others = [key for key in target.keys if key not in keys[:1]]
    written = {name.lower(): name for name in names}
    columns = {column for key in others for column in key.columns}
    possible = (
        locator.find is RowMatch.KEY
        and bool(keys)
        and all(key.plain for key in others)
        and (structure.is_full or sets or not others)
        and columns.issubset(written)
        and target.engine.lower() == "innodb"
        and not target.versioned
        and not any(_are_alike(column) for column in target.columns)
    )
    return [written[column] for column in columns] if possible else None


def _unchanged(
    structure: TableStructure, names: list[str], target: TargetTable, place: Where
) -> Unchanged | None:
    """Return what is said of columns that keep their values; None if something may depend on them."""
    others = tuple(name for name in names if name not in structure.key)
    placeholders = _placeholders(others, target)
    if placeholders is None or target.generated or _CONSTRAINT.search(target.definition):
        return None
    return Unchanged(placeholders, _filled(structure, others, target, place))


def _placeholders(absent: tuple[str, ...], target: TargetTable) -> Filled | None:
    """Return values for columns that an INSERT has to name, or whose default may have effects; None if one has none."""
    columns = [column for name in absent if (column := target.column(name))]
    needed = [column for column in columns if column.default_sql != b"DEFAULT"]
    found = [(column.name, column.any_value) for column in needed]
    known = tuple((name, value) for name, value in found if value is not None)
    return known if len(known) == len(found) else None


def _are_alike(column: TargetColumn) -> bool:
    """Whether the column's collation may find one of its members where another one is meant, or one for index 0."""
    members = column.type.members
    if not members:
        return False
    differ = len({member.lower() for member in members}) == len(members)
    return not (
        differ and all(map(_PLAIN_MEMBER.fullmatch, members)) and _PLAIN_COLLATION.fullmatch(column.collation)
    )


def _acting(structure: TableStructure, target: TargetTable) -> frozenset[Change]:
    """Return the kinds of changes of a table's rows for which foreign keys change other rows."""
    if target.referred is None:
        return frozenset(Change)
    on_delete, on_update = target.referred
    found = {Change.DELETE} if on_delete else set()
    found |= {Change.KEY_CHANGE} if on_update else set()
    # An UPDATE that does not change the key may change other columns to which foreign keys refer.
    found |= set() if on_update <= {name.lower() for name in structure.key} else {Change.UPDATE}
    return frozenset(found)


def _check_repeatable(target: TargetTable, locator: RowLocator, place: Where) -> None:
    """Check that rows of a failed attempt can be recognized in a table without transactions: it needs a key."""
    if locator.find is not RowMatch.KEY:
        there = ".".join(target.name)
        raise DownstreamError(
            "TR656",
            f"the downstream's table has the engine {target.engine}, which has no transactions, and no unique key on"
            " the upstream's key: the rows of an interrupted batch would be written twice",
            where=place,
            hint=f"ALTER TABLE {there} ENGINE=InnoDB on the downstream, or give it a primary key on both sides;"
            ' with [ddl] engines = "innodb" such tables are created in InnoDB',
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
    """Return the values for columns that after images lack."""
    there = {name: column for name in absent if (column := target.column(name))}
    if structure.before_columns != ():
        # The server would set these columns to its own time, but they did not change.
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
