"""Tables applied row by row in the upstream's order: without a key, or in a family that cascades.

The upstream's rows events say under which checks each row was written. A row that the upstream wrote with
``foreign_key_checks`` off, or whose cascades it logged itself (MySQL 9.6 and later), is applied with checks
off; every other row of a cascading family with checks on, so that the downstream runs the cascades that the
log does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from schemas.avro_schema import KEY_CHANGE
from schemas.errors import LogError, Where
from spark_consumer.plan import TablePlan

CHECKS_OFF = 0x02
CASCADES_LOGGED = 0x10
_DELETE, _UPDATE = ord("d"), ord("u")


@dataclass(frozen=True)
class OrderedRow:
    """One row's change with its parts rendered.

    Attributes:
        match: the predicate that finds the row; None for an INSERT into a table without key.
        assignments: the after image for UPDATE; None for DELETE.
        values: the after image for INSERT; None for DELETE.
    """

    table: TablePlan
    epoch: int
    seq: int
    flags: int
    op: int
    match: bytes | None
    assignments: bytes | None
    values: bytes | None


@dataclass(frozen=True)
class OrderedStatement:
    """One statement that must change exactly one row, and whether foreign keys act on it."""

    sql: bytes
    table: TablePlan
    epoch: int
    checks: bool


def statements(rows: Iterable[OrderedRow]) -> Iterator[OrderedStatement]:
    """The statements for rows from all partitions, in the upstream's order."""
    in_order = sorted(rows, key=lambda row: (row.epoch, row.seq))
    for left, right in pairwise(in_order):
        if (left.epoch, left.seq) == (right.epoch, right.seq):
            raise LogError("TR553", f"row {left.seq} is there twice", where=Where(epoch=left.epoch))
    position = 0
    while position < len(in_order):
        row = in_order[position]
        second = _other_half(in_order, position)
        yield _statement(row, _sql(row) if second is None else _update(row, second))
        position += 1 if second is None else 2


def _other_half(rows: Sequence[OrderedRow], position: int) -> OrderedRow | None:
    """The insert half of a key-changing UPDATE whose delete half stands at ``position``."""
    row = rows[position]
    if not row.flags & KEY_CHANGE or row.op != _DELETE or position + 1 == len(rows):
        return None
    other = rows[position + 1]
    is_half = other.flags & KEY_CHANGE and other.op != _DELETE and other.table.header == row.table.header
    return other if is_half and (other.epoch, other.seq) == (row.epoch, row.seq + 1) else None


def _statement(row: OrderedRow, sql: bytes) -> OrderedStatement:
    checks = row.table.cascades and not row.flags & (CHECKS_OFF | CASCADES_LOGGED)
    return OrderedStatement(sql, row.table, row.epoch, checks)


def _update(row: OrderedRow, written: OrderedRow) -> bytes:
    assert row.match is not None
    assert written.assignments is not None
    # LIMIT 1: without a key, equal rows are told apart by nothing, so any one of them is the right one.
    parts = (b"UPDATE ", row.table.target, b" SET ", written.assignments, b" WHERE ", row.match, b" LIMIT 1")
    return b"".join(parts)


def _sql(row: OrderedRow) -> bytes:
    if row.op == _UPDATE:
        return _update(row, row)
    if row.op == _DELETE:
        assert row.match is not None
        return b"DELETE FROM " + row.table.target + b" WHERE " + row.match + b" LIMIT 1"
    assert row.values is not None
    columns = b",".join(b"`" + name.replace("`", "``").encode() + b"`" for name in row.table.writable)
    return b"INSERT INTO " + row.table.target + b" (" + columns + b") VALUES " + row.values
