"""Renders a partition's rows as statements on the executors, with a count and a digest of all rows read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress, islice
from operator import itemgetter

from zlib_ng.zlib_ng import crc32

from schemas.errors import NOTHING_APPLIED, DownstreamError, Where
from schemas.sql.literals import (
    Comparison,
    Render,
    Renderers,
    RowSource,
    comparisons,
    compile_images,
    compile_literals,
    compile_place,
    compile_placed,
    compile_renderers,
    source_reader,
)
from schemas.sql.parameters import Parameters, compile_parameters
from schemas.types.parameter import NoParameter
from schemas.wire.avro_schema import KEY_CHANGE, OP_AT
from schemas.wire.epoch import digest_of
from schemas.wire.row_check import compile_check
from schemas.wire.rows import HEADER_SIZE, widened
from spark_consumer.plan.plan import ApplyMode, Change, SlicePlan, TablePlan
from spark_consumer.plan.statements import (
    FEW_ROWS,
    LONG_ROW,
    PREPARED_ROWS,
    Limits,
    Statement,
    insert_head,
    merged,
    merged_deletes,
    prepared,
    updates_around,
)
from spark_consumer.rows.changed_columns import ChangedRow, divide
from spark_consumer.rows.column_updates import lay_updates
from spark_consumer.rows.compact import NetChanges, compact, compact_images
from spark_consumer.rows.ordered import may_cascade
from spark_consumer.rows.results import (
    ALWAYS,
    IF_MISSING,
    IF_THERE,
    Deletes,
    InsertedRows,
    Inserts,
    OnlyInOrder,
    OrderedChange,
    Result,
    RowTally,
    TracedRow,
    UnwrittenCounts,
    Updates,
)
from spark_consumer.rows.slice_rows import RangeRows
from spark_consumer.rules.expressions.kinds import Unevaluable
from spark_consumer.target.row_locator import CurrentRowTest, RowMatch, RowMatcher, compile_finder

_EVENTS = {ord("c"): "insert", ord("r"): "insert", ord("u"): "update", ord("d"): "delete"}
_HEADER, _OPERATION = itemgetter(slice(0, HEADER_SIZE)), itemgetter(OP_AT)
_UPDATE, _DELETE, _READ = ord("u"), ord("d"), ord("r")
# Why changes can only be made in the upstream's order.
_ACTING = "foreign keys changed rows that are not in the log"
_KEY_MOVES = "a key changes, and row images lack columns"


# The most rows that one DELETE looks for while it reads a whole table, and the bytes of a value in a list of them.
_SCANNED_FOR, _LONGEST_LISTED = 500, 64


#: makes statements of what is around the rows, and of the rows
Make = Callable[[bytes, Iterable[bytes], bytes, Limits], Iterator[Statement]]


class UnknownHeader(Exception):
    """The header of a row value is not that of a structure in the plan."""


class UnevaluableRow(DownstreamError):
    """TR634: an expression cannot be evaluated exactly for a row."""

    def __init__(self, text: str, where: Where) -> None:
        super().__init__(
            "TR634",
            f"an expression-filter expression cannot be evaluated exactly for a row: {text}",
            where=where,
            hint="change the expression, for example with COLLATE and a _bin collation; if the row image lacks a"
            " column, set binlog_row_image = FULL upstream",
            applied=NOTHING_APPLIED,
        )


class _Tables(dict[bytes, "TableRenderer"]):
    def __missing__(self, header: bytes) -> TableRenderer:
        raise UnknownHeader(header)


def render(plan: SlicePlan, rows: RangeRows) -> Iterator[Result]:
    """Yield the results for one partition's rows."""
    keys, values = rows.keys, rows.values
    if plan.window:
        keys, values = within(plan, plan.window, keys, values)
    yield tally(values)
    values = all_widened(plan, values)
    tables = tables_of(plan)
    if plan.copied:
        yield from _copied(plan, tables, keys, values)
        return
    if family := _acted(tables, values):
        yield from (OnlyInOrder(table.index, _ACTING) for table in family)
        return
    apart = {
        header
        for header, table in tables.items()
        if table.plan.mode is not ApplyMode.COMPACT or table.plan.by_image
    }
    if apart:
        headers = list(map(_HEADER, values))
        chosen = [header in apart for header in headers]
        for key, value in zip(compress(keys, chosen), compress(values, chosen), strict=True):
            table = tables[value[:HEADER_SIZE]]
            table.check(key, value)
            if table.plan.by_image:
                table.gone.append((key, value))
                continue
            if plan.traced or not table.plan.transactional:
                yield table.traced(key, value)
            result = table.in_order(key, value)
            if result is not None:
                yield result
        others = [not one for one in chosen]
        keys, values = list(compress(keys, others)), list(compress(values, others))
        for table in tables.values():
            if table.plan.by_image:
                yield from table.counted(plan)
    if any(table.plan.sets for table in tables.values()):
        laid = lay_updates(keys, values, {header: table.plan for header, table in tables.items()})
        if laid.refused:
            yield from (OnlyInOrder(tables[header].index, _KEY_MOVES) for header in laid.refused)
            return
        keys, values = laid.keys, laid.values
        yield UnwrittenCounts(laid.saved, 0)
        for key, value in laid.updates:
            tables[value[:HEADER_SIZE]].updated.append((key, value))
    net = compact(keys, values, frozenset(header for header, table in tables.items() if table.plan.safe))
    yield not_written(net, tables)
    for key, value in net.gone:
        tables[value[:HEADER_SIZE]].gone.append((key, value))
    for item in net.written:
        tables[item[1][:HEADER_SIZE]].written.append(item)
    for table in tables.values():
        if table.plan.sets:
            yield from table.column_updates(table.updated, plan.limits)
        elif table.plan.mode is ApplyMode.COMPACT and not table.plan.by_image:
            yield from table.statements(plan, net.begun)


def _acted(tables: Mapping[bytes, TableRenderer], values: Sequence[bytes]) -> list[TableRenderer]:
    """Return tables with cascading foreign keys that are not all in order, if one may have acted without a trace."""
    family = [table for table in tables.values() if table.plan.cascades]
    acting = {table.plan.header: table for table in family if table.plan.acting}
    if not acting or all(table.plan.mode is ApplyMode.ORDERED for table in family):
        return []
    for value in values:
        table = acting.get(value[:HEADER_SIZE])
        if table is not None and value[OP_AT] in (_UPDATE, _DELETE) and table.acts(value):
            return family
    return []


def _copied(
    plan: SlicePlan, tables: Mapping[bytes, TableRenderer], keys: Sequence[bytes], values: Sequence[bytes]
) -> Iterator[Result]:
    """Yield rows of copies. Raises ValueError for another change."""
    if not {_READ}.issuperset(map(_OPERATION, values)):
        raise ValueError("the record is not a row of a copy")
    headers = list(map(_HEADER, values))
    for header in dict.fromkeys(headers):
        table, chosen = tables[header], [one == header for one in headers]
        if table.plan.mode is not ApplyMode.SKIP:
            yield from table.placed(list(compress(values, chosen)), list(compress(keys, chosen)))


def within(
    plan: SlicePlan, window: tuple[int, int], keys: Sequence[bytes], values: Sequence[bytes]
) -> tuple[list[bytes], list[bytes]]:
    """Return the rows whose numbers in their epoch are in the window. Rows of other structures are not."""
    sources = {table.header: source_reader(table.structure) for table in plan.tables}
    kept: tuple[list[bytes], list[bytes]] = ([], [])
    for key, value in zip(keys, values, strict=True):
        wide = widened(value)
        source = sources.get(wide[:HEADER_SIZE])
        if source is not None and window[0] <= source(wide).seq < window[1]:
            kept[0].append(key)
            kept[1].append(value)
    return kept


def tally(values: Sequence[bytes]) -> RowTally:
    """Return count and digest of the rows read."""
    return RowTally(len(values), digest_of(values))


def all_widened(plan: SlicePlan, values: Sequence[bytes]) -> Sequence[bytes]:
    """Return the values with headers of the same size."""
    return values if all(table.header[0] for table in plan.tables) else list(map(widened, values))


def tables_of(plan: SlicePlan) -> dict[bytes, TableRenderer]:
    """Return the plan's tables by the headers of their rows; a missing header raises UnknownHeader."""
    return _Tables({table.header: TableRenderer(index, table) for index, table in enumerate(plan.tables)})


def not_written(net: NetChanges, tables: Mapping[bytes, TableRenderer]) -> UnwrittenCounts:
    """Count rows that are not written, by reason."""
    return UnwrittenCounts(net.saved, sum(table.left_out for table in tables.values()))


@dataclass
class TableRenderer:
    """Renders the rows of one table structure in a partition."""

    index: int
    plan: TablePlan

    def __post_init__(self) -> None:
        self.gone: list[tuple[bytes, bytes]] = []
        self.written: list[tuple[bytes, bytes]] = []
        self.updated: list[tuple[bytes, bytes]] = []
        self.left_out = 0
        self.filter = self.plan.filter
        self._in_force = CurrentRowTest(self.plan.structure) if self.plan.history else None

    def acts(self, value: bytes) -> bool:
        """Whether foreign keys may have changed other rows for an UPDATE or DELETE, which is not in the log."""
        flags = self.renderers.source(value).flags
        kind = Change.UPDATE if value[OP_AT] == _UPDATE else Change.DELETE
        return may_cascade(flags) and (Change.KEY_CHANGE if flags & KEY_CHANGE else kind) in self.plan.acting

    @cached_property
    def check(self) -> Callable[[bytes, bytes], None]:
        """A function that raises ValueError or LookupError if a key does not belong to the row of a value."""
        return compile_check(self.plan.structure)

    # Cached: looking the compiled functions up for each row would cost more than rendering it.
    @cached_property
    def renderers(self) -> Renderers:
        plan = self.plan
        return compile_renderers(plan.structure, plan.writable, plan.filled, plan.documents)

    @cached_property
    def parameters(self) -> Parameters:
        return compile_parameters(self.plan.structure, self.plan.writable, self.plan.filled)

    @cached_property
    def finder(self) -> RowMatcher:
        locator = self.plan.locator
        exact = locator.find is RowMatch.EXACT
        return compile_finder(
            self.plan.structure, self.plan.structure.key if exact else locator.columns, exact
        )

    def statements(self, plan: SlicePlan, begun: Mapping[bytes, bytes]) -> Iterator[Result]:
        """Yield the table's DELETEs, then its changes in place, then its rows to insert.

        Args:
            begun: see ``NetChanges``.
        """
        changed: list[tuple[bytes, bytes]] = []
        if self.plan.in_place and self.gone:
            gone, written = dict(self.gone), dict(self.written)
            both = [ChangedRow(key, gone[key], value) for key, value in self.written if key in gone]
            some, whole, replaced = divide(self.plan, both)
            for one in some:
                yield from TableRenderer(self.index, one.plan).column_updates(one.rows, plan.limits)
            changed = self._in_key_order([(row.key, row.last) for row in whole])
            self.gone = [item for item in self.gone if item[0] not in written]
            self.gone += ((row.key, row.first) for row in replaced)
            self.written = [item for item in self.written if item[0] not in gone]
            self.written += ((row.key, row.last) for row in replaced)
        limits, values = plan.limits, (value for _, value in chain(changed, self.written))
        few = self._is_few(len(changed) + len(self.written), values, limits)
        updates, others = self._in_place(changed, limits, self._form(few))
        if few:
            updates += (self._update(key, value) for key, value in others)
            others = []
        found = sorted(chain(self._gone(), (self._of_key(key) for key, _ in others)))
        found.sort(key=len)
        deletes = merged_deletes(self.plan.delete_head, self.find_columns, found, limits)
        yield from (Deletes(self.index, one.sql, one.rows) for one in deletes)
        yield from (Updates(self.index, one.sql, one.rows, one.values) for one in updates)
        placed, rewritten = list(map(itemgetter(1), self.written)), []
        if _UPDATE in map(_OPERATION, placed):
            placed = [value for value in placed if value[OP_AT] != _UPDATE]
            rewritten = [item for item in self.written if item[1][OP_AT] == _UPDATE]
        rewritten += ((b"", value) for _, value in others)
        yield from self.placed(placed, few=few)
        yield from self._changed(rewritten, begun, few=few)

    def column_updates(self, updates: Sequence[tuple[bytes, bytes]], limits: Limits) -> Iterator[Updates]:
        """Yield the changes in place of rows whose images lack columns.

        Args:
            updates: key and value of each.
        """
        assert self.plan.in_place
        rows = self._in_key_order(updates)
        few = self._is_few(len(rows), (value for _, value in rows), limits)
        filled = TableRenderer(self.index, replace(self.plan, filled=self.plan.placeholders or ()))
        kept = [name for name, _ in self.plan.filled]
        made, others = filled._in_place(rows, limits, filled._form(few), kept)
        made += (self._update(key, value) for key, value in others)
        yield from (Updates(self.index, one.sql, one.rows, one.values) for one in made)

    def _in_key_order(self, rows: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return rows, each behind its key, roughly in the order of these, so that a server looks at a page once.

        It is that of whole numbers.
        """
        places = [self._of_key(key) for key, _ in rows]
        order = sorted(range(len(rows)), key=places.__getitem__)
        order.sort(key=list(map(len, places)).__getitem__)
        return [rows[number] for number in order]

    def _update(self, key: bytes, value: bytes) -> Statement:
        """Return the change of one row, of which a server says whether it was there."""
        assignments, match = self.renderers.assignments(value), self.renderers.match_key(key)
        return Statement(b"UPDATE " + self.plan.target + b" SET " + assignments + b" WHERE " + match, 1)

    def counted(self, plan: SlicePlan) -> Iterator[Result]:
        """Yield the DELETEs and INSERTs of rows without a key, which are in ``gone``."""
        net = compact_images([value for _, value in self.gone], compile_images(self.plan.structure))
        yield UnwrittenCounts(net.saved, 0)
        match, limits = self.renderers.match_before, plan.limits
        single = [value for value, count in net.gone if count == 1]
        compared = comparisons(self.plan.structure, self.plan.documents)
        expression, listed = self._listed(compared, single)
        exact = b",".join(one.expression for one in compared)
        # The list is no longer than the predicates.
        most = Limits(min(limits.max_rows, _SCANNED_FOR), limits.max_bytes // 2)
        taken = 0
        for one in merged(b"", (b"(" + match(value) + b")" for value in single), b"", most, b" OR "):
            its, where = listed[taken : taken + one.rows], one.sql
            taken += one.rows
            if expression and one.rows > 1:
                # A server searches the list for a row, but compares the row with one predicate after the other.
                where = expression + b" IN (" + b",".join(its) + b") AND (" + where + b")"
            sql = self.plan.delete_head + where
            # Else one row might be there twice and another one be missing.
            rows = b"SELECT DISTINCT " + exact + sql.removeprefix(b"DELETE")
            different = b"SELECT COUNT(*) FROM (" + rows + b") AS d"
            yield Deletes(self.index, sql, one.rows, different if one.rows > 1 else None)
        for value, count in net.gone:
            if count > 1:
                sql = self.plan.delete_head + match(value) + b" LIMIT %d" % count
                yield Deletes(self.index, sql, count)
        head = insert_head(self.plan.target, self.renderers.columns)
        make = self._form(self._is_few(len(net.written), net.written, limits))
        yield from (
            Inserts(self.index, one.sql, one.rows, one.values) for one in make(head, net.written, b"", limits)
        )

    def _listed(self, compared: Sequence[Comparison], values: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
        """Return the expression that differs in most rows, and what it is in each; empty if there is none.

        Args:
            values: rows with before images.
        """
        literals = compile_literals(self.plan.structure, tuple(one.column for one in compared), before=True)
        found: list[tuple[int, int, Comparison, Sequence[bytes]]] = []
        for number, its in enumerate(zip(*map(literals, values), strict=True)):
            if b"NULL" not in its and max(map(len, its)) <= _LONGEST_LISTED:
                found.append((len(set(its)), -number, compared[number], its))
        if not found:
            return b"", []
        _, _, one, chosen = max(found)
        return one.expression, [one.start + literal + one.end for literal in chosen]

    def _is_few(self, rows: int, values: Iterable[bytes], limits: Limits) -> bool:
        """Whether so many rows, which these are, cost a server less as literals."""
        if not self.plan.writable:
            return True
        return min(rows, limits.max_rows) < FEW_ROWS and max(map(len, values), default=0) < LONG_ROW

    def _form(self, few: bool) -> Make:
        return self._as_literals if few else self._as_parameters

    def _as_literals(
        self, head: bytes, rows: Iterable[bytes], tail: bytes, limits: Limits
    ) -> Iterator[Statement]:
        return merged(head, map(self.renderers.after, rows), tail, limits)

    def _as_parameters(
        self, head: bytes, rows: Iterable[bytes], tail: bytes, limits: Limits
    ) -> Iterator[Statement]:
        """Prepared statements; literals for a block in which a row needs them."""
        coming, after = iter(rows), self.parameters.after
        while block := list(islice(coming, PREPARED_ROWS)):
            try:
                _, nulls, values = after(block)
            except NoParameter:
                yield from self._as_literals(head, block, tail, limits)
            else:
                yield from prepared(head, nulls, values, tail, limits, self.parameters)

    @cached_property
    def placed_literals(self) -> Callable[[bytes], tuple[int, bytes]]:
        return compile_placed(self.plan.structure, self.plan.writable, self.plan.filled)

    @cached_property
    def place(self) -> Callable[[bytes], int]:
        return compile_place(self.plan.structure)

    def merged(
        self,
        gone: Iterable[bytes],
        changed: Sequence[tuple[bytes, bytes]],
        written: Iterable[bytes],
        limits: Limits,
        make: Make = merged,
    ) -> tuple[Iterator[Statement], list[Statement], Iterator[Statement]]:
        """Return the DELETEs, the changes in place, and the INSERTs.

        Args:
            gone: the values that find each row to remove.
            changed: of rows that can be changed in place the values that find them, and the new rows.
            written: each row to insert.
            make: makes the statements of rows; without it they are values in parentheses.
        """
        updates, others = self._in_place(changed, limits, make)
        gone = chain(gone, (found for found, _ in others))
        written = chain(written, (row for _, row in others))
        head = insert_head(self.plan.target, self.renderers.columns)
        deletes = merged_deletes(self.plan.delete_head, self.find_columns, gone, limits)
        return deletes, updates, make(head, written, b"", limits)

    def _in_place(
        self, changed: Sequence[tuple[bytes, bytes]], limits: Limits, make: Make, kept: Sequence[str] = ()
    ) -> tuple[list[Statement], list[tuple[bytes, bytes]]]:
        """Return the changes in place, and those of rows that would be alone in a statement.

        Args:
            changed: each row behind what finds it.
            kept: see ``updates_around``.
        """
        if not changed or not self.plan.in_place:
            return [], []
        updates, others, place = [], [], 0
        filled = [name for name, _ in self.plan.filled]
        key = self.plan.structure.key if self.plan.unique else ()
        head, tail = updates_around(
            self.plan.target, self.plan.writable, self.plan.in_place, filled, kept, key
        )
        for one in make(head, (row for _, row in changed), tail, limits):
            if one.rows > 1:
                updates.append(one)
            else:
                # A server does not say of a single row whether it was there.
                others.append(changed[place])
            place += one.rows
        return updates, others

    def placed(
        self, values: Sequence[bytes], keys: Sequence[bytes] = (), *, few: bool = False
    ) -> Iterator[InsertedRows]:
        """Yield rows that have no before image."""
        for begin in range(0, len(values), PREPARED_ROWS):
            its_keys, block = keys[begin : begin + PREPARED_ROWS], values[begin : begin + PREPARED_ROWS]
            if self.plan.writable and not few:
                with suppress(NoParameter):
                    yield InsertedRows(self.index, *self.parameters.placed(block), its_keys)
                    continue
            rows = list(map(self.placed_literals, block))
            places, literals = [place for place, _ in rows], [text for _, text in rows]
            yield InsertedRows(self.index, places, None, literals, its_keys)

    def _changed(
        self, rows: Sequence[tuple[bytes, bytes]], begun: Mapping[bytes, bytes], *, few: bool
    ) -> Iterator[InsertedRows]:
        """Yield rows whose last change is an UPDATE, each with its key."""
        for begin in range(0, len(rows), PREPARED_ROWS):
            block = rows[begin : begin + PREPARED_ROWS]
            values = [value for _, value in block]
            # A row that is replaced goes where it was.
            places = [self.place(begun[key]) if key in begun else 0 for key, _ in block]
            if not few:
                with suppress(NoParameter):
                    _, nulls, parameters = self.parameters.after(values)
                    yield InsertedRows(self.index, places, nulls, parameters)
                    continue
            yield InsertedRows(self.index, places, None, list(map(self.renderers.after, values)))

    def inserts(
        self, nulls: Sequence[int] | None, values: Sequence[bytes], limits: Limits
    ) -> Iterator[Statement]:
        """Yield statements that insert rows; the arguments are those of ``InsertedRows``."""
        head = insert_head(self.plan.target, self.renderers.columns)
        if self.plan.gives_way:
            # Another row that has a unique value now is changed later, so it is written again too.
            head = b"REPLACE" + head[len(b"INSERT") :]
        if nulls is None:
            return merged(head, values, b"", limits)
        return prepared(head, nulls, values, b"", limits, self.parameters)

    def copied_deletes(self, keys: Iterable[bytes], limits: Limits) -> Iterator[Statement]:
        """Yield DELETEs of rows of a copy."""
        return merged_deletes(self.plan.delete_head, self.find_columns, map(self._of_key, keys), limits)

    @cached_property
    def _by_key(self) -> bool:
        return self.plan.locator.find is RowMatch.KEY

    @cached_property
    def find_columns(self) -> bytes:
        """The columns by which rows to remove are found; empty if ``found_by`` returns predicates."""
        if self.plan.by_predicate:
            return b""
        return self.renderers.key_columns if self._by_key else self.finder.columns

    def _found(self, values: Render, predicate: Render) -> Render:
        return _bracketed(predicate) if self.plan.by_predicate else values

    @cached_property
    def _of_key(self) -> Render:
        return _bracketed(self.renderers.match_key) if self.plan.by_predicate else self.renderers.key

    @cached_property
    def _of_row(self) -> Render:
        return self._found(self.finder.old, self.finder.match_old)

    def found_by(self, key: bytes, value: bytes) -> bytes:
        """Return the values of these columns for a row to remove."""
        return self._of_key(key) if self._by_key else self._of_row(value)

    def _gone(self) -> Iterable[bytes]:
        """Return the values by which the rows to remove are found."""
        if self._by_key:
            return map(self._of_key, [key for key, _ in self.gone])
        found = dict.fromkeys(self._of_row(value) for _, value in self.gone)
        if self.plan.safe:
            # When changes are applied again, rows may already have the state of a later change.
            new = self._found(self.finder.new, self.finder.match_new)
            found |= dict.fromkeys(new(value) for _, value in self.written)
        return found

    def traced(self, key: bytes, value: bytes) -> TracedRow:
        """Return the event of a row."""
        source, op = self.renderers.source(value), value[OP_AT]
        shown = None if self.plan.mode is ApplyMode.SKIP else self._match(op, key, value)
        if shown is None and op != _DELETE:
            shown = self.renderers.after(value)
        return TracedRow(
            table=self.index,
            digest=crc32(value),
            epoch=source.epoch,
            seq=source.seq,
            pos=source.pos,
            gtid=source.gtid,
            file=source.file,
            shown=shown,
        )

    def in_order(self, key: bytes, value: bytes) -> OrderedChange | None:
        """Render a row that is applied in order; None if it is left out."""
        if self.plan.mode is ApplyMode.SKIP:
            return None
        if self._in_force is not None and not self._in_force(value):
            return None
        render, op = self.renderers, value[OP_AT]
        source = render.source(value)
        writes, rules = self._under_filters(source, value) if self.plan.partial else (ALWAYS, 0)
        if not writes:
            return None
        written = op != _DELETE
        match = self._match(op, key, value)
        assignments = render.assignments(value) if written else None
        after = render.after(value) if written else None
        place = (source.epoch, source.seq, source.flags)
        return OrderedChange(self.index, *place, op, match, assignments, after, rules, writes)

    def _under_filters(self, source: RowSource, value: bytes) -> tuple[int, int]:
        """Return what filters leave of a change, and for half of a key change the rules that may leave it out.

        While the table is copied, an update of a row that is missing is an insert of the row: the copy does not write
        the row any more, because the update is in the log.
        """
        op, rules = value[OP_AT], 0
        event = event_of(op, source.flags)
        dropped = event in self.plan.dropped
        try:
            excluded = False
            if self.filter is not None and not dropped:
                if source.flags & KEY_CHANGE:
                    rules = self.filter.old_bits(value) if op == _DELETE else self.filter.new_bits(value)
                else:
                    excluded = self.filter.drops(event, value)
            writes = 0 if dropped or excluded else ALWAYS
            if self.plan.incomplete and event == "update":
                writes = writes & IF_THERE | (IF_MISSING if self._may_insert(value) else 0)
        except Unevaluable as error:
            where = Where(gtid=source.gtid, table=self.plan.name, epoch=source.epoch)
            raise UnevaluableRow(f"{error} [row {source.seq}]", where) from error
        self.left_out += excluded and not writes
        return writes, rules

    def _may_insert(self, value: bytes) -> bool:
        """Whether filters allow an updated row as an inserted one; of a key change the new half decides."""
        if value[OP_AT] == _DELETE:
            return True
        if not self.plan.knows_rows or "insert" in self.plan.dropped:
            return False
        return self.filter is None or not self.filter.drops("insert", value)

    def _match(self, op: int, key: bytes, value: bytes) -> bytes | None:
        """Return the predicate that finds a row; None for a new row that only the comparison of all columns finds."""
        find = self.plan.locator.find
        if find is RowMatch.KEY:
            return self.renderers.match_key(key)
        if find is RowMatch.WHOLE:
            return self.renderers.match_before(value) if op in b"ud" else None
        match = self.finder.match_old(value)
        if self.plan.safe and op == _UPDATE and (new := self.finder.match_new(value)) != match:
            # The old state, or the new one if the change is applied again.
            return b"((" + match + b") OR (" + new + b"))"
        return match


def _bracketed(predicate: Render) -> Render:
    return lambda data: b"(" + predicate(data) + b")"


def event_of(op: int, flags: int) -> str:
    """Return the kind of the upstream's change: both halves of a key change are an update."""
    if flags & KEY_CHANGE:
        return "update"
    return _EVENTS[op]
