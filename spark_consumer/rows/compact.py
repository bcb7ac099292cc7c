"""Compaction: the net effect of all changes of a key, which its first and last operation decide.

The upstream's log is consistent, so a key whose first change is an INSERT did not exist before, and one whose
first change is an UPDATE or DELETE did; it exists afterwards unless its last change is a DELETE. What lies in
between never has to be written. Keys are compared as bytes: where a collation takes two spellings for one
row, at most one of them exists at a time, and each is followed on its own.

As DM's rules, of two changes to one row in the log's order, a replacement being DELETE and INSERT:

    INSERT + UPDATE => INSERT            UPDATE + DELETE => DELETE
    INSERT + DELETE => nothing           DELETE + INSERT => replacement
    UPDATE + UPDATE => replacement

Safe mode makes no assumption about the previous state: each row is removed first if it is there, so INSERT is a
replacement too, and INSERT + DELETE a DELETE.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from schemas.sql.literals import AFTER_AT
from schemas.wire.avro_schema import OP_AT
from schemas.wire.rows import HEADER_SIZE

# Of a record: its operation, and whether it has a row after it.
_OPERATION = itemgetter(slice(OP_AT - 1, AFTER_AT + 1))
_OPERATIONS = frozenset({b"\x02c\x02", b"\x02r\x02", b"\x02u\x02", b"\x02d\x00"})
_INSERTS = frozenset(b"cr")
_DELETE = ord("d")


@dataclass(frozen=True)
class NetChanges:
    """The net effect of a run of changes: rows to remove, then rows to write, each key at most once in each.

    Attributes:
        gone: key and first value of each row that existed before and either ends or is replaced.
        written: key and last value of each row that exists afterwards and was changed.
        saved: number of changes superseded by another change of the same row.
    """

    gone: list[tuple[bytes, bytes]]
    written: list[tuple[bytes, bytes]]
    saved: int


def compact(
    keys: Sequence[bytes], values: Sequence[bytes], safe_headers: frozenset[bytes] = frozenset()
) -> NetChanges:
    """The net effect of changes in log order.

    Args:
        keys: the changes' Kafka keys.
        values: their row records.
        safe_headers: what the records of tables in safe mode begin with.

    Raises:
        ValueError: a record has no operation.
    """
    if not _OPERATIONS.issuperset(map(_OPERATION, values)):
        raise ValueError("the record has no operation")
    # dict() keeps the last value of a repeated key, so the reversed log yields the first one.
    firsts = dict(zip(reversed(keys), reversed(values), strict=True))
    lasts = dict(zip(keys, values, strict=True))
    gone = [
        item
        for item in firsts.items()
        if item[1][OP_AT] not in _INSERTS or item[1][:HEADER_SIZE] in safe_headers
    ]
    written = [item for item in lasts.items() if item[1][OP_AT] != _DELETE]
    rows = len(written) + sum(1 for key, _ in gone if lasts[key][OP_AT] == _DELETE)
    return NetChanges(gone, written, len(values) - rows)
