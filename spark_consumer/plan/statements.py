"""Merges many rows of one table into few statements of limited size."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from schemas.ddl.lexer import Flavor
from schemas.quote import quoted
from schemas.sql.parameters import Parameters
from schemas.tables import QualifiedName

#: the most rows of a prepared statement; more do not make it cheaper
PREPARED_ROWS = 512
# The most parameters of several rows: a server needs half a kilobyte and 2 µs for each when it prepares them.
_PARAMETERS = 2048
# The statement for fewer rows has this part of the rows.
_PART = 8
# Its exponential is larger than any number, which is an error on both servers.
_TOO_LARGE = 999
#: with fewer rows a statement with literals is cheaper than to prepare one
FEW_ROWS = 64
#: bytes of a row from which on a statement with its literal, which a server looks through letter by letter, is dearer
LONG_ROW = 16 << 10


@dataclass(frozen=True)
class Limits:
    """The limits of one statement. A single larger row is one statement too."""

    max_rows: int
    max_bytes: int = 1 << 20


@dataclass(frozen=True)
class Statement:
    """One statement and the number of rows that it must change according to the log.

    Attributes:
        values: of a prepared statement, what follows its number when it is executed.
        different: a query for the number of different rows that it changes, if these must be ``rows``, too.
    """

    sql: bytes
    rows: int
    values: bytes | None = None
    different: bytes | None = None

    @property
    def size(self) -> int:
        """The number of bytes that are sent."""
        return len(self.sql) + len(self.values or b"")


def merged(
    head: bytes, items: Iterable[bytes], tail: bytes, limits: Limits, joint: bytes = b","
) -> Iterator[Statement]:
    """Yield statements ``head item,item,... tail`` within the limits."""
    taken: list[bytes] = []
    size = 0
    for item in items:
        if taken and (size + len(item) + len(joint) > limits.max_bytes or len(taken) == limits.max_rows):
            yield Statement(head + joint.join(taken) + tail, len(taken))
            taken, size = [], 0
        taken.append(item)
        size += len(item) + len(joint)
    if taken:
        yield Statement(head + joint.join(taken) + tail, len(taken))


def prepared(
    head: bytes,
    nulls: Sequence[int],
    values: Sequence[bytes],
    tail: bytes,
    limits: Limits,
    parameters: Parameters,
) -> Iterator[Statement]:
    """Yield prepared statements ``head (?,…),(?,…),… tail`` within the limits, with the values of ``PreparedRows``.

    Most have one of two numbers of rows, so that the server knows them already: to prepare one costs as much as to run
    it.
    """
    most = max(1, min(limits.max_rows, PREPARED_ROWS, _PARAMETERS // max(1, parameters.count)))
    most = 1 << most.bit_length() - 1  # a part of the rows that are rendered together
    beside = len(parameters.row) + len(parameters.types) + parameters.count
    sizes = list(accumulate((len(value) + beside for value in values), initial=0))
    begin = 0
    while begin < len(values):
        fitting = bisect_right(sizes, sizes[begin] + limits.max_bytes) - 1 - begin
        fitting = max(1, min(most, fitting))
        end = begin + next((rows for rows in (most, most // _PART) if 1 < rows <= fitting), fitting)
        sql = head + b",".join([parameters.row] * (end - begin)) + tail
        yield Statement(sql, end - begin, parameters.joined(nulls[begin:end], values[begin:end]))
        begin = end


def merged_deletes(
    head: bytes, key_columns: bytes, keys: Iterable[bytes], limits: Limits
) -> Iterator[Statement]:
    """Yield DELETE … WHERE key IN (…) for rendered keys; without columns the keys are predicates.

    Args:
        head: of ``delete_head``.
    """
    if not key_columns:
        return merged(head, keys, b"", limits, b" OR ")
    return merged(head + key_columns + b" IN (", keys, b")", limits)


def delete_head(table: QualifiedName, index: str = "") -> bytes:
    """Return DELETE FROM … WHERE.

    Args:
        index: an index that MySQL is to use. To it a table is small right after it was filled or while deleted rows are
            not purged, and rather than to look for many keys it reads the whole table, with these.
    """
    hint = f"/*+ INDEX({quoted(table[1])} {quoted(index)}) */ " if index else ""
    return f"DELETE {hint}FROM {quoted(*table)} WHERE ".encode()


def updates_around(
    table: bytes,
    columns: tuple[str, ...],
    flavor: Flavor,
    placeholders: Sequence[str] = (),
    kept: Sequence[str] = (),
    key: Sequence[str] = (),
) -> tuple[bytes, bytes]:
    """Return what is around the rows in INSERT … VALUES (…),(…) ON DUPLICATE KEY UPDATE …, which changes them in place.

    Only with the check that each row was there, and where no other row can have one of the rows' unique values.

    Args:
        columns: the columns that the rows have and that are changed.
        placeholders: columns that the rows have, too.
        kept: columns that the server would change if they were not named.
        key: columns whose values the server compares, and refuses another row that has one of the unique values.
    """
    names = [quoted(name) for name in columns]
    # The alias must not be the table's own name.
    alias = "m" if table.lower().endswith(b"`n`") else "n"
    named, form = (f" AS {alias}", alias + ".{0}") if flavor == "mysql" else ("", "VALUES({0})")
    changes = [f"{name}={form.format(name)}" for name in names]
    if key:
        there = {quoted(name): f"{table.decode()}.{quoted(name)}" for name in key}
        is_it = " AND ".join(f"{old}<=>{form.format(name)}" for name, old in there.items())
        # It is set first, so all have their old values yet. NULL would be no error for an AUTO_INCREMENT column.
        first = next(name for name in names if name in there)
        refusal = f"EXP({_TOO_LARGE}+LENGTH({form.format(first)}))"
        changes[names.index(first)] = f"{first}=IF({is_it} OR {refusal},{there[first]},{there[first]})"
    changes += (f"{name}={table.decode()}.{name}" for name in map(quoted, kept))
    tail = f"{named} ON DUPLICATE KEY UPDATE {','.join(changes)}"
    every = ",".join((*names, *map(quoted, placeholders)))
    return b"INSERT INTO " + table + b" (" + every.encode() + b") VALUES ", tail.encode()


def insert_head(table: bytes, columns: bytes) -> bytes:
    """Return INSERT … VALUES. It never has IGNORE: a conflict must be an error."""
    return b"INSERT INTO " + table + b" (" + columns + b") VALUES "
