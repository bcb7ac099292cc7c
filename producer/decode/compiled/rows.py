"""A rows event to the keys and values of its rows: compiled."""

from __future__ import annotations

import numpy as np

from producer.decode.compiled.arrays import (
    BASE,
    BEFORE,
    BEFORE_AT,
    COLUMNS,
    COLUMNS_AT,
    COMMITTED,
    CREATE,
    DELETE,
    DOCUMENT,
    DOCUMENTS,
    EPOCH_SIZE,
    EVENT,
    FILE_SIZE,
    FIRST_SEQ,
    GROWTH,
    GTID_SIZE,
    IMAGES_AT,
    IMAGES_SIZE,
    IN_BEFORE,
    IS_COPIED,
    JSON,
    KEY_AT,
    KEY_BEFORE_AT,
    KEY_SIZE,
    KIND,
    LOGGED,
    NAME_AT,
    NAME_SIZE,
    NEXT,
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
from producer.decode.compiled.json_diff import diffed_value
from producer.decode.compiled.json_text import document_at, json_value
from producer.decode.compiled.values import value, varint
from schemas.binlog import framing
from schemas.compiled.jit import compiled
from schemas.compiled.memory import copied, equal
from schemas.compiled.types import Bool, Bytes, Int, Numbers
from schemas.wire.avro_schema import KEY_CHANGE

_FLAGS = framing.HEADER_SIZE + 6
_WRITES = (framing.WRITE_ROWS_V1, framing.WRITE_ROWS)
_PARTIAL = framing.PARTIAL_UPDATE_ROWS
_UPDATES = (framing.UPDATE_ROWS_V1, framing.UPDATE_ROWS, _PARTIAL)
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
    first: Int,
    count: Int,
    logged: Int,
    tables: Tables,
    out: Output,
    target: Bytes,
    o: Int,
    begins: Numbers,
    diffs: Int,
) -> tuple[Int, Int]:
    """Write a row image, and note in ``begins`` where its columns begin; returns both offsets, like ``value``.

    Args:
        first: its first column, which so many follow.
        logged: how many of them the event has; the others are as they are in ``out.before``.
        diffs: where the bits are that say which documents come as diffs; 0: none do; -1: it is a before image of
            such ones.
    """
    nulls, read = p, np.int64(0)
    p += (logged + 7) // 8
    if p > stop:
        return np.int64(NOT_PLAIN), o
    for k in range(count):
        begins[k] = o
        column = tables.columns[first + k]
        old = column[IN_BEFORE]
        if column[IS_COPIED]:
            begin = out.columns_before[old]
            o = copied(out.before, begin, out.columns_before[old + 1] - begin, target, o)
            continue
        is_null = b[nulls + read // 8] >> (read % 8) & 1
        read += 1
        if is_null:
            if not column[NULLABLE]:
                return np.int64(NOT_PLAIN), o
            if diffs < 0:
                out.documents[k, 0] = -1
            target[o] = 0
            o += 1
            continue
        if diffs < 0 and column[KIND] == JSON:
            out.documents[k, 0], out.documents[k, 1] = document_at(b, p, stop, column)
        if (
            diffs > 0
            and column[KIND] == JSON
            and b[diffs + column[DOCUMENT] // 8] >> (column[DOCUMENT] % 8) & 1
        ):
            if old < 0 or out.documents[old, 0] < 0:
                return np.int64(NOT_PLAIN), o
            p, o = diffed_value(
                b, out.documents[old, 0], out.documents[old, 1], p, stop, column, tables, out.stack, out.nodes,
                target, o,
            )  # fmt: skip
        elif column[KIND] == JSON:
            p, o = json_value(b, p, stop, column, tables, out.stack, target, o)
        else:
            p, o = value(b, p, stop, column, tables, out.words, target, o)
        if p < 0:
            return p, o
    begins[count] = o
    return p, o


@compiled
def _key(
    table: Numbers, numbers: Int, tables: Tables, image: Bytes, begins: Numbers, keys: Bytes, o: Int
) -> Int:
    """Write a row's key from an image whose numbers of its columns are there; returns where the next byte goes."""
    o = copied(tables.texts, table[NAME_AT], table[NAME_SIZE], keys, o)
    for k in range(numbers, numbers + table[KEY_SIZE]):
        begin, end = begins[tables.keys[k]], begins[tables.keys[k] + 1]
        o = copied(image, begin, end - begin, keys, o)
    return o


@compiled
def _is_same_key(table: Numbers, tables: Tables, out: Output) -> Bool:
    for k in range(table[KEY_SIZE]):
        old, new = tables.keys[table[KEY_BEFORE_AT] + k], tables.keys[table[KEY_AT] + k]
        before, after = out.columns_before[old], out.columns_after[new]
        size = out.columns_before[old + 1] - before
        if out.columns_after[new + 1] - after != size or not equal(
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
def _form(b: Bytes, i: Int, stop: Int, number: Int, tables: Tables) -> tuple[Int, Int]:
    """The table or its variant that the event at ``b[i]`` is of, and where its first image begins.

    The former is negative if nobody has met such an event.
    """
    table, kind, p = tables.tables[number], b[i + 4], i + _FLAGS + 2
    count, images = table[COLUMNS], 2 if kind in _UPDATES else 1
    fault = np.int64(NOT_PLAIN), p
    bitmap = (count + 7) // 8
    if p + 5 + images * bitmap > stop:
        return fault
    if kind not in _V1:
        # What a server adds, such as the number of the row's partition, counts its own size.
        extra = np.int64(b[p]) | np.int64(b[p + 1]) << 8
        if extra < 2 or p + extra + 3 + images * bitmap > stop:
            return fault
        p += extra
    width = np.int64(b[p])
    p += 1
    if width == 252:
        width = np.int64(b[p]) | np.int64(b[p + 1]) << 8
        p += 2
    elif width > 250:
        return fault
    size = images * bitmap
    if width != count or p + size > stop:
        return fault
    if _has_all_columns(b, p, count) and (images == 1 or _has_all_columns(b, p + bitmap, count)):
        return number, p + size
    number = table[NEXT]
    while number >= 0:
        variant = tables.tables[number]
        if (
            variant[EVENT] == kind
            and variant[IMAGES_SIZE] == size
            and equal(b, p, tables.texts, variant[IMAGES_AT], size)
        ):
            return number, p + size
        number = variant[NEXT]
    return fault


@compiled
def _diffs_at(b: Bytes, p: Int, stop: Int, documents: Int) -> tuple[Int, Int]:
    """Read what is before an after image of PARTIAL_UPDATE_ROWS: where its bits are, as ``_image``; where it begins.

    The latter is negative if it is not plain.
    """
    if p >= stop or b[p] > 1:
        return np.int64(0), np.int64(NOT_PLAIN)
    if not b[p]:
        return np.int64(0), p + 1
    behind = p + 1 + (documents + 7) // 8
    return p + 1, behind if behind <= stop else np.int64(NOT_PLAIN)


@compiled
def rows_event(
    block: Block, i: Int, stop: Int, number: Int, tables: Tables, out: Output, rows: Int, moves: Int
) -> tuple[Int, Int, Int]:
    """Decode the rows event at ``b[i]``, behind so many rows and moves.

    Args:
        stop: where its checksum begins.
        number: of its table.

    Returns:
        the numbers of rows and moves behind it, and of its table or variant; a negative one first if it is not plain
        or there is no room.
    """
    b, kind = block.b, block.b[i + 4]
    fault = np.int64(NOT_PLAIN), moves, number
    if tables.tables[number, COLUMNS] < 0:
        return fault
    form, p = _form(b, i, stop, number, tables)
    if form < 0:
        return fault
    table = tables.tables[form]
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
            return np.int64(TOO_LARGE), moves, form
        seq, begin, size = block.asked[FIRST_SEQ] + rows, o, np.int64(0)
        if is_update:
            at, count = table[BEFORE_AT], table[BEFORE]
            diffs = np.int64(-1) if kind == _PARTIAL else np.int64(0)
            p, size = _image(
                b, p, stop, at, count, count, tables, out, out.before, size, out.columns_before, diffs
            )
            if p < 0:
                return fault
        diffs = np.int64(0)
        if kind == _PARTIAL:
            diffs, p = _diffs_at(b, p, stop, table[DOCUMENTS])
            if p < 0:
                return fault
        o = copied(tables.texts, op, op_size, out.values, o)
        at, count = table[COLUMNS_AT], table[COLUMNS]
        p, o = _image(
            b, p, stop, at, count, table[LOGGED], tables, out, out.values, o, out.columns_after, diffs
        )
        if p < 0:
            return fault
        if is_update and not _is_same_key(table, tables, out):
            _move(block, i, flags, form, tables, out, begin + op_size, o, size, key_at, rows)
            out.moves[moves] = rows
            moves += 1
            rows += 2
            key_at, o = out.key_ends[rows - 1], out.value_ends[rows - 1]
            _tail(block, i, flags, table, tables, out)
            continue
        key_at = _key(table, table[KEY_AT], tables, out.values, out.columns_after, out.keys, key_at)
        if is_update:
            out.values[o] = 2
            o = copied(out.before, 0, size, out.values, o + 1)
        elif is_write:
            out.values[o] = 0
            o += 1
        o = _end_row(out, o, key_at, seq, tail_size, rows)
        rows += 1
    return (rows, moves, form) if p == stop else fault


@compiled
def _move(
    block: Block, i: Int, flags: Int, number: Int, tables: Tables, out: Output, after_at: Int, after_end: Int,
    before_size: Int, key_at: Int, row: Int,
) -> None:  # fmt: skip
    """Write delete and create for a change of the key; what is behind makes room for what was before."""
    table, seq = tables.tables[number], block.asked[FIRST_SEQ] + row
    o, after_size = out.value_ends[row - 1] if row else np.int64(0), after_end - after_at
    old_end = _key(table, table[KEY_BEFORE_AT], tables, out.before, out.columns_before, out.keys, key_at)
    new_end = _key(table, table[KEY_AT], tables, out.values, out.columns_after, out.keys, old_end)
    copied(out.values, after_at, after_size, out.before, before_size)
    tail_size = _tail(block, i, flags | KEY_CHANGE, table, tables, out)
    o = copied(tables.texts, table[DELETE], table[OP_SIZE] + 1, out.values, o)
    o = _end_row(out, copied(out.before, 0, before_size, out.values, o), old_end, seq, tail_size, row)
    o = copied(tables.texts, table[CREATE], table[OP_SIZE], out.values, o)
    o = copied(out.before, before_size, after_size, out.values, o)
    out.values[o] = 0
    _end_row(out, o + 1, new_end, seq + 1, tail_size, row + 1)
