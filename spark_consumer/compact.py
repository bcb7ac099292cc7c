"""Compaction: what a run of changes to one key comes to, decided by its first and last operation alone.

The upstream's log is consistent, so a key whose first change is an INSERT did not exist before, and one whose
first change is an UPDATE or DELETE did; it exists afterwards unless its last change is a DELETE. What lies in
between never has to be written. Keys are compared as bytes: where a collation takes two spellings for one
row, at most one of them exists at a time, and each is followed on its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.avro_schema import OP_AT

_INSERTS = frozenset(b"cr")
_DELETE = ord("d")


@dataclass(frozen=True)
class Net:
    """The net effect of a run of changes: rows to remove, then rows to write, each key at most once in each.

    Attributes:
        gone: key and first value of each row that existed before and either ends or is replaced.
        written: key and last value of each row that exists afterwards and was changed.
    """

    gone: list[tuple[bytes, bytes]]
    written: list[tuple[bytes, bytes]]


def compact(keys: Sequence[bytes], values: Sequence[bytes]) -> Net:
    """The net effect of changes in log order; ``values`` are row records, ``keys`` their Kafka keys."""
    # dict() keeps the last value of a repeated key, so the reversed log yields the first one.
    firsts = dict(zip(reversed(keys), reversed(values), strict=True))
    lasts = dict(zip(keys, values, strict=True))
    gone = [item for item in firsts.items() if item[1][OP_AT] not in _INSERTS]
    written = [item for item in lasts.items() if item[1][OP_AT] != _DELETE]
    return Net(gone, written)
