"""Merges many rows of one table into few statements of limited size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from schemas.ddl.lexer import Flavor
from schemas.quote import quoted
from schemas.sql.parameters import MOST, Parameters

#: the most rows of a prepared statement; more do not make it cheaper
PREPARED_ROWS = 512
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
    """Yield prepared statements ``head (?,…),(?,…),… tail`` within the limits, with the values of ``PreparedRows``."""
    most = max(1, min(limits.max_rows, PREPARED_ROWS, MOST // max(1, parameters.count)))
    beside = len(parameters.row) + len(parameters.types) + parameters.count
    begin = end = 0
    while begin < len(values):
        size = 0
        while end < len(values) and end - begin < most:
            size += len(values[end]) + beside
            if end > begin and size > limits.max_bytes:
                break
            end += 1
        sql = head + b",".join([parameters.row] * (end - begin)) + tail
        yield Statement(sql, end - begin, parameters.joined(nulls[begin:end], values[begin:end]))
        begin = end


def merged_deletes(
    table: bytes, key_columns: bytes, keys: Iterable[bytes], limits: Limits
) -> Iterator[Statement]:
    """Yield DELETE … WHERE key IN (…) for rendered keys; without columns the keys are predicates."""
    if not key_columns:
        return merged(b"DELETE FROM " + table + b" WHERE ", keys, b"", limits, b" OR ")
    return merged(b"DELETE FROM " + table + b" WHERE " + key_columns + b" IN (", keys, b")", limits)


def updates_around(table: bytes, columns: tuple[str, ...], flavor: Flavor) -> tuple[bytes, bytes]:
    """Return what is around the rows in INSERT … VALUES (…),(…) ON DUPLICATE KEY UPDATE …, which changes them in place.

    Only for a table with one unique key, and with the check that each row was there: of several keys, any may collide.
    """
    names = [quoted(name) for name in columns]
    # The alias must not be the table's own name.
    alias = "m" if table.lower().endswith(b"`n`") else "n"
    named, form = (f" AS {alias}", alias + ".{0}") if flavor == "mysql" else ("", "VALUES({0})")
    tail = f"{named} ON DUPLICATE KEY UPDATE {','.join(f'{name}={form.format(name)}' for name in names)}"
    head = b"INSERT INTO " + table + b" (" + ",".join(names).encode() + b") VALUES "
    return head, tail.encode()


def insert_head(table: bytes, columns: bytes) -> bytes:
    """Return INSERT … VALUES. It never has IGNORE: a conflict must be an error."""
    return b"INSERT INTO " + table + b" (" + columns + b") VALUES "
