"""Decides, before any row is read, by which values the rows of a slice can conflict.

Two rows conflict if two transactions in any order may not write one row each:

- Before or after their changes they have the same value of a unique key of the downstream, compared with its collation.
  NULL equals nothing. A unique value that moves from row to row is such a conflict.
- One of them is the parent of the other by a foreign key.
- They are of a table in which conflicts of single rows cannot be determined: one without a key, applied in order
  because of cascades or filters, with row images that lack columns, or with a unique key over an expression, a
  generated column, a period, or a column of another type than the upstream's. All rows of such a table are one group
  (``whole``).

If a trigger may change rows of any table, in safe mode, where the state of the rows is not known, and if a table has no
transactions, conflicts cannot be determined, and one transaction writes the slice. While a table is being copied, a row
is missing or has the values that the log implies, so it has no other conflicts.

Values are compared by their identities: bytes that are equal whenever the server treats two values as equal. They may
also be equal if it does not, which only reduces parallelism. Identities of printable ASCII are computed here; for other
text the server returns collation weights (``weights.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas.structure import Column, WrittenColumn
from schemas.tables import QualifiedName
from spark_consumer.plan.conflicts import (
    Causality,
    ConflictColumn,
    ConflictKey,
    Normalization,
    TableCausality,
)
from spark_consumer.plan.plan import ApplyMode, SlicePlan, TablePlan
from spark_consumer.rules.expressions import UnsupportedExpression
from spark_consumer.rules.expressions.kinds import collation
from spark_consumer.target.table import ForeignKeys, TargetColumn, TargetKeyPart, TargetTable
from spark_consumer.target.type_capacity import type_of

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_BYTES = frozenset({"varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_SIGNED = frozenset({"decimal", "float", "double"})
_CASCADING = ("", "")
# Two values of these are equal downstream exactly if the log's keys are the same bytes.
_SAME_BYTES = frozenset({Normalization.EXACT, Normalization.BYTES})


@dataclass
class _Groups:
    """Groups of tables: union-find over names."""

    parents: dict[QualifiedName, QualifiedName] = field(default_factory=dict)

    def find(self, name: QualifiedName) -> QualifiedName:
        while (above := self.parents.get(name, name)) != name:
            name = above
        return name

    def unite(self, one: QualifiedName, other: QualifiedName) -> None:
        self.parents[self.find(one)] = self.find(other)


def causality_of(
    plan: SlicePlan,
    targets: Mapping[QualifiedName, TargetTable | None],
    foreign: ForeignKeys,
    *,
    by_tables: bool = False,
) -> Causality | None:
    """Return how the rows of a planned slice conflict; None if it is not known, so that one transaction must write all.

    Args:
        targets: the downstream's tables by their names there.
        foreign: their foreign keys.
        by_tables: do not compare rows: tables that foreign keys connect are one group.
    """
    used = [table for table in plan.tables if table.mode is not ApplyMode.SKIP]
    there = {name: target for name, target in targets.items() if target is not None}
    if any(
        (table.safe and not table.incomplete) or there[table.target_name].triggers or not table.transactional
        for table in used
    ):
        return None
    return _Builder(used, there, foreign, by_tables).build(plan.tables)


class _Builder:
    """Collects spaces and groups over the tables of a slice."""

    def __init__(
        self,
        used: Sequence[TablePlan],
        targets: Mapping[QualifiedName, TargetTable],
        foreign: ForeignKeys,
        by_tables: bool,
    ) -> None:
        self._used, self._targets, self._foreign = used, targets, foreign
        self._by_tables = by_tables
        self._spaces: dict[object, int] = {}
        self._parts: list[tuple[ConflictColumn, ...]] = []
        self._whole: set[QualifiedName] = set()
        self._groups = _Groups()
        self._keys: dict[int, list[ConflictKey]] = {id(table): [] for table in used}

    def build(self, tables: Sequence[TablePlan]) -> Causality:
        for table in self._used:
            self._add_unique(table)
        for table in self._used:
            self._add_foreign(table)
        self._close()
        whole = sorted({self._groups.find(name) for name in self._whole})
        made = []
        for table in tables:
            name = _lower(table.target_name)
            if table.mode is ApplyMode.SKIP:
                made.append(TableCausality())
            elif self._groups.find(name) in whole:
                made.append(TableCausality(whole=whole.index(self._groups.find(name))))
            else:
                made.append(TableCausality(tuple(self._keys[id(table)]), by_key=self._by_key(table)))
        return Causality(tuple(made), tuple(self._parts))

    def _by_key(self, table: TablePlan) -> bool:
        """Whether rows of a downstream table conflict only if they have the same key in the log."""
        name = _lower(table.target_name)
        same = [one for one in self._used if _lower(one.target_name) == name]
        # The first key is the upstream's; another unique key, or a foreign key, would be one more.
        keys = [self._keys[id(one)] for one in same]
        return all(
            one.upstream == table.upstream and one.mode is ApplyMode.COMPACT and not (one.safe or one.history)
            for one in same
        ) and all(
            len(its) == 1 and all(p.normalization in _SAME_BYTES and p.length is None for p in its[0].parts)
            for its in keys
        )

    def _close(self) -> None:
        """Make tables one group that are connected with a table whose rows are one group."""
        pairs = [
            (_lower(table.target_name), foreign.parent)
            for table in self._used
            for foreign in self._foreign[table.target_name]
            if any(_lower(other.target_name) == foreign.parent for other in self._used)
        ]
        while joined := [pair for pair in pairs if self._is_new(*pair)]:
            for pair in joined:
                self._join(*pair)

    def _is_new(self, child: QualifiedName, parent: QualifiedName) -> bool:
        found = self._whole & {child, parent}
        return bool(found) and (len(found | {child, parent}) > len(found) or not self._is_one(child, parent))

    def _is_one(self, child: QualifiedName, parent: QualifiedName) -> bool:
        return self._groups.find(child) == self._groups.find(parent)

    def _add_unique(self, table: TablePlan) -> None:
        target, name = self._targets[table.target_name], _lower(table.target_name)
        if table.cascades:
            # Cascades may continue over tables without rows in this slice.
            self._groups.unite(name, _CASCADING)
        opaque = not all(key.plain for key in target.keys) or _has_period(target)
        if self._by_tables or opaque or not _is_apart(table):
            self._whole.add(name)
            return
        # The upstream's key finds the row, even if it is not unique downstream.
        own = tuple(TargetKeyPart(column.lower()) for column in table.structure.key)
        for columns in dict.fromkeys((own, *(key.parts for key in target.keys))):
            # Leaving out a column that only the downstream has may make rows seem equal, which does no harm.
            known = [one for one in columns if one.column in _columns(table)]
            parts = [
                _part(_columns(table).get(one.column or ""), target.column(one.column or ""), one.length)
                for one in known
            ]
            if not known or None in parts:
                self._whole.add(name)
                return
            space = (name, tuple((one.column, one.length) for one in columns))
            self._add(table, space, tuple(part for part in parts if part), refers=False)

    def _add(
        self, table: TablePlan, space: object, parts: tuple[ConflictColumn, ...], *, refers: bool
    ) -> None:
        number = self._spaces.setdefault(space, len(self._spaces))
        if number == len(self._parts):
            self._parts.append(parts)
        elif [(p.normalization, p.collation) for p in self._parts[number]] != [
            (p.normalization, p.collation) for p in parts
        ]:
            # Identities of different kinds cannot be compared: merged tables whose columns have different types.
            self._whole |= {_lower(table.target_name), *self._named(space)}
            for other in self._named(space):
                self._groups.unite(_lower(table.target_name), other)
        self._keys[id(table)].append(ConflictKey(number, parts, refers))

    @staticmethod
    def _named(space: object) -> list[QualifiedName]:
        assert isinstance(space, tuple)
        return [space[0], *([space[2]] if len(space) > 2 else [])]

    def _add_foreign(self, table: TablePlan) -> None:
        name = _lower(table.target_name)
        for foreign in self._foreign[table.target_name]:
            parents = [other for other in self._used if _lower(other.target_name) == foreign.parent]
            if not parents:
                continue
            space = (name, foreign.columns, foreign.parent, foreign.referenced)
            ends = [(table, foreign.columns, True)] + [(p, foreign.referenced, False) for p in parents]
            for end, columns, refers in ends:
                target = self._targets[end.target_name]
                parts = [_part(_columns(end).get(one), target.column(one), None) for one in columns]
                if None in parts:
                    self._join(name, foreign.parent)
                    break
                self._add(end, space, tuple(part for part in parts if part), refers=refers)

    def _join(self, child: QualifiedName, parent: QualifiedName) -> None:
        self._whole |= {child, parent}
        self._groups.unite(child, parent)


def _lower(name: QualifiedName) -> QualifiedName:
    return (name[0].lower(), name[1].lower())


def _columns(table: TablePlan) -> dict[str, Column]:
    return {column.name.lower(): column for column in table.structure.columns}


def _has_period(target: TargetTable) -> bool:
    """Whether a unique key compares periods: two rows conflict there if theirs overlap."""
    return "WITHOUT OVERLAPS" in target.definition.upper()


def _is_apart(table: TablePlan) -> bool:
    """Whether conflicts of single rows can be determined from the log."""
    structure = table.structure
    whole = structure.before_columns is None and structure.after_columns is None
    sure = bool(structure.key) and table.locator.sure
    return sure and whole and not (table.cascades or table.partial)


def _part(column: Column | None, target: TargetColumn | None, length: int | None) -> ConflictColumn | None:
    """Return how values of a column are compared downstream; None if only the server can compare them."""
    if column is None or target is None or target.generated:
        return None
    normalization = _normalization(column, target)
    if normalization is None or (
        length is not None and normalization in (Normalization.EXACT, Normalization.UNSIGNED)
    ):
        return None
    return ConflictColumn(column.name, normalization, length, target.type.charset, target.collation)


def _normalization(column: Column, target: TargetColumn) -> Normalization | None:
    ours, theirs = type_of(column), target.type
    if isinstance(column, WrittenColumn) and column.by_number:
        return Normalization.EXACT
    if target.collation:
        return _text_normalization(target.collation) if column.charset not in ("", "binary") else None
    if column.charset not in ("", "binary"):
        return None
    if {ours.base, theirs.base} <= _INTEGERS:
        return Normalization.EXACT
    if {ours.base, theirs.base} <= _BYTES:
        return Normalization.BYTES
    if ours.base != theirs.base or (ours.sizes != theirs.sizes and ours.base != "year"):
        return None
    if ours.base == "binary":
        return Normalization.BYTES
    return Normalization.UNSIGNED if ours.base in _SIGNED else Normalization.EXACT


def _text_normalization(name: str) -> Normalization:
    try:
        return Normalization.FOLDED if collation(name).folds else Normalization.TEXT
    except UnsupportedExpression:
        return Normalization.ASKED
