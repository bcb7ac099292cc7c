"""The walk over a block's events: compiled.

A transaction is decoded here if it is plain. Every other one is a gap, which the publisher walks itself, in order: a
statement, an XA transaction, an unknown event or table, and whatever is damaged.
"""

from __future__ import annotations

import numpy as np

from producer.decode.compiled.arrays import (
    AT,
    BEHIND,
    BODY_AT,
    BODY_SIZE,
    CHECKSUM,
    COLUMNS,
    COMMIT_MS,
    COMMITTED,
    DATA_ENDS,
    END,
    EPOCH_IS_FULL,
    FIRST_SEQ,
    GAP_BEGINS,
    GAP_ENDS,
    GROUPS,
    GTID_SIZE,
    IS_MARIADB,
    LAST_COMMIT_MS,
    LAST_NUMBER,
    LEFT_OUT,
    MOST_GROUPS,
    MOST_ROWS,
    MOST_SIZE,
    MOVES,
    NO_ROOM,
    NOT_PLAIN,
    NUMBER,
    OPEN_TABLES,
    ROWS,
    SERVER_ID,
    SIZE,
    SOURCE,
    STOP_AT,
    TABLES,
    TEXT_AT,
    TOO_LARGE,
    WHY,
    Block,
    Output,
    Tables,
)
from producer.decode.compiled.rows import column_of_counts, rows_event
from producer.decode.compiled.values import HEX, decimal_number, varint
from schemas.binlog import framing
from schemas.binlog.compiled.events import event_size, is_begin
from schemas.compiled.jit import compiled
from schemas.compiled.memory import equal, little
from schemas.compiled.types import Bool, Bytes, Int, Numbers, Word
from schemas.gtid.base import GNO_END

_HEADER = framing.HEADER_SIZE
_TABLE_ID, _FLAGS = _HEADER, _HEADER + 6
# Of a TABLE_MAP's flags, in their second byte. Source: MariaDB sql/log_event.h, TM_BIT_HAS_TRIGGERS_F.
_HAS_TRIGGERS = 0x40
# Of the flags in MariaDB's GTID event: one statement, DDL, XA prepared, XA completed.
_OF_ANOTHER_KIND = 0x01 | 0x20 | 0x40 | 0x80
_USUAL_GTID_SIZE = 70
# A gap goes on over fewer plain groups and rows than that: to end and begin it costs as much as so many in Python.
_FEW = 32
_MET = 3  # of ``counts``: whether the table is in ``order``
_FNV, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_DASH, _COLON = 45, 58
_GTID, _MARIADB_GTID, _QUERY, _XID = framing.GTID, framing.MARIADB_GTID, framing.QUERY, framing.XID
_TABLE_MAP, _ROWS_QUERY, _ANNOTATE = framing.TABLE_MAP, framing.ROWS_QUERY, framing.MARIADB_ANNOTATE_ROWS
_ROWS_EVENTS = (
    framing.WRITE_ROWS_V1,
    framing.UPDATE_ROWS_V1,
    framing.DELETE_ROWS_V1,
    framing.WRITE_ROWS,
    framing.UPDATE_ROWS,
    framing.DELETE_ROWS,
    framing.PARTIAL_UPDATE_ROWS,
)
_GTIDS = (_GTID, _MARIADB_GTID, framing.GTID_TAGGED, framing.ANONYMOUS_GTID)


@compiled
def _hash(b: Bytes, begin: Int, size: Int) -> Word:
    """FNV-1a."""
    found = _FNV
    for k in range(size):
        found = (found ^ np.uint64(b[begin + k])) * _FNV_PRIME
    return found


@compiled
def fill_index(tables: Tables) -> None:
    """Enter all tables into ``tables.slots``, which is empty; of equal ones the last."""
    mask = np.uint64(len(tables.slots) - 1)
    for number in range(len(tables.tables)):
        at, size = tables.tables[number, BODY_AT], tables.tables[number, BODY_SIZE]
        if size < 0:  # a variant
            continue
        slot = _hash(tables.texts, at, size) & mask
        while tables.slots[slot] >= 0:
            there = tables.tables[tables.slots[slot]]
            if there[BODY_SIZE] == size and equal(tables.texts, there[BODY_AT], tables.texts, at, size):
                break
            slot = slot + np.uint64(1) & mask
        tables.slots[slot] = number


@compiled
def _find(b: Bytes, begin: Int, size: Int, tables: Tables) -> Int:
    """The number of the table with this body; -1 if it is not known."""
    mask = np.uint64(len(tables.slots) - 1)
    slot = _hash(b, begin, size) & mask
    while tables.slots[slot] >= 0:
        number = tables.slots[slot]
        found = tables.tables[number]
        if found[BODY_SIZE] == size and equal(b, begin, tables.texts, found[BODY_AT], size):
            return number
        slot = slot + np.uint64(1) & mask
    return np.int64(-1)


@compiled
def _open_table(b: Bytes, i: Int, stop: Int, tables: Tables, out: Output) -> Bool:
    """Remember what a TABLE_MAP says; whether the table is known."""
    table_id = np.int64(little(b, i + _TABLE_ID, 6))
    begin, slot = i + _FLAGS + 2, table_id & OPEN_TABLES - 1
    size = stop - begin
    number = out.open_tables[slot, 1]
    if out.open_tables[slot, 0] == table_id and number >= 0:
        known = tables.tables[number]
        if known[BODY_SIZE] == size and equal(b, begin, tables.texts, known[BODY_AT], size):
            return True
    number = _find(b, begin, size, tables)
    out.open_tables[slot, 0] = table_id
    out.open_tables[slot, 1] = number
    return number >= 0


@compiled
def _gtid(block: Block, i: Int, stop: Int, group: Numbers, out: Output) -> Int:
    """Read a GTID event of the usual form into a group; returns the size of what values say of it, -1: not plain."""
    b, server_id = block.b, np.int64(little(block.b, i + 5, 4))
    group[SERVER_ID] = server_id
    o = varint(out.gtid, 0, np.uint64(server_id << 1))
    out.gtid[o] = 2
    text_at = o + 1
    if block.asked[IS_MARIADB]:
        if i + _HEADER + 13 > stop or b[i + _HEADER + 12] & _OF_ANOTHER_KIND:
            return np.int64(-1)
        unsigned = little(b, i + _HEADER, 8)
        if unsigned >= np.uint64(GNO_END):
            return np.int64(-1)
        domain, number = np.int64(little(b, i + _HEADER + 8, 4)), np.int64(unsigned)
        group[SOURCE], group[NUMBER] = domain, number
        group[COMMIT_MS] = np.int64(little(b, i, 4)) * 1000
        # The size is known when the text is; it takes one byte.
        o = decimal_number(out.gtid, text_at + 1, domain)
        out.gtid[o] = _DASH
        o = decimal_number(out.gtid, o + 1, server_id)
        out.gtid[o] = _DASH
        o = decimal_number(out.gtid, o + 1, number)
        out.gtid[text_at] = o - text_at - 1 << 1
        return np.int64(o)
    if i + _USUAL_GTID_SIZE > stop:
        return np.int64(-1)
    number = np.int64(little(b, i + _HEADER + 17, 8))
    micros = np.int64(little(b, i + _HEADER + 42, 7))
    if micros >> 55:
        if i + _HEADER + 56 > stop:
            return np.int64(-1)
        micros = np.int64(little(b, i + _HEADER + 49, 7)) & (1 << 55) - 1
    if number < 1 or number >= GNO_END:
        return np.int64(-1)
    group[SOURCE], group[NUMBER], group[COMMIT_MS] = i + _HEADER + 1, number, micros // 1000
    o = text_at + 1
    for k in range(16):
        if k in (4, 6, 8, 10):
            out.gtid[o] = _DASH
            o += 1
        byte = b[i + _HEADER + 1 + k]
        out.gtid[o] = HEX[byte >> 4]
        out.gtid[o + 1] = HEX[byte & 15]
        o += 2
    out.gtid[o] = _COLON
    o = decimal_number(out.gtid, o + 1, number)
    out.gtid[text_at] = o - text_at - 1 << 1
    return np.int64(o)


@compiled
def _rows_of_group(
    block: Block, i: Int, end: Int, tables: Tables, out: Output, rows: Int, moves: Int, is_whole: Bool
) -> tuple[Int, Int, Int, Int, Int]:
    """Decode the open group's rows from ``b[i]`` on, up to an event that brings none, or that is not plain.

    Args:
        is_whole: whether the group begins and ends in the block.

    Returns:
        where it stopped; why: 0, or as ``rows_event``; the numbers of rows, moves and events.
    """
    b, checksum, is_mariadb = block.b, block.asked[CHECKSUM], block.asked[IS_MARIADB]
    why, events = np.int64(0), np.int64(0)
    while True:
        size = event_size(b, i, end)
        if size < 0:
            break
        kind, stop = b[i + 4], i + size - checksum
        if kind == (_ANNOTATE if is_mariadb else _ROWS_QUERY):
            block.asked[TEXT_AT] = i
        elif kind == _TABLE_MAP:
            if stop < i + _FLAGS + 2 or not _open_table(b, i, stop, tables, out):
                why = np.int64(NOT_PLAIN)
                break
            if not is_whole and is_mariadb and b[i + _FLAGS + 1] & _HAS_TRIGGERS:
                out.open_tables[:, 0] = -1
                why = np.int64(NOT_PLAIN)
                break
        elif kind in _ROWS_EVENTS:
            number = _table_of(b, i, stop, out)
            if number < 0:
                why = np.int64(NOT_PLAIN)
                break
            if tables.tables[number, COLUMNS] != LEFT_OUT:
                if events == len(out.events):
                    why = np.int64(TOO_LARGE)
                    break
                behind, moves_behind, form = rows_event(block, i, stop, number, tables, out, rows, moves)
                if behind < 0:
                    why = behind
                    break
                out.events[events, 0], out.events[events, 1] = form, column_of_counts(kind)
                out.events[events, 2] = behind - rows
                rows, moves, events = behind, moves_behind, events + 1
        else:
            break
        i += size
    return i, why, rows, moves, events


@compiled
def _table_of(b: Bytes, i: Int, stop: Int, out: Output) -> Int:
    """The number of the table of the rows event at ``b[i]``; -1 if it is not open."""
    if stop < i + _FLAGS + 2:
        return np.int64(-1)
    table_id = np.int64(little(b, i + _TABLE_ID, 6))
    slot = table_id & OPEN_TABLES - 1
    return out.open_tables[slot, 1] if out.open_tables[slot, 0] == table_id else np.int64(-1)


@compiled
def _count(asked: Numbers, out: Output, events: Int) -> None:
    """Count the rows of these events."""
    for k in range(events):
        number = out.events[k, 0]
        counts = out.counts[number]
        if not counts[_MET]:
            out.order[asked[TABLES]] = number
            asked[TABLES] += 1
            counts[_MET] = 1
        counts[out.events[k, 1]] += out.events[k, 2]


@compiled
def _group(
    block: Block, i: Int, end: Int, tables: Tables, out: Output, rows: Int, moves: Int, number: Int
) -> tuple[Int, Int, Int]:
    """Decode the group at ``b[i]``; its fields are written into those of this number.

    Returns:
        where it ends, or NOT_PLAIN, or TOO_LARGE; the numbers of rows and moves behind it.
    """
    b, asked, group = block.b, block.asked, out.groups[number]
    checksum, is_mariadb = asked[CHECKSUM], asked[IS_MARIADB]
    fault = np.int64(NOT_PLAIN), rows, moves
    size = event_size(b, i, end)
    if size < 0 or b[i + 4] != (_MARIADB_GTID if is_mariadb else _GTID):
        return fault
    asked[GTID_SIZE] = _gtid(block, i, i + size - checksum, group, out)
    if asked[GTID_SIZE] < 0:
        return fault
    asked[COMMITTED] = group[COMMIT_MS]
    i += size
    if not is_mariadb:
        size = event_size(b, i, end)
        if size < 0 or b[i + 4] != _QUERY or not is_begin(b, i, i + size - checksum):
            return fault
        i += size
    out.open_tables[:, 0] = -1
    i, why, rows_behind, moves_behind, events = _rows_of_group(block, i, end, tables, out, rows, moves, True)
    if why < 0:
        return why, rows, moves
    size = event_size(b, i, end)
    if size < 0 or b[i + 4] != _XID:
        return fault
    group[END] = i + size
    _count(asked, out, events)
    return i + size, rows_behind, moves_behind


@compiled
def _added(block: Block, groups: Numbers, runs: Int) -> Int:
    """Add the group whose fields are behind those of so many runs to the last one, or begin another; the runs then."""
    b, group = block.b, groups[runs]
    if runs:
        last = groups[runs - 1]
        if (
            group[NUMBER] == last[LAST_NUMBER] + 1
            and group[SERVER_ID] == last[SERVER_ID]
            and (
                group[SOURCE] == last[SOURCE]
                if block.asked[IS_MARIADB]
                else equal(b, group[SOURCE], b, last[SOURCE], 16)
            )
        ):
            last[END], last[LAST_NUMBER], last[LAST_COMMIT_MS] = group[END], group[NUMBER], group[COMMIT_MS]
            return runs
    group[LAST_NUMBER], group[LAST_COMMIT_MS] = group[NUMBER], group[COMMIT_MS]
    return runs + 1


@compiled
def _next_group(b: Bytes, i: Int, end: Int) -> Int:
    """Where the first GTID event behind the event at ``b[i]`` begins; ``end`` if there is none."""
    while True:
        size = event_size(b, i, end)
        if size < 0:
            return end
        i += size
        if i + _HEADER > end:
            return end
        if b[i + 4] in _GTIDS:
            return i


@compiled
def walk(block: Block, tables: Tables, out: Output) -> None:
    """Decode the plain groups at ``b[asked[AT]]``, or find the gap's end if it is one.

    If a group is open (``asked[GTID_SIZE]``), decode its rows instead; ``out`` has its GTID and its tables.
    """
    asked = block.asked
    i, end = asked[AT], asked[STOP_AT]
    groups, runs, rows, moves = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    asked[TABLES], asked[TEXT_AT] = 0, -1
    why, in_gap, plain_at, plain = DATA_ENDS, False, np.int64(-1), np.int64(0)
    if asked[GTID_SIZE]:
        i, _, rows, moves, events = _rows_of_group(block, i, end, tables, out, rows, moves, False)
        _count(asked, out, events)
        end = i
    while i < end:
        behind, rows_behind, moves_behind = _group(block, i, end, tables, out, rows, moves, runs)
        if behind < 0 and groups:
            why = NO_ROOM if behind == TOO_LARGE else GAP_BEGINS
            break
        if behind < 0:
            in_gap, plain_at, plain = True, np.int64(-1), np.int64(0)
            i = _next_group(block.b, i, end)
            continue
        if in_gap:
            plain_at = i if plain_at < 0 else plain_at
            plain += 1 + rows_behind
            if plain >= _FEW:
                i = plain_at
                break
            i = behind
            continue
        asked[SIZE] += behind - i
        i, rows, moves, groups = behind, rows_behind, moves_behind, groups + 1
        runs = _added(block, out.groups, runs)
        is_full = asked[FIRST_SEQ] + rows >= asked[MOST_ROWS] or asked[SIZE] >= asked[MOST_SIZE]
        if is_full or groups == asked[MOST_GROUPS]:
            why = EPOCH_IS_FULL
            break
        if runs == len(out.groups):
            why = NO_ROOM
            break
    if in_gap:
        why = GAP_ENDS
        for k in range(asked[TABLES]):
            out.counts[out.order[k]] = 0
        asked[TABLES] = 0
    asked[BEHIND], asked[WHY], asked[GROUPS], asked[ROWS], asked[MOVES] = i, why, runs, rows, moves
