"""Lays UPDATEs whose images lack columns on earlier changes of their rows.

Such an UPDATE sets some columns of a row. Where the row was inserted or written as a whole before, and that image has
all of these columns, it gets their values and the UPDATE is done. Otherwise the UPDATE stays behind the others, at most
one for each set of columns of a row. Those of one row agree about the columns that they share, so they may be made in
any order:

    INSERT a b c + UPDATE b   => INSERT a b c        UPDATE a b + UPDATE b c => UPDATE a b, UPDATE b c
    INSERT a + UPDATE b       => INSERT a, UPDATE b  UPDATE a + UPDATE a b   => UPDATE a b
    UPDATE a b + UPDATE a     => UPDATE a b          UPDATE a + DELETE       => DELETE
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from schemas.wire.avro_schema import OP_AT
from schemas.wire.row_check import compile_check
from schemas.wire.row_columns import compile_offsets
from schemas.wire.rows import HEADER_SIZE
from spark_consumer.plan.plan import TablePlan

_UPDATE, _DELETE = ord("u"), ord("d")


class _OutOfOrder(Exception):
    """The UPDATE can only be made in the upstream's order."""


@dataclass(frozen=True)
class LaidUpdates:
    """Changes in log order without UPDATEs whose images lack columns, and what is left of these.

    Attributes:
        keys: the Kafka keys of the changes.
        values: the changes.
        updates: key and value of each UPDATE that is made after all of them.
        saved: the number of UPDATEs that are done by other changes.
        refused: the headers of changes that can only be made in the upstream's order: a row's key changes, and its
            image lacks columns, or a row is updated that was deleted. If there are any, the rest is of no use.
    """

    keys: Sequence[bytes]
    values: Sequence[bytes]
    updates: list[tuple[bytes, bytes]]
    saved: int
    refused: frozenset[bytes]


def lay_updates(
    keys: Sequence[bytes], values: Sequence[bytes], tables: Mapping[bytes, TablePlan]
) -> LaidUpdates:
    """Lay the UPDATEs of tables that set columns on other changes.

    Args:
        keys: the changes' Kafka keys.
        values: their records, in log order.
        tables: the tables by their headers.

    Raises:
        ValueError, LookupError, EOFError: a value of one of these tables is no row with this key.
    """
    setting = {table.target_name for table in tables.values() if table.sets}
    checks = {
        header: compile_check(table.structure)
        for header, table in tables.items()
        if table.target_name in setting
    }
    laid = _Laid(tables)
    for key, value in zip(keys, values, strict=True):
        header = value[:HEADER_SIZE]
        if (check := checks.get(header)) is None:
            laid.keep(key, value)
            continue
        check(key, value)
        if not tables[header].sets:
            laid.begin(key, value)
            continue
        try:
            laid.update(key, value)
        except _OutOfOrder:
            laid.refused.add(header)
    updates = [(key, value) for key, its in laid.behind.items() for value in its.values()]
    saved = len(values) - len(laid.values) - len(updates)
    return LaidUpdates(laid.keys, laid.values, updates, saved, frozenset(laid.refused))


class _Laid:
    """The changes so far.

    Attributes:
        behind: the UPDATEs behind the last whole change of each row, by key and header.
    """

    def __init__(self, tables: Mapping[bytes, TablePlan]) -> None:
        self.keys: list[bytes] = []
        self.values: list[bytes] = []
        self.behind: dict[bytes, dict[bytes, bytes]] = {}
        self.refused: set[bytes] = set()
        self._last: dict[bytes, int] = {}
        self._pairs = _Pairs(tables)

    def keep(self, key: bytes, value: bytes) -> None:
        """Add a change."""
        self.keys.append(key)
        self.values.append(value)

    def begin(self, key: bytes, value: bytes) -> None:
        """Add a change behind which UPDATEs may come that are laid on it."""
        self._last[key] = len(self.values)
        self.behind.pop(key, None)
        self.keep(key, value)

    def update(self, key: bytes, value: bytes) -> None:
        """Lay an UPDATE on what there is of its row. Raises _OutOfOrder if that is not possible."""
        header = value[:HEADER_SIZE]
        if value[OP_AT] != _UPDATE:
            raise _OutOfOrder
        its = self.behind.get(key)
        if its is not None:
            self.behind[key] = self._on_others(its, header, value)
            return
        if (place := self._last.get(key)) is not None:
            whole = self.values[place]
            if whole[OP_AT] == _DELETE:
                raise _OutOfOrder
            pair = self._pairs[whole[:HEADER_SIZE], header]
            self.values[place] = pair.lay(whole, value)
            if pair.has_all:
                return
        self.behind[key] = {header: value}

    def _on_others(self, its: dict[bytes, bytes], header: bytes, value: bytes) -> dict[bytes, bytes]:
        """Return what is left of a row's UPDATEs when one more follows."""
        if its.keys() == {header}:
            return {header: value}
        made: dict[bytes, bytes] = {}
        done = False
        for other, earlier in its.items():
            pair = self._pairs[other, header]
            if not pair.has_no_more:
                made[other] = pair.lay(earlier, value)
                done |= pair.has_all
        return made if done else made | {header: value}


class _Pair:
    """How UPDATEs of one structure are laid on changes of another.

    Attributes:
        has_all: whether the change has all columns that the UPDATE sets.
        has_no_more: whether it has no column that the UPDATE does not set.
    """

    def __init__(self, table: TablePlan, update: TablePlan) -> None:
        columns = {column.name: number for number, column in enumerate(table.structure.after_image)}
        chosen = set(table.writable)
        self.has_all = chosen.issuperset(update.writable)
        self.has_no_more = chosen.issubset(update.writable)
        self._common = sorted(
            (columns[column.name], number)
            for number, column in enumerate(update.structure.after_image)
            if column.name in columns
        )
        self._offsets: Callable[[bytes], list[int]] = compile_offsets(table.structure)
        self._update_offsets: Callable[[bytes], list[int]] = compile_offsets(update.structure)

    def lay(self, value: bytes, update: bytes) -> bytes:
        """Return the change with the values that the UPDATE sets."""
        to, of = self._offsets(value), self._update_offsets(update)
        parts: list[bytes] = []
        end = 0
        for mine, other in self._common:
            parts += (value[end : to[mine]], update[of[other] : of[other + 1]])
            end = to[mine + 1]
        return b"".join((*parts, value[end:]))


class _Pairs(dict[tuple[bytes, bytes], _Pair]):
    def __init__(self, tables: Mapping[bytes, TablePlan]) -> None:
        super().__init__()
        self._tables = tables

    def __missing__(self, headers: tuple[bytes, bytes]) -> _Pair:
        table, update = (self._tables[header] for header in headers)
        own = {column.name: column for column in table.structure.after_image}
        if any(own.get(column.name, column) != column for column in update.structure.after_image):
            raise _OutOfOrder
        pair = self[headers] = _Pair(table, update)
        return pair
