"""Merges many rows of one table into few statements of limited size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from schemas.ddl.lexer import Flavor
from schemas.quote import quoted


@dataclass(frozen=True)
class Limits:
    """The limits of one statement. A single larger row is one statement too."""

    max_rows: int
    max_bytes: int = 1 << 20


@dataclass(frozen=True)
class Statement:
    """One statement and the number of rows that it must change according to the log."""

    sql: bytes
    rows: int


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


def merged_deletes(
    table: bytes, key_columns: bytes, keys: Iterable[bytes], limits: Limits
) -> Iterator[Statement]:
    """Yield DELETE … WHERE key IN (…) for rendered keys; without columns the keys are predicates."""
    if not key_columns:
        return merged(b"DELETE FROM " + table + b" WHERE ", keys, b"", limits, b" OR ")
    return merged(b"DELETE FROM " + table + b" WHERE " + key_columns + b" IN (", keys, b")", limits)


def merged_updates(
    table: bytes, columns: tuple[str, ...], rows: Iterable[bytes], limits: Limits, flavor: Flavor
) -> Iterator[Statement]:
    """Yield INSERT … VALUES (…),(…) ON DUPLICATE KEY UPDATE … for rendered rows that are there, and change in place.

    Only for a table with one unique key, and with the check that each row was there: of several keys, any may collide.
    """
    names = [quoted(name) for name in columns]
    # The alias must not be the table's own name.
    alias = "m" if table.lower().endswith(b"`n`") else "n"
    named, form = (f" AS {alias}", alias + ".{0}") if flavor == "mysql" else ("", "VALUES({0})")
    tail = f"{named} ON DUPLICATE KEY UPDATE {','.join(f'{name}={form.format(name)}' for name in names)}"
    head = b"INSERT INTO " + table + b" (" + ",".join(names).encode() + b") VALUES "
    return merged(head, rows, tail.encode(), limits)


def merged_inserts(
    table: bytes, columns: bytes, rows: Iterable[bytes], limits: Limits
) -> Iterator[Statement]:
    """Yield INSERT … VALUES (…),(…) for rendered rows. It never has IGNORE: a conflict must be an error."""
    return merged(b"INSERT INTO " + table + b" (" + columns + b") VALUES ", rows, b"", limits)
