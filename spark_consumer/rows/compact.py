"""Compaction: computes the net effect of all changes of a key from its first and its last change.

The upstream's log is consistent, so a key whose first change is an INSERT did not exist before, and one whose first
change is an UPDATE or DELETE did; it exists afterwards unless its last change is a DELETE. Changes in between are not
written. Keys are compared as bytes: if two spellings are the same row under a collation, at most one of them exists at
a time, and each is handled separately.

The rules for two changes of one row, as in DM (a replacement is DELETE and INSERT):

    INSERT + UPDATE => INSERT            UPDATE + DELETE => DELETE
    INSERT + DELETE => nothing           DELETE + INSERT => replacement
    UPDATE + UPDATE => replacement

Safe mode makes no assumption about the previous state: each row is removed first if it exists, so INSERT is a
replacement too, and INSERT + DELETE is a DELETE.

Rows without a key have no identity. There the rows that are removed and written are counted by their images
(``compact_images``): INSERT + DELETE of equal rows leave nothing, whichever of them came first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from schemas.wire.avro_schema import AFTER_AT, OP_AT
from schemas.wire.rows import HEADER_SIZE

# A record's operation, and whether it has an after image.
_OPERATION = itemgetter(slice(OP_AT - 1, AFTER_AT + 1))
_INSERTED, _DELETED = frozenset({b"\x02c\x02", b"\x02r\x02"}), b"\x02d\x00"
_OPERATIONS = _INSERTED | {b"\x02u\x02", _DELETED}
_INSERTS = frozenset(b"cr")
_UPDATE, _DELETE = ord("u"), ord("d")
# Whether a record of an operation has an after and a before image.
_HAS_IMAGES = {
    ord("c"): (True, False),
    ord("r"): (True, False),
    ord("u"): (True, True),
    ord("d"): (False, True),
}


#: returns the bytes of a record's after image and of its before image; None for one that it lacks
Images = Callable[[bytes], tuple[bytes | None, bytes | None]]


@dataclass(frozen=True)
class NetImages:
    """The net effect of changes of a table without a key, in which only the number of equal rows counts.

    Attributes:
        gone: records with the before images of rows to remove, and the number of these rows.
        written: records with the after images of rows to write, one for each row.
        saved: the number of changes of which no row is left.
    """

    gone: list[tuple[bytes, int]]
    written: list[bytes]
    saved: int


def compact_images(values: Sequence[bytes], images: Images) -> NetImages:
    """Return the net effect of changes in any order: how many more or fewer rows there are with each image.

    Raises:
        ValueError: a record's operation does not fit its images.
    """
    counts: dict[bytes, int] = {}
    before_in: dict[bytes, bytes] = {}
    after_in: dict[bytes, bytes] = {}
    for value in values:
        after, before = images(value)
        if (after is not None, before is not None) != _HAS_IMAGES.get(value[OP_AT]):
            raise ValueError("the record has no operation, or not its images")
        if before is not None:
            counts[before] = counts.get(before, 0) - 1
            before_in[before] = value
        if after is not None:
            counts[after] = counts.get(after, 0) + 1
            after_in[after] = value
    gone = [(before_in[image], -count) for image, count in counts.items() if count < 0]
    written = [after_in[image] for image, count in counts.items() for _ in range(count)]
    rows = sum(count for _, count in gone) + len(written)
    return NetImages(gone, written, max(0, len(values) - rows))


@dataclass(frozen=True)
class NetChanges:
    """The net effect of a run of changes: rows to remove, then rows to write. A key is at most once in each of them.

    Attributes:
        gone: key and first value of each row that existed before and is deleted or replaced.
        written: key and last value of each row that exists afterwards and was changed.
        begun: the INSERT of each row that was inserted and changed then, by key, if both have one structure.
        saved: number of changes superseded by another change of the same row.
    """

    gone: list[tuple[bytes, bytes]]
    written: list[tuple[bytes, bytes]]
    begun: dict[bytes, bytes]
    saved: int


def compact(
    keys: Sequence[bytes], values: Sequence[bytes], safe_headers: frozenset[bytes] = frozenset()
) -> NetChanges:
    """Return the net effect of changes in log order.

    Args:
        keys: the changes' Kafka keys.
        values: their row records.
        safe_headers: the headers of the records of tables in safe mode.

    Raises:
        ValueError: a record has no operation.
    """
    operations = set(map(_OPERATION, values))
    if not operations <= _OPERATIONS:
        raise ValueError("the record has no operation")
    # dict() keeps the last value of a repeated key, so the reversed log yields the first one.
    lasts = dict(zip(keys, values, strict=True))
    is_once = len(lasts) == len(keys)
    firsts = lasts if is_once else dict(zip(reversed(keys), reversed(values), strict=True))
    # Nearly all rows of many slices are inserted, so they are not looked at where the answer is known.
    gone: list[tuple[bytes, bytes]] = []
    if safe_headers or not operations <= _INSERTED:
        gone = [
            item
            for item in firsts.items()
            if item[1][OP_AT] not in _INSERTS or item[1][:HEADER_SIZE] in safe_headers
        ]
    written = list(lasts.items())
    if _DELETED in operations:
        written = [item for item in written if item[1][OP_AT] != _DELETE]
    begun: dict[bytes, bytes] = {}
    if not is_once:
        begun = {
            key: firsts[key]
            for key, value in written
            if value[OP_AT] == _UPDATE
            and firsts[key][OP_AT] in _INSERTS
            and firsts[key][:HEADER_SIZE] == value[:HEADER_SIZE]
        }
    rows = len(written) + sum(1 for key, _ in gone if lasts[key][OP_AT] == _DELETE)
    return NetChanges(gone, written, begun, len(values) - rows)
