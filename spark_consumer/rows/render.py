"""On the executors: renders a partition's rows as statements, with a count and a digest of everything read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from operator import itemgetter

import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from schemas.errors import LogError
from schemas.sql.literals import Render, Renderers, compile_renderers, source_reader
from schemas.sql.row_record import compile_check
from schemas.structure import WrittenColumn
from schemas.wire.avro_schema import KEY_CHANGE, OP_AT
from schemas.wire.epoch import OffsetRange, digest_of
from schemas.wire.log_records import UNFIT
from schemas.wire.rows import HEADER_SIZE, widened
from spark_consumer.epochs.arrow import record_batch
from spark_consumer.epochs.fetch import NoRow, Share, Silent, Unreadable
from spark_consumer.plan.plan import Mode, SlicePlan, TablePlan
from spark_consumer.plan.statements import Statement, merged_deletes, merged_inserts
from spark_consumer.rows.chunked_results import Result, chunked, size_of
from spark_consumer.rows.compact import Net, compact
from spark_consumer.rules.expressions.kinds import Unevaluable
from spark_consumer.target.find_by_image import Finder, compile_finder
from spark_consumer.target.row_locator import Find
from spark_consumer.target.versioned import InForce

# What a result row is.
TALLY, DELETES, INSERTS, ORDERED, UNKNOWN, COMPACTED, LEFT_OUT, UNEVALUABLE, SILENT, EVENT, REFUSED = range(
    11
)
#: the range of the part with the number ``table`` cannot be read, or holds a record that is no row; the text says why
UNREADABLE, NO_ROW, DAMAGED = 11, 12, 13

RESULT = pa.schema(
    [
        ("kind", pa.int32()),
        ("table", pa.int32()),  # index in the plan
        ("rows", pa.int64()),  # TALLY: rows read; statements: rows they change; else changes
        ("epoch", pa.int64()),  # ORDERED
        ("seq", pa.int64()),  # ORDERED; TALLY: the digest
        ("flags", pa.int64()),  # ORDERED: the rows event's flags
        ("op", pa.int32()),  # ORDERED
        ("text", pa.binary()),  # a statement; ORDERED: the predicate that finds the row
        ("assignments", pa.binary()),  # ORDERED
        ("values", pa.binary()),  # ORDERED
        (
            "rules",
            pa.int64(),
        ),  # ORDERED: bits of the expression rules that do not keep a half of a key change
    ]
)
RESULT_DDL = (
    "kind int, table int, rows bigint, epoch bigint, seq bigint, flags bigint, op int,"
    " text binary, assignments binary, values binary, rules bigint"
)
_EVENTS = {ord("c"): "insert", ord("r"): "insert", ord("u"): "update", ord("d"): "delete"}
_HEADER = itemgetter(slice(0, HEADER_SIZE))
_UPDATE, _DELETE = ord("u"), ord("d")
_NOTHING = (0, 0, 0, 0)
# Of results in one record batch: the JVM, which passes them on, has a small heap.
_BATCH_ROWS = 1024
_BATCH_BYTES = 8 << 20

#: what is done with a range's keys and values
Work = Callable[[Sequence[bytes], Sequence[bytes]], Iterable[Result]]
#: the same with the reading of it
Results = Callable[[OffsetRange, Share], Iterable[Result]]


class UnknownHeader(Exception):
    """A row value starts with bytes that no structure of the plan has."""


class UnevaluableRow(Exception):
    """A row whose values an expression has no sure result for."""

    def __init__(self, table: int, text: str) -> None:
        super().__init__(table, text)
        self.table, self.text = table, text


class _Tables(dict[bytes, "TableRows"]):
    def __missing__(self, header: bytes) -> TableRows:
        raise UnknownHeader(header)


def task(
    parts: tuple[tuple[OffsetRange, Share], ...], results: Results
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark runs over numbers of parts: the results of each."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    yield from _packed(results(*parts[number]))
                except UnknownHeader as unknown:
                    yield record_batch([_text_result(UNKNOWN, number, unknown.args[0])], RESULT)
                except UnevaluableRow as row:
                    yield record_batch([_text_result(UNEVALUABLE, row.table, row.text.encode())], RESULT)
                except Silent as silent:
                    # A failed task would be tried again at once, and its patience is at an end.
                    yield record_batch([_text_result(SILENT, 0, str(silent).encode())], RESULT)
                except Unreadable as error:
                    kind = NO_ROW if isinstance(error, NoRow) else UNREADABLE
                    yield record_batch([_text_result(kind, number, str(error).encode())], RESULT)
                except LogError as refused:
                    text = f"{refused.what}\n{refused.hint}"
                    yield record_batch([_text_result(REFUSED, 0, text.encode())], RESULT)
                except UNFIT as error:
                    text = f"{type(error).__name__}: {error}"[:500]
                    yield record_batch([_text_result(DAMAGED, number, text.encode())], RESULT)

    return run


def render(plan: SlicePlan, keys: Sequence[bytes], values: Sequence[bytes]) -> Iterator[Result]:
    """The results for one partition's rows in log order."""
    if plan.window:
        keys, values = within(plan, plan.window, keys, values)
    yield tally(values)
    values = all_widened(plan, values)
    tables = tables_of(plan)
    apart = {header for header, table in tables.items() if table.plan.mode is not Mode.COMPACT}
    if apart:
        headers = list(map(_HEADER, values))
        chosen = [header in apart for header in headers]
        for key, value in zip(compress(keys, chosen), compress(values, chosen), strict=True):
            table = tables[value[:HEADER_SIZE]]
            table.check(key, value)
            if plan.traced or not table.plan.transactional:
                yield table.event(key, value)
            result = table.in_order(key, value)
            if result is not None:
                yield result
        others = [not one for one in chosen]
        keys, values = list(compress(keys, others)), list(compress(values, others))
    net = compact(keys, values, frozenset(header for header, table in tables.items() if table.plan.safe))
    yield from counted(net, tables)
    for key, value in net.gone:
        tables[value[:HEADER_SIZE]].gone.append((key, value))
    for item in net.written:
        tables[item[1][:HEADER_SIZE]].written.append(item[1])
    for table in tables.values():
        if table.plan.mode is Mode.COMPACT:
            yield from table.statements(plan)


def within(
    plan: SlicePlan, window: tuple[int, int], keys: Sequence[bytes], values: Sequence[bytes]
) -> tuple[list[bytes], list[bytes]]:
    """The rows whose numbers in their epoch lie in the window. Rows of other structures lie outside."""
    sources = {table.header: source_reader(table.structure) for table in plan.tables}
    kept: tuple[list[bytes], list[bytes]] = ([], [])
    for key, value in zip(keys, values, strict=True):
        wide = widened(value)
        source = sources.get(wide[:HEADER_SIZE])
        if source is not None and window[0] <= source(wide).seq < window[1]:
            kept[0].append(key)
            kept[1].append(value)
    return kept


def tally(values: Sequence[bytes]) -> Result:
    """The number and the digest of what was read."""
    return (TALLY, 0, len(values), 0, digest_of(values), 0, 0, None, None, None, 0)


def all_widened(plan: SlicePlan, values: Sequence[bytes]) -> Sequence[bytes]:
    """The values with headers of one size."""
    return values if all(table.header[0] for table in plan.tables) else list(map(widened, values))


def tables_of(plan: SlicePlan) -> dict[bytes, TableRows]:
    """The plan's tables by the headers of their rows; UnknownHeader for one that is not there."""
    return _Tables({table.header: TableRows(index, table) for index, table in enumerate(plan.tables)})


def counted(net: Net, tables: Mapping[bytes, TableRows]) -> Iterator[Result]:
    """The rows that are not written, by why they are not."""
    if net.saved:
        yield _count(COMPACTED, net.saved)
    if left_out := sum(table.left_out for table in tables.values()):
        yield _count(LEFT_OUT, left_out)


@dataclass
class TableRows:
    """One table's share of a partition."""

    index: int
    plan: TablePlan

    def __post_init__(self) -> None:
        self.gone: list[tuple[bytes, bytes]] = []
        self.written: list[bytes] = []
        self.left_out = 0
        self.filter = self.plan.filter
        self._in_force = InForce(self.plan.structure) if self.plan.history else None

    @cached_property
    def check(self) -> Callable[[bytes, bytes], None]:
        """Raises ValueError or LookupError unless a key is that of a value's row."""
        return compile_check(self.plan.structure)

    # Rows ask for these, and to find them among all tables' costs more than to render a row.
    @cached_property
    def renderers(self) -> Renderers:
        plan = self.plan
        return compile_renderers(plan.structure, plan.writable, plan.filled, plan.documents)

    @cached_property
    def finder(self) -> Finder:
        locator = self.plan.locator
        exact = locator.find is Find.EXACT
        return compile_finder(
            self.plan.structure, self.plan.structure.key if exact else locator.columns, exact
        )

    def statements(self, plan: SlicePlan) -> Iterator[Result]:
        """The table's DELETEs, then its INSERTs."""
        render, target, limits = self.renderers, self.plan.target, plan.limits
        deletes = merged_deletes(target, self.find_columns, self._gone(), limits)
        inserts = merged_inserts(target, render.columns, map(render.after, self.written), limits)
        yield from (self._result(DELETES, statement) for statement in deletes)
        if self.plan.gives_way:
            # Who else has a unique value now comes later in the stretch, so its row is written anew as well.
            inserts = (Statement(b"REPLACE" + one.sql[len(b"INSERT") :], one.rows) for one in inserts)
        yield from (self._result(INSERTS, statement) for statement in inserts)

    @cached_property
    def _by_key(self) -> bool:
        return self.plan.locator.find is Find.KEY

    @cached_property
    def _by_predicate(self) -> bool:
        """Whether a list of tuples would not do: in one, MySQL compares an ENUM or SET with a number as text."""
        structure, columns = self.plan.structure, self.plan.locator.columns
        names = structure.key if self._by_key else columns
        chosen = [column for column in structure.columns if column.name in names]
        return len(chosen) > 1 and any(isinstance(c, WrittenColumn) and c.by_number for c in chosen)

    @cached_property
    def find_columns(self) -> bytes:
        """The columns that rows to remove are found by; none where ``found_by`` gives predicates."""
        if self._by_predicate:
            return b""
        return self.renderers.key_columns if self._by_key else self.finder.columns

    def _form(self, values: Render, predicate: Render) -> Render:
        return _bracketed(predicate) if self._by_predicate else values

    @cached_property
    def _of_key(self) -> Render:
        return self._form(self.renderers.key, self.renderers.match_key)

    @cached_property
    def _of_row(self) -> Render:
        return self._form(self.finder.old, self.finder.match_old)

    def found_by(self, key: bytes, value: bytes) -> bytes:
        """Their values in a row to remove."""
        return self._of_key(key) if self._by_key else self._of_row(value)

    def _gone(self) -> Iterable[bytes]:
        """The values that the rows to remove are found by."""
        if self._by_key:
            return map(self._of_key, [key for key, _ in self.gone])
        found = dict.fromkeys(self._of_row(value) for _, value in self.gone)
        if self.plan.safe:
            # A repetition meets rows as a later change has left them already.
            found |= dict.fromkeys(map(self._form(self.finder.new, self.finder.match_new), self.written))
        return found

    def _result(self, kind: int, statement: Statement) -> Result:
        return (kind, self.index, statement.rows, *_NOTHING, statement.sql, None, None, 0)

    def event(self, key: bytes, value: bytes) -> Result:
        """Which event a row is, for people and for directives."""
        source, op = self.renderers.source(value), value[OP_AT]
        match = None if self.plan.mode is Mode.SKIP else self._match(op, key, value)
        if match is None and op != _DELETE:
            match = self.renderers.after(value)
        gtid, file = (source.gtid or "").encode(), source.file.encode()
        place = (source.epoch, source.seq, source.pos)
        return (EVENT, self.index, crc32(value), *place, op, gtid, file, match, 0)

    def in_order(self, key: bytes, value: bytes) -> Result | None:
        """One row of a table whose rows are applied one by one; None if it is left out."""
        if self.plan.mode is Mode.SKIP:
            return None
        if self._in_force is not None and not self._in_force(value):
            return None
        render, op = self.renderers, value[OP_AT]
        source = render.source(value)
        event, rules = event_of(op, source.flags), 0
        if event in self.plan.dropped:
            return None
        if self.filter is not None:
            try:
                if source.flags & KEY_CHANGE:
                    rules = self.filter.old_bits(value) if op == _DELETE else self.filter.new_bits(value)
                elif self.filter.drops(event, value):
                    self.left_out += 1
                    return None
            except Unevaluable as error:
                at = f"epoch {source.epoch}, gtid {source.gtid}, row {source.seq}"
                raise UnevaluableRow(self.index, f"{error} [{at}]") from error
        written = op != _DELETE
        match = self._match(op, key, value)
        assignments = render.assignments(value) if written else None
        after = render.after(value) if written else None
        place = (source.epoch, source.seq, source.flags)
        return (ORDERED, self.index, 1, *place, op, match, assignments, after, rules)

    def _match(self, op: int, key: bytes, value: bytes) -> bytes | None:
        """The predicate that finds a row; None where nothing but its equality could, and it is new."""
        find = self.plan.locator.find
        if find is Find.KEY:
            return self.renderers.match_key(key)
        if find is Find.WHOLE:
            return self.renderers.match_before(value) if op in b"ud" else None
        match = self.finder.match_old(value)
        if self.plan.safe and op == _UPDATE and (new := self.finder.match_new(value)) != match:
            # As it was, or as a repetition finds it.
            return b"((" + match + b") OR (" + new + b"))"
        return match


def _bracketed(predicate: Render) -> Render:
    return lambda data: b"(" + predicate(data) + b")"


def _count(kind: int, number: int) -> Result:
    return (kind, 0, number, *_NOTHING, None, None, None, 0)


def _text_result(kind: int, table: int, text: bytes) -> Result:
    return (kind, table, 0, *_NOTHING, text, None, None, 0)


def event_of(op: int, flags: int) -> str:
    """What the upstream's statement did: both halves of a key change are an update."""
    if flags & KEY_CHANGE:
        return "update"
    return _EVENTS[op]


def _packed(results: Iterable[Result]) -> Iterator[pa.RecordBatch]:
    """Results as record batches of the schema that Spark was told."""
    taken: list[Result] = []
    size = 0
    for result in chunked(results):
        taken.append(result)
        size += size_of(result)
        if len(taken) == _BATCH_ROWS or size >= _BATCH_BYTES:
            yield record_batch(taken, RESULT)
            taken, size = [], 0
    if taken:
        yield record_batch(taken, RESULT)
