"""Walks over events that need no look of their own: compiled.

A walk ends before the first event of which it is not sure; its caller, in Python, looks at that one, and finds what is
wrong with it if anything is.
"""

from __future__ import annotations

import numpy as np

from schemas.binlog import framing
from schemas.binlog.compiled.arrays import (
    AT,
    BEHIND,
    BOUNDARY,
    EVENTS,
    GROUPS,
    GTIDS,
    HAS_CHECKSUM,
    IS_MARIADB,
    MOST_GROUPS,
    MOST_POSITION,
    NUMBER,
    POSITION,
    RUN_FIRST,
    RUN_LAST,
    RUN_SERVER_ID,
    RUN_SOURCE,
    RUN_WAS_OPEN,
    RUNS,
    SERVER_ID,
    SIZE,
    SOURCE,
    STATE,
)
from schemas.binlog.compiled.checksum import crc32
from schemas.binlog.groups import MANY, OPENED, OUTSIDE
from schemas.compiled.jit import compiled
from schemas.compiled.memory import copied, equal, little
from schemas.compiled.types import Bool, Bytes, Int, Numbers
from schemas.gtid.base import GNO_END

_HEADER, _RESIDUE = framing.HEADER_SIZE, np.uint64(framing.CRC32_RESIDUE)
_PACKET = 5  # bytes before an event: the packet's size and number, and a status
_BEGIN = np.frombuffer(b"BEGIN", np.uint8)
_INSIDE = np.array([kind in framing.INSIDE_GROUP for kind in range(256)], np.bool_)
_GTID, _MARIADB_GTID, _QUERY, _XID = framing.GTID, framing.MARIADB_GTID, framing.QUERY, framing.XID
_STANDALONE, _ARTIFICIAL = framing.MARIADB_FL_STANDALONE, framing.FLAG_ARTIFICIAL
_LOW = 0xFFFFFFFF


@compiled
def event_size(b: Bytes, i: Int, end: Int) -> Int:
    """The size of the event at ``b[i]``; -1 if it is not whole."""
    if i + _HEADER > end:
        return np.int64(-1)
    size = np.int64(little(b, i + 9, 4))
    return size if _HEADER <= size <= end - i else np.int64(-1)


@compiled
def is_begin(b: Bytes, i: Int, stop: Int) -> Bool:
    """Whether a QUERY event is a BEGIN; its checksum begins at ``stop``."""
    at = i + _HEADER
    if at + 13 > stop:
        return False
    text = at + 14 + np.int64(b[at + 8]) + (np.int64(b[at + 11]) | np.int64(b[at + 12]) << 8)
    return text == stop - 5 and equal(b, text, _BEGIN, 0, 5)


@compiled
def whole_events(b: Bytes, asked: Numbers) -> None:
    """Find where the whole and undamaged events from ``b[asked[AT]]`` on end."""
    i, end, has_checksum = asked[AT], len(b), asked[HAS_CHECKSUM]
    while True:
        size = event_size(b, i, end)
        if size < 0 or (has_checksum and crc32(b, i, i + size) != _RESIDUE):
            break
        i += size
    asked[BEHIND] = i


@compiled
def _gtid(b: Bytes, i: Int, stop: Int, asked: Numbers, source_at: Int) -> Bool:
    """Open a group; whether its GTID event is a usual one. ``source_at``: where a UUID will be in the output."""
    at = i + _HEADER
    if asked[IS_MARIADB]:
        if at + 13 > stop or b[at + 12] & _STANDALONE or little(b, at, 8) >= np.uint64(GNO_END):
            return False
        asked[NUMBER], asked[SOURCE] = np.int64(little(b, at, 8)), np.int64(little(b, at + 8, 4))
        asked[SERVER_ID], asked[STATE] = np.int64(little(b, i + 5, 4)), MANY
    else:
        if at + 25 > stop or not 1 <= np.int64(little(b, at + 17, 8)) < GNO_END:
            return False
        asked[NUMBER], asked[SOURCE], asked[STATE] = np.int64(little(b, at + 17, 8)), source_at, OPENED
    asked[GTIDS] += 1
    return True


@compiled
def _takes(b: Bytes, i: Int, stop: Int, asked: Numbers, o: Int) -> Bool:
    """Whether the event at ``b[i]`` goes on in the open group, or opens or ends one, as most do."""
    kind = b[i + 4]
    if _INSIDE[kind]:
        return True
    if b[i + framing.FLAGS_OFFSET] & _ARTIFICIAL:
        return False
    if kind == (_MARIADB_GTID if asked[IS_MARIADB] else _GTID):
        return asked[STATE] == OUTSIDE and _gtid(b, i, stop, asked, o + _HEADER + 1)
    if kind == _QUERY:
        if asked[STATE] != OPENED or not is_begin(b, i, stop):
            return False
        asked[STATE] = MANY
        return True
    if kind == _XID and asked[STATE] != OUTSIDE:
        asked[STATE] = OUTSIDE
        return True
    return False


@compiled
def _ends(asked: Numbers, out: Bytes, runs: Numbers) -> None:
    """Add the group that ends to the last run, or to a new one."""
    count, was_open = asked[RUNS], asked[GTIDS] == 0
    if count and not was_open:
        before = runs[count - 1]
        if (
            not before[RUN_WAS_OPEN]
            and asked[NUMBER] == before[RUN_LAST] + 1
            and asked[SERVER_ID] == before[RUN_SERVER_ID]
            and (
                asked[SOURCE] == before[RUN_SOURCE]
                if asked[IS_MARIADB]
                else equal(out, asked[SOURCE], out, before[RUN_SOURCE], 16)
            )
        ):
            before[RUN_LAST] = asked[NUMBER]
            return
    run = runs[count]
    run[RUN_SOURCE], run[RUN_FIRST], run[RUN_LAST] = asked[SOURCE], asked[NUMBER], asked[NUMBER]
    run[RUN_SERVER_ID], run[RUN_WAS_OPEN] = asked[SERVER_ID], was_open
    asked[RUNS] += 1


@compiled
def packets(b: Bytes, asked: Numbers, out: Bytes, runs: Numbers) -> None:
    """Copy the events in the packets from ``b[asked[AT]]`` on, and note the groups that end among them."""
    i, o, end, position = asked[AT], np.int64(0), len(b), asked[POSITION]
    checksum = framing.CHECKSUM_SIZE if asked[HAS_CHECKSUM] else 0
    asked[EVENTS], asked[GROUPS], asked[RUNS], asked[BOUNDARY], asked[GTIDS] = 0, 0, 0, -1, 0
    while i + _PACKET <= end and not b[i + 4]:
        at = i + _PACKET
        size = event_size(b, at, end)
        if size < 0 or np.int64(little(b, i, 3)) != size + 1 or size + 1 == framing.MAX_PACKET:
            break
        if o + size > len(out):
            break
        behind = position + size
        told = np.int64(little(b, at + 13, 4))
        if told and told != behind & _LOW:
            break
        if checksum and crc32(b, at, at + size) != _RESIDUE:
            break
        if not _takes(b, at, at + size - checksum, asked, o):
            break
        o = copied(b, at, size, out, o)
        i, position = at + size, behind
        asked[EVENTS] += 1
        if b[at + 4] == _XID:
            _ends(asked, out, runs)
            asked[GROUPS] += 1
            asked[BOUNDARY] = position
            if asked[GROUPS] >= asked[MOST_GROUPS] or position >= asked[MOST_POSITION]:
                break
    asked[BEHIND], asked[SIZE], asked[POSITION] = i, o, position
