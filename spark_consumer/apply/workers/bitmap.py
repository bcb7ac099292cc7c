"""The rows of a slice that a worker has applied, by their offsets in Kafka, which no setting changes.

A row belongs to exactly one group, a group to one worker, and a worker's rows are committed together with its row in
``worker_info``. So an interrupted slice can be finished without the original assignment: only the rows that no worker
applied are missing.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence

#: for each partition its first offset, and a bit for each offset from there on
Bits = Mapping[int, tuple[int, bytes]]


def packed(rows: Mapping[int, Iterable[int]]) -> bytes:
    """Encode offsets by partition as a value of ``Checkpoint_group_bitmap``."""
    head: list[tuple[int, int, int]] = []
    body = []
    for partition, offsets in sorted(rows.items()):
        numbers = list(offsets)
        first = min(numbers)
        bits = bytearray((max(numbers) - first >> 3) + 1)
        for number in numbers:
            bits[number - first >> 3] |= 1 << (number - first & 7)
        head.append((partition, first, len(bits)))
        body.append(bytes(bits))
    return zlib.compress(json.dumps(head).encode() + b"\n" + b"".join(body), 1)


def unpacked(value: bytes) -> dict[int, tuple[int, bytes]]:
    """The inverse of ``packed``."""
    head, _, body = zlib.decompress(value).partition(b"\n")
    found, at = {}, 0
    for partition, first, length in json.loads(head):
        found[partition] = (first, body[at : at + length])
        at += length
    return found


def missing_rows(partition: int, offsets: Sequence[int], applied: Sequence[Bits]) -> list[bool]:
    """Return for each row of a partition whether no worker has applied it."""
    missing = [True] * len(offsets)
    for bits in applied:
        first, marks = bits.get(partition, (0, b""))
        for at, offset in enumerate(offsets):
            place = offset - first
            if 0 <= place < len(marks) * 8 and marks[place >> 3] >> (place & 7) & 1:
                missing[at] = False
    return missing
