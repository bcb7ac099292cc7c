"""Makes the statements for tables that are applied row by row in the upstream's order, such as those without a key.

The upstream's rows events have the checks under which each row was written. A row that the upstream wrote with
``foreign_key_checks`` off, or whose cascades it logged itself (MySQL 9.6 and later), is applied with checks off. Every
other change for which foreign keys change other rows is applied with checks on, so that the downstream runs the
cascades that are not in the log. Checks have no other use, and a parent may be missing while it is copied.

If a filter leaves out changes of a table, an UPDATE or DELETE may find no row. In safe mode a row may already exist or
be deleted: INSERT and UPDATE change the row with that key, and insert it if there is none. Each statement finds rows
by their key only, so it never changes another row with the same secondary unique value.

A row that is applied again after a rewind may find an earlier or later version of itself: rows with its old or new key
are removed before it is written.

While a table is being copied, its rows are missing or as they are upstream at this point of the log. So each change
makes its row be there, or not be there, as in safe mode; only a key change whose images lack columns needs its row.
The downstream runs no cascades of these changes: the tables whose rows they would change are copied behind this one.

If row images lack columns, an UPDATE sets the columns of its after image. In safe mode it still needs its row, because
the whole row is not known; an INSERT gives missing columns their defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from schemas.errors import EventId, LogError, Where
from schemas.quote import quoted
from schemas.wire.avro_schema import KEY_CHANGE
from spark_consumer.plan.plan import Change, TablePlan
from spark_consumer.plan.statements import Limits
from spark_consumer.rows.results import ALWAYS, IF_MISSING, IF_THERE, OrderedChange
from spark_consumer.target.row_locator import RowMatch

CHECKS_OFF = 0x02
CASCADES_LOGGED = 0x10
_DELETE, _UPDATE = ord("d"), ord("u")
_PLACE = itemgetter(1, 2)  # epoch and seq


class OrderedRow(NamedTuple):
    """One row's change with its rendered parts.

    Attributes:
        match: the predicate that finds the row; None for an INSERT into a table without a key.
        assignments: the after image for UPDATE; None for DELETE.
        values: the after image for INSERT; None for DELETE.
        rules: for half of a key change, the expression rules by which it may be left out, as bits.
        writes: whether it is made to a row that is there, and whether it writes one that is missing.
    """

    table: TablePlan
    epoch: int
    seq: int
    flags: int
    op: int
    match: bytes | None
    assignments: bytes | None
    values: bytes | None
    rules: int = 0
    writes: int = ALWAYS

    @classmethod
    def of(cls, table: TablePlan, change: OrderedChange) -> OrderedRow:
        """Return a change with the plan of its table."""
        return cls(table, *change[1:])


class OrderedStatement(NamedTuple):
    """One statement that must change exactly ``rows`` rows.

    Attributes:
        foreign_key_checks: whether it runs with foreign key checks.
        fallbacks: statements to try in turn until one finds a row.
        may_find_no_row: whether it may change no row.
        changes: the number of the log's row changes in it.
        seq: the number of the first of them in its epoch.
        is_operators: whether it is an operator's statement, whose number of rows is not checked.
        cascade_from: the predicate of the row that it deletes together with its descendants.
        clear_first: a DELETE that runs before it, of rows that may already have its key.
    """

    sql: bytes
    table: TablePlan
    epoch: int
    foreign_key_checks: bool
    fallbacks: tuple[bytes, ...] = ()
    may_find_no_row: bool = False
    rows: int = 1
    changes: int = 1
    seq: int = -1
    is_operators: bool = False
    cascade_from: bytes | None = None
    clear_first: bytes | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it changes exactly its rows, and nothing depends on how many it finds."""
        special = (
            self.fallbacks,
            self.may_find_no_row,
            self.is_operators,
            self.cascade_from,
            self.clear_first,
        )
        return not any(special) and not self.table.gives_way

    @property
    def event(self) -> EventId:
        """The event of the first change."""
        return EventId(self.epoch, self.seq)


def statements(rows: Iterable[OrderedRow], limits: Limits) -> Iterator[OrderedStatement]:
    """Yield the statements for rows of all partitions, in the upstream's order; a run of INSERTs becomes one."""
    run: list[tuple[OrderedStatement, bytes]] = []
    size = 0
    for row, second in _changes(rows):
        if not _writes(row, second):
            continue
        one = _statement(row, second)
        values = None if second or row.table.safe or row.op in (_UPDATE, _DELETE) else row.values
        if run and (
            values is None
            or not _continues(run[0][0], one)
            or len(run) >= limits.max_rows
            or size + len(values) > limits.max_bytes
        ):
            yield _merged(run)
            run, size = [], 0
        if values is None:
            yield one
        else:
            run.append((one, values))
            size += len(values) + 1
    if run:
        yield _merged(run)


def one_by_one(
    rows: Iterable[OrderedRow],
) -> Iterator[tuple[OrderedRow, OrderedRow | None, OrderedStatement]]:
    """Yield each change: its row, the other half of a key-changing UPDATE or None, and its statement."""
    for row, second in _changes(rows):
        if _writes(row, second):
            yield row, second, _statement(row, second)


def idempotent_statement(
    row: OrderedRow, second: OrderedRow | None, one: OrderedStatement
) -> OrderedStatement:
    """Return a statement for a change that may already be applied; its result is the same in both cases."""
    if row.table.incomplete:
        # It expects the row neither to be there nor to be missing.
        return one
    inserts = row.table.knows_rows
    if second is not None:
        attempts = [_update(row, second), _update(second, second)]
    elif row.op == _DELETE:
        attempts, inserts = [_sql(row)], False
    else:
        attempts = [_update(row, row)]
    # If an UPDATE finds no row, a filter may have left out its INSERT.
    fresh = row.op not in (_UPDATE, _DELETE) or not row.table.partial
    attempts += [_insert(second or row)] if inserts and fresh else []
    may_find_no_row = row.op == _DELETE and second is None
    return one._replace(
        sql=attempts[0],
        fallbacks=tuple(attempts[1:]),
        may_find_no_row=may_find_no_row or one.may_find_no_row,
    )


def _continues(first: OrderedStatement, one: OrderedStatement) -> bool:
    """Whether an INSERT can join those before it: same table and columns, and the same checks."""
    return one.table.header == first.table.header and (one.epoch, one.foreign_key_checks) == (
        first.epoch,
        first.foreign_key_checks,
    )


def _merged(run: Sequence[tuple[OrderedStatement, bytes]]) -> OrderedStatement:
    first = run[0][0]
    if len(run) == 1:
        return first
    sql = b",".join((first.sql, *(values for _, values in run[1:])))
    return first._replace(sql=sql, rows=len(run), changes=len(run))


def _changes(rows: Iterable[OrderedRow]) -> Iterator[tuple[OrderedRow, OrderedRow | None]]:
    """Yield the rows in order, each with its other half if it is a key-changing UPDATE."""
    in_order = sorted(rows, key=_PLACE)
    places = list(map(_PLACE, in_order))
    if len(set(places)) < len(places):
        epoch, seq = next(left for left, right in pairwise(places) if left == right)
        raise LogError("TR553", f"duplicate row {seq}", where=Where(epoch=epoch))
    position = 0
    while position < len(in_order):
        row = in_order[position]
        second = _other_half(in_order, position)
        yield row, second
        position += 1 if second is None else 2


def _other_half(rows: Sequence[OrderedRow], position: int) -> OrderedRow | None:
    """Return the insert half of a key-changing UPDATE whose delete half is at index ``position``."""
    row = rows[position]
    if not row.flags & KEY_CHANGE or row.op != _DELETE or position + 1 == len(rows):
        return None
    other = rows[position + 1]
    is_half = other.flags & KEY_CHANGE and other.op != _DELETE and other.table.header == row.table.header
    return other if is_half and (other.epoch, other.seq) == (row.epoch, row.seq + 1) else None


def _statement(row: OrderedRow, second: OrderedRow | None) -> OrderedStatement:
    checks = row.table.cascades and may_cascade(row.flags)
    checks = checks and not row.table.incomplete and _change(row, second) in row.table.acting
    attempts = _attempts(row, second)
    if row.table.incomplete:
        needed = second is not None and not row.table.knows_rows
        may_find_no_row = not needed and (second is not None or row.op in (_UPDATE, _DELETE))
    elif row.table.safe:
        may_find_no_row = second is None and row.op == _DELETE
    else:
        may_find_no_row = row.table.partial and (second is not None or row.op in (_UPDATE, _DELETE))
    changes = 1 if second is None else 2
    clear_first = _clearing(row, second) if _again(row, second) else None
    cascade_from = row.match if checks and second is None and row.op == _DELETE else None
    return OrderedStatement(
        attempts[0],
        row.table,
        row.epoch,
        checks,
        attempts[1:],
        may_find_no_row,
        changes=changes,
        seq=row.seq,
        cascade_from=cascade_from,
        clear_first=clear_first,
    )


def may_cascade(flags: int) -> bool:
    """Whether foreign keys may have changed other rows without a trace in the log, by the flags of a row's event."""
    return not flags & (CHECKS_OFF | CASCADES_LOGGED)


def _writes(row: OrderedRow, second: OrderedRow | None) -> int:
    """Return what filters leave of a change."""
    if second is None:
        return row.writes
    there = row.writes & second.writes & IF_THERE if not row.rules & second.rules else 0
    return there | second.writes & IF_MISSING if row.table.incomplete else there


def _change(row: OrderedRow, second: OrderedRow | None) -> Change | None:
    if second is not None:
        return Change.KEY_CHANGE
    return {_UPDATE: Change.UPDATE, _DELETE: Change.DELETE}.get(row.op)


def _again(row: OrderedRow, second: OrderedRow | None) -> bool:
    """Whether a row is applied again after a rewind."""
    return row.table.is_repeat and row.table.safe and (second is not None or row.op != _DELETE)


def _clearing(row: OrderedRow, second: OrderedRow | None) -> bytes:
    keys = [one.match for one in (row, second) if one is not None and one.match is not None]
    return b"DELETE FROM " + row.table.target + b" WHERE " + b" OR ".join(b"(" + key + b")" for key in keys)


def _attempts(row: OrderedRow, second: OrderedRow | None) -> tuple[bytes, ...]:
    """Return the statement for a change; in safe mode with fallbacks, because the row may differ from the log."""
    inserts = row.table.knows_rows
    if _again(row, second):
        insert = _insert(second or row)
        return (b"REPLACE" + insert[len(b"INSERT") :] if row.table.gives_way else insert,)
    if row.table.incomplete and row.table.safe and (second is not None or row.op == _UPDATE):
        return _attempts_in_copy(row, second)
    if second is not None:
        attempts = [_update(row, second)]
        attempts += [_update(second, second)] if row.table.safe else []
        attempts += [_insert(second)] if row.table.safe and inserts else []
        return tuple(attempts)
    if row.table.safe and row.op != _DELETE:
        return (_update(row, row), _insert(row)) if inserts else (_update(row, row),)
    return (_sql(row),)


def _attempts_in_copy(row: OrderedRow, second: OrderedRow | None) -> tuple[bytes, ...]:
    """Return the statements for an UPDATE of a table that is being copied; the first that finds a row is the last."""
    writes, after = _writes(row, second), second or row
    found = [one for one in (row, second) if one is not None]
    if not writes & IF_THERE:
        attempts = [_find(one) for one in found]
    elif writes & IF_MISSING:
        attempts = [_update(one, after) for one in found]
    else:
        attempts = [_update(row, after)]
    return (*attempts, *([_insert(after)] if writes & IF_MISSING and row.table.knows_rows else ()))


def _find(row: OrderedRow) -> bytes:
    assert row.match is not None
    # One row for all that match: MariaDB may answer a query with LIMIT that is killed as if there were none.
    return b"SELECT 1 FROM " + row.table.target + b" WHERE " + row.match + b" GROUP BY 1"


def _update(row: OrderedRow, written: OrderedRow) -> bytes:
    assert row.match is not None
    assert written.assignments is not None
    parts = (b"UPDATE ", row.table.target, b" SET ", written.assignments, b" WHERE ", row.match, _limit(row))
    return b"".join(parts)


def _limit(row: OrderedRow) -> bytes:
    """Return a LIMIT for tables with equal rows, of which any one is right. Two rows with one key are an error."""
    return b"" if row.table.locator.find is RowMatch.EXACT else b" LIMIT 1"


def _insert(row: OrderedRow) -> bytes:
    assert row.values is not None
    if not row.table.knows_rows:
        where = Where(table=row.table.name, epoch=row.epoch)
        raise LogError("TR553", f"half of the key change at row {row.seq} is missing", where=where)
    columns = ",".join(map(quoted, row.table.insert_columns)).encode()
    return b"INSERT INTO " + row.table.target + b" (" + columns + b") VALUES " + row.values


def _sql(row: OrderedRow) -> bytes:
    if row.op == _UPDATE:
        return _update(row, row)
    if row.op == _DELETE:
        assert row.match is not None
        return b"DELETE FROM " + row.table.target + b" WHERE " + row.match + _limit(row)
    return _insert(row)
