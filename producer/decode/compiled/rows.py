"""A rows event to the keys and values of its rows: compiled."""

from __future__ import annotations

import numpy as np

from producer.decode.compiled.arrays import (
    BASE,
    COLUMNS,
    COLUMNS_AT,
    COMMITTED,
    CREATE,
    DELETE,
    EPOCH_SIZE,
    FILE_SIZE,
    FIRST_SEQ,
    GROWTH,
    GTID_SIZE,
    JSON,
    KEY_AT,
    KEY_SIZE,
    KIND,
    NAME_AT,
    NAME_SIZE,
    NOT_PLAIN,
    NULLABLE,
    OP_SIZE,
    PUBLISHED_SIZE,
    ROOM,
    TOO_LARGE,
    UPDATE,
    Block,
    Output,
    Tables,
)
from producer.decode.compiled.json_text import json_value
from producer.decode.compiled.values import value, varint
from schemas.binlog import framing
from schemas.compiled.jit import compiled
from schemas.compiled.memory import copied, equal
from schemas.compiled.types import Bool, Bytes, Int, Numbers
from schemas.wire.avro_schema import KEY_CHANGE

_FLAGS = framing.HEADER_SIZE + 6
_WRITES = (framing.WRITE_ROWS_V1, framing.WRITE_ROWS)
_UPDATES = (framing.UPDATE_ROWS_V1, framing.UPDATE_ROWS)
_V1 = (framing.WRITE_ROWS_V1, framing.UPDATE_ROWS_V1, framing.DELETE_ROWS_V1)
_INSERTED, _UPDATED, _DELETED = range(3)


@compiled
def column_of_counts(kind: Int) -> Int:
    """Where the rows of this kind of event are counted."""
    return _UPDATED if kind in _UPDATES else _INSERTED if kind in _WRITES else _DELETED


@compiled
def _image(
    b: Bytes,
    p: Int,
    stop: Int,
    table: Numbers,
    tables: Tables,
    out: Output,
    target: Bytes,
    o: Int,
    begins: Numbers,
) -> tuple[Int, Int]:
    """Write a row image, and note in ``begins`` where its columns begin; returns both offsets, like ``value``."""
    count, first, nulls = table[COLUMNS], table[COLUMNS_AT], p
    p += (count + 7) // 8
    if p > stop:
        return np.int64(NOT_PLAIN), o
    for k in range(count):
        begins[k] = o
        column = tables.columns[first + k]
        if b[nulls + k // 8] >> (k % 8) & 1:
            if not column[NULLABLE]:
                return np.int64(NOT_PLAIN), o
            target[o] = 0
            o += 1
            continue
        if column[KIND] == JSON:
            p, o = json_value(b, p, stop, column, tables, out.stack, target, o)
        else:
            p, o = value(b, p, stop, column, tables, out.words, target, o)
        if p < 0:
            return p, o
    begins[count] = o
    return p, o


@compiled
def _key(table: Numbers, tables: Tables, image: Bytes, begins: Numbers, keys: Bytes, o: Int) -> Int:
    """Write a row's key from its image; returns where the next byte goes."""
    o = copied(tables.texts, table[NAME_AT], table[NAME_SIZE], keys, o)
    for k in range(table[KEY_AT], table[KEY_AT] + table[KEY_SIZE]):
        begin, end = begins[tables.keys[k]], begins[tables.keys[k] + 1]
        o = copied(image, begin, end - begin, keys, o)
    return o


@compiled
def _is_same_key(table: Numbers, tables: Tables, out: Output) -> Bool:
    for k in range(table[KEY_AT], table[KEY_AT] + table[KEY_SIZE]):
        number = tables.keys[k]
        before, after = out.columns_before[number], out.columns_after[number]
        size = out.columns_before[number + 1] - before
        if out.columns_after[number + 1] - after != size or not equal(
            out.before, before, out.values, after, size
        ):
            return False
    return True


@compiled
def _tail(block: Block, i: Int, flags: Int, table: Numbers, tables: Tables, out: Output) -> Int:
    """Write what is behind the row's number in all values of the event at ``b[i]``; returns its size."""
    asked, at = block.asked, block.asked[EPOCH_SIZE]
    o = copied(block.varying, 0, at, out.tail, 0)
    o = varint(out.tail, o, np.uint64(flags << 1))
    o = copied(tables.texts, table[NAME_AT], table[NAME_SIZE], out.tail, o)
    o = copied(out.gtid, 0, asked[GTID_SIZE], out.tail, o)
    o = copied(block.varying, at, asked[FILE_SIZE], out.tail, o)
    o = varint(out.tail, o, np.uint64(asked[BASE] + i << 1))
    o = varint(out.tail, o, np.uint64(asked[COMMITTED] << 1))
    return copied(block.varying, at + asked[FILE_SIZE], asked[PUBLISHED_SIZE], out.tail, o)


@compiled
def _end_row(out: Output, o: Int, key_end: Int, seq: Int, tail_size: Int, row: Int) -> Int:
    """Write the end of a row's value; returns where the next one begins."""
    o = copied(out.tail, 0, tail_size, out.values, varint(out.values, o, np.uint64(seq << 1)))
    out.key_ends[row], out.value_ends[row] = key_end, o
    return o


@compiled
def _has_all_columns(b: Bytes, p: Int, count: Int) -> Bool:
    for k in range(count // 8):
        if b[p + k] != 255:
            return False
    rest = (1 << count % 8) - 1
    return b[p + count // 8] & rest == rest if rest else True


@compiled
def _first_image(b: Bytes, i: Int, stop: Int, kind: Int, count: Int) -> Int:
    """Where the first row image of the event at ``b[i]`` begins; negative if its images lack columns."""
    p, images = i + _FLAGS + 2, 2 if kind in _UPDATES else 1
    bitmap = (count + 7) // 8
    if p + 5 + images * bitmap > stop:
        return np.int64(NOT_PLAIN)
    if kind not in _V1:
        if b[p] != 2 or b[p + 1]:
            return np.int64(NOT_PLAIN)
        p += 2
    width = np.int64(b[p])
    p += 1
    if width == 252:
        width = np.int64(b[p]) | np.int64(b[p + 1]) << 8
        p += 2
    elif width > 250:
        return np.int64(NOT_PLAIN)
    if width != count or p + images * bitmap > stop:
        return np.int64(NOT_PLAIN)
    for k in range(images):
        if not _has_all_columns(b, p + k * bitmap, count):
            return np.int64(NOT_PLAIN)
    return p + images * bitmap


@compiled
def rows_event(
    block: Block, i: Int, stop: Int, number: Int, tables: Tables, out: Output, rows: Int, moves: Int
) -> tuple[Int, Int]:
    """Decode the rows event at ``b[i]``, behind so many rows and moves.

    Args:
        stop: where its checksum begins.
        number: of its table.

    Returns:
        the numbers of rows and moves behind it; a negative one if it is not plain or there is no room.
    """
    b, kind, table = block.b, block.b[i + 4], tables.tables[number]
    fault = np.int64(NOT_PLAIN), moves
    if table[COLUMNS] < 0:
        return fault
    p = _first_image(b, i, stop, kind, table[COLUMNS])
    if p < 0:
        return fault
    flags = np.int64(b[i + _FLAGS]) | np.int64(b[i + _FLAGS + 1]) << 8
    tail_size = _tail(block, i, flags, table, tables, out)
    key_at = out.key_ends[rows - 1] if rows else np.int64(0)
    o = out.value_ends[rows - 1] if rows else np.int64(0)
    is_update, is_write = kind in _UPDATES, kind in _WRITES
    op = table[UPDATE] if is_update else table[CREATE] if is_write else table[DELETE]
    op_size = table[OP_SIZE] if is_update or is_write else table[OP_SIZE] + 1
    while p < stop:
        most = 2 * (table[ROOM] + tail_size + table[GROWTH] * (stop - p))
        if (
            rows + 2 > len(out.value_ends)
            or moves >= len(out.moves)
            or o + most > len(out.values)
            or key_at + most > len(out.keys)
            or most > len(out.before)
        ):
            return np.int64(TOO_LARGE), moves
        seq, begin, size = block.asked[FIRST_SEQ] + rows, o, np.int64(0)
        if is_update:
            p, size = _image(b, p, stop, table, tables, out, out.before, size, out.columns_before)
            if p < 0:
                return fault
        o = copied(tables.texts, op, op_size, out.values, o)
        p, o = _image(b, p, stop, table, tables, out, out.values, o, out.columns_after)
        if p < 0:
            return fault
        if is_update and not _is_same_key(table, tables, out):
            _move(block, i, flags, number, tables, out, begin + op_size, o, size, key_at, rows)
            out.moves[moves] = rows
            moves += 1
            rows += 2
            key_at, o = out.key_ends[rows - 1], out.value_ends[rows - 1]
            _tail(block, i, flags, table, tables, out)
            continue
        key_at = _key(table, tables, out.values, out.columns_after, out.keys, key_at)
        if is_update:
            out.values[o] = 2
            o = copied(out.before, 0, size, out.values, o + 1)
        elif is_write:
            out.values[o] = 0
            o += 1
        o = _end_row(out, o, key_at, seq, tail_size, rows)
        rows += 1
    return (rows, moves) if p == stop else fault


@compiled
def _move(
    block: Block, i: Int, flags: Int, number: Int, tables: Tables, out: Output, after_at: Int, after_end: Int,
    before_size: Int, key_at: Int, row: Int,
) -> None:  # fmt: skip
    """Write delete and create for a change of the key; what is behind makes room for what was before."""
    table, seq = tables.tables[number], block.asked[FIRST_SEQ] + row
    o, after_size = out.value_ends[row - 1] if row else np.int64(0), after_end - after_at
    old_end = _key(table, tables, out.before, out.columns_before, out.keys, key_at)
    new_end = _key(table, tables, out.values, out.columns_after, out.keys, old_end)
    copied(out.values, after_at, after_size, out.before, before_size)
    tail_size = _tail(block, i, flags | KEY_CHANGE, table, tables, out)
    o = copied(tables.texts, table[DELETE], table[OP_SIZE] + 1, out.values, o)
    o = _end_row(out, copied(out.before, 0, before_size, out.values, o), old_end, seq, tail_size, row)
    o = copied(tables.texts, table[CREATE], table[OP_SIZE], out.values, o)
    o = copied(out.before, before_size, after_size, out.values, o)
    out.values[o] = 0
    _end_row(out, o + 1, new_end, seq + 1, tail_size, row + 1)
